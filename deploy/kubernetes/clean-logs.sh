#!/bin/bash
# Deletes old logs of tasks. Airflow's chart runs it as /clean-logs beside the components that write logs.
set -euo pipefail

minutes=$((${AIRFLOW__LOG_RETENTION_DAYS:-15} * 1440 + ${AIRFLOW__LOG_RETENTION_MINUTES:-0}))
while true; do
  find "$AIRFLOW_HOME/logs" -ignore_readdir_race -type f -name '*.log' -mmin "+$minutes" -delete
  find "$AIRFLOW_HOME/logs" -ignore_readdir_race -mindepth 1 -type d -empty -mmin "+$minutes" -delete
  sleep "${AIRFLOW__LOG_CLEANUP_FREQUENCY_MINUTES:-15}m"
done
