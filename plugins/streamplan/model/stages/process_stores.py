"""Python classes that have all keys of their stream task in some stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    LEAVES_OUT,
    Aggregate,
    AggregateFunction,
    Count,
    ProcessWithStores,
    Reduce,
    ReduceFunction,
    StateStore,
    TableSource,
    ToTable,
    VersionedStateStore,
)
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
        """The processors that share stores of their own, each group as a stage of its own."""
        read = {node.store for node in self.read_nodes}
        own = {node.name: {*node.connected_stores} - read for node in self.nodes}
        groups: list[list[Processor]] = []
        for node in self.nodes:
            sharing = [group for group in groups if any(own[node.name] & own[of.name] for of in group)]
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
    def read_nodes(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.read_nodes`. They are in the order of the names of their stores."""
        names = {store for node in self.nodes for store in node.connected_stores}
        writers = (node for node in self.subtopology.processors if node.writes_store and node.store in names)
        others = (node for node in writers if not isinstance(node.operation, StateStore))
        return tuple(sorted(others, key=lambda node: str(node.store)))

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. A window store that keeps duplicates writes each value under a key of its own."""
        return {
            str(node.store): Restore.EVERY_RECORD
            if isinstance(node.operation, VersionedStateStore)
            else Restore.LAST_OF_KEY
            for node in (*self.store_nodes, *self.read_nodes)
        }

    @property
    def restores_deletions(self) -> bool:
        """See :attr:`Stage.restores_deletions`. In a versioned store a deletion has its place in time."""
        return any(isinstance(node.operation, VersionedStateStore) for node in self.store_nodes)

    @property
    def identity(self) -> Mapping[str, str]:
        """See :attr:`Stage.identity`. The state holds what other operations have stored, too."""
        if not self.read_nodes:
            return {}
        read = ", ".join(str(node.store) for node in self.read_nodes)
        return {f"read by {', '.join(node.name for node in self.nodes)}": read}

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
        for node in self.read_nodes:
            if not _can_be_read(node):
                yield Diagnostic(
                    self.nodes[0].location,
                    f"the store {node.store!r} of {_named(node)} is read by a processor",
                    "The store can be read of a table of a topic, of to_table(), count(), reduce(), and of aggregate() "
                    f"with functions or {', '.join(_STORED_AS_PASSED)}, without windows. Put the updates of another "
                    "one into a store of the class: to_stream().process(…)",
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


_STORED_AS_PASSED = ("sum", "count", "count_if", "min", "max", "bool_and", "bool_or")
"""The aggregates of which the changelog has the result, and nothing else."""


def _can_be_read(node: Processor) -> bool:
    """Whether the values of a store are what its changelog has, so that a processor can read them after a restore."""
    operation = node.operation
    if type(operation) is Aggregate:
        as_passed = all(column.function in _STORED_AS_PASSED for column in operation.columns)
        return operation.window is None and as_passed
    if isinstance(operation, TableSource | ToTable | Reduce | ReduceFunction | AggregateFunction):
        return True
    return type(operation) is Count and operation.window is None


def _named(node: Processor) -> str:
    """Return what the operation of a store is called in a declaration."""
    if isinstance(node.operation, Count | Aggregate) and node.operation.window is not None:
        return f"{node.name}, which has windows,"
    return node.name
