"""Reads whole Arrow arrays of JSON values.

Agrees record for record with the reference, :meth:`streamplan.serdes.json.Json.decode`. Arrow's parser is given only
what it provably reads as the reference does. It crashes on some numbers, and reads others as another number: the
reference reads the values that have such ones, and Arrow does not see them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

from streamplan.serdes.arrow import arrow_type, decode_again, decode_each, longest, struct_type, true_rows
from streamplan.serdes.columns import DecodedColumn
from streamplan.serdes.field_types import (
    GREATEST_PRECISION,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    FieldType,
    Scalar,
    StructType,
    has_map,
    leaves,
    parse_type,
)
from streamplan.serdes.json_documents import parse_document
from streamplan.serdes.moments import FIRST_DAY, FIRST_US, LAST_US
from streamplan.serdes.serde import Serde, Undecodable

_LONG = 500
"""A value shorter than this, in bytes, cannot nest too deep or hold a number that is too long."""

_FEW = 500
"""A batch that the parser refuses is tried again in parts of this many values, which are then read one by one."""

_REFUSED = 3
"""After this many refused parts in a row, the rest of the batch is read one by one."""

_ACCEPTED_ALIKE = ("string", "int", "bigint", "boolean")
"""The types of which the parser accepts what the reference accepts."""

_SAMPLED = 20
"""This many values show whether a timestamp is text or a number. Where both occur, the reference reads the values."""

_MOMENT = r"^(?:[1-9]\d\d\d|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)$"
"""Arrow's parser of timestamps also accepts other forms, and the year 0."""

_CONSTANT = r"[\s:,\[]-?(?:NaN|Inf)"
"""Arrow's parser takes them for numbers."""

_BEFORE_NUMBER = r"""[\s":,\[][-+]?"""
"""What stands before a number, or before a text with one."""

_EXPONENT = _BEFORE_NUMBER + r"""[0-9.]+[eE][-+]?[0-9]+[\s",}\]]"""

_ESCAPED_NUMBER = r"\\u00(?:2[bBdDeE]|3[0-9]|[46]5)"
"""A text with a number that has a sign, a digit, a point or an ``e`` as an escape sequence."""


def decode_json(serde: Serde, values: pa.Array) -> DecodedColumn:
    """Every declared field of every record.

    Args:
        serde: Its fields and its allowed values are read; its ``decode`` is the reference.
        values: Binary array, one value a record, nulls allowed.
    """
    types = {name: parse_type(text) for name, text in serde.fields.items()}
    if any(map(has_map, types.values())):  # Arrow's parser does not read an object as a map.
        return decode_each(serde, values)
    if (read := _decode_batch(serde, types, values)) is not None:
        return read
    if len(values) <= _FEW:
        return decode_each(serde, values)
    fields: list[pa.StructArray] = []
    rejected: dict[int, str] = {}
    first, refused = 0, 0
    while first < len(values):
        until = first + _FEW if refused < _REFUSED else len(values)
        part = values.take(pa.array(np.arange(first, min(until, len(values)))))
        read = _decode_batch(serde, types, part) if refused < _REFUSED else None
        refused = refused + 1 if read is None else 0
        read = read or decode_each(serde, part)
        fields.append(read.fields)
        rejected |= {first + row: reason for row, reason in read.rejected.items()}
        first = until
    return DecodedColumn(pa.concat_arrays(fields), rejected)


def _decode_batch(serde: Serde, types: Mapping[str, FieldType], values: pa.Array) -> DecodedColumn | None:
    """Every declared field of every record; None where a value is not plain JSON, or of another type."""
    beyond = _beyond_the_parser(values, types)
    doubtful = set(true_rows(beyond))
    given = pc.if_else(beyond, pa.scalar(b"{}", values.type), values) if doubtful else values
    parsed = _parse(given.fill_null(b"{}") if given.null_count else given, _parsed_type(serde, types, given))
    if parsed is None:
        return None
    if values.null_count:
        doubtful |= set(true_rows(pc.is_null(values)))
    if parsed.null_count:  # "v": null
        doubtful |= set(true_rows(pc.is_null(parsed)))
    try:
        fields = _Reading(doubtful).struct(parsed, StructType(tuple(types.items())), None)
    except pa.ArrowInvalid:  # There is no such day or hour.
        return None
    for name, known in serde.allowed.items():
        column = pc.struct_field(fields, name)
        is_known = pc.is_in(column, pa.array(list(known), column.type))
        doubtful |= set(true_rows(pc.and_(pc.is_valid(column), pc.invert(is_known))))
    return decode_again(serde, values, fields, sorted(doubtful))


def _parsed_type(serde: Serde, types: Mapping[str, FieldType], values: pa.Array) -> pa.StructType:
    """The type that Arrow's parser is asked for: it takes a date for a number, and knows one form of a timestamp."""
    if all(_is_parsed(of_field) for of_field in types.values()):
        return struct_type(serde.fields)
    samples: list[Any] = []
    if any(TIMESTAMP in leaves(of_field) for of_field in types.values()):
        for value in values.drop_null().slice(0, _SAMPLED).to_pylist():
            try:
                samples.append(parse_document(value))
            except Undecodable:  # The reference will say so.
                continue
    return _parsed_as(StructType(tuple(types.items())), samples)


def _is_parsed(field_type: FieldType) -> bool:
    return all(str(leaf) not in ("timestamp", "date") for leaf in leaves(field_type))


def _parsed_as(field_type: FieldType, samples: Sequence[Any]) -> pa.DataType:
    match field_type:
        case StructType(fields=fields):
            objects = [sample for sample in samples if isinstance(sample, dict)]
            return pa.struct(
                [(name, _parsed_as(of_field, [each.get(name) for each in objects])) for name, of_field in fields]
            )
        case ArrayType(element=element):
            return pa.list_(_parsed_as(element, [each for part in samples if isinstance(part, list) for each in part]))
        case Scalar(name="timestamp"):
            return pa.int64() if any(type(sample) is int for sample in samples) else pa.string()
        case Scalar(name="date"):
            return pa.string()
    return arrow_type(field_type)


class _Reading:
    """Makes the declared types of what Arrow's parser gave.

    Args:
        doubtful: Takes the rows that the reference must judge, because the parser accepts more than the reference does.
    """

    def __init__(self, doubtful: set[int]) -> None:
        self._doubtful = doubtful

    def struct(self, array: pa.StructArray, declared: StructType, rows: pa.Array | None) -> pa.StructArray:
        """Return an array of the declared type.

        Args:
            array: What the parser gave.
            rows: The row of each element; None where the elements are the rows.
        """
        parts = [pc.struct_field(array, place) for place in range(array.type.num_fields)]
        read = [self._read(part, of_field, rows) for part, (_, of_field) in zip(parts, declared.fields, strict=True)]
        if all(before is after for before, after in zip(parts, read, strict=True)):
            return array
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(read, fields=list(arrow_type(declared)), mask=mask)

    def _read(self, array: pa.Array, declared: FieldType, rows: pa.Array | None) -> pa.Array:
        match declared:
            case Scalar(name="double"):
                self._doubt(pc.invert(pc.is_finite(array)), rows)
                if pc.any(pc.equal(array, 0)).as_py():  # -0 is an integer, and has no sign
                    self._doubt(pc.equal(pc.divide(1.0, array), float("-inf")), rows)
            case Scalar(name="date"):
                array = array.cast(pa.date32())
                self._doubt(pc.less(array.cast(pa.int32()), FIRST_DAY), rows)
            case Scalar(name="timestamp"):
                return self._moments(array, rows)
            case DecimalType(
                precision=precision, scale=scale
            ):  # Of numbers with fewer digits behind the point it is lax.
                # Not the negation of one another: Python would round it to its context's precision.
                least, greatest = (pa.scalar(Decimal((sign, (9,) * precision, -scale)), array.type) for sign in (1, 0))
                self._doubt(pc.or_(pc.less(array, least), pc.greater(array, greatest)), rows)
            case StructType() if _is_looked_at(declared):
                return self.struct(array, declared, rows)
            case ArrayType(element=element) if _is_looked_at(element):
                return self._list(array, declared, rows)
        return array

    def _list(self, array: pa.ListArray, declared: ArrayType, rows: pa.Array | None) -> pa.ListArray:
        parents = pc.list_parent_indices(array)
        elements = array.flatten()
        read = self._read(elements, declared.element, parents if rows is None else rows.take(parents))
        if read is elements:
            return array
        lengths = pc.list_value_length(array).fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        mask = pc.is_null(array) if array.null_count else None
        return pa.ListArray.from_arrays(offsets, read, type=arrow_type(declared), mask=mask)

    def _moments(self, array: pa.Array, rows: pa.Array | None) -> pa.Array:
        utc = arrow_type(TIMESTAMP)
        if pa.types.is_integer(array.type):
            beyond = pc.or_(pc.less(array, FIRST_US // 1000), pc.greater(array, LAST_US // 1000))
            self._doubt(beyond, rows)
            return pc.multiply(pc.if_else(beyond, pa.scalar(None, pa.int64()), array), 1000).cast(utc)
        well_formed = pc.match_substring_regex(array, _MOMENT)
        if not pc.all(well_formed).as_py():
            self._doubt(pc.invert(well_formed), rows)
            array = pc.if_else(well_formed, array, pa.scalar(None, pa.string()))
        if pc.any(pc.match_substring_regex(array, r"\.\d{7}")).as_py():
            array = pc.replace_substring_regex(array, r"(\.\d{6})\d+", r"\1")
        moments = array.cast(utc)
        numbers = moments.cast(pa.int64())
        self._doubt(pc.or_(pc.less(numbers, FIRST_US), pc.greater(numbers, LAST_US)), rows)
        return moments

    def _doubt(self, mask: pa.Array, rows: pa.Array | None) -> None:
        found = true_rows(mask)
        if found:
            self._doubtful.update(found if rows is None else rows.take(pa.array(found, pa.int64())).to_pylist())


def _is_looked_at(field_type: FieldType) -> bool:
    return any(str(leaf) not in _ACCEPTED_ALIKE for leaf in leaves(field_type))


def _beyond_the_parser(values: pa.Array, types: Mapping[str, FieldType]) -> pa.Array:
    """True for values with something that Arrow's parser may read as another value, or accept beyond the reference.

    These are NaN and Infinity, nesting and numbers beyond the limits of the reference, and what
    :func:`_doubtful_decimals` says.
    """
    scales = [leaf.scale for each in types.values() for leaf in leaves(each) if isinstance(leaf, DecimalType)]
    patterns = [_CONSTANT, *(_doubtful_decimals(GREATEST_PRECISION - max(scales)) if scales else [])]
    pattern = "|".join(patterns)
    # One search of all bytes costs a third less than a search in each value. It finds too much at the most.
    if (joined := _joined(values)) is None or not pc.match_substring_regex(joined, pattern)[0].as_py():
        doubts = []
    else:
        doubts = [pc.match_substring_regex(values, pattern)]
    if longest(values) >= _LONG:
        brackets = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
        doubts.append(pc.greater(brackets, _LONG // 2))
        doubts.append(pc.match_substring_regex(values, rf"[0-9]{{{_LONG}}}"))
    return reduce(pc.or_, doubts) if doubts else pa.nulls(len(values), pa.bool_()).fill_null(False)


def _joined(values: pa.Array) -> pa.Array | None:
    """All bytes of the values, one value after the other, as one value. None where they have no bytes."""
    data = values.buffers()[2]
    if data is None:
        return None
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int64)), data])


def _doubtful_decimals(most_digits: int) -> tuple[str, ...]:
    """The patterns of values with numbers that Arrow may make another decimal of, or crash on.

    Arrow computes in 128 bits, and shifts the point by its table of the powers of ten up to 10^38, both unchecked. A
    number is right without an exponent, with 39 digits and points at the most, and with so few digits before the point
    that the digits behind it, as many as the type has, fit beside them.

    Args:
        most_digits: 38, less the digits of the type behind the point.
    """
    long_number = rf"{_BEFORE_NUMBER}(?:[0-9]{{{most_digits + 1}}}|[0-9.]{{{GREATEST_PRECISION + 2}}})"
    return (_EXPONENT, long_number, _ESCAPED_NUMBER)


def _parse(values: pa.Array, value_type: pa.StructType) -> pa.StructArray | None:
    """The fields of every record, null where absent; None where the batch as a whole does not parse.

    Each value is wrapped as ``{"v":<value>,"<nonce>":<row>}`` and the rows must come back in order: a value that holds
    two documents, or half of one, cannot shift its neighbours, and cannot guess the nonce.
    """
    if len(values) == 0:
        return None
    nonce = secrets.token_hex(8)
    rows = pa.array(np.arange(len(values)))
    try:
        values.cast(pa.string())  # Refuses what is not UTF-8. The parser would accept it.
        text = pc.binary_join_element_wise(
            pa.scalar(b'{"v":'),
            values,
            pa.scalar(f',"{nonce}":'.encode()),
            rows.cast(pa.string()).cast(pa.binary()),
            pa.scalar(b"}\n"),
            pa.scalar(b"", pa.binary()),
        )
        buffer = text.buffers()[2]
        table = paj.read_json(
            pa.BufferReader(buffer.slice(0, pc.sum(pc.binary_length(text)).as_py())),
            read_options=paj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=paj.ParseOptions(
                explicit_schema=pa.schema([("v", value_type), (nonce, pa.int64())]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None
    if table.num_rows != len(values) or not table[nonce].combine_chunks().equals(rows):
        return None
    return table["v"].combine_chunks()
