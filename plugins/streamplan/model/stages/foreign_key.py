"""One side of a join of tables by a foreign key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.operations import (
    SENDS,
    ForeignKeyResult,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.processor_topology import Node, Processor, Source, Subtopology
from streamplan.model.stages.stage import Restore, Stage


@dataclass(frozen=True)
class ForeignKeyStage(Stage):
    """One side of a join of tables by a foreign key: that of the subscriber, or that of the responder.

    ``nodes`` is the processor that sends the subscriptions, or the one that stores them.
    """

    has_one_node: ClassVar[bool] = True
    is_at_sources: ClassVar[bool] = True
    leaves_out_records: ClassVar[bool] = True

    recounts_last_updates = True
    is_divisible = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return (
            *subtopology.processors_with(SubscriptionSend),
            *subtopology.processors_with(SubscriptionReceive),
        )

    @property
    def node(self) -> Processor:
        """The processor with the state of the side."""
        (node,) = self.nodes
        return node

    @property
    def join(self) -> Processor | None:
        """The processor that joins the responses to the subscriptions; None on the side of the responder.

        Both tables of several joins may be the same. The processors of each kind have the order of their joins.
        """
        if not isinstance(self.node.operation, SubscriptionSend):
            return None
        joins = self.subtopology.processors_with(ResponseJoin)
        senders = [node.name for node in self.subtopology.processors_with(SubscriptionSend)]
        return joins[senders.index(self.node.name)]

    @property
    def result(self) -> Processor | None:
        """The processor that passes the joined table; None on the side of the responder."""
        join = self.join
        return None if join is None else self._behind(join, ForeignKeyResult)

    @property
    def responders(self) -> tuple[Processor, ...]:
        """The processors that respond to a subscription, and to all those of a key; none for the subscriber."""
        operation = self.node.operation
        if not isinstance(operation, SubscriptionReceive):
            return ()
        changes = self.subtopology.processors_with(ForeignTableJoin)
        return (
            self._behind(self.node, SubscriptionJoin),
            next(node for node in changes if node.store == operation.store),
        )

    @property
    def table(self) -> Processor:
        """The processor that passes the table of the side."""
        taker = self.responders[1] if self.responders else self.node
        by_name = {node.name: node for node in self.subtopology.processors}
        return by_name[self.subtopology.predecessors[taker.name][0]]

    @property
    def source(self) -> Source | None:
        """The source of the table of the side; None where it is the result of another join."""
        return next((source for source in self.subtopology.sources if self._reads(self.table, source)), None)

    @property
    def carrying(self) -> Source:
        """The source with what the other side has written."""
        taker = self.join or self.node
        return next(source for source in self.subtopology.sources if self._reads(taker, source))

    @property
    def registration(self) -> str:
        """The topic that the subscriptions are written to; empty for the responder."""
        before = self.subtopology.predecessors
        return next((sink.topic for sink in self.subtopology.sinks if self.node.name in before[sink.name]), "")

    @property
    def sources(self) -> tuple[Source, ...]:
        """See :attr:`Stage.sources`."""
        return (self.carrying,) if self.source is None else (self.source, self.carrying)

    @property
    def takers(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.takers`."""
        join = self.join
        return (self.node, self.responders[1]) if join is None else (self.node, join)

    @property
    def results(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.results`. Stages are divided by those of all joins."""
        sides = (ForeignKeyStage(self.subtopology, (node,)) for node in self.nodes)
        return tuple(side.join for side in sides if side.join is not None)

    @property
    def reads_purged_topic(self) -> bool:
        """See :attr:`Stage.reads_purged_topic`. The responder stores subscriptions."""
        return isinstance(self.node.operation, SubscriptionReceive)

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
        own = {node.store for node in (self.table, self.node, self.result) if node is not None}
        return dict.fromkeys((store for store in self.subtopology.stores if store in own), Restore.LAST_OF_KEY)

    def owns(self, node: Processor) -> bool:
        """See :meth:`Stage.owns`. The nodes that send, and those of the result, are among them."""
        own = (self.node, *self.responders, self.join, self.result)
        return any(each is not None and each.name == node.name for each in own)

    def _behind(self, before: Processor, operation: type[ForeignKeyResult | SubscriptionJoin]) -> Processor:
        found = self.subtopology.processors_with(operation)
        return next(node for node in found if before.name in self.subtopology.predecessors[node.name])

    def _reads(self, node: Processor, source: Source) -> bool:
        return source.name in self.subtopology.predecessors[node.name]


@dataclass(frozen=True)
class ResultForeignKeyStage(ForeignKeyStage):
    """A side whose table is the result of another join, or a table that another side reads at the source."""

    is_at_sources: ClassVar[bool] = False
    leaves_out_records: ClassVar[bool] = False


def foreign_key_sides_of(subtopology: Subtopology) -> list[ForeignKeyStage]:
    """Return the sides of joins by a foreign key that a sub-topology has: first those that send subscriptions."""
    return [ForeignKeyStage(subtopology, (node,)) for node in ForeignKeyStage.nodes_in(subtopology)]


def foreign_key_joins(subtopology: Subtopology) -> list[ForeignKeyStage]:
    """Return the sides that send subscriptions, in the order of their joins."""
    return [side for side in foreign_key_sides_of(subtopology) if side.join is not None]


def foreign_key_sides(stage: ForeignKeyStage) -> Iterable[ForeignKeyStage]:
    """Divide the joins by a foreign key of a sub-topology: each side has a state of its own.

    Args:
        stage: Has all of them.
    """
    read = set[str]()
    for side in foreign_key_sides_of(stage.subtopology):
        if side.source is None or side.source.name in read:
            yield ResultForeignKeyStage(stage.subtopology, side.nodes)
            continue
        read.add(side.source.name)
        yield side
