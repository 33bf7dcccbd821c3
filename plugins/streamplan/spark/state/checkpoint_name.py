"""The names of an application's checkpoints: which one is looked for, and which are left over.

Each checkpoint is a directory ``<checkpoints>/<application id>/<sub-topology>-<id>-<generation>``. The id is made with
the checkpoint, and the committed positions in Kafka name it: no other checkpoint is used. The generation is that of the
aggregator which uses it. It renames the directory when it starts, so that an older aggregator that wakes up writes to a
path that nobody reads.

Before there were ids, a checkpoint lay in ``<sub-topology>``.

This module is pure.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

IDENTITY = "streamplan.json"
"""The file in a checkpoint, beside Spark's own, that says which query the checkpoint belongs to.

It is written last: a checkpoint without it is not complete, and nobody uses it.
"""

_NAME = re.compile(r"(\d+)(?:-([0-9a-f]{8})-(\d+))?")


@dataclass(frozen=True)
class CheckpointName:
    """The name of a checkpoint's directory.

    Attributes:
        subtopology: The id of the sub-topology.
        id: The id of the checkpoint; empty before there were ids.
        generation: The number of the generation that has used it last; 0 before there were ids.
    """

    subtopology: int
    id: str = ""
    generation: int = 0

    @classmethod
    def new(cls, subtopology: int, generation: int) -> CheckpointName:
        """Make the name of a checkpoint that does not exist yet."""
        return cls(subtopology, uuid.uuid4().hex[:8], generation)

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """Return what a directory's name says; None for another kind of name."""
        found = _NAME.fullmatch(text)
        return found and cls(int(found[1]), found[2] or "", int(found[3] or 0))

    def __str__(self) -> str:
        return f"{self.subtopology}-{self.id}-{self.generation}" if self.id else str(self.subtopology)


def checkpoints_location(checkpoints: str, application_id: str) -> str:
    """Return the directory of an application's checkpoints.

    Args:
        checkpoints: The directory of all applications' checkpoints, a path or a URI.
        application_id: The id of the application.
    """
    return f"{checkpoints.rstrip('/')}/{application_id}"


def newest_first(names: Iterable[str], subtopology: int, checkpoint_id: str = "") -> list[CheckpointName]:
    """Return the checkpoints of a sub-topology, the one that was used last first.

    Args:
        names: The names in the application's directory.
        subtopology: The id of the sub-topology.
        checkpoint_id: The id of the checkpoint; empty for any.
    """
    checkpoints = [name for name in map(CheckpointName.parse, names) if name and name.subtopology == subtopology]
    named = [name for name in checkpoints if not checkpoint_id or name.id == checkpoint_id]
    return sorted(named, key=lambda name: name.generation, reverse=True)


def left_over(names: Iterable[str], used: CheckpointName) -> list[CheckpointName]:
    """Return the checkpoints of older generations that are of no use while ``used`` is used."""
    return [name for name in newest_first(names, used.subtopology) if name.generation < used.generation]
