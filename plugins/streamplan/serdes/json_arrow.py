"""Reads whole Arrow batches of JSON values.

Agrees record for record with the reference, :class:`streamplan.serdes.json.Json`: the fast path accepts only what the
reference accepts, and everything it is not sure of goes to the reference.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

from streamplan.serdes.json import Json, Rejected, key_of

ARROW_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
_LONG = 500
"""A value shorter than this cannot nest too deep or hold a number that is too long."""


@dataclass(frozen=True)
class Keys:
    """``keys``: binary array as long as the batch, null where rejected; ``rejected``: row to reason."""

    keys: pa.Array
    rejected: Mapping[int, str]


@dataclass(frozen=True)
class Rows:
    """``fields``: struct array as long as the batch, null where rejected; ``rejected``: row to reason."""

    fields: pa.StructArray
    rejected: Mapping[int, str]


def read_rows(values: pa.Array, serde: Json) -> Rows:
    """Every declared field of every record. ``values`` is a binary array, one value a record, nulls allowed."""
    kind = pa.struct([(name, ARROW_TYPES[of]) for name, of in serde.fields.items()])
    parsed = _parse(values, serde, kind)
    if parsed is None:  # something in the batch is not plain JSON: one by one
        found, rejected = _reference(values, serde.read, [None] * len(values), range(len(values)))
        return Rows(pa.array(found, kind), rejected)
    doubtful = _doubtful(parsed, values, serde)
    if not doubtful:
        return Rows(parsed, {})
    found, rejected = _reference(values, serde.read, parsed.to_pylist(), doubtful)
    return Rows(pa.array(found, kind), rejected)


def select_keys(values: pa.Array, serde: Json, field: str) -> Keys:
    """The new key of every record: the text of ``field`` in its JSON value.

    ``field`` is of a type with one text a value. ``values`` as for :func:`read_rows`.
    """

    def key(value: bytes | None) -> bytes:
        return key_of(serde, field, value)

    kind = pa.struct([(name, ARROW_TYPES[of]) for name, of in serde.fields.items()])
    parsed = _parse(values, serde, kind)
    if parsed is None:
        found, rejected = _reference(values, key, [None] * len(values), range(len(values)))
        return Keys(pa.array(found, pa.binary()), rejected)
    column = pc.struct_field(parsed, field)
    keys = column.cast(pa.string()).cast(pa.binary())
    doubtful = set(_doubtful(parsed, values, serde)) | set(_indices(pc.is_null(column)))
    if serde.max_bytes < _longest(values) + _longest(keys):
        doubtful |= set(_indices(pc.greater_equal(pc.binary_length(values), serde.max_bytes // 2)))
    if not doubtful:
        return Keys(keys, {})
    found, rejected = _reference(values, key, keys.to_pylist(), sorted(doubtful))
    return Keys(pa.array(found, pa.binary()), rejected)


def _doubtful(parsed: pa.StructArray, values: pa.Array, serde: Json) -> list[int]:
    """Rows of which the reference must judge: Arrow's parser takes more than it does."""
    doubtful = set(_indices(_beyond_the_parser(values)))
    if parsed.null_count:  # "v": null
        doubtful |= set(_indices(pc.is_null(parsed)))
    for name, kind in serde.fields.items():
        column = pc.struct_field(parsed, name)
        if name in serde.allowed:
            known = pc.is_in(column, pa.array(list(serde.allowed[name]), column.type))
            doubtful |= set(_indices(pc.and_(pc.is_valid(column), pc.invert(known))))
        if kind == "double":
            doubtful |= set(_indices(pc.invert(pc.is_finite(column))))
    return sorted(doubtful)


def _indices(mask: pa.Array) -> list[int]:
    listed: list[int] = pc.indices_nonzero(mask.fill_null(False)).to_pylist() if pc.any(mask).as_py() else []
    return listed


def _content(values: pa.Array) -> bytes:
    """All values, one behind the other: one search of it costs a tenth of one in each."""
    data = values.buffers()[2]
    return data.to_pybytes() if data is not None else b""


def _longest(values: pa.Array) -> int:
    return int(pc.max(pc.binary_length(values)).as_py() or 0)


def _beyond_the_parser(values: pa.Array) -> pa.Array:
    """True for values with something that Arrow's parser takes and the reference may not.

    These are NaN and Infinity, and nesting or numbers beyond the limits of the standard library.
    """
    content = _content(values)
    if b"NaN" in content or b"Infinity" in content:
        doubtful = pc.or_(pc.match_substring(values, b"NaN"), pc.match_substring(values, b"Infinity"))
    else:
        doubtful = pa.nulls(len(values), pa.bool_()).fill_null(False)
    if _longest(values) < _LONG:
        return doubtful
    brackets = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
    deep = pc.greater(brackets, _LONG // 2)
    return pc.or_(doubtful, pc.or_(deep, pc.match_substring_regex(values, rf"[0-9]{{{_LONG}}}")))


def _parse(values: pa.Array, serde: Json, kind: pa.StructType) -> pa.StructArray | None:
    """The fields of every record, null where absent; None where the batch as a whole does not parse.

    Each value is wrapped as ``{"v":<value>,"<nonce>":<row>}`` and the rows must come back in order: a value that holds
    two documents, or half of one, cannot shift its neighbours, and cannot guess the nonce.
    """
    if values.null_count or len(values) == 0:
        return None
    nonce = secrets.token_hex(8)
    rows = pa.array(np.arange(len(values)))
    try:
        values.cast(pa.string())  # refuses what is not UTF-8; the parser would not
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
                explicit_schema=pa.schema([("v", kind), (nonce, pa.int64())]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None
    if table.num_rows != len(values) or not table[nonce].combine_chunks().equals(rows):
        return None
    return table["v"].combine_chunks()


def _reference(
    values: pa.Array, read: Callable[[bytes | None], Any], found: list[Any], rows: range | list[int]
) -> tuple[list[Any], dict[int, str]]:
    rejected: dict[int, str] = {}
    for row in rows:
        try:
            found[row] = read(values[row].as_py())
        except Rejected as rejection:
            found[row] = None
            rejected[row] = str(rejection)
    return found, rejected
