"""A stream task whose records Python classes process with several stores, with the state variables in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import ProcessWithStores, Schedule, SessionStateStore, StateStore, VersionedStateStore
from streamplan.model.processor import KeyValueStore, Processor
from streamplan.model.processor_stores import AnyStore, declared_store, schedules_of
from streamplan.model.windows import stored_session_key, stored_window_key
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING, KeySerde
from streamplan.spark.headers import headers_as_text
from streamplan.spark.planning import process_stores_state
from streamplan.spark.planning.process_stores_state import ProcessStoresState, RestoredProcessStores, TaskProcessor
from streamplan.spark.planning.task_stores import TableStore

from tests.support.process_task import Variables

VALUE = Json("n bigint, s string")


class Arrived(NamedTuple):
    """A record for the processor ``of``; None only moves the time on, and -1 is a change of the first table.

    ``is_update``  whether an aggregate has made it, so that it has no place among the records that were read
    """

    key: str | None
    at: int
    value: Mapping[str, Any] | None
    offset: int
    of: int | None = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    is_update: bool = False


class Forwarded(NamedTuple):
    """A record that was forwarded, or the reason why the class has failed."""

    key: bytes | None
    at: int
    value: Any
    headers: str | None = None
    reason: str | None = None


class StoresTask:
    """A stream task.

    ``changelogs``  by the name of a store the last value of each key, in bytes, and its time
    """

    def __init__(
        self,
        processors: type[Processor] | list[type[Processor]],
        stores: Mapping[str, AnyStore],
        fields: str = "n bigint",
        key_serde: KeySerde = STRING,
        tables: Sequence[str] = (),
    ) -> None:
        classes = processors if isinstance(processors, list) else [processors]
        declared = [declared_store(name, stores[name]) for name in sorted(stores)]
        self.stores = [each for each in declared if isinstance(each, StateStore)]
        columns = tuple(Json(fields).fields.items())
        self.tasks = []
        for cls in classes:
            scheduled = schedules_of(cls, {**stores, **dict.fromkeys(tables, KeyValueStore(STRING, VALUE))})
            schedules = tuple(each for each in scheduled if isinstance(each, Schedule))
            function = PythonFunction(cls.__qualname__, cls)
            operation = ProcessWithStores(function, (*stores, *tables), columns, key_serde, schedules)
            self.tasks.append(TaskProcessor(cls.__name__, operation, VALUE, STRING))
        self.tables = [TableStore(name, STRING, VALUE) for name in tables]
        self.changelogs: dict[str, dict[bytes, tuple[bytes | None, int]]] = {name: {} for name in stores}
        self.changes: list[tuple[str, bytes, bytes | None, int]] = []
        self._variables = Variables()

    def process(self, *records: Arrived, clock: int | None = None) -> list[Forwarded]:
        """Process a micro-batch. ``clock`` is the time that the wall clock gives."""
        state = ProcessStoresState(0, self.tasks, self.stores, self.tables)
        rows = [*map(_row, records), *([] if clock is None else [Row(partition=0, record=None)])]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process_stores_state, "times_by_clock", lambda: {} if clock is None else {0: clock})
            return self._run(state, rows)

    def restore(self, times: Mapping[int, int] | None = None, tables: Sequence[Arrived] = ()) -> None:
        """Lose the state, and read it from the changelogs, and ``tables`` from those of other operations."""
        self._variables = Variables()
        rows = [
            Row(partition=0, at=at, key=key, value=value, of=place, offset=offset)
            for place, store in enumerate(self.stores)
            for offset, (key, value, at) in enumerate(self._stored(store))
        ]
        rows += [Row(**{**_row(each).asDict(), "value": _json(each), "offset": each.offset}) for each in tables]
        assert not self._run(RestoredProcessStores(0, self.tasks, self.stores, times or {}, self.tables), rows)

    def _stored(self, store: StateStore) -> Iterable[tuple[bytes, bytes | None, int]]:
        """The changes that a state is restored from: all of a versioned store, else the last one of each key."""
        if isinstance(store, VersionedStateStore):
            return [change for name, *change in self.changes if name == store.store]
        changelog = self.changelogs[store.store]
        return [(key, value, at) for key, (value, at) in changelog.items() if value is not None]

    def values(self, store: str) -> dict[Any, Any]:
        """What a changelog has, as JSON, or as bytes where it is none."""
        return {
            key.decode(): json.loads(value) for key, (value, _) in self.changelogs[store].items() if value is not None
        }

    @property
    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What the state has of each store."""
        return {store.store: self._variables.maps[f"store{n}"].content for n, store in enumerate(self.stores)}

    @property
    def times(self) -> Any:
        """The times that the state keeps."""
        return self._variables.variables["times"].get()

    @property
    def scheduled(self) -> Any:
        """What the state keeps of punctuators; None where it is what ``init`` schedules."""
        return self._variables.variables["scheduled"].get()

    def change(self, place: int, processor: type[Processor]) -> None:
        """Go on with a changed class. Its state stays."""
        task = self.tasks[place]
        function = replace(task.operation.function, call=processor)
        self.tasks[place] = replace(task, operation=replace(task.operation, function=function))

    def _run(self, state: ProcessStoresState, rows: Iterable[Row]) -> list[Forwarded]:
        state.init(self._variables)  # type: ignore[arg-type]
        made = []
        for row in map(Row.asDict, state.handleInputRows((0,), iter(rows), None)):
            if (place := row.get("store")) is not None:
                store, key = self.stores[place], row["stored_key"]
                if isinstance(store, SessionStateStore):
                    key = stored_session_key(key, row["start"], row["end"])
                elif store.retention_ms is not None:
                    key = stored_window_key(key, row["start"], row["number"])
                self.changelogs[store.store][key] = (row["stored_value"], row["at"])
                self.changes.append((store.store, key, row["stored_value"], row["at"]))
            else:
                value = row.get(f"fields{row['of']}")
                made.append(Forwarded(row.get("key"), row["at"], value, row.get("headers"), row.get("reason")))
        return made


def _json(record: Arrived) -> bytes | None:
    return None if record.value is None else json.dumps(record.value).encode()


def _row(record: Arrived) -> Row:
    key, value = None if record.key is None else record.key.encode(), _json(record)
    topic = None if record.is_update else "t"
    place = {"partition_time": None, "topic": topic, "partition": 0, "offset": record.offset, "order": []}
    read = {"original_key": key, "value": value, "headers": headers_as_text(record.headers), "reason": None}
    return Row(partition=0, at=record.at, key=key, value=None, record={**place, **read}, of=record.of)
