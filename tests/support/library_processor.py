"""The real library's Processor API, with the functions of this process: a store of JSON values, and a punctuator."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from typing import Any

from py4j.java_gateway import get_field

from tests.support.kafka_streams import STREAMS, strings
from tests.support.streams_library import Callback, Library


def moment_of(at: int) -> str:
    """A time in ms as a value in JSON has it."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms_of(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


class TaskProcessor:
    """What a stream task does. A subclass says what it does with a record, and at the time that a key's value has.

    ``timer``  the field of a value that has this time
    """

    timer: str

    def __init__(self, jvm: Any, store: str, every_ms: int) -> None:
        self._jvm, self._name, self._every_ms = jvm, store, every_ms

    def init(self, context: Any) -> None:
        self._context, self._store = context, context.getStateStore(self._name)
        punctuation = self._jvm.org.apache.kafka.streams.processor.PunctuationType.STREAM_TIME
        punctuator = Callback(f"{STREAMS}.processor.Punctuator", punctuate=self._punctuate)
        context.schedule(self._jvm.java.time.Duration.ofMillis(self._every_ms), punctuation, punctuator)

    def process(self, record: Any) -> None:
        if record.key() is not None:  # ours is a dead letter
            value = record.value()
            self.on_record(bytes(record.key()), None if value is None else json.loads(bytes(value)), record.timestamp())

    def on_record(self, key: bytes, value: dict[str, Any] | None, at: int) -> None:
        raise NotImplementedError

    def on_timer(self, key: bytes, value: dict[str, Any], at: int) -> None:
        raise NotImplementedError

    def get(self, key: bytes) -> dict[str, Any] | None:
        value = self._store.get(key)
        return None if value is None else dict(json.loads(bytes(value)))

    def put(self, key: bytes, value: dict[str, Any]) -> None:
        self._store.put(key, as_json(value))

    def delete(self, key: bytes) -> None:
        self._store.delete(key)

    def forward(self, key: bytes, value: dict[str, Any] | None, at: int) -> None:
        (boxed,) = self._jvm.java.util.stream.LongStream.of(at).boxed().toArray()
        data = None if value is None else as_json(value)
        self._context.forward(self._jvm.org.apache.kafka.streams.processor.api.Record(key, data, boxed))

    def _punctuate(self, now: int) -> None:
        """Of what is due always the earliest. Its time is not there any more when it is called."""
        due = [(at, key) for key, at in self._timers() if at <= now]
        heapify(due)
        while due:
            at, key = heappop(due)
            value = {name: field for name, field in (self.get(key) or {}).items() if name != self.timer}
            self.put(key, value)
            self.on_timer(key, value, at)
            again = (self.get(key) or {}).get(self.timer)
            if again is not None and ms_of(again) <= now:
                heappush(due, (ms_of(again), key))

    def _timers(self) -> list[tuple[bytes, int]]:
        found, entries = [], self._store.all()
        while entries.hasNext():
            entry = entries.next()
            value = json.loads(bytes(get_field(entry, "value")))
            if self.timer in value:
                found.append((bytes(get_field(entry, "key")), ms_of(value[self.timer])))
        entries.close()
        return found


def as_json(value: dict[str, Any]) -> bytes:
    return json.dumps(
        {name: field for name, field in value.items() if field is not None}, separators=(",", ":")
    ).encode()


def processed(library: Library, stream: Any, store: str, processor: Callable[[], TaskProcessor]) -> Any:
    """``stream.process(…, store)``, with a processor for each stream task."""
    api = f"{STREAMS}.processor.api"

    def made() -> Callback:
        task = processor()
        return Callback(f"{api}.Processor", init=task.init, process=task.process, close=lambda: None)

    stores = library.jvm.org.apache.kafka.streams.state.Stores
    kept = stores.persistentKeyValueStore(store)
    library.builder.addStateStore(stores.keyValueStoreBuilder(kept, library.bytes, library.bytes))
    supplier = Callback(f"{api}.ProcessorSupplier", stores=lambda: None, get=made)
    return stream.process(supplier, strings(library.jvm, [store]))


def processed_freely(
    library: Library,
    processor: Callable[[], Any],
    kind: str,
    process: Callable[..., Any],
    stores: Sequence[str] = (),
    named: Any = None,
) -> Any:
    """``stream.process(…)`` or ``stream.processValues(…)`` with stores that there are. ``kind`` is the interface."""
    api = f"{STREAMS}.processor.api"

    def made() -> Callback:
        task = processor()
        return Callback(f"{api}.{kind}", init=task.init, process=task.process, close=lambda: None)

    supplier = Callback(f"{api}.{kind}Supplier", stores=lambda: None, get=made)
    return process(supplier, *([] if named is None else [named]), strings(library.jvm, [*stores]))
