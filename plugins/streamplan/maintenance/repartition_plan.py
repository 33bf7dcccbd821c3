"""Another number of partitions, the safe way: what moves where, and what a person is told before.

A key lies in partition ``murmur2(key) % partitions``. Partitions added to a topic in place send a key's next records
elsewhere: two stream tasks then count it, and its total is split. So the records move to a new topic, and what the
application has made of them, its changelogs above all, moves along.

Each internal topic that needs another count is first copied to a topic ``<name>-moving`` of the new count, and only
when all copies are complete are the old ones deleted and made again. How far everything is stands in the positions of
a consumer group of its own: a position in a topic says that the topic is complete up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import TopicRole

MOVED_ALONE = ("aggregator", "producer", "deploy", "reset")
"""A move is refused while a run of one of these DAGs is active: nothing may be added to what moves."""


def ledger_group(pipeline: Pipeline) -> str:
    """The group whose positions say how far a move is. Exists while one is under way."""
    return f"{pipeline.topology.application_id}-repartition"


@dataclass(frozen=True)
class Moved:
    """A topic and its counts. ``records``: offsets from its beginning to its end; ``to``: where they go."""

    topic: str
    to: str
    partitions_before: int
    partitions: int
    records: int


@dataclass(frozen=True)
class MovePlan:
    """What a move does.

    ``begun``     whether an earlier run has deleted topics already: then there is only one way, forward
    ``internal``  those that get another count
    ``left_over``  topics that held records, of a move that is done
    """

    pipeline: str
    application_id: str
    sources: tuple[Moved, ...]
    internal: tuple[Moved, ...]
    begun: bool
    done: bool
    left_over: tuple[str, ...] = ()

    def lines(self) -> Iterable[str]:
        """The plan for people; Markdown, too."""
        if self.done:
            yield f"Nothing to move: `{self.application_id}` reads what it declares, with the declared partitions."
            if self.left_over:
                yield f"An earlier run left {', '.join(f'`{topic}`' for topic in self.left_over)} behind: deleted now."
            return
        yield f"More partitions for application `{self.application_id}` (pipeline {self.pipeline})."
        yield ""
        if self.begun:
            yield "An earlier run stopped halfway. This one goes on from there."
            yield ""
        for one in self.sources:
            yield (
                f"- the records of `{one.topic}` ({one.partitions_before} partitions, at most {one.records:,} records) "
                f"are copied to `{one.to}` ({one.partitions} partitions), each exactly once; the old topic stays"
            )
        for one in self.internal:
            yield (
                f"- `{one.topic}`: made again with {one.partitions} instead of {one.partitions_before} partitions, "
                f"with what it holds (at most {one.records:,} records)"
            )
        yield f"- the positions of group `{self.application_id}` are set to the ends of what was copied"
        yield "- the checkpoints are deleted: the aggregator builds its state from the changelogs"
        yield ""
        yield "Totals stay as they are. Let producers write to the new topic from now on, and only there."

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    def written(self) -> dict[str, Any]:
        """As JSON can hold it; by it a plan is told from the one that was approved."""
        return {
            "sources": [[one.topic, one.to, one.partitions] for one in self.sources],
            "internal": [[one.topic, one.partitions] for one in self.internal],
        }

    def refuse_other(self, approved: Mapping[str, Any]) -> None:
        """Raise :class:`Refused` when this plan moves what was not in the approved one."""
        mine = self.written()
        more = [str(move) for part in mine for move in mine[part] if move not in approved[part]]
        if more:
            raise Refused(
                f"the move of {self.pipeline}",
                expected="the topics that were approved",
                observed=f"{', '.join(more)} besides",
                remedy="The declaration or the topics changed since. Nothing was changed: look at a new plan.",
            )


def require_declared(pipeline: Pipeline) -> None:
    """Raise :class:`Refused` with what to declare, where nothing is."""
    if pipeline.repartition_from:
        return
    topic = pipeline.topology.source_topics[0]
    count = pipeline.partition_counts[topic]
    raise Refused(
        f"pipeline {pipeline.name} declares no move",
        expected=f"a new topic in place of {topic}, and where its records are now",
        observed="repartition_from is empty",
        remedy=f"Let the topology read {topic + '-v2'!r} instead of {topic!r} and declare, for example, "
        f"topic_partitions={{'{topic}-v2': {2 * count}}}, repartition_from={{'{topic}-v2': '{topic}'}}; let test_data "
        "and every producer write to the new topic. Then run this again.",
    )


def refuse_other_counts(pipeline: Pipeline, observed: Mapping[str, int]) -> None:
    """Topics from outside that are not moved have the declared counts, or :class:`Refused` naming all that do not."""
    outside = (TopicRole.SOURCE, TopicRole.SINK)
    wrong = [
        f"{spec.name} has {observed[spec.name]} partitions, not {spec.partitions}"
        for spec in pipeline.topics()
        if spec.role in outside and spec.name in observed and observed[spec.name] != spec.partitions
    ]
    if wrong:
        raise Refused(
            f"topics from outside of {pipeline.name}: {'; '.join(wrong)}",
            remedy="They are not moved. Declare the number that is there in topic_partitions, for a source a new topic "
            "of another name.",
        )
