"""The health checks. A new check is one file in this folder and one line in ``CHECKS``."""

from __future__ import annotations

from streamplan.checks import compaction, copartitioning, lag, names, repartition, skew, topics, totals
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, NotApplicable, SparkJob
from streamplan.errors import Refused

CHECKS: tuple[Check, ...] = (
    copartitioning.CHECK,
    repartition.CHECK,
    compaction.CHECK,
    totals.CHECK,
    lag.CHECK,
    skew.CHECK,
    topics.CHECK,
    names.CHECK,
)


def check_named(name: str) -> Check:
    """Return the check of that name.

    Raises:
        Refused: There is no such check; the error lists the names.
    """
    for check in CHECKS:
        if check.name == name:
            return check
    raise Refused(f"check {name!r}", expected=" or ".join(check.name for check in CHECKS))


def not_applicable(application: Application) -> dict[str, NotApplicable]:
    """Return, by name, the checks that have nothing to look at in the application, and why."""
    answers = {check.name: check.applies_to(application) for check in CHECKS}
    return {name: answer for name, answer in answers.items() if answer is not None}


def scheduled_checks(application: Application) -> tuple[Check, ...]:
    """Return the checks that Airflow runs for a declared application.

    These are the checks that apply, and those that apply once Spark has computed the pipeline anew.
    """
    return tuple(
        check
        for check in CHECKS
        if check.applies_to(application) is None or SparkJob.RECOUNT in check.spark_jobs(application)
    )
