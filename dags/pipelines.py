"""The DAGs of every registered pipeline."""

from __future__ import annotations

from streamplan.airflow import declare_dags
from streamplan.registry import registered_pipelines

NOTIFIERS = ()
"""Airflow's notifiers, for example

    SlackWebhookNotifier(text="{{ check.pipeline }}: {{ check.check }} {{ check.outcome }}: {{ check.reason }}")

of ``airflow.providers.slack.notifications.slack_webhook``. Each is told once per change of state, not once per run.
"""

for pipeline in registered_pipelines():
    globals().update(declare_dags(pipeline, notifiers=NOTIFIERS))
