"""Airflow's REST API for tests: it may take its time, since a busy machine must turn no test red."""

from __future__ import annotations

from streamplan.local.airflow import USER
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.stack import Stack

ANSWER_SECONDS = 420.0


def patient_rest(stack: Stack) -> AirflowRest:
    """A client that waits longer for an answer than the product's own."""
    return AirflowRest(stack.airflow.url, USER, stack.airflow.password, timeout_seconds=ANSWER_SECONDS)
