"""Several kinds of state in one sub-topology, with operations without state between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamplan.model.processor_topology import Node, Processor, Source
from streamplan.model.stages.stage import Restore, Stage


@dataclass(frozen=True)
class StageChain(Stage):
    """The stages of one sub-topology. What is asked of all of them is answered here.

    Attributes:
        parts: The stages, each behind those of whose results it is given records.
    """

    parts: tuple[Stage, ...]

    @property
    def aggregates(self) -> bool:
        """See :attr:`Stage.aggregates`."""
        return any(part.aggregates for part in self.parts)

    @property
    def sorts_in_python(self) -> bool:
        """See :attr:`Stage.sorts_in_python`."""
        return any(part.sorts_in_python for part in self.parts)

    @property
    def needs_every_record(self) -> bool:
        """See :attr:`Stage.needs_every_record`."""
        return any(part.needs_every_record for part in self.parts)

    @property
    def is_divisible(self) -> bool:
        """See :attr:`Stage.is_divisible`."""
        return all(part.is_divisible for part in self.parts)

    @property
    def recounts_in_state(self) -> bool:
        """See :attr:`Stage.recounts_in_state`."""
        return any(part.recounts_in_state for part in self.parts)

    @property
    def recounts_last_updates(self) -> bool:
        """See :attr:`Stage.recounts_last_updates`."""
        return any(part.recounts_last_updates for part in self.parts)

    @property
    def results(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.results`."""
        return tuple(node for part in self.parts for node in part.results)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. Of a store that several parts have, one may need every record."""
        found: dict[str, Restore] = {}
        for part in self.parts:
            for store, restored in part.stores.items():
                if found.get(store) is not Restore.EVERY_RECORD:
                    found[store] = restored
        return found

    @property
    def restores_in_workers(self) -> bool:
        """See :attr:`Stage.restores_in_workers`."""
        return all(part.restores_in_workers for part in self.parts)

    @property
    def identity(self) -> Mapping[str, str]:
        """See :attr:`Stage.identity`. It says which states the query has, and in which order."""
        named = (f"{type(part).__name__}({', '.join(part.stores)})" for part in self.parts)
        own = {key: value for part in self.parts for key, value in part.identity.items()}
        return {**own, "stages": "; ".join(named)}

    @property
    def idle_ms(self) -> int | None:
        """See :attr:`Stage.idle_ms`."""
        return next((part.idle_ms for part in self.parts if part.idle_ms is not None), None)

    @property
    def punctuates_ms(self) -> int | None:
        """See :attr:`Stage.punctuates_ms`. The least time of several."""
        return min((part.punctuates_ms for part in self.parts if part.punctuates_ms is not None), default=None)

    @property
    def ttl_ms(self) -> int | None:
        """See :attr:`Stage.ttl_ms`. The least one of several."""
        return min((part.ttl_ms for part in self.parts if part.ttl_ms is not None), default=None)

    @property
    def reads_purged_topic(self) -> bool:
        """See :attr:`Stage.reads_purged_topic`."""
        return any(part.reads_purged_topic for part in self.parts)

    @property
    def is_final(self) -> bool:
        """See :attr:`Stage.is_final`."""
        return any(part.is_final for part in self.parts)

    @property
    def overlap(self) -> int:
        """See :attr:`Stage.overlap`."""
        return max(part.overlap for part in self.parts)

    @property
    def passes_updates_in_order(self) -> bool:
        """See :attr:`Stage.passes_updates_in_order`. A stream task takes the records of all its topics in order."""
        return True

    @property
    def read_without_limit(self) -> tuple[Source, ...]:
        """See :attr:`Stage.read_without_limit`."""
        return tuple(source for part in self.parts for source in part.read_without_limit)

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """See :attr:`Stage.judged_by_time`."""
        return {name: decided for part in self.parts for name, decided in part.judged_by_time.items()}

    @property
    def needs_other_records(self) -> str:
        """See :attr:`Stage.needs_other_records`."""
        return self.parts[0].needs_other_records

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        for part in self.parts:
            if depends := part.depends_on_arrival(nodes):
                return depends
            if not any(node in part.nodes for node in nodes):
                continue
            upstream = {node.name for node in self.subtopology.upstream_of(part.takers)}
            for other in self.before(part):
                if other.is_final and part.judged_by_time:
                    results = ", ".join(node.name for node in other.nodes)
                    return f"timers go by records that a recount of {results} does not know: those that close windows"
                passed = [node for node in (*other.nodes, *other.results) if node.name in upstream]
                if not other.is_final and (replaced := other.replaced_updates(passed)):
                    updates = ", ".join(node.name for node in replaced)
                    return f"a state takes each update of {updates}, of which the last one of each key is recounted"
        return ""

    def replaced_updates(self, nodes: Collection[Node]) -> tuple[Processor, ...]:
        """See :meth:`Stage.replaced_updates`."""
        return tuple(node for part in self.parts for node in part.replaced_updates(nodes))

    def part_of(self, node: Processor) -> Stage:
        """See :meth:`Stage.part_of`. A processor that is no part's own belongs to the first part behind it.

        One whose store several parts have belongs to a part that restores the deletions, too.
        """
        own = next((part for part in self.parts if part.owns(node)), None)
        if own is not None:
            return own
        if node.store is not None and (of_store := [part for part in self.parts if node.store in part.stores]):
            return next((part for part in of_store if part.restores_deletions), of_store[0])
        behind = self.subtopology.downstream_of([node.name])
        return next((part for part in self.parts if any(each.name in behind for each in part.nodes)), self)

    def before(self, part: Stage) -> tuple[Stage, ...]:
        """Return the parts of whose results a part is given records, in their order."""
        before = (*self.before_takers(part), *self.before_table(part))
        return tuple(other for other in self.parts if other in before)

    def before_takers(self, part: Stage) -> tuple[Stage, ...]:
        """Return those of whose results a part is given records by the nodes before its takers."""
        if part.is_at_sources:
            return ()
        return self._with_nodes(part, (*self.subtopology.upstream_of(part.takers), *part.read_nodes))

    def before_table(self, part: Stage) -> tuple[Stage, ...]:
        """Return those that make the tables in which a part looks up."""
        if not part.looked_up:
            return ()
        return self._with_nodes(part, (*self.subtopology.upstream_of(part.looked_up), *part.looked_up))

    def _with_nodes(self, part: Stage, nodes: Iterable[Node]) -> tuple[Stage, ...]:
        names = {node.name for node in nodes}
        return tuple(
            other
            for other in self.parts
            if other is not part
            and (other.leaves_out_records or any(node.name in names for node in (*other.nodes, *other.results)))
        )


def in_order(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Return stages so that each comes behind those of whose results it is given records."""

    def place(stage: Stage) -> tuple[bool, int]:
        names = [node.name for node in stage.subtopology.nodes]
        return not stage.is_at_sources, min(names.index(node.name) for node in stage.nodes)

    return tuple(sorted(stages, key=place))
