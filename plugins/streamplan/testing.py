"""For users' tests: an application is well, or the test fails with every wrong row.

Start the application and give it records; then, in pytest::

    from streamplan.testing import assert_healthy

    def test_topics_are_right(brokers):
        assert_healthy(brokers, "my-app", topology=Path("my-app.txt").read_text())

``CouldNotLook`` is no failed assertion: Kafka does not answer, there is no such application, or there is nothing to
look at yet. The test itself has to wait until there is something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamplan.checks import CHECKS, check_named, not_applicable
from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import CheckResult, Outcome, run_check, sentence
from streamplan.errors import BrokersUnavailable, CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import require_reachable
from streamplan.model.pipeline import Pipeline


def assert_healthy(
    brokers: Brokers | str, application: str | Pipeline, *, checks: Sequence[str] = (), **more: Any
) -> list[CheckResult]:
    """Look once, with all checks that the application has a subject for, or those of these names.

    ``brokers``      the brokers, or their addresses as in ``bootstrap.servers``
    ``application``  an application id, or a declared pipeline
    ``more``         of an application id what ``checks.discovery.discover`` takes: sources, topology, counts, ...

    Raises ``AssertionError``; or :class:`CouldNotLook` when nothing is wrong and a check could not look. Returns what
    was seen.
    """
    if more and isinstance(application, Pipeline):
        raise TypeError(f"{', '.join(more)}: a pipeline declares that itself")
    brokers = Brokers(brokers) if isinstance(brokers, str) else brokers
    cluster = KafkaCluster(brokers)
    try:
        require_reachable(brokers)
        if isinstance(application, Pipeline):
            subject = application_of(application)
        else:
            subject = discover(cluster, application, **more)
    except BrokersUnavailable as error:
        raise CouldNotLook(
            error.subject, expected=error.expected, observed=error.observed, remedy=error.remedy
        ) from error
    inapplicable = not_applicable(subject)
    chosen = [check_named(name) for name in checks] or [check for check in CHECKS if check.name not in inapplicable]
    results = [run_check(subject, check, cluster) for check in chosen]
    wrong = [
        f"{result.check}: {line}"
        for result in results
        if result.outcome is Outcome.FAILED
        for line in [sentence(row) for row in result.observations if not row.agrees] or [result.reason]
    ]
    if wrong:
        raise AssertionError("\n".join([f"{subject.name} is not healthy:", *wrong]))
    if unseen := [f"{result.check}: {result.reason}" for result in results if result.outcome is Outcome.COULD_NOT_LOOK]:
        raise CouldNotLook("\n".join([f"{subject.name} could not be looked at:", *unseen]))
    return results
