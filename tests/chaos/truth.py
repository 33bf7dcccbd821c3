"""What the topics must hold, reckoned from `orders` alone and compared record by record.

Each part takes records in the order of their partitions and raises :class:`Violation` at the first that is wrong. They
keep only what is between two cuts, so that a round costs what is new in it.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.log import Record
from tests.chaos.murmur2 import partition_of
from tests.chaos.positions import Commit

PARTITIONS = 2
BAD = b"bad_"
"""The keys of records that the suite itself puts among the orders: they belong into the dead-letter topic."""


class Violation(Exception):
    """The first wrong record. ``kind`` is lost, doubled or wrong."""

    def __init__(self, kind: str, where: str, expected: object, observed: object) -> None:
        super().__init__(f"{kind}: {where}: expected {expected}, observed {observed}")
        self.kind, self.where = kind, where
        self.expected, self.observed = str(expected), str(observed)


class Order(NamedTuple):
    """An order where it lies in the source topic."""

    number: int
    partition: int
    offset: int
    timestamp: int
    value: bytes


@dataclass
class Source:
    """Order numbers are 0 to N-1, each once, rising within a partition, each in the partition of its key.

    ``re_keyed``  by source and repartition partition the orders that the repartition topic has not shown yet
    ``bad``       by source partition the records that the dead-letter topic has not shown yet
    """

    re_keyed: dict[tuple[int, int], deque[Order]] = field(default_factory=dict)
    bad: dict[int, deque[Record]] = field(default_factory=dict)
    rejected: int = 0
    orders: int = 0
    totals: Counter[bytes] = field(default_factory=Counter)
    _last: list[int] = field(default_factory=lambda: [-1] * PARTITIONS)
    _complete: int = 0
    _ahead: set[int] = field(default_factory=set)

    def take(self, record: Record) -> None:
        if (record.key or b"").startswith(BAD):
            self.bad.setdefault(record.partition, deque()).append(record)
            self.rejected += 1
            return
        order = json.loads(record.value or b"")
        number = int(order["Id"].removeprefix("order_"))
        key = b"order_%d" % number
        if record.key != key or order != {"Id": key.decode(), "ProductType": number % 2}:
            raise Violation("wrong", record.place, f"order {number}", (record.key, record.value))
        if record.partition != partition_of(key, PARTITIONS):
            raise Violation("wrong", record.place, f"{key!r} in its murmur2 partition", record.partition)
        if number <= self._last[record.partition]:
            known = number < self._complete or number in self._ahead
            raise Violation(
                "doubled" if known else "wrong",
                record.place,
                f"a number above {self._last[record.partition]}",
                number,
            )
        self._last[record.partition] = number
        self._ahead.add(number)
        self.orders += 1
        product = b"%d" % (number % 2)
        self.totals[product] += 1
        to = partition_of(product, PARTITIONS)
        found = Order(number, record.partition, record.offset, record.timestamp, record.value or b"")
        self.re_keyed.setdefault((record.partition, to), deque()).append(found)

    def close(self, *, stopped: bool = False) -> None:
        """To be called at a cut. ``stopped``: nobody writes any more, so nothing may be missing at all.

        Numbers rise within a partition: up to the lesser of the two last ones each was seen, or is lost.
        """
        until = max(self._last) if stopped else min(self._last)
        while self._complete in self._ahead:
            self._ahead.remove(self._complete)
            self._complete += 1
        if self._complete <= until:
            raise Violation("lost", "topic orders", f"order {self._complete}", f"none among those up to {until}")


@dataclass
class Repartition:
    """Every order once, whole, in the partition of its product, in the order of its source partition.

    ``pending``  by partition the records (offset, key) that no committed position has passed yet
    """

    source: Source
    pending: dict[int, deque[tuple[int, bytes]]] = field(default_factory=dict)
    records: int = 0

    def take(self, record: Record) -> None:
        number = int(json.loads(record.value or b"")["Id"].removeprefix("order_"))
        product = b"%d" % (number % 2)
        if record.key != product:
            raise Violation("wrong", record.place, f"key {product!r} of order {number}", record.key)
        if record.partition != partition_of(product, PARTITIONS):
            raise Violation("wrong", record.place, f"{product!r} in its murmur2 partition", record.partition)
        origin = partition_of(b"order_%d" % number, PARTITIONS)
        waiting = self.source.re_keyed.get((origin, record.partition))
        if not waiting:
            raise Violation("doubled", record.place, "nothing more", f"order {number}")
        expected = waiting.popleft()
        if expected.number != number:
            kind = "lost" if number > expected.number else "doubled"
            raise Violation(
                kind,
                record.place,
                f"order {expected.number} of orders-{expected.partition} offset {expected.offset}",
                f"order {number}",
            )
        if (record.value, record.timestamp) != (expected.value, expected.timestamp):
            raise Violation("wrong", record.place, expected, (record.value, record.timestamp))
        self.pending.setdefault(record.partition, deque()).append((record.offset, product))
        self.records += 1

    def missing(self, positions: dict[int, int]) -> Order | None:
        """An order before the group's ``positions`` in `orders` that has not come."""
        for (partition, _), waiting in self.source.re_keyed.items():
            if waiting and waiting[0].offset < positions[partition]:
                return waiting[0]
        return None


@dataclass
class DeadLetters:
    """Every bad record once, whole, with where it came from."""

    source: Source
    records: int = 0

    def take(self, record: Record) -> None:
        origin = int(record.headers["streamplan.source.partition"])
        offset = int(record.headers["streamplan.source.offset"])
        waiting = self.source.bad.get(origin)
        if not waiting:
            raise Violation("doubled", record.place, "nothing more", (record.key, record.value))
        expected = waiting.popleft()
        if (record.key, record.value, offset) != (expected.key, expected.value, expected.offset):
            kind = "lost" if offset > expected.offset else "doubled"
            raise Violation(kind, record.place, f"{expected.key!r} of {expected.place}", (record.key, offset))
        self.records += 1

    def missing(self, positions: dict[int, int]) -> Record | None:
        for partition, waiting in self.source.bad.items():
            if waiting and waiting[0].offset < positions[partition]:
                return waiting[0]
        return None


@dataclass
class Changelog:
    """Every value is the count of its key up to the position that was committed with it, and none is left out.

    One micro-batch commits a partition's position and, for every key that got records since the position before, its
    new count. So the positions in the order of their commits say what the changelog is to hold, value by value.

    ``expected``  by partition the updates that are due: the position, and the new count of each key
    """

    repartition: Repartition
    counts: Counter[bytes] = field(default_factory=Counter)
    expected: dict[int, deque[tuple[int, dict[bytes, int]]]] = field(default_factory=dict)
    last: dict[bytes, int] = field(default_factory=dict)
    records: int = 0
    positions: dict[int, int] = field(default_factory=dict)

    def plan(self, commit: Commit) -> None:
        """A position was committed; the records before it have all been seen."""
        before = self.positions.get(commit.partition, 0)
        if commit.position < before:
            raise Violation("wrong", commit.at, f"{commit.topic}-{commit.partition} at {before} or past it", commit)
        self.positions[commit.partition] = commit.position
        waiting = self.repartition.pending.get(commit.partition, deque())
        changed: dict[bytes, int] = {}
        while waiting and waiting[0][0] < commit.position:
            _, key = waiting.popleft()
            self.counts[key] += 1
            changed[key] = self.counts[key]
        if changed:
            self.expected.setdefault(commit.partition, deque()).append((commit.position, changed))

    def take(self, records: Iterable[Record]) -> list[Record]:
        """Compare, and give back those whose positions have not been seen yet."""
        later = []
        for record in records:
            waiting = self.expected.get(record.partition)
            if not waiting:
                later.append(record)
                continue
            key, value = record.key or b"", int.from_bytes(record.value or b"", "big")
            position, changed = waiting[0]
            if changed.get(key) != value:
                last = self.last.get(key, 0)
                kind = "doubled" if value <= last else "lost" if value > max(changed.values()) else "wrong"
                where = f"{record.place}, position {position} of the repartition topic"
                raise Violation(kind, where, changed, {key: value})
            if value <= self.last.get(key, 0):  # reckoned without the positions
                raise Violation("doubled", record.place, f"more than {self.last[key]}", value)
            self.last[key] = value
            self.records += 1
            del changed[key]
            if not changed:
                waiting.popleft()
        return later

    def missing(self, positions: dict[int, int]) -> tuple[int, int, dict[bytes, int]] | None:
        """Partition, position and counts of an update that is due by the group's ``positions`` and has not come."""
        for partition, waiting in self.expected.items():
            if waiting and waiting[0][0] <= positions[partition]:
                return partition, *waiting[0]
        return None
