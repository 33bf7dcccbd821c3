"""The kinds of state that a sub-topology can have, one in each module. Each says what all others have to know of it.

How Spark plans, restores and recounts a kind stands in the module of the same name in
``streamplan.spark.planning.stages``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import global_topics_of
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.stages.chain import StageChain, in_order
from streamplan.model.stages.foreign_key import ForeignKeyStage, foreign_key_sides
from streamplan.model.stages.look_up import LookUpStage, look_ups
from streamplan.model.stages.old_values import OldValuesStage
from streamplan.model.stages.process import ProcessStage
from streamplan.model.stages.process_stores import ProcessStoresStage
from streamplan.model.stages.stage import Stage, StatelessStage
from streamplan.model.stages.stream_join import StreamJoinStage
from streamplan.model.stages.table_join import TableJoinStage, joins_of_tables
from streamplan.model.stages.task_aggregate import TaskAggregateStage
from streamplan.model.stages.window import WindowStage

STAGES: tuple[type[Stage], ...] = (
    ForeignKeyStage,
    TableJoinStage,
    StreamJoinStage,
    LookUpStage,
    WindowStage,
    AggregateStage,
    ProcessStage,
    ProcessStoresStage,
    OldValuesStage,
)
"""The kinds that a sub-topology can have."""


def stages_of(subtopology: Subtopology) -> tuple[Stage, ...]:
    """Return the stages of a sub-topology, each behind those of whose results it is given records."""
    found = [kind(subtopology, nodes) for kind in STAGES if (nodes := kind.nodes_in(subtopology))]
    if len(found) > 1 or (found and not _is_alone(found[0])):
        found = [part for stage in found for part in _parts_of(stage, [other for other in found if other is not stage])]
    return in_order(found)


def _is_alone(stage: Stage) -> bool:
    """Whether one operator of Spark has the whole stage."""
    if stage.has_one_node:
        return len(stage.nodes) == 1
    if isinstance(stage, ProcessStoresStage):
        return len(stage.parts) == 1
    if isinstance(stage, LookUpStage):
        return not stage.in_results
    if isinstance(stage, TableJoinStage):
        return not stage.has_results
    if isinstance(stage, AggregateStage) and not stage.has_one_time:
        return False
    names = {node.name for node in stage.nodes}
    return not stage.is_native or names.isdisjoint(stage.subtopology.downstream_of(names))


def _parts_of(stage: Stage, others: Sequence[Stage]) -> Iterable[Stage]:
    if isinstance(stage, LookUpStage):
        return look_ups(stage, others)
    if isinstance(stage, ForeignKeyStage):
        return foreign_key_sides(stage)
    if isinstance(stage, TableJoinStage):
        return joins_of_tables(stage, behind_sources=any(isinstance(other, ForeignKeyStage) for other in others))
    if isinstance(stage, AggregateStage):
        return (TaskAggregateStage(stage.subtopology, (node,)) for node in stage.nodes)
    if isinstance(stage, ProcessStoresStage):
        return stage.parts
    if stage.has_one_node:
        return (type(stage)(stage.subtopology, (node,)) for node in stage.nodes)
    return (stage,)


def stage_of(subtopology: Subtopology) -> Stage:
    """Return the state of a sub-topology: one stage, a chain of several, or the one that stands for no state."""
    stages = stages_of(subtopology)
    if len(stages) > 1:
        return StageChain(subtopology, tuple(node for stage in stages for node in stage.nodes), stages)
    return stages[0] if stages else StatelessStage(subtopology, ())


def repeats_its_state(subtopology: Subtopology) -> bool:
    """Whether a micro-batch that runs again leaves the same state. Behind a global table it may meet other rows."""
    given = [stage for stage in stages_of(subtopology) if not stage.is_at_sources]
    takers = [node for stage in given for node in (*stage.takers, *stage.looked_up)]
    before = (*takers, *subtopology.upstream_of(takers))
    return not any(isinstance(node, Processor) and global_topics_of(node.operation) for node in before)


def passing_by(subtopology: Subtopology) -> tuple[str, ...]:
    """Return the nodes whose records meet results of a state behind it, without going through it.

    They are merged with results, or go into a state that is given results, too. Where a state is given what the sources
    read, its operator gives all their records. So the sources are left that no such state reads.
    """
    stages = stages_of(subtopology)
    if at_sources := [stage for stage in stages if stage.is_at_sources]:
        read = {source.name for stage in at_sources for source in stage.sources}
        return tuple(each.name for each in subtopology.sources if each.carried is None and each.name not in read)
    takers = [{node.name for node in stage.takers} for stage in stages]
    behind = subtopology.downstream_of(set[str]().union(*takers))
    given = {node.name for stage in stages if stage.rejects_beside for node in stage.takers}
    meeting = behind.union(*(names for names in takers if names & behind)) - given
    before = subtopology.predecessors
    passed = (name for node in subtopology.nodes if node.name in meeting for name in before[node.name])
    return tuple(dict.fromkeys(name for name in passed if name not in behind.union(*takers)))


def stateful_faults(subtopology: Subtopology) -> Iterable[Diagnostic]:
    """Yield the operations whose state depends on other state in a way that no query has."""
    stages = stages_of(subtopology)
    names = {node.name for stage in stages for node in stage.results}
    reached = subtopology.downstream_of(names)
    for stage in stages:
        yield from stage.faults([other for other in stages if other is not stage], reached)
    yield from _faults_of_time(stages)


def _faults_of_time(stages: Iterable[Stage]) -> Iterable[Diagnostic]:
    """The wall clock gives a stream task one time: aggregates that wait for different times cannot share it."""
    idle = [(stage, stage.idle_ms) for stage in stages if stage.idle_ms is not None]
    for stage, idle_ms in idle[1:]:
        if idle_ms != idle[0][1]:
            yield Diagnostic(
                stage.nodes[0].location,
                "two aggregates of one sub-topology have different idle times",
                "Give both the same idle=…, or put repartition() before one of them",
            )
