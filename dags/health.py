"""Checks each declared pipeline on a schedule, and tells people when the outcome of a check changes."""

from __future__ import annotations

from streamplan.airflow.dags import health_dag
from streamplan.registry import registered_pipelines

NOTIFIERS = ()
"""Airflow's notifiers, for example

    SlackWebhookNotifier(text="{{ check.pipeline }}: {{ check.check }} {{ check.outcome }}: {{ check.reason }}")

of ``airflow.providers.slack.notifications.slack_webhook``. Each is told once per change of state, not once per run.
"""

for pipeline in registered_pipelines():
    globals()[f"{pipeline.name}_health"] = health_dag(pipeline, NOTIFIERS)
