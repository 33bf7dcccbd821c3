"""How a query of an aggregator begins: where its checkpoint ends, or from what is in Kafka.

What is in Kafka is one history, since output records and positions are committed together. A checkpoint is a copy of
a part of it that saves the way through the changelog. It is used when it tells the same history, replaced when it is
of no use, and refused when the two contradict each other so that either choice could lose or double records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from streamplan.errors import Refused

TopicPartition: TypeAlias = tuple[str, int]

Ends: TypeAlias = Mapping[TopicPartition, int]
"""By topic and partition the offset that is read next."""


class Start(StrEnum):
    """``POSITIONS``: without a checkpoint, at the committed positions; ``RESTORE``: the same, with the state from the
    changelog topics; ``CHECKPOINT``: where the checkpoint ends."""

    POSITIONS = "positions"
    RESTORE = "restore"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class CheckpointView:
    """What a checkpoint says.

    ``identity``  whose it is; empty for one that was never finished
    ``done``      ends of the last micro-batch that was finished; None before the first
    ``begun``     ends of the last micro-batch that was begun; None before the first
    ``damage``    why it cannot be read; the rest means nothing then
    """

    identity: Mapping[str, str] = field(default_factory=dict)
    done: Ends | None = None
    begun: Ends | None = None
    damage: str = ""


@dataclass(frozen=True)
class Committed:
    """What Kafka has of a sub-topology.

    ``positions``  of the group, final: no other aggregator can move them
    ``starts``     the first offsets that the topics still hold
    ``changelog``  how many offsets the changelogs were ever given; 0 for a sub-topology without state
    """

    positions: Ends
    starts: Ends
    changelog: int


@dataclass(frozen=True)
class Decision:
    """``reason`` is empty where nobody asks: a new application, or a checkpoint that fits."""

    start: Start
    reason: str = ""


STORES = "stores"
"""The part of an identity that says what the changelogs hold."""


def resolve_start(
    what: str, checkpoint: CheckpointView | None, identity: Mapping[str, str], committed: Committed, *, stateful: bool
) -> Decision:
    """How the query ``what`` begins; raises :class:`Refused`.

    ``identity`` is what a checkpoint of this very query says of itself.
    """
    _refuse_lost_records(what, committed)
    without = Start.RESTORE if committed.changelog else Start.POSITIONS
    if checkpoint is None:
        return Decision(without, "it has no checkpoint" if committed.changelog else "")
    if checkpoint.damage:
        return Decision(without, f"its checkpoint is damaged: {checkpoint.damage}")
    if not checkpoint.identity:
        return Decision(without, "its checkpoint was never finished")
    if checkpoint.identity.get(STORES) != identity.get(STORES):
        raise Refused(
            f"{what}: its state stores are not those of its checkpoint",
            expected=identity.get(STORES) or "none",
            observed=checkpoint.identity.get(STORES) or "none",
            remedy="What the changelogs hold cannot be read as something else. Give the changed operation another "
            "store=, or reset the application: it then begins at the start of its input.",
        )
    for name, own in identity.items():
        if checkpoint.identity.get(name) != own:
            of = checkpoint.identity.get(name, "nothing")
            return Decision(without, f"its checkpoint is another's: of {name} {of}, not {own}")
    if checkpoint.begun is None:
        return Decision(without, "its checkpoint has no micro-batch" if committed.changelog else "")
    done = checkpoint.done or {}
    _refuse_ahead(what, done, committed)
    for reason in _misfits(done, checkpoint.begun, committed, stateful=stateful):
        return Decision(without, f"its checkpoint does not fit: {reason}")
    return Decision(Start.CHECKPOINT)


def _refuse_lost_records(what: str, committed: Committed) -> None:
    for (topic, partition), position in sorted(committed.positions.items()):
        start = committed.starts.get((topic, partition), 0)
        if position < start:
            raise Refused(
                f"{what}: records of {topic}-{partition} were deleted before they were read",
                expected=f"the record at position {position} of the group",
                observed=f"the topic begins at offset {start}",
                remedy="They are lost. To go on without them reset the application, or set the group's position there.",
            )


def _refuse_ahead(what: str, done: Ends, committed: Committed) -> None:
    for (topic, partition), position in sorted(committed.positions.items()):
        processed = done.get((topic, partition), 0)
        if position < processed:
            raise Refused(
                f"{what}: its checkpoint is ahead of Kafka at {topic}-{partition}",
                expected=f"a position of at least {processed}, which the checkpoint has processed",
                observed=f"position {position} of the group",
                remedy="Somebody set the group's positions back, or Kafka lost data: reset the application, or bring "
                "the positions back.",
            )


def _misfits(done: Ends, begun: Ends, committed: Committed, *, stateful: bool) -> Iterator[str]:
    """Why the micro-batch that comes next could not be run, or run again."""
    for (topic, partition), position in sorted(committed.positions.items()):
        first, until = done.get((topic, partition), 0), begun.get((topic, partition), 0)
        where = f"{topic}-{partition}"
        if position > until:
            yield f"it is behind Kafka, for it ends at {until} of {where} and the group is at {position}"
        elif stateful and first < position < until:
            yield f"the group is at {position} of {where}, within its micro-batch from {first} to {until}"
        start = committed.starts.get((topic, partition), 0)
        if first < start and first < until:
            yield f"its unfinished micro-batch reads {where} from {first}, and the topic begins at {start} by now"
