"""A stream task of a join of two streams, with the state variables in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.types import LongType, StringType, StructField, StructType
from streamplan.model.windows import JoinWindows
from streamplan.spark.planning.stream_join_state import StreamJoinState

MINUTE = 60_000
WINDOWS = JoinWindows("1 minute", grace="1 minute", after="2 minutes")
FIELDS = [StructType([StructField("n", LongType())])] * 2


class Arrived(NamedTuple):
    """A record of this stream (0) or of the other one (1). ``n`` is its offset and its field; None is no value.

    ``value`` has its bytes, where they matter.
    """

    source: int
    key: str | None
    at: int
    n: int
    has_value: bool = True
    value: bytes | None = None


class Variable:
    """A value state."""

    def __init__(self) -> None:
        self.content: tuple[Any, ...] | None = None

    def exists(self) -> bool:
        return self.content is not None

    def get(self) -> tuple[Any, ...] | None:
        return self.content

    def update(self, content: tuple[Any, ...]) -> None:
        self.content = content

    def clear(self) -> None:
        self.content = None


class Map:
    """A map state."""

    def __init__(self) -> None:
        self.content: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return key in self.content

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.content[key]

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.content[key] = tuple(list(part) if isinstance(part, list | tuple) else part for part in value)

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self.content.pop(key, None)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(self.content.items())


class Variables:
    """The state variables of a processor, by their names."""

    def __init__(self) -> None:
        self.maps, self.variables = defaultdict[str, Map](Map), defaultdict[str, Variable](Variable)

    def getMapState(self, name: str, *_: Any) -> Map:
        return self.maps[name]

    def getValueState(self, name: str, *_: Any) -> Variable:
        return self.variables[name]


class Task(Variables):
    """A stream task: the processor with its state."""

    def __init__(self, processor: StreamJoinState | None = None) -> None:
        super().__init__()
        self.processor = processor or StreamJoinState(FIELDS, StringType(), WINDOWS)
        self.processor.init(self)  # type: ignore[arg-type]

    @property
    def records(self) -> Map:
        return self.maps["records"]

    def run(self, records: Iterable[Arrived]) -> list[tuple[int, int, int]]:
        """Process a micro-batch; return of each two that met their values and the time of both."""
        made = self.process(records)
        return [(row.f0["n"], row.f1["n"], row.at) for row in made if row.joined]

    def process(self, records: Iterable[Arrived]) -> list[Row]:
        """Process a micro-batch; return all that the processor makes."""
        newest = [0, 0]
        rows = []
        for record in records:
            newest[record.source] = max(newest[record.source], record.at)
            place = {
                "key": record.key,
                "topic": f"t{record.source}",
                "offset": record.n,
                "order": [],
                "value": b"%d" % record.n,
            }
            fields: dict[str, Any] = {f"f{record.source}": {"n": record.n}, f"f{1 - record.source}": None}
            rows.append(
                Row(
                    source=record.source,
                    at=record.at,
                    has_value=record.has_value,
                    value=None,
                    record={
                        **place,
                        "value": record.value or b"%d" % record.n,
                        "partition_time": newest[record.source],
                    },
                    **dict(sorted(fields.items())),
                )
            )
        return list(self.processor.handleInputRows((0,), iter(rows), None))
