"""The checks. A new one is a file beside this one and a line in ``CHECKS``."""

from __future__ import annotations

from streamplan.checks import compaction, copartitioning, lag, names, repartition, skew, topics, totals
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check
from streamplan.errors import Refused
from streamplan.model.topics import TopicRole

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
    """The check of that name, or :class:`Refused` listing those there are."""
    for check in CHECKS:
        if check.name == name:
            return check
    raise Refused(f"check {name!r}", expected=" or ".join(check.name for check in CHECKS))


def left_out(application: Application) -> dict[str, str]:
    """By name the checks that have no subject in the application, and why: at every look they would say so."""
    subjects = (
        (copartitioning.CHECK, application.keyed, "no repartition topic, changelog or join"),
        (repartition.CHECK, application.with_role(TopicRole.REPARTITION), "no repartition topic"),
        (compaction.CHECK, [*filter(compaction.is_judged, application.topics)], "no changelog or table"),
        (totals.CHECK, application.aggregations, "no count that can be recounted without an engine"),
    )
    return {check.name: f"there is {none}" for check, found, none in subjects if not found}


def checks_of(application: Application) -> tuple[Check, ...]:
    """Those with a subject. The totals of a declared pipeline have one always: Spark can compute any of them anew."""
    without = left_out(application).keys() - ({totals.CHECK.name} if application.declared else set())
    return tuple(check for check in CHECKS if check.name not in without)
