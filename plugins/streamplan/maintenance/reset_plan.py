"""What a reset deletes: all that an application has made of its input, and nothing of the input.

What Kafka Streams' application reset tool does (``org.apache.kafka.tools.StreamsResetter``) for positions and internal
topics, and its ``KafkaStreams.cleanUp()`` for local state. Names come from the declaration and never from a prefix:
``my-app`` has nothing of ``my-app-v1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RESET_ALONE = ("aggregator", "deploy", "repartition")
"""A reset is refused while a run of one of these DAGs is active; a producer may go on."""


@dataclass(frozen=True)
class ResetPlan:
    """What there is to delete.

    ``topics``       those that exist, with the offsets from their beginning to their end: records, and a marker for
                     each transaction
    ``positions``    of the group, by ``topic-partition``
    ``checkpoints``  where they are; empty where there are none
    ``files``        below the reports: what describes the state that goes
    """

    pipeline: str
    application_id: str
    topics: Mapping[str, int]
    positions: Mapping[str, int]
    checkpoints: str
    files: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing that a reading of the input has left."""
        return not (any(self.topics.values()) or self.positions or self.checkpoints or self.files)

    def lines(self) -> Iterable[str]:
        """The plan for people; Markdown, too."""
        yield f"Reset of application `{self.application_id}` (pipeline {self.pipeline}). Deleted are:"
        yield ""
        if self.positions:
            listed = ", ".join(f"{at} at {offset:,}" for at, offset in sorted(self.positions.items()))
            yield f"- the consumer group `{self.application_id}` with its positions: {listed}"
        for topic, records in self.topics.items():
            yield f"- topic `{topic}`: at most {records:,} records; it is created again, empty"
        if self.checkpoints:
            yield f"- the checkpoints in `{self.checkpoints}`, state stores included"
        if self.files:
            yield f"- what was kept of the old state: {', '.join(f'`{file}`' for file in self.files)}"
        if self.empty:
            yield "- nothing: there is neither a position nor a record nor a checkpoint"
        yield ""
        yield f"Left alone: {', '.join(f'`{topic}`' for topic in self.kept)}, every other application."
        yield ""
        yield "The next start of the aggregator reads its input from the beginning."

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    def more_than(self, approved: ResetPlan) -> list[str]:
        """What would be deleted now and was not approved; empty after a reset that died halfway."""
        found = [
            f"{topic} has {records:,} records, not {approved.topics.get(topic, 0):,}"
            for topic, records in self.topics.items()
            if records > approved.topics.get(topic, 0)
        ]
        found += [
            f"the position in {at} is {offset:,}, not {approved.positions.get(at, 'none')}"
            for at, offset in self.positions.items()
            if offset != approved.positions.get(at)
        ]
        if self.checkpoints and self.checkpoints != approved.checkpoints:
            found.append(f"there are checkpoints in {self.checkpoints}")
        return found

    def written(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "pipeline": self.pipeline,
            "application_id": self.application_id,
            "topics": dict(self.topics),
            "positions": dict(self.positions),
            "checkpoints": self.checkpoints,
            "files": list(self.files),
            "kept": list(self.kept),
        }

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> ResetPlan:
        return cls(**{**found, "files": tuple(found["files"]), "kept": tuple(found["kept"])})
