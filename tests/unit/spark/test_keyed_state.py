"""What a state reads and writes, beside what PySpark's own conversion reads and writes."""

from __future__ import annotations

import io
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import TransformWithStateInPySparkRowSerializer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from streamplan.spark.planning import keyed_state
from streamplan.spark.planning.stream_table_join import _TableJoin

PLACE = StructType([StructField("topic", StringType()), StructField("order", ArrayType(LongType()))])
SCHEMA = StructType(
    [
        StructField("partition", LongType()),
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("amount", DecimalType(10, 2)),
        StructField("share", DoubleType()),
        StructField("is late", BooleanType()),
        StructField("at", TimestampType()),
        StructField("place", PLACE),
        StructField("places", ArrayType(PLACE)),
        StructField("tags", MapType(StringType(), LongType())),
    ]
)
ARROW = to_arrow_type(SCHEMA, timezone="UTC", prefers_large_types=False)

PYSPARKS = (TransformWithStateInPySparkRowSerializer.load_stream, TransformWithStateInPySparkRowSerializer.dump_stream)
assert all(method.__module__.startswith("pyspark") for method in PYSPARKS), "no state was unpickled here before"
OURS = (keyed_state.load_stream, keyed_state.dump_stream)


def rows(count: int, *, keys: int, seed: int) -> list[dict[str, Any]]:
    """Rows sorted by their key, with nulls in each column."""
    numbers = random.Random(seed)

    def or_null(value: Any) -> Any:
        return None if numbers.random() < 0.2 else value

    def place() -> dict[str, Any]:
        return {"topic": or_null("orders"), "order": or_null([1, numbers.randrange(9)])}

    made = [
        {
            "partition": 1,
            "key": or_null(f"k{numbers.randrange(keys)}"),
            "value": or_null(numbers.randbytes(5)),
            "amount": None,
            "share": or_null(numbers.random()),
            "is late": or_null(True),
            "at": or_null(datetime.fromtimestamp(numbers.randrange(10**9), UTC)),
            "place": or_null(place()),
            "places": or_null([place(), None]),
            "tags": or_null({"a": 1, "b": None}),
        }
        for _ in range(count)
    ]
    return sorted(made, key=lambda row: row["key"] or "")


def batches(made: list[dict[str, Any]], size: int) -> io.BytesIO:
    """Rows as Spark writes them: the columns in one struct, some batches, and the end of the data."""
    stream = io.BytesIO()
    parts = [made[begin : begin + size] for begin in range(0, len(made), size)]
    with pa.ipc.new_stream(stream, pa.schema(list(ARROW))) as writer:
        for part in parts:
            writer.write_batch(pa.RecordBatch.from_pylist(part, schema=pa.schema(list(ARROW))))
    stream.seek(0)
    return stream


def written(methods: tuple[Any, Any], results: Iterator[Any]) -> tuple[bytes, list[Any], pa.Schema]:
    """The marker before what was written, the rows, and their schema."""
    stream = io.BytesIO()
    methods[1](serializer(), ([(of_key, SCHEMA)] for of_key in results), stream)
    table = pa.ipc.open_stream(io.BytesIO(stream.getvalue()[4:])).read_all()
    return stream.getvalue()[:4], table.to_pylist(), table.schema


def serializer() -> TransformWithStateInPySparkRowSerializer:
    made = TransformWithStateInPySparkRowSerializer(arrow_max_records_per_batch=10_000)
    made.key_offsets = [0, 1]
    made.taken_batch = 0  # type: ignore[attr-defined]
    return made


def taken(methods: tuple[Any, Any], stream: io.BytesIO) -> list[Any]:
    return [
        (mode, key, None if of_key is None else [(row.__fields__, *row) for row in of_key])
        for mode, key, of_key in methods[0](serializer(), stream)
    ]


@pytest.mark.parametrize(("count", "keys", "size"), [(0, 1, 10), (1, 1, 10), (3_500, 700, 2_100), (2_500, 2, 10_000)])
def test_a_state_is_given_the_rows_that_pyspark_gives(count: int, keys: int, size: int) -> None:
    """With dictionaries where PySpark gives the pairs of a map."""
    made = rows(count, keys=keys, seed=count)
    *pysparks, timers, end = taken(PYSPARKS, batches(made, size))
    with_maps = [
        (mode, key, [(*row[:-1], None if row[-1] is None else dict(row[-1])) for row in of_key])
        for mode, key, of_key in pysparks
    ]
    assert taken(OURS, batches(made, size)) == [*with_maps, timers, end]


def whole(row: dict[str, Any]) -> Row:
    return Row(**row)


def in_another_order(row: dict[str, Any]) -> Row:
    return Row(**dict(reversed(row.items())))


def without_nulls(row: dict[str, Any]) -> Row:
    return Row(**{name: value for name, value in row.items() if value is not None})


def partly_from_a_state(row: dict[str, Any]) -> Row:
    """A state variable has rows, which are tuples, in place of dictionaries: here in some rows, and in some structs."""

    def stored(value: dict[str, Any] | None) -> Any:
        return value if value is None or value["order"] is None else Row(*value)(*value.values())

    if row["value"] is None:
        return Row(**row)
    return Row(**row | {"place": stored(row["place"]), "places": row["places"] and [*map(stored, row["places"])]})


@pytest.mark.parametrize("shape", [whole, in_another_order, without_nulls, partly_from_a_state])
@pytest.mark.parametrize("groups", [[], [0], [1], [0, 3, 0], [700, 1_500, 0, 1_000, 300], [1] * 2_001])
def test_spark_is_given_the_rows_that_pyspark_gives(groups: list[int], shape: Callable[[Any], Row]) -> None:
    made = [[shape(row) for row in rows(count, keys=9, seed=count)] for count in [*groups, 0]]
    assert written(OURS, iter(made)) == written(PYSPARKS, iter(made))


def test_what_is_made_of_a_batch_is_written_before_the_next_is_taken() -> None:
    made = serializer()
    stream = io.BytesIO()

    def results() -> Iterator[Any]:
        for _, _, of_key in keyed_state.load_stream(made, batches(rows(500, keys=300, seed=1), 100)):
            yield [(iter(of_key or ()), SCHEMA)]

    keyed_state.dump_stream(made, results(), stream)
    counts = [batch.num_rows for batch in pa.ipc.open_stream(io.BytesIO(stream.getvalue()[4:]))]
    assert counts == [100] * 5


def test_the_rows_of_a_key_are_made_before_the_next_key_begins() -> None:
    steps: list[str] = []

    def of_key(key: str) -> Iterator[Row]:
        steps.append(f"begin {key}")
        yield Row(key=key)
        steps.append(f"end {key}")

    written(OURS, (of_key(key) for key in "ab"))
    assert steps == ["begin a", "end a", "begin b", "end b"]


def test_a_worker_that_unpickles_a_state_converts_as_it_does() -> None:
    state = _TableJoin({1: PLACE}, [0])
    check = (
        "import pickle, sys; from pyspark.sql.pandas.serializers import TransformWithStateInPySparkRowSerializer as S;"
        "made = S(arrow_max_records_per_batch=1); state = pickle.load(sys.stdin.buffer);"
        "print(made.load_stream.__module__, made.dump_stream.__module__, state._streams)"
    )
    ran = subprocess.run([sys.executable, "-c", check], input=cloudpickle.dumps(state), capture_output=True, check=True)
    module = "streamplan.spark.planning.keyed_state"
    assert ran.stdout.decode().split() == [module, module, "[0]"]
    assert pickle.loads(pickle.dumps(state)).__dict__ == state.__dict__
