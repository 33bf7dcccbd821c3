"""Python functions on records: each Arrow batch is given to Python, and the function is called with each record.

A record for which the function raises, or returns what its schema does not allow, is rejected with the reason, unless
the declaration lets the application stop. Rejected records pass unchanged, as they do with expressions.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from streamplan.model.functions import STOP, PythonFunction
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.primitive import KeySerde
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import declared_type
from streamplan.spark.planning.records import RecordFrame

_POSITION = "_position"


class Unfit(TypeError):
    """A function returned what its declaration does not allow. ``str()`` says what."""


class RecordMetadata:
    """What a function sees as ``record``, beside the fields of the value. Each attribute is read when it is asked for.

    Args:
        records: The struct array of a batch.
        row: The record's row.
    """

    __slots__ = ("_records", "_row")

    def __init__(self, records: pa.StructArray, row: int) -> None:
        self._records, self._row = records, row

    @property
    def key(self) -> Any:
        """The record's key: a text, or a number or bytes where its serde is of these."""
        return self._of("key")

    @property
    def timestamp(self) -> datetime:
        """The record's timestamp, with a time zone."""
        timestamp: datetime = self._of("timestamp")
        return timestamp

    @property
    def topic(self) -> str | None:
        """The topic that the record was read from; None after an aggregate."""
        topic: str | None = self._of("topic")
        return topic

    @property
    def partition(self) -> int:
        """The partition that the record was read from."""
        partition: int = self._of("partition")
        return partition

    @property
    def offset(self) -> int | None:
        """The record's offset; None after an aggregate."""
        offset: int | None = self._of("offset")
        return offset

    @property
    def window(self) -> Mapping[str, datetime]:
        """After a windowed aggregate the window's ``start`` and ``end``."""
        window: Mapping[str, datetime] = self._of("window")
        return window

    def _of(self, name: str) -> Any:
        return self._records[self._row][name].as_py()


def filter_by(frame: RecordFrame, function: PythonFunction) -> RecordFrame:
    """Keep the records for which a function returns True, and the rejected ones.

    Args:
        frame: The records.
        function: Returns whether a record passes. None is taken for False; any other value is refused.
    """

    def passes(result: Any) -> bool:
        if result is None or isinstance(result, bool):
            return bool(result)
        raise Unfit(f"returned {type(result).__name__}, and not True or False")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results, reasons = _call_with_each(function, batch, passes)
            kept = [bool(result) or reason is not None for result, reason in zip(results, reasons, strict=True)]
            yield _with_reasons(batch, reasons).filter(pa.array(kept, pa.bool_()))

    columns = ", ".join(f"`{field.name}` {declared_type(field.dataType)}" for field in frame.data.schema.fields)
    return _judged(replace(frame, data=map_in_arrow(frame.data, run, columns)), function)


def map_by(frame: RecordFrame, function: PythonFunction, fields: Mapping[str, str]) -> RecordFrame:
    """Give each record the value that a function returns: a mapping, a dataclass or a named tuple; None for no value.

    Args:
        frame: The records.
        function: Returns the value.
        fields: The fields of the value and their types.
    """
    computed = _computed(frame, function, fields, lambda result: [fields_of(result, fields)])
    return _judged(replace(computed, data=computed.data.drop(_POSITION)), function)


def flat_map_by(
    frame: RecordFrame, function: PythonFunction, fields: Mapping[str, str], key: str, key_serde: KeySerde
) -> RecordFrame:
    """Make one record of each value that a function returns.

    Args:
        frame: The records.
        function: Returns any number of values, as :func:`map_by` takes one.
        fields: The fields of each value and their types.
        key: The expression of the new key. It sees these fields.
        key_serde: Writes the new key.
    """
    computed = _computed(frame, function, fields, lambda results: values_of(results, fields))
    order = F.concat(F.col("record.order"), F.array(F.col(_POSITION)))
    rows = computed.data.withColumn("record", F.col("record").withField("order", order)).drop(_POSITION)
    unchanged = [(name, f"`{name}`") for name in fields]
    return _judged(replace(computed, data=rows), function).select(unchanged, key, key_serde)


def _judged(frame: RecordFrame, function: PythonFunction) -> RecordFrame:
    """Note that records may have been rejected, unless a failure stops the application."""
    return replace(frame, no_rejects=frame.no_rejects and function.on_error == STOP)


def _computed(
    frame: RecordFrame,
    function: PythonFunction,
    fields: Mapping[str, str],
    values_of: Callable[[Any], list[dict[str, Any] | None]],
) -> RecordFrame:
    """The records with the values that the function returns, and the place of each among those of one record."""
    value_type = struct_type(fields)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def checked(result: Any) -> list[dict[str, Any] | None]:
            return [None if value is None else parts_of(value, value_type, "") for value in values_of(result)]

        for batch in batches:
            results, reasons = _call_with_each(function, batch, checked)
            rows: list[int] = []
            positions: list[int] = []
            values: list[dict[str, Any] | None] = []
            for row, (result, reason) in enumerate(zip(results, reasons, strict=True)):
                made = [None] if reason is not None else result or []
                rows += [row] * len(made)
                positions += range(len(made))
                values += made
            records = _with_reasons(batch, reasons).column("record").take(pa.array(rows, pa.int64()))
            columns = pa.array(values, value_type).flatten()
            yield pa.RecordBatch.from_arrays(
                [*columns, records, pa.array(positions, pa.int32())], names=[*fields, "record", _POSITION]
            )

    record_type = declared_type(frame.data.schema["record"].dataType)
    columns = [f"`{name}` {field_type}" for name, field_type in fields.items()]
    schema = ", ".join([*columns, f"record {record_type}", f"{_POSITION} int"])
    data = map_in_arrow(frame.data, run, schema)
    return replace(frame, data=data, value_is_raw=False, serde=None, format=None)


def _call_with_each(
    function: PythonFunction, batch: pa.RecordBatch, judge: Callable[[Any], Any]
) -> tuple[list[Any], list[str | None]]:
    """Call a function with each record that is not rejected.

    Returns:
        What ``judge`` made of the results, None for a rejected record; and the reason of each rejected record.
    """
    records = batch.column("record")
    reasons = pc.struct_field(records, "reason").to_pylist()
    names = [name for name in batch.schema.names if name != "record"]
    values = batch.select(names).to_pylist(maps_as_pydicts="strict") if names else [{} for _ in range(batch.num_rows)]
    nested = {field.name: field.type for field in batch.select(names).schema if _has_struct(field.type)}
    results: list[Any] = []
    for row, value in enumerate(values):
        result = None
        for name, data_type in nested.items():
            value[name] = with_attributes(value[name], data_type)
        if reasons[row] is None:
            try:
                result = judge(function.call(SimpleNamespace(**value, record=RecordMetadata(records, row))))
            except Exception as error:  # whatever a function of a declaration raises is the record's reason
                if function.on_error == STOP:
                    raise
                reasons[row] = reason_of(function.name, function.call, error)
        results.append(result)
    return results, reasons


def reason_of(name: str, call: Callable[..., Any], error: Exception) -> str:
    """Return why a record is rejected: the function, the exception, and the line where it was raised.

    Args:
        name: The name of the function.
        call: The function.
        error: What it raised.
    """
    if isinstance(error, Unfit):
        return f"{name} {error}"
    code = getattr(call, "__code__", None)
    frames = [at for at in traceback.extract_tb(error.__traceback__) if code and at.filename == code.co_filename]
    line = f" in line {frames[-1].lineno}" if frames else ""
    return f"{name} raised {type(error).__name__}{line}: {error}"


def _with_reasons(batch: pa.RecordBatch, reasons: list[str | None]) -> pa.RecordBatch:
    records = batch.column("record")
    names = [field.name for field in records.type]
    columns = records.flatten()
    columns[names.index("reason")] = pa.array(reasons, pa.string())
    replaced = pa.StructArray.from_arrays(columns, fields=list(records.type))
    return batch.set_column(batch.schema.get_field_index("record"), batch.schema.field("record"), replaced)


def values_of(results: Any, fields: Collection[str]) -> list[dict[str, Any] | None]:
    """Return the fields of each of the values that a function has made; see :func:`fields_of`.

    Args:
        results: Any number of values; None for none.
        fields: The names that a value may have.

    Raises:
        Unfit: They are no such values.
    """
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable | None):
        raise Unfit(f"returned {type(results).__name__}, and not a list of values")
    return [fields_of(result, fields) for result in results or ()]


def fields_of(result: Any, fields: Collection[str]) -> dict[str, Any] | None:
    """Return the fields of one value that a function has made; None for no value.

    Args:
        result: A mapping, a dataclass, a named tuple, or a part of a record.
        fields: The names that it may have.

    Raises:
        Unfit: It is something else, or has a field of another name.
    """
    if result is None:
        return None
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        value = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    elif isinstance(result, tuple) and hasattr(result, "_asdict"):
        value = result._asdict()
    elif isinstance(result, Mapping):
        value = dict(result)
    elif isinstance(result, SimpleNamespace):  # a part of a record
        value = dict(vars(result))
    else:
        raise Unfit(f"returned {type(result).__name__}, and not a mapping of fields")
    if unknown := value.keys() - set(fields):
        raise Unfit(f"returned the field {min(map(str, unknown))}, which its schema does not have")
    return value


def parts_of(value: Mapping[str, Any], value_type: pa.StructType, path: str) -> dict[str, Any]:
    """Return the fields of a value that a function has made, or of a part of it, as Arrow takes them.

    Args:
        value: What :func:`fields_of` gave.
        value_type: Their types.
        path: What the name of a field begins with in a reason.

    Raises:
        Unfit: A field is of another type.
    """
    return {name: _item_of(item, value_type.field(name).type, f"{path}{name}") for name, item in value.items()}


def _item_of(item: Any, data_type: pa.DataType, path: str) -> Any:
    """One field of a returned value as Arrow takes it; ``path`` names it.

    Raises:
        Unfit: It is of another type.
    """
    if item is None:
        return None
    try:
        if pa.types.is_struct(data_type):
            return parts_of(fields_of(item, data_type.names) or {}, data_type, f"{path}.")
        if pa.types.is_list(data_type):
            _require(isinstance(item, list | tuple), "a list is expected")
            return [_item_of(each, data_type.value_type, f"{path}[{place}]") for place, each in enumerate(item)]
        if pa.types.is_map(data_type):
            _require(isinstance(item, Mapping) and all(isinstance(key, str) for key in item), "texts are its keys")
            return {key: _item_of(each, data_type.item_type, f"{path}[{key!r}]") for key, each in item.items()}
        if pa.types.is_integer(data_type):
            _require(isinstance(item, Integral), "Arrow would cut off its fraction")
        elif pa.types.is_timestamp(data_type):
            _require(isinstance(item, datetime) and item.tzinfo is not None, "without a zone it is no moment")
        elif pa.types.is_date(data_type):
            _require(isinstance(item, date) and not isinstance(item, datetime), "Arrow would cut off its time")
        scalar = pa.scalar(item, data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, Unfit):
            raise
        raise Unfit(f"returned a {path} of another type than its schema: {item!r}") from error
    if pa.types.is_floating(data_type) and not pc.is_finite(scalar).as_py():
        raise Unfit(f"returned {item!r} as {path}, which is no number")
    return item


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise TypeError(reason)


def _has_struct(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) or any(
        _has_struct(data_type.field(place).type) for place in range(data_type.num_fields)
    )


def with_attributes(value: Any, data_type: pa.DataType) -> Any:
    """Return a value as a function sees it: the parts of a struct are attributes, as the fields of a record are.

    Args:
        value: The value, with dictionaries for structs and maps.
        data_type: Its type.
    """
    if value is None or not _has_struct(data_type):
        return value
    if pa.types.is_list(data_type):
        return [with_attributes(each, data_type.value_type) for each in value]
    if pa.types.is_map(data_type):
        return {key: with_attributes(each, data_type.item_type) for key, each in value.items()}
    return SimpleNamespace(**{part.name: with_attributes(value[part.name], part.type) for part in data_type})
