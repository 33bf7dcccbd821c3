"""A key of a join of a stream with a versioned table, with the state variables in memory."""

from __future__ import annotations

import itertools
from typing import Any

from pyspark.sql import Row
from pyspark.sql.types import LongType, StructField, StructType
from streamplan.spark.planning.stream_table_join import _TableJoin

from tests.support.join_task import Variables

_ROW = StructType([StructField("n", LongType())])


class VersionedTask(Variables):
    """The table is source 0 and the stream source 1."""

    def __init__(self, history_ms: int) -> None:
        super().__init__()
        self._join = _TableJoin({0: _ROW}, [1], histories={0: history_ms})
        self._join.init(self)  # type: ignore[arg-type]
        self._offsets = itertools.count()

    def run(self, *records: tuple[Any, ...]) -> list[int | None]:
        """Process a micro-batch of ``("price", time, number or None)`` and ``("order", time)``, in this order.

        Returns:
            The number of the row that each order meets.
        """
        rows = []
        for kind, at, *number in records:
            source = ("price", "order").index(kind)
            deleted = source == 0 and number[0] is None
            place = {"topic": kind, "offset": next(self._offsets), "order": [], "partition_time": 0}
            field = {"f0": None if deleted or source else {"n": number[0]}}
            rows.append(Row(source=source, at=at, rejected=False, deleted=deleted, record=place, **field))
        made = self._join.handleInputRows((0, "k"), iter(rows), None)
        return [None if row.t0 is None else row.t0["n"] for row in made if row.source == 1]
