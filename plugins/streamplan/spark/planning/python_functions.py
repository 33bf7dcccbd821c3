"""Python functions on records: each Arrow batch is given to Python, and the function is called with each record.

A function of Arrow batches is called with the batch: :mod:`streamplan.spark.planning.arrow_batches`.

A record for which the function raises, or returns what its schema does not allow, is rejected with the reason, unless
the declaration lets the application stop. Rejected records pass unchanged, as they do with expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.model.functions import STOP, PythonFunction
from streamplan.serdes.arrow import python_values, struct_type
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.primitive import KeySerde
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.arrow_batches import conditions_by, values_by
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import declared_type
from streamplan.spark.planning.function_results import (
    NOT_OF_A_FUNCTION,
    Unfit,
    fields_of,
    parts_of,
    rejected_by,
    values_of,
)
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.sink.spec import PASSED_OVER

_POSITION, _IS_LAST = "_position", "_is_last"


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
        """The record's key: a text, or a number, bytes or several fields where its serde is of these."""
        key = self._of("key")
        return KeyFields(key) if isinstance(key, dict) else key

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


def filter_by(
    frame: RecordFrame, function: PythonFunction, *, negated: bool = False, keeps_rows: bool = False
) -> RecordFrame:
    """Keep the records for which a function returns True, and the rejected ones.

    Args:
        frame: The records.
        function: Returns whether a record passes. None is taken for False; any other value is refused.
        negated: Whether those are kept for which it does not return True.
        keeps_rows: Whether the other records have a row, too; see :meth:`.RecordFrame.passing_over`.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            passes, reasons = _conditions(function, batch)
            passes = pc.invert(passes) if negated else passes
            if keeps_rows:
                passed_over = pc.if_else(passes, pa.scalar(None, pa.string()), pa.scalar(PASSED_OVER))
                yield _with_reasons(batch, pc.coalesce(reasons, passed_over))
            else:
                yield _with_reasons(batch, reasons).filter(pc.or_kleene(pc.is_valid(reasons), passes))

    kept = replace(frame, data=map_in_arrow(frame.data, run, same_columns(frame)))
    return _judged(kept, function, keeps_rows=keeps_rows)


def branched_by(frame: RecordFrame, function: PythonFunction, number: int) -> RecordFrame:
    """Give the records of no branch, for which a function returns True, the number of a branch.

    Args:
        frame: The records, with ``record.branch``, which is 0 for a record of no branch.
        function: Is called with the records of no branch; see :func:`filter_by`.
        number: The number of the branch.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            branches = pc.struct_field(batch.column("record"), "branch")
            undecided = pc.equal(branches, 0)
            passes, reasons = _conditions(function, batch.filter(undecided))
            number_of_row = pc.subtract(pc.cumulative_sum(undecided.cast(pa.int64())), 1)
            rows = pc.if_else(undecided, number_of_row, pa.scalar(None, pa.int64()))
            taken = passes.take(rows).fill_null(False)
            replaced = {
                "branch": pc.if_else(taken, pa.scalar(number, pa.int32()), branches),
                "reason": pc.coalesce(pc.struct_field(batch.column("record"), "reason"), reasons.take(rows)),
            }
            yield with_parts(batch, replaced)

    return _judged(replace(frame, data=map_in_arrow(frame.data, run, same_columns(frame))), function)


def call_with(frame: RecordFrame, function: PythonFunction) -> DataFrame:
    """Call a function with each record, for what it does.

    Args:
        frame: The records, of which none is rejected.
        function: What it returns is not used.

    Returns:
        The records for which it raises, rejected.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            _, reasons = call_with_each(function, batch, lambda result: None)
            raised = pa.array(reasons, pa.string())
            yield _with_reasons(batch, raised).filter(pc.is_valid(raised))

    return map_in_arrow(frame.data, run, same_columns(frame))


def map_by(frame: RecordFrame, function: PythonFunction, fields: Mapping[str, str]) -> RecordFrame:
    """Give each record the value that a function returns: a mapping, a dataclass or a named tuple; None for no value.

    Args:
        frame: The records.
        function: Returns the value.
        fields: The fields of the value and their types.
    """
    computed = _computed(frame, mapped_batches(function, fields), fields)
    return _judged(replace(computed, data=computed.data.drop(_POSITION, _IS_LAST)), function)


def flat_map_by(
    frame: RecordFrame,
    function: PythonFunction,
    fields: Mapping[str, str],
    key: str | None = None,
    key_serde: KeySerde | None = None,
    *,
    keeps_rows: bool = False,
) -> RecordFrame:
    """Make one record of each value that a function returns.

    Args:
        frame: The records.
        function: Returns any number of values, as :func:`map_by` takes one.
        fields: The fields of each value and their types.
        key: The expression of the new key. It sees these fields. None where the key stays.
        key_serde: Writes the new key.
        keeps_rows: Whether a record of which nothing is made has a row, too; see :meth:`.RecordFrame.passing_over`.
    """
    made = _batches_of_each(function, fields, lambda results: values_of(results, fields), keeps_rows=keeps_rows)
    computed = _computed(frame, made, fields)
    if keeps_rows:
        computed = computed.made_of_each(F.col(_POSITION), F.col(_IS_LAST))
    else:
        order = F.concat(F.col("record.order"), F.array(F.col(_POSITION)))
        computed = computed.with_record(F.col("record").withField("order", order))
    computed = replace(computed, data=computed.data.drop(_POSITION, _IS_LAST))
    unchanged = [(name, f"`{name}`") for name in fields]
    return _judged(computed, function, keeps_rows=keeps_rows).select(unchanged, key, key_serde)


def _judged(frame: RecordFrame, function: PythonFunction, *, keeps_rows: bool = False) -> RecordFrame:
    """Note that records may have been rejected, unless a failure stops the application and none is passed over."""
    return replace(frame, no_rejects=frame.no_rejects and function.on_error == STOP and not keeps_rows)


def same_columns(frame: RecordFrame) -> str:
    """Return the columns of records as Spark's DDL."""
    return ", ".join(f"`{field.name}` {declared_type(field.dataType)}" for field in frame.data.schema.fields)


def _computed(frame: RecordFrame, made: ArrowFunction, fields: Mapping[str, str]) -> RecordFrame:
    """The records with the values that are made of them, and the place of each among those of one record."""
    record_type = declared_type(frame.data.schema["record"].dataType)
    columns = [f"`{name}` {field_type}" for name, field_type in fields.items()]
    schema = ", ".join([*columns, f"record {record_type}", f"{_POSITION} int", f"{_IS_LAST} boolean"])
    data = map_in_arrow(frame.data, made, schema)
    return replace(frame, data=data, value_is_raw=False, serde=None, format=None)


def mapped_batches(function: PythonFunction, fields: Mapping[str, str]) -> ArrowFunction:
    """Return what gives the records of Arrow batches the values that a function returns.

    Args:
        function: Returns one value for each record.
        fields: The fields of the value and their types.
    """
    if not function.of_batches:
        return _batches_of_each(function, fields, lambda result: [fields_of(result, fields)])
    value_type = struct_type(fields)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            values, reasons = values_by(function, batch, value_type)
            records = _with_reasons(batch, reasons).column("record")
            yield _made(values, records, [0] * len(values), [True] * len(values))

    return run


def _batches_of_each(
    function: PythonFunction,
    fields: Mapping[str, str],
    returned: Callable[[Any], list[dict[str, Any] | None]],
    *,
    keeps_rows: bool = False,
) -> ArrowFunction:
    """What makes records of the values that ``returned`` finds in what a function gives for each record.

    With ``keeps_rows`` a rejected record, and one without values, has a row without a position.
    """
    value_type = struct_type(fields)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def checked(result: Any) -> list[dict[str, Any] | None]:
            return [None if value is None else parts_of(value, value_type, "") for value in returned(result)]

        for batch in noted(batches):
            results, reasons = call_with_each(function, batch, checked)
            rows: list[int] = []
            positions: list[int | None] = []
            are_last: list[bool] = []
            values: list[dict[str, Any] | None] = []
            for row, (result, reason) in enumerate(zip(results, reasons, strict=True)):
                made = [None] if reason is not None else result or []
                places: list[int | None] = [*range(len(made))]
                if keeps_rows and (reason is not None or not made):
                    made, places = [None], [None]
                rows += [row] * len(made)
                positions += places
                are_last += [False] * (len(made) - 1) + [True] * bool(made)
                values += made
            records = _with_reasons(batch, pa.array(reasons, pa.string())).column("record")
            yield _made(pa.array(values, value_type), records.take(pa.array(rows, pa.int64())), positions, are_last)

    return run


def _made(
    values: pa.StructArray, records: pa.StructArray, positions: list[Any], are_last: list[bool]
) -> pa.RecordBatch:
    columns = [*values.flatten(), records, pa.array(positions, pa.int32()), pa.array(are_last, pa.bool_())]
    names = [*(field.name for field in values.type), "record", _POSITION, _IS_LAST]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _conditions(function: PythonFunction, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Whether each record passes, and the reason of each rejected one."""

    def passes(result: Any) -> bool:
        if result is None or isinstance(result, bool):
            return bool(result)
        raise Unfit(f"returned {type(result).__name__}, and not True or False")

    if function.of_batches:
        return conditions_by(function, batch)
    results, reasons = call_with_each(function, batch, passes)
    return pa.array(results, pa.bool_()), pa.array(reasons, pa.string())


def call_with_each(
    function: PythonFunction, batch: pa.RecordBatch, judge: Callable[[Any], Any]
) -> tuple[list[Any], list[str | None]]:
    """Call a function with each record that is not rejected.

    Args:
        batch: The records, with the struct ``record``.
        judge: Is given what the function returns.

    Returns:
        What ``judge`` made of the results, None for a rejected record; and the reason of each rejected record.
    """
    records = batch.column("record")
    reasons = pc.struct_field(records, "reason").to_pylist()
    names = [name for name in batch.schema.names if name != "record"]
    values, faults = python_values(batch.select(names))
    nested = {field.name: field.type for field in batch.select(names).schema if _has_struct(field.type)}
    results: list[Any] = []
    for row, value in enumerate(values):
        result = None
        for name, data_type in nested.items():
            value[name] = with_attributes(value[name], data_type)
        if reasons[row] is None:
            try:
                if row in faults:
                    raise Unfit(f"cannot be called: {faults[row]}")
                result = judge(function.call(SimpleNamespace(**value, record=RecordMetadata(records, row))))
            except BaseException as error:  # whatever a function of a declaration raises is the record's reason
                if isinstance(error, NOT_OF_A_FUNCTION):
                    raise
                reasons[row] = rejected_by(function.name, function.call, error, function.on_error)
        results.append(result)
    return results, reasons


def _with_reasons(batch: pa.RecordBatch, reasons: pa.Array) -> pa.RecordBatch:
    return with_parts(batch, {"reason": reasons})


def with_parts(batch: pa.RecordBatch, parts: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return records with other parts of the struct ``record``.

    Args:
        batch: The records.
        parts: The parts by their names.
    """
    records = batch.column("record")
    named = zip(records.type, records.flatten(), strict=True)
    columns = [parts.get(field.name, column) for field, column in named]
    replaced = pa.StructArray.from_arrays(columns, fields=list(records.type))
    return batch.set_column(batch.schema.get_field_index("record"), batch.schema.field("record"), replaced)


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
