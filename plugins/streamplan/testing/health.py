"""An application is well, or the test fails with every wrong row.

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
from streamplan.checks.framework.application import application_in
from streamplan.checks.framework.check import CheckResult, Outcome, run_checks, sentence
from streamplan.errors import BrokersUnavailable, CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import require_reachable
from streamplan.model.pipeline import Pipeline


def assert_healthy(
    brokers: Brokers | str, application: str | Pipeline, *, checks: Sequence[str] = (), **more: Any
) -> list[CheckResult]:
    """Run checks once, and fail where an application is not healthy.

    Args:
        brokers: The brokers, or their addresses as in ``bootstrap.servers``.
        application: An application id, or a declared pipeline.
        checks: The names of the checks to run; by default all checks that apply to the application.
        more: For an application id, what :func:`streamplan.checks.discovery.discover.discover` takes besides: sources,
            topology, counts and so on.

    Returns:
        The result of each check.

    Raises:
        AssertionError: A check failed; the message has every wrong row.
        CouldNotLook: No check failed, and one could not look.
        TypeError: A declared pipeline needs no further arguments.
    """
    if more and isinstance(application, Pipeline):
        raise TypeError(f"leave out {', '.join(more)}: a declared pipeline has these settings in its declaration")
    brokers = Brokers(brokers) if isinstance(brokers, str) else brokers
    cluster = KafkaCluster(brokers)
    try:
        require_reachable(brokers)
        if isinstance(application, Pipeline):
            subject = application_in(application, cluster)
        else:
            subject = discover(cluster, application, **more)
    except BrokersUnavailable as error:
        raise CouldNotLook(
            error.subject, expected=error.expected, observed=error.observed, remedy=error.remedy
        ) from error
    inapplicable = not_applicable(subject)
    chosen = [check_named(name) for name in checks] or [check for check in CHECKS if check.name not in inapplicable]
    results = run_checks(subject, chosen, lambda: KafkaCluster(brokers))
    wrong = [
        f"{result.check}: {line}"
        for result in results
        if result.outcome is Outcome.FAILED
        for line in [
            *([sentence(row) for row in result.observations if not row.agrees] or [result.reason]),
            *(f"next: {advice}" for advice in result.advice),
        ]
    ]
    if wrong:
        raise AssertionError("\n".join([f"{subject.name} is not healthy:", *wrong]))
    if unseen := [f"{result.check}: {result.reason}" for result in results if result.outcome is Outcome.COULD_NOT_LOOK]:
        raise CouldNotLook("\n".join([f"{subject.name} could not be looked at:", *unseen]))
    return results
