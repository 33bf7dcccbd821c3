"""The DAGs of every registered pipeline. What is wrong with a broken one is shown by ``broken_pipelines.py``."""

from __future__ import annotations

from streamplan.airflow import declare_registered_dags

NOTIFIERS = ()
"""Airflow's notifiers, for example

    SlackWebhookNotifier(text="{{ check.pipeline }}: {{ check.check }} {{ check.outcome }}: {{ check.reason }}")

of ``airflow.providers.slack.notifications.slack_webhook``. Each is told once per change of state, not once per run.
"""

globals().update(declare_registered_dags(notifiers=NOTIFIERS))
