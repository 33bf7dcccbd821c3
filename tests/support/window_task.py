"""A stream task of an aggregation of windows, with the state variables in memory. It counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from unittest.mock import patch

from pyspark.sql import Row
from pyspark.sql.types import LongType, StructField, StructType
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.spark.planning import window_state
from streamplan.spark.planning.merging import Merging
from streamplan.spark.planning.window_state import FinalResults, WindowAggregate

from tests.support.join_task import Variables


class WindowTask(Variables):
    """A stream task: the processor with its state.

    Args:
        windows: Time windows or sessions.
        restored: What the changelog has, which the state begins with: rows that the processor gave.
        time: The time in ms that the wall clock has given to the task before; None where it has given none.
        by_record: Whether a result has the place of the record that has closed its window.
        suppressed: Whether the results are those of ``suppress``.
        bounds: Gives the window of a time, for windows of which Spark tells it.
        final: Whether only the final results are passed.
    """

    def __init__(
        self,
        windows: TimeWindows | SessionWindows,
        restored: Iterable[Row] = (),
        time: int | None = None,
        *,
        by_record: bool = False,
        suppressed: bool = False,
        bounds: Callable[[int], tuple[int, int]] = lambda at: (at, at),
        final: bool = True,
    ) -> None:
        super().__init__()
        self._bounds = bounds
        self._has_times = isinstance(windows, TimeWindows)
        functions = ("count", "max") if self._has_times else ("count",)
        parts = StructType([StructField(f"p{place}", LongType()) for place in range(len(functions))])
        merging = Merging(functions, tuple(LongType() for _ in functions))
        rows = [*restored]
        for restored_times in ({} if time is None else {0: time}, None):
            kind = FinalResults if final else WindowAggregate
            self._processor = kind(
                windows, merging, parts, restored=restored_times, by_record=by_record, suppressed=suppressed
            )
            self._processor.init(self)  # type: ignore[arg-type]
            if restored_times is not None and rows:
                restored_rows = [Row(**row.asDict() | {"at": row.at if self._has_times else row.end}) for row in rows]
                restored_again = [*self._processor.handleInputRows((0,), iter(restored_rows), None)]
                assert restored_again == [] or not final
        self._offset = 0

    def process(self, records: Iterable[tuple[str, int]]) -> list[Row]:
        """Process a micro-batch of keys with their times in ms; return all that the processor makes."""
        rows = []
        for key, at in records:
            place = {"partition_time": None, "topic": "a", "offset": self._offset, "order": []}
            parts = {"p0": 1, "p1": at} if self._has_times else {"p0": 1}
            start, end = self._bounds(at)
            rows.append(Row(place=place, key=key.encode(), start=start, end=end, at=at, parts=parts, record=None))
            self._offset += 1
        return list(self._processor.handleInputRows((0,), iter(rows), None))

    def tick(self, time: int) -> list[Row]:
        """Process a micro-batch without records, with a time in ms that the wall clock gives."""
        with patch.object(window_state, "times_by_clock", lambda: {0: time}):
            return list(self._processor.handleInputRows((0,), iter([Row(key=None, partition=0)]), None))
