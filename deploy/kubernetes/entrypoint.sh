#!/bin/bash
# Spark starts its pods with the word `driver` or `executor`, and Airflow's chart with a program.
set -euo pipefail

case "${1:-}" in
  driver)
    shift
    exec spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
  executor)
    # Spark gives the options of the executor's JVM as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …
    options=()
    for ((number = 0; ; number++)); do
      name="SPARK_JAVA_OPT_$number"
      [[ -v $name ]] || break
      options+=("${!name}")
    done
    home=${SPARK_HOME:-$(python -c 'from streamplan.spark.submit import pyspark_home; print(pyspark_home())')}
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$home/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$@"
    ;;
esac
