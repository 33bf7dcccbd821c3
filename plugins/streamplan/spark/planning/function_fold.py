"""What the Python functions of an aggregate make of records: the new value of a key, or of a window.

Sources: ``KStreamAggregate`` and ``KStreamReduce``, ``KStreamWindowAggregate`` and ``KStreamSessionWindowAggregate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa

from streamplan.errors import Refused
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import STREAM_OF_RECORD, Columns, value_of_stream
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.changes import Changes
from streamplan.serdes.field_types import FIELD_TYPES, FieldType, parse_type
from streamplan.serdes.field_types import StructType as DeclaredStruct
from streamplan.serdes.internal import repartition_serde
from streamplan.serdes.primitive import KeySerde
from streamplan.serdes.serde import MAX_BYTES, Serde, Undecodable, too_large
from streamplan.spark.noted_records import note
from streamplan.spark.planning.field_types import unreadable_types
from streamplan.spark.planning.function_results import NOT_OF_A_FUNCTION, Unfit, fields_of, parts_of, rejected_by
from streamplan.spark.planning.merging import Fold
from streamplan.spark.planning.python_functions import with_attributes
from streamplan.spark.planning.records import RecordFrame


class Rejected(Exception):
    """A function has failed for a record. ``str()`` is the reason of its dead letter."""


@dataclass(frozen=True)
class Values:
    """Values with the same fields: as Python code sees them, and as bytes.

    Attributes:
        columns: The names and the types of the fields.
    """

    columns: Columns

    @cached_property
    def types(self) -> Mapping[str, FieldType]:
        """The types of the fields."""
        return {name: parse_type(of_field) for name, of_field in self.columns}

    @cached_property
    def struct(self) -> DeclaredStruct:
        """The type of the value."""
        return DeclaredStruct(tuple(self.types.items()))

    @cached_property
    def arrow_type(self) -> pa.StructType:
        """The type of the value in Arrow's words."""
        return struct_type(dict(self.columns))

    @cached_property
    def serde(self) -> Serde:
        """Reads and writes the bytes."""
        return repartition_serde(self.types)

    def encoded(self, value: Mapping[str, Any]) -> bytes:
        """A value in bytes."""
        return self.serde.encode(value)

    def decoded(self, data: bytes) -> dict[str, Any]:
        """The value that bytes are."""
        return self.serde.decode(data)

    def judged(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """All fields of a value in their own types. Raises Unfit where one has another type."""
        parts = pa.scalar(parts_of(value, self.arrow_type, ""), self.arrow_type)
        found: dict[str, Any] = parts.as_py(maps_as_pydicts="strict")
        return found

    def seen(self, data: bytes) -> Any:
        """A value in bytes, with its fields as attributes."""
        return with_attributes(self.decoded(data), self.arrow_type)


class Made(NamedTuple):
    """What functions have made: the fields, and the bytes that the store has of them. None is a deletion."""

    value: dict[str, Any] | None
    data: bytes | None


@dataclass(frozen=True)
class Functions:
    """The functions of an aggregate.

    Attributes:
        function: The aggregator or, without an initializer, the reducer.
        initializer: Gives the aggregate where there is none.
        merger: Makes one of two aggregates; None where a record is never added to several.
        fields: Name and type of each field of the aggregate.
    """

    function: PythonFunction
    initializer: PythonFunction | None
    merger: PythonFunction | None
    fields: Columns

    @cached_property
    def made(self) -> Values:
        """The values that are made."""
        return Values(self.fields)

    def added(self, key: Any, raw_key: bytes, value: Any, totals: Sequence[bytes]) -> Made:
        """Return what is made of a record and of what was made before.

        Args:
            key: The key, as the functions see it.
            raw_key: The key in bytes.
            value: The value of the record, as the functions see it.
            totals: What was made before, in bytes: nothing, one value, or those of several sessions.

        Raises:
            Rejected: A function has failed.
            Exception: A function has failed whose declaration stops the application then.
        """
        if self.initializer is None:
            return self._reduced(raw_key, self._before(key, raw_key, totals), value)
        before = self._before(key, raw_key, totals)
        return self._made_by(self.function, raw_key, lambda: self.function.call(key, value, before))

    def _before(self, key: Any, raw_key: bytes, totals: Sequence[bytes]) -> Any:
        """The aggregate that a record is added to. Of sessions it begins with an empty one, as in the library."""
        merger, before = self.merger, None
        if self.initializer is not None and (merger is not None or not totals):
            before = self._seen(self._made_by(self.initializer, raw_key, self.initializer.call))
        for total in map(self.made.seen, totals):
            if merger is not None:
                before = self._seen(self._made_by(merger, raw_key, partial(merger.call, key, before, total)))
            else:
                before = total if before is None else self._seen(self._reduced(raw_key, before, total))
        return before

    def _reduced(self, raw_key: bytes, before: Any, value: Any) -> Made:
        """The first value is kept as it is."""
        call = self.function.call
        return self._made_by(self.function, raw_key, lambda: value if before is None else call(before, value))

    def _made_by(self, function: PythonFunction, raw_key: bytes, call: Callable[[], Any]) -> Made:
        try:
            fields = fields_of(call(), self.made.types)
            value = None if fields is None else self.made.judged(fields)
            data = None if value is None else self.made.encoded(value)
            if data is not None and len(raw_key) + len(data) > MAX_BYTES:
                raise Unfit(f"returned what the store cannot hold: {too_large(MAX_BYTES)}")
        except BaseException as error:  # whatever a function of a declaration raises is the record's reason
            if isinstance(error, NOT_OF_A_FUNCTION):
                raise
            raise Rejected(rejected_by(function.name, function.call, error, function.on_error)) from error
        return Made(value, data)

    def _seen(self, made: Made) -> Any:
        """What a function has made, as it is seen when the store has it."""
        return None if made.data is None else self.made.seen(made.data)


@dataclass(frozen=True)
class FunctionFold:
    """Adds the records of a stream task to windows.

    The first part of a window is its aggregate in bytes. A time window has the time of its newest record behind it.

    Attributes:
        functions: Those of each stream whose records are aggregated. Of several streams the value of a record has the
            fields of :class:`~streamplan.model.operations.CogroupFunctions`.
        serde: Reads the values of the records.
        key_serde: Reads their keys.
        keeps_times: Whether a time window that a function has deleted keeps the time of its newest record. A state that
            is restored knows from the times of its windows which final results were passed.
    """

    functions: tuple[Functions, ...]
    serde: Serde
    key_serde: KeySerde
    keeps_times: bool = False

    def of(self, row: Any) -> Fold:
        """Return what adds one record.

        Args:
            row: With its ``key``, and the ``record``. The first of its ``parts`` is the value in bytes.
        """
        note(*(row.record[name] for name in ("topic", "partition", "offset")))
        return _RecordFold(self, bytes(row.key))

    def restored(self, parts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return what a window has of what a changelog has; None for one that was deleted."""
        return None if self.is_deleted(parts) and not (self.keeps_times and len(parts) > 1) else parts

    def is_deleted(self, parts: tuple[Any, ...]) -> bool:
        """Return whether a window was deleted, so that it has its time alone."""
        return parts[0] is None

    @cached_property
    def read_type(self) -> pa.StructType:
        """The type of the values of the records."""
        return struct_type(self.serde.fields)


@dataclass(frozen=True)
class _RecordFold:
    """Adds one record to windows."""

    fold: FunctionFold
    key: bytes

    def added(self, totals: Sequence[tuple[Any, ...]], parts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """See :meth:`Fold.added`. Raises Rejected where a function has failed."""
        functions = self.fold.functions[0]
        data, *times = parts
        try:
            decoded = None if data is None else self.fold.serde.decode(bytes(data))
            value = with_attributes(decoded, self.fold.read_type)
            key = self.fold.key_serde.read_key(self.key)
        except Undecodable as error:  # An operation has made what cannot be read, such as a moment in the year 10000.
            function = functions.function
            unfit = Unfit(f"cannot be called: {error}")
            raise Rejected(rejected_by(function.name, function.call, unfit, function.on_error)) from error
        if len(self.fold.functions) > 1:
            number = getattr(value, STREAM_OF_RECORD)
            functions, value = self.fold.functions[number], getattr(value, value_of_stream(number))
        known = [bytes(total[0]) for total in totals if not self.fold.is_deleted(total)]
        made = functions.added(key, self.key, value, known)
        newest = (max(each) for each in zip(times, *(total[1:] for total in totals), strict=True))
        return self.fold.restored((made.data, *newest))

    def is_deleted(self, parts: tuple[Any, ...]) -> bool:
        """See :meth:`Fold.is_deleted`."""
        return self.fold.is_deleted(parts)


def fields_of_reducer(records: RecordFrame) -> Columns:
    """Return the fields of what a reducer makes: those of the records.

    Args:
        records: What is reduced.

    Raises:
        Refused: A store cannot hold them.
    """
    values = records.schema
    if isinstance(values, Changes):
        values = values.inner
    fields = tuple(values.fields.items())
    if unsupported := [f"{name} of type {told}" for name, told in fields if any(unreadable_types(parse_type(told)))]:
        raise Refused(
            f"the store of a reducer cannot hold {', '.join(unsupported)}",
            remedy=f"With map_values give it one of {', '.join(FIELD_TYPES)}, as in base64(value).",
        )
    return fields
