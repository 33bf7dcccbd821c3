"""The plan of a changed declaration: what becomes of everything that the application has, before anything happens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What becomes of a part of an application at the next deployment and start.

    ``KEPT``: it goes on as it is. ``REBUILT``: its state is read again from its changelog. ``NEW``: it begins without
    state. ``CREATED``: the topic is created. ``ORPHANED``: it stays, and nothing reads or writes it any more.
    ``UNKNOWN``: it cannot be known from here. ``BESIDE``: an upgrade builds it beside another application, and no
    aggregator of it starts before. ``REFUSED``: the deployment or the start is refused, or must be.
    """

    KEPT = "kept"
    REBUILT = "rebuilt"
    NEW = "new"
    CREATED = "created"
    ORPHANED = "orphaned"
    UNKNOWN = "not known"
    BESIDE = "beside"
    REFUSED = "refused"


class Part(StrEnum):
    """The kinds of parts of an application, in the order in which a plan shows them."""

    APPLICATION = "application"
    SUBTOPOLOGY = "sub-topology"
    STORE = "store"
    TOPIC = "topic"


@dataclass(frozen=True)
class Change:
    """What becomes of one part.

    Attributes:
        part: The kind of the part.
        name: Its name; of a sub-topology the number.
        verdict: What becomes of it.
        reason: Why, as one sentence or more without the last full stop.
        remedy: What to do where that is not wanted, as sentences; empty where there is nothing to do.
    """

    part: Part
    name: str
    verdict: Verdict
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class EvolutionPlan:
    """What becomes of an application when a declaration is deployed and its aggregator started.

    Attributes:
        pipeline: The name of the pipeline.
        application_id: The application id.
        changes: What becomes of each part.
        warnings: The stores and repartition topics without names of their own.
        notes: What else a person should know.
    """

    pipeline: str
    application_id: str
    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> Sequence[Change]:
        """What stands against the deployment or the start."""
        return [change for change in self.changes if change.verdict is Verdict.REFUSED]

    def lines(self) -> Iterable[str]:
        """Return the plan for people, as plain lines."""
        yield f"{self.pipeline}  application {self.application_id}: what the next deployment and start would do"
        verdict_width = max((len(change.verdict) for change in self.changes), default=0)
        told = set[str]()
        for part in Part:
            for change in [change for change in self.changes if change.part is part]:
                yield f"  {change.verdict:<{verdict_width}}  {part} {change.name}"
                yield f"  {'':<{verdict_width}}    {change.reason}."
                if change.remedy and change.remedy not in told:
                    told.add(change.remedy)
                    yield f"  {'':<{verdict_width}}    {change.remedy}"
        yield from (f"Warning: {warning}." for warning in self.warnings)
        yield from (f"Note: {note}." for note in self.notes)
        counts = Counter(change.verdict for change in self.changes)
        listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        yield f"{'Something' if self.refused else 'Nothing'} is refused: {listed}. Nothing was changed."

    @property
    def text(self) -> str:
        """The plan for people, as plain lines."""
        return "\n".join(self.lines())

    def written(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it."""
        return {**asdict(self), "refused": bool(self.refused)}


_COLUMN = re.compile(r"AggregateColumn\(name='(\w+)', function='(\w+)', arguments=('[^']*'|\"[^\"]*\")\)")


def in_words(operations: str) -> str:
    """Shorten what identities of checkpoints say of operations."""
    shorter = _COLUMN.sub(lambda found: f"{found[1]}={found[2]}({found[3][1:-1]})", operations)
    return (
        re.sub(r"store='[^']*', (?=columns|window|by)", "", shorter)
        .replace(", window=None", "")
        .replace("window=None", "")
    )
