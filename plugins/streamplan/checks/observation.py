"""What a check is, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from streamplan.checks.port import Cluster, CouldNotLook, RecordsGone
from streamplan.pipeline import Pipeline

__all__ = ["Check", "CheckResult", "CouldNotLook", "Observation", "Outcome", "RecordsGone"]


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_LOOK = "could not look"


@dataclass(frozen=True)
class Observation:
    """One row: healthy means that ``observed`` equals ``expected``."""

    subject: str
    expected: str | int
    observed: str | int

    @property
    def agrees(self) -> bool:
        return self.expected == self.observed


@dataclass(frozen=True)
class Check:
    """One question asked of a running pipeline.

    ``name``     the task id in Airflow and the file name of its results
    ``healthy``  what healthy means, as shown to people
    ``observe``  reads, never writes; no rows at all is a failure; raises :class:`CouldNotLook`
    """

    name: str
    title: str
    healthy: str
    observe: Callable[[Pipeline, Cluster], Iterable[Observation]]


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one run of a check. ``at`` is ISO 8601 in UTC, ``reason`` one line."""

    pipeline: str
    check: str
    outcome: Outcome
    reason: str
    at: str
    observations: tuple[Observation, ...]
    data_docs: str | None = None
