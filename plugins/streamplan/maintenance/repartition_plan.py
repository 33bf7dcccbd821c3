"""The plan of a repartition: which topics get another number of partitions, and what a person is told before.

A key lies in partition ``murmur2(key) % partitions``. Partitions that are added to a topic in place send the next
records of a key elsewhere: two stream tasks then count the key, and its total is split. So the records move to a new
topic, and what the application has made of them, its changelogs above all, moves along.

Each internal topic that needs another count is first copied to a temporary topic ``<name>-moving`` with the new count.
When all copies are complete, the old topics are deleted and created again. The offsets of a consumer group of its own,
the ledger, hold the progress: an offset in a topic says that the topic is complete up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import TopicRole

MOVED_ALONE = ("aggregator", "producer", "deploy", "reset", "redrive")
"""DAGs of the pipeline with whose active runs a repartition is refused: nothing may be added to what moves."""


@dataclass(frozen=True)
class TopicMove:
    """The records of a topic that go to another topic, or to the same one with another number of partitions.

    Attributes:
        topic: The topic as it is.
        to: The topic that the records go to.
        partitions_before: The number of partitions of ``topic``.
        partitions: The number of partitions of ``to``.
        records: The offsets from the beginning of ``topic`` to its end.
    """

    topic: str
    to: str
    partitions_before: int
    partitions: int
    records: int


@dataclass(frozen=True)
class RepartitionPlan:
    """What a repartition does.

    Attributes:
        pipeline: The name of the pipeline.
        application_id: The application id.
        sources: Source topics whose records are copied to new topics.
        internal: Internal topics that get another number of partitions.
        begun: Whether an earlier run has deleted topics already. Then the repartition can only be completed.
        done: Whether there is nothing to do.
        left_over: Temporary topics of a repartition that is done.
    """

    pipeline: str
    application_id: str
    sources: tuple[TopicMove, ...]
    internal: tuple[TopicMove, ...]
    begun: bool
    done: bool
    left_over: tuple[str, ...] = ()

    def lines(self) -> Iterable[str]:
        """Return the plan for people, as Markdown."""
        if self.done:
            yield f"Nothing to move: `{self.application_id}` reads what it declares, with the declared partitions."
            if self.left_over:
                listed = ", ".join(f"`{topic}`" for topic in self.left_over)
                yield f"An earlier run left these temporary topics behind, and `apply` deletes them: {listed}."
            return
        yield f"More partitions for application `{self.application_id}` (pipeline {self.pipeline})."
        yield ""
        if self.begun:
            yield "An earlier run stopped halfway. This one goes on from there."
            yield ""
        for move in self.sources:
            yield (
                f"- the records of `{move.topic}` ({move.partitions_before} partitions, at most {move.records:,} "
                f"records) are copied to `{move.to}` ({move.partitions} partitions), each exactly once; the old topic "
                "stays"
            )
        for move in self.internal:
            yield (
                f"- `{move.topic}`: made again with {move.partitions} instead of {move.partitions_before} partitions, "
                f"with what it holds (at most {move.records:,} records)"
            )
        yield f"- the positions of group `{self.application_id}` are set to the ends of what was copied"
        yield "- the checkpoints are deleted: the aggregator builds its state from the changelogs"
        yield ""
        yield "Totals stay as they are. Let producers write to the new topic from now on, and only there."

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.done and not self.left_over

    @property
    def text(self) -> str:
        """The plan for people, as Markdown."""
        return "\n".join(self.lines())

    def written(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it, to be compared with the plan that a person approved."""
        return {
            "sources": [[move.topic, move.to, move.partitions] for move in self.sources],
            "internal": [[move.topic, move.partitions] for move in self.internal],
        }

    def refuse_other(self, approved: Mapping[str, Any]) -> None:
        """Refuse a plan that moves more than the approved one.

        Args:
            approved: What :meth:`written` returned for the approved plan.

        Raises:
            Refused: This plan moves a topic that the approved one does not.
        """
        written = self.written()
        more = [str(move) for part in written for move in written[part] if move not in approved[part]]
        if more:
            raise Refused(
                f"the move of {self.pipeline}",
                expected="the topics that were approved",
                observed=f"{', '.join(more)} besides",
                remedy="The declaration or the topics changed since. Nothing was changed: look at a new plan.",
            )


def require_declared(pipeline: Pipeline) -> None:
    """Refuse a pipeline that declares no repartition, with an example of what to declare.

    Raises:
        Refused: ``repartition_from`` is empty.
    """
    if pipeline.repartition_from:
        return
    own = [topic for topic in pipeline.topology.source_topics if topic in pipeline.topic_partitions]
    if not own:
        raise Refused(
            f"pipeline {pipeline.name} declares no move",
            expected="a source topic that Streamplan creates",
            observed=f"only topics that others own: {', '.join(pipeline.topics_of_others)}",
            remedy="The owners of these topics choose the numbers of partitions. If an owner has changed a number, "
            f"{pipeline.name}_reset creates the internal topics again. For more stream tasks after a new key, declare "
            "repartition(number_of_partitions=…).",
        )
    topic = own[0]
    count = pipeline.topic_partitions[topic]
    raise Refused(
        f"pipeline {pipeline.name} declares no move",
        expected=f"a new topic in place of {topic}, and where its records are now",
        observed="repartition_from is empty",
        remedy=f"Let the topology read {topic + '-v2'!r} instead of {topic!r} and declare, for example, "
        f"topic_partitions={{'{topic}-v2': {2 * count}}}, repartition_from={{'{topic}-v2': '{topic}'}}; let test_data "
        "and every producer write to the new topic. Then run this again.",
    )


def refuse_other_counts(pipeline: Pipeline, observed: Mapping[str, int]) -> None:
    """Refuse topics from outside that have another number of partitions than declared: they are not moved.

    Args:
        observed: The number of partitions of each topic that exists.

    Raises:
        Refused: The counts of some topics differ; the error lists them all.
    """
    outside = (TopicRole.SOURCE, TopicRole.SINK)
    wrong = [
        f"{spec.name} has {observed[spec.name]} partitions, not {spec.partitions}"
        for spec in pipeline.topics()
        if spec.role in outside and spec.name in observed and observed[spec.name] != spec.partitions
    ]
    if wrong:
        raise Refused(
            f"source and sink topics of {pipeline.name}: {'; '.join(wrong)}",
            remedy="This run does not move them. For a sink, declare its present number in topic_partitions. For a "
            "source, declare a new topic with another name.",
        )
