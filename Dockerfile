# One image for Airflow and Spark: drivers and executors then have the same Python, packages and Java.
FROM python:3.12.12-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

# The volumes take their owner from these directories when they are first mounted.
RUN useradd --uid 50000 --create-home streamplan \
    && install --directory --owner=streamplan --group=streamplan \
        /opt/airflow /var/lib/streamplan /var/lib/streamplan/checkpoints

WORKDIR /opt/streamplan

COPY requirements.txt ./
RUN pip install --no-cache-dir --requirement requirements.txt

COPY plugins/ plugins/
ENV PYTHONPATH=/opt/streamplan/plugins
# What Spark needs for Kafka and for checkpoints. Behind a mirror: docker compose build --build-arg STREAMPLAN_MAVEN=https://…
ARG STREAMPLAN_MAVEN
RUN export STREAMPLAN_CACHE=/tmp/cache STREAMPLAN_HOME=/tmp/cache \
    && python -m streamplan.local.jars spark \
    && mv /tmp/cache/jars/spark-* jars \
    && rm -rf /tmp/cache

COPY dags/ dags/
COPY jobs/ jobs/
# A clone that was made with umask 077 is readable to its owner alone, and COPY keeps that. (COPY --chmod needs BuildKit.)
RUN chmod -R a+rX dags jobs plugins requirements.txt

ENV STREAMPLAN_JARS=/opt/streamplan/jars \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/streamplan/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/streamplan/plugins \
    SCARF_ANALYTICS=false \
    DO_NOT_TRACK=1 \
    GX_ANALYTICS_ENABLED=False

USER streamplan
# Where processes may write: what Spark leaves in its working directory must not end a job.
WORKDIR /opt/airflow
