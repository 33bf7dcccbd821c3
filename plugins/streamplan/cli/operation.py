"""How the commands that change what a pipeline has in Kafka run: look, show, ask, and do what was approved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from streamplan.cli.confirmation import is_confirmed
from streamplan.cli.output import plain_console
from streamplan.maintenance.operation import Operation
from streamplan.programs import ExitStatus
from streamplan.settings import Settings


def run_operation(
    operation: Operation, *, action: str, purpose: str, unchanged: str, agreed: bool, dry_run: bool = False
) -> ExitStatus:
    """Run an operation.

    Args:
        action: What is done to the application, as ``the reset``.
        purpose: What a person types the application id for, as ``delete this``.
        unchanged: A sentence that says what was not done, as ``Nothing was deleted.``
        agreed: Whether nobody is asked.
        dry_run: Whether the plan is shown alone.
    """
    console = plain_console()
    plan = operation.observe()
    console.print(plan.text.replace("`", ""))
    if plan.empty or dry_run:
        return ExitStatus.DONE
    if not agreed and not is_confirmed(action, plan.application_id, purpose=purpose, unchanged=unchanged):
        console.print(unchanged)
        return ExitStatus.REFUSED
    operation.apply(plan.written())
    return ExitStatus.DONE


def active_in_airflow(settings: Settings) -> Callable[[str], bool]:
    """Return the function that says whether a DAG has an active run in the Airflow of this machine."""

    def is_active(dag_id: str) -> bool:
        from streamplan.local.stack import Stack

        airflow = Stack(settings).airflow
        if not airflow.running():
            return False
        with closing(airflow.rest()) as rest:
            known = rest.dag(dag_id) is not None
            return known and any(run["state"] in ("queued", "running") for run in rest.runs(dag_id))

    return is_active
