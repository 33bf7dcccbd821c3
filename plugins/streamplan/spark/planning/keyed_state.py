"""The base of the states in Python, and how PySpark's rows become Arrow's and back.

PySpark 4.2 converts each cell by itself, and writes an Arrow batch for each key. With ten columns that is about 1 ms of
CPU time a key, in Python alone. Here the columns of many rows are converted at once, whatever their keys are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import (
    ArrowStreamSerializer,
    ArrowStreamUDFSerializer,
    TransformWithStateInPySparkRowSerializer,
)
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode

_ROWS = 1_000
"""The most rows that are converted at once."""


class KeyedState(StatefulProcessor):
    """A state of ``transformWithState``. A worker that unpickles it converts rows as this module does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self),), self.__dict__


def _unpickled(kind: type[KeyedState]) -> KeyedState:
    # The worker has made its serializer before it unpickles: a class of ours would come too late, methods do not.
    TransformWithStateInPySparkRowSerializer.load_stream = load_stream  # type: ignore[method-assign]
    TransformWithStateInPySparkRowSerializer.dump_stream = dump_stream  # type: ignore[method-assign]
    return kind.__new__(kind)


def load_stream(serializer: Any, stream: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield what PySpark's own method does: the mode, and for rows their key and the rows.

    But maps are dictionaries, as a state variable needs them. PySpark gives a list of pairs.

    Args:
        serializer: PySpark's, which knows the columns of the key.
        stream: Has Arrow batches, in which the rows of a key follow each other.
    """
    serializer.taken_batch = 0  # for dump_stream, which reads on what this yields
    rows = _rows(serializer, ArrowStreamSerializer.load_stream(serializer, stream))
    for key, of_key in groupby(rows, key=itemgetter(0)):
        yield Mode.PROCESS_DATA, key, map(itemgetter(1), of_key)
    yield Mode.PROCESS_TIMER, None, None
    yield Mode.COMPLETE, None, None


def _rows(serializer: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], Row]]:
    for serializer.taken_batch, batch in enumerate(batches):
        row = Row(*batch.schema.names)
        for begin in range(0, batch.num_rows, _ROWS):
            columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.slice(begin, _ROWS).columns]
            keys = zip(*(columns[offset] for offset in serializer.key_offsets), strict=True)
            for key, values in zip(keys, zip(*columns, strict=True), strict=True):
                yield key, row(*values)


def dump_stream(serializer: Any, results: Iterable[Any], stream: Any) -> None:
    """Write what PySpark's own method does, in fewer batches.

    Rows of one batch that was read are not kept until the next one: Spark bounds the bytes of a batch, too.

    Args:
        serializer: PySpark's, after :func:`load_stream`.
        results: For each key its rows, which are made while they are read, and their type.
        stream: Takes Arrow batches.
    """
    ArrowStreamUDFSerializer.dump_stream(serializer, _batches(serializer, results), stream)  # type: ignore[no-untyped-call]


def _batches(serializer: Any, results: Iterable[Any]) -> Iterator[tuple[pa.RecordBatch, pa.DataType]]:
    made: list[Any] = []
    made_of = 0
    arrow_type: Any = None
    for ((rows, spark_type),) in results:
        if arrow_type is None:
            arrow_type = to_arrow_type(spark_type, timezone="UTC", prefers_large_types=False)
        for row in rows:
            if len(made) == _ROWS or serializer.taken_batch != made_of:
                yield _batch(made, arrow_type), arrow_type
                made, made_of = [], serializer.taken_batch
            made.append(row)
    yield _batch(made, arrow_type), arrow_type  # there is always one: Spark waits for the type


def _batch(rows: list[Row], arrow_type: Any) -> pa.RecordBatch:
    fields = [*arrow_type]
    names = [field.name for field in fields]
    columns = zip(*(_values(row, names) for row in rows), strict=True) if rows else [()] * len(fields)
    arrays = [_array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(column: Sequence[Any], arrow_type: Any) -> pa.Array:
    """Return a column in Arrow. A struct is a dictionary where it was read, and a tuple where a state variable had it.

    Arrow takes either in a column, and not both.
    """
    try:
        return pa.array(column, type=arrow_type)
    except pa.ArrowTypeError:
        return pa.array([_with_dictionaries(value, arrow_type) for value in column], type=arrow_type)


def _with_dictionaries(value: Any, arrow_type: Any) -> Any:
    """Return a value of this type in which each struct is a dictionary."""
    if value is None:
        return None
    if pa.types.is_struct(arrow_type):
        fields = [*arrow_type]
        parts = [value.get(field.name) for field in fields] if isinstance(value, dict) else value
        return {field.name: _with_dictionaries(part, field.type) for field, part in zip(fields, parts, strict=True)}
    if pa.types.is_list(arrow_type):
        return [_with_dictionaries(each, arrow_type.value_type) for each in value]
    if pa.types.is_map(arrow_type):
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, _with_dictionaries(each, arrow_type.item_type)) for key, each in pairs]
    return value


def _values(row: Row, names: list[str]) -> Iterable[Any]:
    if row.__fields__ == names:
        return row
    by_name = dict(zip(row.__fields__, row, strict=True))
    return [by_name.get(name) for name in names]
