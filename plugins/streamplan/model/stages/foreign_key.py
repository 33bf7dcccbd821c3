"""One side of a join of tables by a foreign key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    SENDS,
    Aggregate,
    Count,
    ForeignKeyResult,
    Process,
    Reduce,
    ResponseJoin,
    StateStore,
    StoreForJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Restore, Stage

_OF_JOIN = (SubscriptionReceive, *SENDS, ResponseJoin, ForeignKeyResult)
"""The operations of such a join."""

_OF_OTHER_STATE = (Aggregate, Count, Process, Reduce, StateStore, StoreForJoin)
"""The operations that write stores of other stages."""


@dataclass(frozen=True)
class ForeignKeyStage(Stage):
    """One side of a join of tables by a foreign key: that of the subscriber, or that of the responder.

    ``nodes`` are the processors with the state of the side.
    """

    is_at_sources: ClassVar[bool] = True
    leaves_out_records: ClassVar[bool] = True

    recounts_last_updates = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return (
            *subtopology.processors_with(SubscriptionSend),
            *subtopology.processors_with(SubscriptionReceive),
        )

    @property
    def results(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.results`."""
        return self.subtopology.processors_with(ResponseJoin)

    @property
    def reads_purged_topic(self) -> bool:
        """See :attr:`Stage.reads_purged_topic`. The responder stores subscriptions."""
        return bool(self.subtopology.processors_with(SubscriptionReceive))

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        if any(isinstance(node, Processor) and isinstance(node.operation, SENDS) for node in nodes):
            return "what a join by a foreign key sends depends on when the records of both tables came"
        return ""

    def replaced_updates(self, nodes: Collection[Node]) -> tuple[Processor, ...]:
        """See :meth:`Stage.replaced_updates`."""
        return tuple(node for node in self.results if node in nodes)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. The table's rows are among them."""
        others = {node.store for node in self.subtopology.processors_with(*_OF_OTHER_STATE)}
        return dict.fromkeys((store for store in self.subtopology.stores if store not in others), Restore.LAST_OF_KEY)

    def owns(self, node: Processor) -> bool:
        """See :meth:`Stage.owns`. The nodes that send, and those of the result, are among them."""
        return isinstance(node.operation, _OF_JOIN)

    def faults(self, others: Sequence[Stage], reached: Collection[str]) -> Iterable[Diagnostic]:
        """See :meth:`Stage.faults`."""
        for node in self.nodes[1:]:
            yield Diagnostic(
                node.location,
                "a join by a foreign key shares its sub-topology with another one",
                "Write the table that both join, or the result of the first one, to a compacted topic with "
                "to_stream().to('…'), and join Topology.table('…')",
            )
        for other in others:
            for node in other.nodes if other.is_at_sources else ():
                yield Diagnostic(
                    node.location,
                    f"{other.operation_of(node)} shares its sub-topology with a join by a foreign key",
                    "Put repartition() before it: that makes two",
                )
        read = [source for source in self.subtopology.sources if source.carried is None]
        if len(self.nodes) == 1 and len(read) > 1:
            topics = ", ".join(source.topic for source in read)
            yield Diagnostic(
                self.nodes[0].location,
                f"the sub-topology of a join by a foreign key reads several topics: {topics}",
                "Put repartition() behind one of them, before they meet",
            )
