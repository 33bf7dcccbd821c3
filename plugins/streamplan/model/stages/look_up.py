"""Joins of streams with tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.operations import Join, TableSource
from streamplan.model.processor_topology import Node, Processor, Source, Subtopology
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.model.stages.stage import Restore, Stage, any_of
from streamplan.model.stages.table_join import TableJoinStage


@dataclass(frozen=True)
class LookUpStage(Stage):
    """Joins of streams with tables. Each looks up the key that the record was read with."""

    is_at_sources: ClassVar[bool] = True

    restores_deletions = True
    recounts_in_state = True
    is_divisible = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return subtopology.processors_with(Join)

    @property
    def in_results(self) -> tuple[Processor, ...]:
        """The joins with tables that are not read from a topic."""
        read = self.subtopology.table_stores.values()
        return tuple(node for node in self.nodes if node.store not in read)

    @property
    def results(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.results`. Another look-up can follow."""
        return ()

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. A record of the stream meets the row of its own time."""
        return dict.fromkeys(self.subtopology.table_stores.values(), Restore.EVERY_RECORD)

    @property
    def read_without_limit(self) -> tuple[Source, ...]:
        """See :attr:`Stage.read_without_limit`."""
        read = {self.subtopology.predecessors[node.name][0] for node in self.subtopology.processors_with(TableSource)}
        return tuple(source for source in self.subtopology.sources if source.name in read)

    @property
    def needs_other_records(self) -> str:
        """See :attr:`Stage.needs_other_records`."""
        return "joins: its result depends on when the table's row came"

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        return "what a join wrote depends on when a table's row came" if any_of(self.nodes, nodes) else ""


@dataclass(frozen=True)
class ResultLookUpStage(LookUpStage):
    """A join with a table of what other state has made of the records, or of a stream beside joins of tables."""

    has_one_node: ClassVar[bool] = True
    is_at_sources: ClassVar[bool] = False

    @property
    def results(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.results`."""
        return self.nodes

    @property
    def table(self) -> str:
        """The name of the source of the table."""
        (node,) = self.nodes
        return next(name for name, store in self.subtopology.table_stores.items() if store == node.store)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`."""
        return {str(node.store): Restore.EVERY_RECORD for node in self.nodes}

    @property
    def read_without_limit(self) -> tuple[Source, ...]:
        """See :attr:`Stage.read_without_limit`."""
        return tuple(source for source in self.subtopology.sources if source.name == self.table)


@dataclass(frozen=True)
class LookUpInResultStage(LookUpStage):
    """A join with a table that is a result: of an aggregate, of ``to_table``, or of an operation with a store.

    In the library the join reads the store of the table. Here it has a state of its own, which is given each update of
    the table, and is restored from the changelog of the table.
    """

    has_one_node: ClassVar[bool] = True
    is_at_sources: ClassVar[bool] = False
    rejects_beside: ClassVar[bool] = True

    restores_deletions = False

    @property
    def results(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.results`."""
        return self.nodes

    @property
    def looked_up(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.looked_up`. It is the processor that writes the store of the table."""
        (node,) = self.nodes
        return tuple(each for each in self.subtopology.processors if each.writes_store and each.store == node.store)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`."""
        return {str(node.store): Restore.LAST_OF_KEY for node in self.nodes}

    @property
    def identity(self) -> Mapping[str, str]:
        """See :attr:`Stage.identity`. Rows that wait for the times of a stream are in another state than others."""
        order = "in the order of the records" if self.in_order else "by their times"
        return {f"rows of {self.nodes[0].name}": order}

    @property
    def in_order(self) -> bool:
        """Whether stream and table come of one topic, so that the order of its records decides, and not their times."""
        return any(source in self._sources_of(self.nodes) for source in self._sources_of(self.looked_up))

    @property
    def read_without_limit(self) -> tuple[Source, ...]:
        """See :attr:`Stage.read_without_limit`."""
        return () if self.in_order else self._sources_of(self.looked_up)

    def _sources_of(self, nodes: Iterable[Node]) -> tuple[Source, ...]:
        return tuple(node for node in self.subtopology.upstream_of(nodes) if isinstance(node, Source))


def look_ups(stage: LookUpStage, others: Sequence[Stage]) -> Iterable[LookUpStage]:
    """Divide the joins with tables of a sub-topology: those at its sources are one stage.

    Args:
        stage: Has all of them.
        others: The other stages of the sub-topology.
    """
    in_results = stage.in_results
    results = {node.name for other in others for node in other.results} | {node.name for node in in_results}
    others_reach = stage.subtopology.downstream_of(results)
    joins_tables = any(isinstance(other, TableJoinStage | ForeignKeyStage) for other in others)
    at_sources = tuple(
        node for node in stage.nodes if not joins_tables and node.name not in others_reach and node not in in_results
    )
    if at_sources:
        yield LookUpStage(stage.subtopology, at_sources)
    for node in stage.nodes:
        if node not in at_sources:
            kind = LookUpInResultStage if node in in_results else ResultLookUpStage
            yield kind(stage.subtopology, (node,))
