"""What a check is, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.cluster import Cluster
from streamplan.errors import BrokersUnavailable, CouldNotLook
from streamplan.model.topics import ObservedTopic


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_LOOK = "could not look"


@dataclass(frozen=True)
class Observation:
    """One row: healthy means that ``observed`` equals ``expected``.

    ``where``  of a wrong row, where to look: ``"since orders-0 offset 120 and orders-1 offset 98"``
    """

    subject: str
    expected: str | int
    observed: str | int
    where: str = field(default="", compare=False)

    @property
    def agrees(self) -> bool:
        return self.expected == self.observed


@dataclass(frozen=True)
class Check:
    """One question asked of a running application.

    ``name``     the task id in Airflow and the file name of its results
    ``healthy``  what healthy means, as shown to people
    ``observe``  reads, never writes; no rows at all is a failure; raises :class:`CouldNotLook`
    ``every_minutes``  how long it is left alone on a schedule once it has passed: for those that read much
    """

    name: str
    title: str
    healthy: str
    observe: Callable[[Application, Cluster], Iterable[Observation]]
    every_minutes: int = 0


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one run of a check. ``at`` is ISO 8601 in UTC, ``reason`` one line.

    ``pipeline``  the name of the application
    """

    pipeline: str
    check: str
    outcome: Outcome
    reason: str
    at: str
    observations: tuple[Observation, ...]
    data_docs: str | None = None


def look(application: Application, check: Check, cluster: Cluster) -> CheckResult:
    """Run a check. What it finds, and that it could not look, stands in the result and is not raised."""
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    observations: tuple[Observation, ...] = ()
    try:
        observations = tuple(check.observe(application, cluster))
        healthy = bool(observations) and all(row.agrees for row in observations)
        outcome, reason = Outcome.PASSED if healthy else Outcome.FAILED, explain(observations)
    except (BrokersUnavailable, CouldNotLook) as error:
        outcome, reason = Outcome.COULD_NOT_LOOK, " ".join(str(error).split())
    return CheckResult(application.name, check.name, outcome, reason, at, observations)


def existing(cluster: Cluster, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
    """The topics of these names. Raises :class:`CouldNotLook` where one is missing: the check `topics` finds that."""
    found = cluster.topics(names)
    if missing := [name for name in names if name not in found]:
        raise CouldNotLook(
            f"topic {', '.join(missing)}",
            expected="exists",
            observed="missing",
            remedy="The check `topics` is about that.",
        )
    return found


def limit(subject: str, value: float, most: float, unit: str = "") -> Observation:
    """A row about a number that must not be greater than ``most``; it stands in the subject."""
    allowed, shown = f"at most {_figure(most)}{unit}", f"{_figure(value)}{unit}"
    return Observation(f"{subject}: {shown}", allowed, allowed if value <= most else shown)


def at_least(subject: str, value: int, least: int, unit: str = "") -> Observation:
    """A row about a number that must not be less than ``least``; it stands in the subject."""
    allowed, shown = f"at least {_figure(least)}{unit}", f"{_figure(value)}{unit}"
    return Observation(f"{subject}: {shown}", allowed, allowed if value >= least else shown)


def _figure(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def explain(observations: Sequence[Observation]) -> str:
    """One line: how many rows agree, or how many are wrong and the first of them."""
    if not observations:
        return "nothing to look at: the check found no rows"
    wrong = [row for row in observations if not row.agrees]
    if not wrong:
        return f"{len(observations)} of {len(observations)} as expected"
    return f"{len(wrong)} of {len(observations)} wrong: {sentence(wrong[0])}"


def sentence(row: Observation) -> str:
    """A wrong row in words."""
    difference = ""
    if isinstance(row.expected, int) and isinstance(row.observed, int) and row.expected:
        amount = row.observed - row.expected
        difference = f", {abs(amount):,} too {'many' if amount > 0 else 'few'}"
    where = f" ({row.where})" if row.where else ""
    return f"{row.subject}: expected {row.expected}, observed {row.observed}{difference}{where}"
