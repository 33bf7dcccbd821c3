"""Looks at the topics while orders go on, at a cut of stable offsets, and compares all that is new with the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.log import Group, Log, Record
from tests.chaos.positions import TOPIC, commits, partition_of_group
from tests.chaos.truth import PARTITIONS, Changelog, DeadLetters, Repartition, Source, Violation
from tests.chaos.waiting import NotSettled, wait_for

APPLICATION = "orders-aggregator"
ORDERS = "orders"
REPARTITION = f"{APPLICATION}-orders-products-quantities-repartition"
CHANGELOG = f"{APPLICATION}-orders-products-quantities-changelog"
DEAD_LETTER = f"{APPLICATION}-dead-letter"
OFFSETS_PARTITIONS = 8
"""Of ``__consumer_offsets`` on the local brokers."""

MARKER_SECONDS = 30.0
"""A transaction's markers reach its partitions one after the other: so long until all of it is seen, or it is lost."""

RECOVER_SECONDS = 900.0
"""What it takes is measured and told; the deadline is for what never comes back, on a machine with more to do."""


@dataclass
class Verification:
    """All that was verified so far. ``servers`` is where the clients find the brokers."""

    servers: str
    source: Source = field(default_factory=Source)

    def __post_init__(self) -> None:
        self.repartition = Repartition(self.source)
        self.dead_letters = DeadLetters(self.source)
        self.changelog = Changelog(self.repartition)
        self._group = Group(self.servers, APPLICATION)
        of_group = [partition_of_group(APPLICATION, OFFSETS_PARTITIONS)]
        self._offsets = Log(self.servers, TOPIC, of_group)
        self._orders, self._repartition, self._changelog, self._letters = (
            Log(self.servers, topic, range(PARTITIONS)) for topic in (ORDERS, REPARTITION, CHANGELOG, DEAD_LETTER)
        )
        self._early: list[Record] = []

    def close(self) -> None:
        self._group.close()

    def await_processed(self, seconds: float = RECOVER_SECONDS) -> None:
        """Until all orders that are there now are re-keyed, counted, and their totals committed."""
        ends: dict[str, dict[int, int]] = {}

        def reached(log: Log) -> str:
            target = ends.setdefault(log.topic, {}) or log.ends()
            ends[log.topic] = target
            positions = self._group.positions(log.topic, PARTITIONS)
            behind = {number: end - positions[number] for number, end in target.items() if positions[number] < end}
            return f"{log.topic}: offsets before the end by partition: {behind}" if behind else ""

        wait_for(
            "all processed that was there",
            lambda: reached(self._orders) or reached(self._repartition),
            seconds,
            interval=0.1,
        )

    def look(self, *, stopped: bool = False) -> None:
        """Everything up to this moment is as it must be, or :class:`Violation`.

        ``stopped``: the producer has ended and all is processed, so that the whole must be there to the last record.
        """
        missing: Violation | None = None

        def lacking() -> str:
            nonlocal missing
            missing = self._look()
            return str(missing) if missing else ""

        try:
            wait_for("all of every committed transaction", lacking, MARKER_SECONDS)
        except NotSettled as error:
            if missing is not None:
                raise missing from error
            raise
        self.source.close(stopped=stopped)
        if stopped:
            self._whole()

    def _look(self) -> Violation | None:
        """One pass. What a committed position promises and nobody has seen yet is given back, not raised."""
        # In this order: whatever lies before an earlier end was made of what lies before a later one.
        read = self._group.positions(ORDERS, PARTITIONS)
        counted = self._group.positions(REPARTITION, PARTITIONS)
        logs = (self._changelog, self._letters, self._offsets, self._repartition, self._orders)
        ends = {log.topic: log.ends() for log in logs}
        for record in self._orders.read(ends[ORDERS]):
            self.source.take(record)
        for record in self._repartition.read(ends[REPARTITION]):
            self.repartition.take(record)
        for record in self._letters.read(ends[DEAD_LETTER]):
            self.dead_letters.take(record)
        for commit in commits(self._offsets.read(ends[TOPIC]), APPLICATION):
            if commit.topic == REPARTITION:
                self.changelog.plan(commit)
        for record in self._changelog.read(ends[CHANGELOG]):
            self._early.append(record)  # one by one: a reading that breaks off goes on where it was
        self._early = self.changelog.take(self._early)
        if (order := self.repartition.missing(read)) is not None:
            return Violation("lost", REPARTITION, order, f"none, and position {read[order.partition]} committed")
        if (bad := self.dead_letters.missing(read)) is not None:
            return Violation("lost", DEAD_LETTER, bad, f"none, and position {read[bad.partition]} committed")
        if (due := self.changelog.missing(counted)) is not None:
            return Violation("lost", f"{CHANGELOG}-{due[0]}", due[2], f"none, and position {due[1]} committed")
        if self._early:
            return Violation("doubled", self._early[0].place, "no update without a position", self._early[0])
        return None

    def _whole(self) -> None:
        orders = self.source.orders
        for what, expected, observed in (
            ("records in the repartition topic", orders, self.repartition.records),
            ("records in the dead-letter topic", self.source.rejected, self.dead_letters.records),
            ("last values in the changelog", dict(self.source.totals), self.changelog.last),
            ("updates that await their position", 0, len(self._early)),
        ):
            if expected != observed:
                raise Violation("wrong", what, expected, observed)
