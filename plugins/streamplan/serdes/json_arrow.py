"""Reads whole Arrow arrays of JSON values.

Agrees record for record with the reference, :meth:`streamplan.serdes.json.Json.decode`: the fast path accepts only what
the reference accepts, and the reference reads every record of which the fast path is not sure.
"""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

from streamplan.serdes.arrow import decode_again, decode_each, longest, struct_type, true_rows
from streamplan.serdes.columns import DecodedColumn
from streamplan.serdes.serde import Serde

_LONG = 500
"""A value shorter than this, in bytes, cannot nest too deep or hold a number that is too long."""


def decode_json(serde: Serde, values: pa.Array) -> DecodedColumn:
    """Every declared field of every record.

    Args:
        serde: Its fields and its allowed values are read; its ``decode`` is the reference.
        values: Binary array, one value a record, nulls allowed.
    """
    parsed = _parse(values.fill_null(b"{}") if values.null_count else values, struct_type(serde.fields))
    if parsed is None:  # A value in the batch is not plain JSON, so the reference reads each.
        return decode_each(serde, values)
    return decode_again(serde, values, parsed, _doubtful_rows(parsed, values, serde))


def _doubtful_rows(parsed: pa.StructArray, values: pa.Array, serde: Serde) -> list[int]:
    """The rows that the reference must judge, because Arrow's parser accepts more than the reference does."""
    doubtful = set(true_rows(_beyond_the_parser(values)))
    if values.null_count:
        doubtful |= set(true_rows(pc.is_null(values)))
    if parsed.null_count:  # "v": null
        doubtful |= set(true_rows(pc.is_null(parsed)))
    for name, field_type in serde.fields.items():
        column = pc.struct_field(parsed, name)
        if name in serde.allowed:
            known = pc.is_in(column, pa.array(list(serde.allowed[name]), column.type))
            doubtful |= set(true_rows(pc.and_(pc.is_valid(column), pc.invert(known))))
        if field_type == "double":
            doubtful |= set(true_rows(pc.invert(pc.is_finite(column))))
    return sorted(doubtful)


def _content(values: pa.Array) -> bytes:
    """All values, one after the other: one search of it costs a tenth of a search in each value."""
    data = values.buffers()[2]
    return data.to_pybytes() if data is not None else b""


def _beyond_the_parser(values: pa.Array) -> pa.Array:
    """True for values with something that Arrow's parser accepts and the reference may refuse.

    These are NaN and Infinity, and nesting or numbers beyond the limits of the standard library.
    """
    content = _content(values)
    if b"NaN" in content or b"Infinity" in content:
        doubtful = pc.or_(pc.match_substring(values, b"NaN"), pc.match_substring(values, b"Infinity"))
    else:
        doubtful = pa.nulls(len(values), pa.bool_()).fill_null(False)
    if longest(values) < _LONG:
        return doubtful
    brackets = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
    deep = pc.greater(brackets, _LONG // 2)
    return pc.or_(doubtful, pc.or_(deep, pc.match_substring_regex(values, rf"[0-9]{{{_LONG}}}")))


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
