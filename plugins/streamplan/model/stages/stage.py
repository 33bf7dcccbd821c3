"""What a kind of state says of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    TableSource,
)
from streamplan.model.processor_topology import Node, Processor, Source, Subtopology


class Restore(Enum):
    """Which records of a changelog a state is built from."""

    EVERY_RECORD = auto()
    LAST_OF_KEY = auto()


@dataclass(frozen=True)
class Stage:
    """The state of one kind in a sub-topology. A subclass is a kind.

    Attributes:
        subtopology: That has the state.
        nodes: The processors that pass what the state makes of records.
        has_one_node: Whether Spark's operator has one such processor. Others share the operator.
        is_at_sources: Whether it is given what the sources read, and not what operations have made of that.
        leaves_out_records: Whether operations are not given all records of the sources behind it.
        rejects_beside: Whether its plans reject what comes of no other state within the streaming plan. Where other
            state gives it records, too, that need not pass by the other state then.
    """

    subtopology: Subtopology
    nodes: tuple[Processor, ...]

    has_one_node: ClassVar[bool] = False
    is_at_sources: ClassVar[bool] = False
    leaves_out_records: ClassVar[bool] = False
    rejects_beside: ClassVar[bool] = False

    @property
    def aggregates(self) -> bool:
        """Whether a record is added to what the store has of its key."""
        return False

    @property
    def sorts_in_python(self) -> bool:
        """Whether a Python worker sorts what a micro-batch has of a stream task."""
        return False

    @property
    def restores_deletions(self) -> bool:
        """Whether the null values of a changelog belong to its state."""
        return False

    @property
    def needs_every_record(self) -> bool:
        """Whether each result is made of all records of its key."""
        return False

    @property
    def needs_superseded(self) -> bool:
        """Whether its results are made of values that a compacted topic need not have any more."""
        return False

    @property
    def recounts_in_state(self) -> bool:
        """Whether its recount is a ``transformWithState``."""
        return False

    @property
    def recounts_last_updates(self) -> bool:
        """Whether its recount knows no update that another one of its key followed."""
        return False

    @property
    def is_divisible(self) -> bool:
        """Whether each row of a micro-batch is made of one record, so that a part of it can be committed."""
        return False

    @property
    def is_native(self) -> bool:
        """Whether it is Spark's ``groupBy().agg()``, which must be alone, and not a ``transformWithState``."""
        return False

    @property
    def has_state(self) -> bool:
        """Whether there is a state."""
        return bool(self.nodes)

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """Return the processors of a sub-topology that pass what a state of this kind makes of records."""
        return ()

    def has(self, node: Processor) -> bool:
        """Return whether a processor is one of its nodes, whatever expressions it has: a validation tries others."""
        return any(node.name == own.name for own in self.nodes)

    def owns(self, node: Processor) -> bool:
        """Return whether a processor belongs to it alone, so that its plans know it."""
        return self.has(node)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources whose records a stage at the sources is given."""
        return self.subtopology.sources

    @property
    def takers(self) -> tuple[Processor, ...]:
        """The processors that are given the records of which it makes its results."""
        return self.nodes

    @property
    def read_nodes(self) -> tuple[Processor, ...]:
        """The processors of other operations whose stores it reads."""
        return ()

    @property
    def looked_up(self) -> tuple[Processor, ...]:
        """The processors of which it is given each update, because it looks up in their tables."""
        return ()

    @property
    def results(self) -> tuple[Processor, ...]:
        """The processors behind which no other state can stand."""
        return self.nodes

    @property
    def stores(self) -> Mapping[str, Restore]:
        """Its state stores, each with the records of its changelog that it is restored from."""
        own = (node.store for node in self.nodes if node.writes_store)
        return dict.fromkeys((store for store in own if store is not None), Restore.LAST_OF_KEY)

    @property
    def restores_in_workers(self) -> bool:
        """Whether Python workers can select the last records of its changelogs, which are small."""
        return False

    @property
    def identity(self) -> Mapping[str, str]:
        """What a checkpoint says of it beside its stores."""
        return {}

    @property
    def idle_ms(self) -> int | None:
        """After so long without a record a stream task goes on by the wall clock; None where it does not."""
        return None

    @property
    def punctuates_ms(self) -> int | None:
        """After so long punctuators are called by the wall clock; None where none are."""
        return None

    @property
    def ttl_ms(self) -> int | None:
        """After so long a stored value is gone that was not put again; None where it is kept."""
        return None

    @property
    def reads_purged_topic(self) -> bool:
        """Whether its stores hold what it has read of a topic whose records are deleted once they are processed."""
        return False

    @property
    def is_final(self) -> bool:
        """Whether it passes each result once, when its window closes."""
        return False

    @property
    def overlap(self) -> int:
        """How many windows a record is in at most."""
        return 1

    @property
    def passes_updates_in_order(self) -> bool:
        """Whether a consumer can see the order of the updates of several keys: an operation gives them other keys."""
        return False

    @property
    def read_without_limit(self) -> tuple[Source, ...]:
        """The sources of which a micro-batch has all that there is, so that no record comes before its table's row."""
        return ()

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """What the time of the stream task, which all of its keys share, decides of what is stored.

        By that time windows and sessions close, records that wait for a match are given up, stored records and values
        are forgotten, and timers fire. Time windows that pass each update are not among them: Spark's watermark, by
        which they close, is that of all stream tasks.

        Returns:
            What is decided, by the name of the processor.
        """
        return {}

    @property
    def needs_other_records(self) -> str:
        """Why what is made of a record depends on other records, said of the sub-topology; empty where it does not."""
        return f"has state ({', '.join(self.subtopology.stores)})"

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """Return why what some nodes have made depends on when the records came; empty where it does not.

        Args:
            nodes: Nodes of the sub-topology, with all nodes before them.
        """
        return ""

    def replaced_updates(self, nodes: Collection[Node]) -> tuple[Processor, ...]:
        """Return the processors among some nodes of whose updates a recount knows the last one of each key only."""
        return ()

    def part_of(self, node: Processor) -> Stage:
        """Return the stage that a processor belongs to: itself, or the part of a chain."""
        return self

    def faults(self, others: Sequence[Stage], reached: Collection[str]) -> Iterable[Diagnostic]:
        """Yield why the sub-topology is refused.

        Args:
            others: The other stages of the sub-topology.
            reached: The names of the nodes behind the results of all stages.
        """
        return ()

    def _operation_of(self, node: Processor) -> str:
        """Return what one of its processors does, as an error names it."""
        return type(node.operation).__name__.lower().removesuffix("function")


@dataclass(frozen=True)
class StatelessStage(Stage):
    """Stands for no state, where a sub-topology has none."""

    is_divisible = True

    @property
    def needs_other_records(self) -> str:
        """See :attr:`Stage.needs_other_records`."""
        if self.subtopology.processors_with(TableSource):
            return "reads a table, whose last record of a key counts"
        return ""


def any_of(nodes: Iterable[Node], others: Collection[Node]) -> bool:
    """Return whether one of some nodes is among others."""
    return any(node in others for node in nodes)
