"""The plan of a reset: it deletes all that an application has made of its input, and nothing of the input.

It does what Kafka Streams' application reset tool (``org.apache.kafka.tools.StreamsResetter``) does for positions and
internal topics, and what ``KafkaStreams.cleanUp()`` does for local state. Names come from the declaration, never from a
prefix: ``my-app`` has nothing of ``my-app-v1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

RESET_ALONE = ("aggregator", "deploy", "repartition", "redrive")
"""A reset is refused while a run of one of these DAGs is active; a producer may go on."""


@dataclass(frozen=True)
class ResetPlan:
    """What there is to delete.

    Attributes:
        pipeline: The name of the pipeline.
        application_id: The application id.
        topics: The internal topics that exist, with the offsets from their beginning to their end: records, and a
            marker for each transaction.
        positions: The positions of the consumer group, by ``topic-partition``.
        checkpoints: Where the checkpoints are; empty where there are none.
        files: Files below the reports that describe the state, by their relative paths.
        kept: The topics that others write or read. They are left alone.
        staging: The staging topics of a candidate application, as ``topics``. They are deleted.
        runs_instead: The application whose candidate it is; empty where it is the one that runs.
    """

    pipeline: str
    application_id: str
    topics: Mapping[str, int]
    positions: Mapping[str, int]
    checkpoints: str
    files: tuple[str, ...]
    kept: tuple[str, ...]
    staging: Mapping[str, int] = field(default_factory=dict)
    runs_instead: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (any(self.topics.values()) or self.staging or self.positions or self.checkpoints or self.files)

    def lines(self) -> Iterable[str]:
        """Return the plan for people, as Markdown."""
        yield f"Reset of application `{self.application_id}` (pipeline {self.pipeline}). Deleted are:"
        yield ""
        if self.positions:
            listed = ", ".join(f"{at} at {offset:,}" for at, offset in sorted(self.positions.items()))
            yield f"- the consumer group `{self.application_id}` with its positions: {listed}"
        for topic, records in self.topics.items():
            yield f"- topic `{topic}`: at most {records:,} records; it is created again, empty"
        for topic, records in self.staging.items():
            yield f"- topic `{topic}`: at most {records:,} records, which were built for the upgrade"
        if self.checkpoints:
            yield f"- the checkpoints in `{self.checkpoints}`, state stores included"
        if self.files:
            yield f"- what was kept of the old state: {', '.join(f'`{file}`' for file in self.files)}"
        if self.empty:
            yield "- nothing: there is neither a position nor a record nor a checkpoint"
        yield ""
        yield f"Left alone: {', '.join(f'`{topic}`' for topic in self.kept)}, every other application."
        yield ""
        if self.runs_instead:
            yield f"`{self.runs_instead}` goes on. An upgrade would be built from the beginning."
            return
        yield "The next start of the aggregator reads its input from the beginning."

    @property
    def text(self) -> str:
        """The plan for people, as Markdown."""
        return "\n".join(self.lines())

    @property
    def _records(self) -> Mapping[str, int]:
        return {**self.topics, **self.staging}

    def more_than(self, approved: ResetPlan) -> list[str]:
        """List what would be deleted now and was not approved. Empty after a reset that died halfway."""
        more = [
            f"{topic} has {records:,} records, not {approved._records.get(topic, 0):,}"
            for topic, records in self._records.items()
            if records > approved._records.get(topic, 0)
        ]
        more += [
            f"the position in {at} is {offset:,}, not {approved.positions.get(at, 'none')}"
            for at, offset in self.positions.items()
            if offset != approved.positions.get(at)
        ]
        if self.checkpoints and self.checkpoints != approved.checkpoints:
            more.append(f"there are checkpoints in {self.checkpoints}")
        return more

    def written(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it."""
        return {
            "pipeline": self.pipeline,
            "application_id": self.application_id,
            "topics": dict(self.topics),
            "positions": dict(self.positions),
            "checkpoints": self.checkpoints,
            "files": list(self.files),
            "kept": list(self.kept),
            "staging": dict(self.staging),
            "runs_instead": self.runs_instead,
        }

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> ResetPlan:
        """Return the plan of which :meth:`written` returned this."""
        return cls(**{**written, "files": tuple(written["files"]), "kept": tuple(written["kept"])})
