"""The kinds of state that a sub-topology can have, one in each module. Each says what all others have to know of it.

How Spark plans, restores and recounts a kind stands in the module of the same name in
``streamplan.spark.planning.stages``.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import Cogroup, TableFilter, TableJoin
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.model.stages.look_up import LookUpStage
from streamplan.model.stages.process import ProcessStage
from streamplan.model.stages.stage import Stage, StatelessStage
from streamplan.model.stages.stream_join import StreamJoinStage
from streamplan.model.stages.table_join import TableJoinStage
from streamplan.model.stages.window import WindowStage

STAGES: tuple[type[Stage], ...] = (
    ForeignKeyStage,
    TableJoinStage,
    StreamJoinStage,
    LookUpStage,
    WindowStage,
    AggregateStage,
    ProcessStage,
)
"""The kinds. Of two that stand in one sub-topology the one behind is refused."""


def stages_of(subtopology: Subtopology) -> tuple[Stage, ...]:
    """Return the stages of a sub-topology, in the order of :data:`STAGES`."""
    return tuple(kind(subtopology, nodes) for kind in STAGES if (nodes := kind.nodes_in(subtopology)))


def stage_of(subtopology: Subtopology) -> Stage:
    """Return the one stage that a sub-topology of a pipeline has."""
    return next(iter(stages_of(subtopology)), StatelessStage(subtopology, ()))


def stateful_faults(subtopology: Subtopology) -> Iterable[Diagnostic]:
    """Yield the operations whose state depends on other state of the same sub-topology."""
    stages = stages_of(subtopology)
    names = {node.name for stage in stages for node in stage.results}
    reached = subtopology.downstream_of(names)
    for place, stage in enumerate(stages):
        yield from stage.faults(stages[:place], stages[place + 1 :], reached)
    for filtering in subtopology.processors_with(TableFilter):
        if isinstance(filtering.operation, TableFilter) and filtering.operation.old_values:
            yield Diagnostic(
                filtering.location,
                "filters a table with a state store. The library leaves out the deletion of a key whose value before "
                "was not kept either, and here that value is not known",
                "to_stream().filter('…') gives the kept values without deletions. For all deletions, write the table "
                "to a compacted topic with to_stream().to('…') and filter Topology.table('…')",
            )
    for node in subtopology.nodes:
        if isinstance(node, Processor) and isinstance(node.operation, TableJoin | Cogroup):
            continue
        sides = {before in reached or before in names for before in subtopology.predecessors[node.name]}
        if node.name in reached and len(sides) > 1:
            yield Diagnostic(
                node.location,
                "merges the result of an aggregate, of a process, or of a join of two streams or tables with a stream "
                "of the same sub-topology",
                "Put repartition() behind one of them",
            )
