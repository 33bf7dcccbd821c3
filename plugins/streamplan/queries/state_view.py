"""What the changelogs of a pipeline hold, in memory: the last value of each key, by store and partition.

This module asks Kafka nothing. ``follower`` reads the changelogs and calls :meth:`StateView.apply`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from threading import Lock
from typing import NamedTuple, TypeAlias

from streamplan.errors import StreamplanError
from streamplan.kafka_port import RecordBatch
from streamplan.queries.selections import Selection
from streamplan.queries.sorted_keys import SortedKeys
from streamplan.queries.store_form import StoreForm, require_store

_LEAST_SEGMENT_MS = 60_000
"""``Stores.persistentWindowStore``: the interval of a segment is half of the retention, and at least a minute."""

SCANNED_ENTRIES = 10_000
"""A query looks at so many entries at a time. In between, changes are applied and other queries are answered."""

_BEFORE_ALL_TIME = -(1 << 63)


class PartitionNotHeld(StreamplanError):
    """The key is in a partition that is not read here. Another service, or another :class:`Queries`, may have it.

    Args:
        form: The store.
        partition: The partition of the key; None where any of those that are not read here may have it.
        held: The partitions that are read.
    """

    def __init__(self, form: StoreForm, partition: int | None, held: Collection[int]) -> None:
        self.partition = partition
        others = sorted({*range(form.partitions)} - {*held})
        where = f"in partition {partition}" if partition is not None else f"perhaps in partition {_listed(others)}"
        super().__init__(
            f"the key of store {form.name} is {where} of {form.partitions}",
            expected=f"one of the partitions that are read here: {_listed(held)}",
            remedy="Ask the service that reads that partition, or start this one with it (--partitions).",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return StreamplanError, (str(self),)


class Entry(NamedTuple):
    """A key and its value, in bytes.

    Attributes:
        key: The key as the store has it, with the bytes of a window or a session.
        partition: Its partition.
        value: The value.
        timestamp: In ms since the epoch.
    """

    key: bytes
    partition: int
    value: bytes
    timestamp: int


Place: TypeAlias = tuple[bytes, int]
"""The stored key of an entry and its partition, by which entries are ordered."""


class Page(NamedTuple):
    """Some entries of a query in their order.

    Attributes:
        entries: The entries.
        after: The place of the last one where there are more; None at the end.
    """

    entries: list[Entry]
    after: Place | None


class PartitionState:
    """What one partition of a changelog holds.

    Args:
        form: The store.
        partition: The number of the partition.
    """

    def __init__(self, form: StoreForm, partition: int) -> None:
        self._form, self._partition = form, partition
        self._values: dict[bytes, tuple[bytes, int]] = {}
        self._keys = SortedKeys()
        self._observed, self._swept = _BEFORE_ALL_TIME, _BEFORE_ALL_TIME
        self.position = 0
        """The offset that is read next."""
        self.end = 0
        """The end of the partition, as the brokers said it last."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def lag(self) -> int:
        """The offsets that were not read yet."""
        return max(0, self.end - self.position)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Take a record of the changelog. A null value deletes the key."""
        if self._form.retention_ms is not None and not self._is_kept(key):
            value = None  # it came later than the store keeps it
        if value is None:
            if self._values.pop(key, None) is not None:
                self._keys.remove(key)
            return
        if key not in self._values:
            self._keys.add(key)
        self._values[key] = value, timestamp

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a stored key; None for none."""
        found = self._values.get(key)
        return None if found is None or self._is_over(key) else Entry(key, self._partition, *found)

    def between(self, first: bytes | None, last: bytes | None, *, reverse: bool) -> Iterator[Entry]:
        """Yield the entries of stored keys from one to another, in the order of the bytes."""
        for key in self._keys.between(first, last, reverse=reverse):
            if not self._is_over(key):
                yield Entry(key, self._partition, *self._values[key])

    def _is_kept(self, key: bytes) -> bool:
        """Take notice of the time of a window, and return whether its segment is still there."""
        time = self._form.time_ms(key)
        if time is None:
            return False
        self._observed = max(self._observed, time)
        live = (self._observed - self._retention_ms) // self._segment_ms
        if live > self._swept:
            self._swept = live
            for old in [each for each in self._values if (self._form.time_ms(each) or 0) // self._segment_ms < live]:
                del self._values[old]
                self._keys.remove(old)
        return time // self._segment_ms >= live

    def _is_over(self, key: bytes) -> bool:
        """Whether the window of a key is older than the retention, counted back from the newest one."""
        time = self._form.time_ms(key)
        return time is not None and time <= self._observed - self._retention_ms

    @property
    def _retention_ms(self) -> int:
        return self._form.retention_ms or 0

    @property
    def _segment_ms(self) -> int:
        return max(self._retention_ms // 2, _LEAST_SEGMENT_MS)


class StoreView:
    """A store, as far as its partitions are read.

    Args:
        form: The store.
        partitions: The partitions that are read.
        lock: Is held while anything is read or changed.
    """

    def __init__(self, form: StoreForm, partitions: Collection[int], lock: Lock) -> None:
        self.form = form
        self._lock = lock
        self.states = {number: PartitionState(form, number) for number in sorted(partitions)}

    def __len__(self) -> int:
        return sum(map(len, self.states.values()))

    def get(self, stored: bytes) -> Entry | None:
        """Return the entry of a stored key; None for none.

        The partition by the key is looked at first, and then the others: a producer may place its keys otherwise.

        Raises:
            PartitionNotHeld: The key may be in a partition that is not read.
        """
        partition = self._require_held(self.form.raw_key(stored))
        first = [] if partition is None else [partition]
        with self._lock:
            for number in [*first, *(each for each in self.states if each != partition)]:
                if (found := self.states[number].get(stored)) is not None:
                    return found
        if partition is None and len(self.states) < self.form.partitions:
            raise PartitionNotHeld(self.form, None, self.states)
        return None

    def page(self, selection: Selection, *, after: Place | None = None, limit: int) -> Page:
        """Return entries in the order of their stored keys.

        Args:
            selection: Which entries, and in which order.
            after: Only entries behind this place; None for the first page.
            limit: The greatest number of entries.

        Raises:
            PartitionNotHeld: The windows of one key are selected, which is in a partition that is not read.
        """
        if selection.of_key is not None:
            self._require_held(selection.of_key)
        found, scanned = self._scan(selection, after, limit + 1)
        while scanned is not None and len(found) <= limit:
            more, scanned = self._scan(selection, scanned, limit + 1 - len(found))
            found += more
        return Page(found[:limit], found[limit - 1][:2] if len(found) > limit else None)

    def _scan(self, selection: Selection, after: Place | None, wanted: int) -> tuple[list[Entry], Place | None]:
        """Return the next entries of a selection, and how far it was looked; None for to the end.

        Args:
            selection: Which entries, and in which order.
            after: Only entries behind this place.
            wanted: It is not looked further than to so many entries.
        """
        first, last, reverse = selection.first, selection.last, selection.reverse
        if after is not None:
            first, last = (first, _least(last, after[0])) if reverse else (_greatest(first, after[0]), last)

        def is_behind(entry: Entry) -> bool:
            return after is None or (entry[:2] < after if reverse else entry[:2] > after)

        found: list[Entry] = []
        with self._lock:
            of_partitions = [state.between(first, last, reverse=reverse) for state in self.states.values()]
            merged = merge(*of_partitions, key=lambda entry: entry[:2], reverse=reverse)
            for number, entry in enumerate(filter(is_behind, merged), 1):
                if self._is_selected(entry, selection):
                    found.append(entry)
                if len(found) == wanted or number == SCANNED_ENTRIES:
                    return found, entry[:2]
        return found, None

    def _is_selected(self, entry: Entry, selection: Selection) -> bool:
        is_of_key = selection.of_key is None or self.form.raw_key(entry.key) == selection.of_key
        return is_of_key and selection.where(entry.key)

    def _require_held(self, raw: bytes) -> int | None:
        partition = self.form.partition_of(raw)
        if partition is not None and partition not in self.states:
            raise PartitionNotHeld(self.form, partition, self.states)
        return partition


class StateView:
    """The stores of a pipeline.

    Args:
        name: The name of the pipeline.
        forms: The stores.
        held: The partitions of each store that are read.
    """

    def __init__(self, name: str, forms: Mapping[str, StoreForm], held: Mapping[str, Collection[int]]) -> None:
        self.name = name
        self.forms = forms
        self._lock = Lock()
        self.stores = {store: StoreView(form, held[store], self._lock) for store, form in forms.items()}
        self._of_changelog = {form.changelog: self.stores[store] for store, form in forms.items()}

    def store(self, name: str) -> StoreView:
        """Return a store.

        Raises:
            UnknownStore: No store of this name is read.
        """
        require_store(self.stores, name, self.name)
        return self.stores[name]

    @property
    def changelogs(self) -> Mapping[str, Collection[int]]:
        """By changelog the partitions that are read."""
        return {topic: tuple(store.states) for topic, store in self._of_changelog.items() if store.states}

    def apply(self, topic: str, batch: RecordBatch) -> None:
        """Take records of a partition of a changelog."""
        state = self._of_changelog[topic].states[batch.partition]
        records = [*zip(batch.keys, batch.values, batch.timestamps, strict=True)]
        position = batch.offsets[-1] + 1 if records else 0
        with self._lock:
            for key, value, timestamp in records:
                if key is not None:
                    state.put(key, value, timestamp)
            state.position = max(state.position, position)

    def reach(self, topic: str, partition: int, position: int, end: int) -> None:
        """Take notice of where reading is, and of the end of a partition.

        Args:
            topic: The changelog.
            position: Everything before it was read. Markers of transactions and aborted records may stand there.
            end: The end of the partition.
        """
        state = self._of_changelog[topic].states[partition]
        state.position = max(state.position, position)
        state.end = max(state.end, end, position)

    def take(self, other: StateView) -> None:
        """Take the partitions that another view has read, in place of what is held of them."""
        with self._lock:
            for name, store in other.stores.items():
                self.stores[name].states.update(store.states)

    def positions(self, topic: str) -> dict[int, int]:
        """Return up to where a changelog was read: by partition the offset that comes next."""
        return {number: state.position for number, state in self._of_changelog[topic].states.items()}


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


def _least(bound: bytes | None, key: bytes) -> bytes:
    return key if bound is None else min(bound, key)


def _greatest(bound: bytes | None, key: bytes) -> bytes:
    return key if bound is None else max(bound, key)
