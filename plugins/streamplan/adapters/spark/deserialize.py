"""Reads one field of whole Arrow batches of JSON values.

Agrees record for record with the reference, :class:`streamplan.serdes.Json`: the fast path accepts only what the
reference accepts, and everything it is not sure of goes to the reference.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

from streamplan.serdes import Json, Rejected, key_of

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
}
_LONG = 500
"""A value shorter than this cannot nest too deep or hold a number that is too long."""

_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True)
class Keys:
    """``keys``: binary array as long as the batch, null where rejected; ``rejected``: row to reason."""

    keys: pa.Array
    rejected: Mapping[int, str]


def select_keys(values: pa.Array, serde: Json, field: str) -> Keys:
    """The new key of every record: the text of ``field`` in its JSON value.

    ``values`` is a binary array, one value a record, nulls allowed.
    """
    found = _parse(values, serde, field)
    if found is None:  # something in the batch is not plain JSON: one by one
        return _reference(values, serde, field, pa.nulls(len(values), pa.binary()), range(len(values)))
    keys = found.cast(pa.string()).cast(pa.binary())
    known = pc.is_valid(found)
    if field in serde.allowed:
        known = pc.and_(known, pc.is_in(found, pa.array(list(serde.allowed[field]), found.type)))
    if serde.max_bytes < (pc.max(pc.binary_length(values)).as_py() or 0) + (
        pc.max(pc.binary_length(keys)).as_py() or 0
    ):
        known = pc.and_(known, pc.less(pc.binary_length(values), serde.max_bytes // 2))
    sure = pc.and_(known, pc.invert(_beyond_the_parser(values)))
    if pc.all(sure).as_py():
        return Keys(keys, {})
    doubtful = pc.indices_nonzero(pc.invert(sure.fill_null(False))).to_pylist()
    return _reference(values, serde, field, keys, doubtful)


def _beyond_the_parser(values: pa.Array) -> pa.Array:
    """True for values with something that Arrow's parser takes and the reference may not.

    These are NaN and Infinity, and nesting or numbers beyond the limits of the standard library.
    """
    doubtful = pc.or_(pc.match_substring(values, b"NaN"), pc.match_substring(values, b"Infinity"))
    if pc.max(pc.binary_length(values)).as_py() < _LONG:
        return doubtful
    brackets = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
    deep = pc.greater(brackets, _LONG // 2)
    return pc.or_(doubtful, pc.or_(deep, pc.match_substring_regex(values, rf"[0-9]{{{_LONG}}}")))


def _parse(values: pa.Array, serde: Json, field: str) -> pa.Array | None:
    """The field of every record, null where absent; None where the batch as a whole does not parse.

    Each value is wrapped as ``{"v":<value>,"<nonce>":<row>}`` and the rows must come back in order: a value that holds
    two documents, or half of one, cannot shift its neighbours, and cannot guess the nonce.
    """
    if values.null_count or len(values) == 0:
        return None
    nonce = secrets.token_hex(8)
    rows = pa.array(range(len(values)), pa.int64())
    try:
        values.cast(pa.string())  # refuses what is not UTF-8; the parser would not
        text = pc.binary_join_element_wise(
            pa.scalar(b'{"v":'),
            values,
            pa.scalar(f',"{nonce}":'.encode()),
            rows.cast(pa.string()).cast(pa.binary()),
            pa.scalar(b"}\n"),
            _EMPTY,
        )
        buffer = text.buffers()[2]
        table = paj.read_json(
            pa.BufferReader(buffer.slice(0, pc.sum(pc.binary_length(text)).as_py())),
            read_options=paj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=paj.ParseOptions(
                explicit_schema=pa.schema(
                    [("v", pa.struct([(field, _ARROW_TYPES[serde.fields[field]])])), (nonce, pa.int64())]
                ),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None
    if table.num_rows != len(values) or not table[nonce].combine_chunks().equals(rows):
        return None
    return pc.struct_field(table["v"], [0]).combine_chunks()


def _reference(values: pa.Array, serde: Json, field: str, keys: pa.Array, rows: range | list[int]) -> Keys:
    by_row: list[bytes | None] = keys.to_pylist()
    rejected: dict[int, str] = {}
    for row in rows:
        try:
            by_row[row] = key_of(serde, field, values[row].as_py())
        except Rejected as rejection:
            by_row[row] = None
            rejected[row] = str(rejection)
    return Keys(pa.array(by_row, pa.binary()), rejected)
