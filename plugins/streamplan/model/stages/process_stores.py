"""Python classes that have all keys of their stream task in some stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import LEAVES_OUT, ProcessWithStores, StateStore
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Restore, Stage, any_of


@dataclass(frozen=True)
class ProcessStoresStage(Stage):
    """Python classes with the stores of their stream task. Those that share a store are one stage."""

    sorts_in_python = True
    needs_every_record = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return subtopology.processors_with(ProcessWithStores)

    @property
    def parts(self) -> Sequence[ProcessStoresStage]:
        """The processors that share stores, each group as a stage of its own."""
        groups: list[list[Processor]] = []
        for node in self.nodes:
            sharing = [
                group for group in groups if any({*node.connected_stores} & {*of.connected_stores} for of in group)
            ]
            groups = [group for group in groups if group not in sharing]
            groups.append([*(each for group in sharing for each in group), node])
        return [replace(self, nodes=tuple(group)) for group in groups]

    @property
    def operations(self) -> tuple[ProcessWithStores, ...]:
        """What the processors do."""
        return tuple(node.operation for node in self.nodes if isinstance(node.operation, ProcessWithStores))

    @property
    def store_nodes(self) -> tuple[Processor, ...]:
        """The nodes that write the stores, by the names of the stores: their order is that of the state's variables."""
        names = {store for node in self.nodes for store in node.connected_stores}
        found = (node for node in self.subtopology.processors_with(StateStore) if node.store in names)
        return tuple(sorted(found, key=lambda node: str(node.store)))

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. A window store that keeps duplicates writes each value under a key of its own."""
        return {str(node.store): Restore.LAST_OF_KEY for node in self.store_nodes}

    @property
    def reads_all_times(self) -> bool:
        """Whether the stream task has read records that come to none of the processors."""
        sources = self.subtopology.sources
        before = self.subtopology.upstream_of(self.nodes)
        drops = any(isinstance(node, Processor) and isinstance(node.operation, LEAVES_OUT) for node in before)
        return drops or any(source not in before for source in sources)

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """See :attr:`Stage.judged_by_time`. A store has keys of any records of the stream task."""
        return {node.name: "what a stream task has stored, under any key" for node in self.nodes}

    @property
    def punctuates_ms(self) -> int | None:
        """See :attr:`Stage.punctuates_ms`."""
        schedules = (each for operation in self.operations for each in operation.schedules if each.wall_clock)
        return min((each.interval_ms for each in schedules), default=None)

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        if any_of((*self.nodes, *self.store_nodes), nodes):
            return "what a processor with stores makes is not judged: it is not called again with all records"
        return ""

    def faults(self, others: Sequence[Stage], reached: Collection[str]) -> Iterable[Diagnostic]:
        """See :meth:`Stage.faults`."""
        if self.punctuates_ms is not None and (idle := [other for other in others if other.idle_ms is not None]):
            yield Diagnostic(
                self.nodes[0].location,
                f"punctuators of WALL_CLOCK_TIME share their sub-topology with {idle[0].nodes[0].name}, which goes on "
                "by the wall clock when it is idle",
                "Put repartition() before one of them",
            )
        for node in self.nodes:
            before = {each.name for each in self.subtopology.upstream_of([node])}
            if sharing := [other.name for other in self.nodes if other.name in before]:
                yield Diagnostic(
                    node.location,
                    f"processors that share a store stand behind each other: {node.name} behind {', '.join(sharing)}",
                    "Let one class do both, or give each a store of its own",
                )

    def _operation_of(self, node: Processor) -> str:
        return "process"
