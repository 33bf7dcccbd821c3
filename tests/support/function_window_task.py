"""A stream task whose windows Python functions aggregate, with the state variables in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.spark.planning.function_fold import FunctionFold, Functions
from streamplan.spark.planning.window_state import FinalResults, WindowAggregate

from tests.support.process_task import Variables

Windowed = tuple[str, int, int]
"""A key with the start and the end in ms of its window."""


class Given(NamedTuple):
    """A record. None for ``n`` is a null value."""

    key: str
    at: int
    n: int | None


class FunctionWindowTask:
    """A stream task: the processor with its state.

    Args:
        windows: Time windows or sessions.
        functions: What aggregates.
        final: Whether the result of each window is passed once.

    Attributes:
        changelog: By window what the changelog has, and its time in ms.
        passed: The final results, with their times in ms.
        rejected: The records for which a function has failed, with the reasons.
    """

    def __init__(self, windows: TimeWindows | SessionWindows, functions: Functions, *, final: bool = False) -> None:
        names = ("p0", "p1") if isinstance(windows, TimeWindows) else ("p0",)
        self._parts = StructType([StructField(n, BinaryType() if n == "p0" else LongType()) for n in names])
        self._windows, self._final = windows, final
        self._folding = FunctionFold((functions,), Json("n bigint"), STRING, keeps_times=final)
        self._offset = 0
        self.changelog: dict[Windowed, tuple[Any, int]] = {}
        self.passed: list[tuple[Windowed, Any, int]] = []
        self.rejected: list[tuple[Given, str]] = []
        self._variables = Variables()
        self._processor = self._processor_of(None)

    def process(self, records: Iterable[Given]) -> None:
        """Process a micro-batch."""
        given, rows = [*records], []
        for record in given:
            data = None if record.n is None else json.dumps({"n": record.n}).encode()
            place = {"partition_time": None, "topic": "a", "partition": 0, "offset": self._offset, "order": []}
            parts = {"p0": data, "p1": record.at} if len(self._parts) > 1 else {"p0": data}
            bounds = {"start": record.at, "end": record.at, "at": record.at}
            rows.append(Row(place=place, key=record.key.encode(), **bounds, parts=parts, record=place))
            self._offset += 1
        first = self._offset - len(given)
        for row in map(Row.asDict, self._processor.handleInputRows((0,), iter(rows), None)):
            if "reason" in row:
                self.rejected.append((given[row["record"]["offset"] - first], row["reason"]))
                continue
            window = (row["key"].decode(), row["start"], row["end"])
            value = None if row["deleted"] else json.loads(row["parts"]["p0"])
            if row["place"] is not None and self._final:
                self.passed.append((window, value, row["at"]))
            else:
                self.changelog[window] = value, row["at"]

    @property
    def held(self) -> dict[Windowed, tuple[Any, int]]:
        """What the changelog has without what was deleted."""
        return {window: found for window, found in self.changelog.items() if found[0] is not None}

    def restore(self) -> None:
        """Lose the state, and read it from the changelog."""
        self._variables = Variables()
        rows = []
        for (key, start, end), (value, at) in self.changelog.items():
            data, time = None if value is None else json.dumps(value).encode(), at if len(self._parts) > 1 else end
            parts = {"p0": data, "p1": at} if len(self._parts) > 1 else {"p0": data}
            rows.append(Row(key=key.encode(), start=start, end=end, at=time, parts=parts))
        processor = self._processor_of({})
        if rows:
            assert [*processor.handleInputRows((0,), iter(rows), None)] == []
        self._processor = self._processor_of(None)

    def _processor_of(self, restored: dict[int, int] | None) -> WindowAggregate:
        of_task = FinalResults if self._final else WindowAggregate
        processor = of_task(self._windows, self._folding, self._parts, restored=restored)
        processor.init(self._variables)  # type: ignore[arg-type]
        return processor


def in_micro_batches(records: list[Given], sizes: Iterator[int]) -> Iterator[list[Given]]:
    """The records in micro-batches of these sizes."""
    left = records
    while left:
        size = next(sizes)
        yield left[:size]
        left = left[size:]
