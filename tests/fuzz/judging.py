"""What every serde must hold, whatever it is given: each function yields what is wrong, a sentence each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamplan.serdes.serde import KEY_FIELD_TYPES, Serde, Undecodable, Value, key_of

_SHOWN = 400


def reading(serde: Serde, values: Sequence[bytes | None]) -> Iterator[str]:
    """Compare the values as they are read alone with the column of them all, and with the keys of its fields.

    Args:
        serde: Reads them.
        values: The values of a batch.
    """
    alone = [_read(serde, data) for data in values]
    column = serde.decode_column(values)
    together = column.fields.to_pylist(maps_as_pydicts="strict")
    if len(together) != len(values):
        yield f"{serde!r}: {len(values)} values, and a column of {len(together)}"
        return
    for row, (data, expected) in enumerate(zip(values, alone, strict=True)):
        observed = column.rejected.get(row, together[row])
        if not same(expected, observed) or (row in column.rejected and together[row] is not None):
            yield f"{serde!r} reads {shown(data)} alone as {shown(expected)}, in a column as {shown(observed)}"
    for field, of_field in serde.fields.items():
        if of_field in KEY_FIELD_TYPES:
            keys = serde.key_column(field, values)
            for row, data in enumerate(values):
                observed = keys.rejected.get(row, keys.keys[row].as_py())
                if not same(expected := _key(serde, field, data), observed):
                    paths = f"alone {shown(expected)}, in a column {shown(observed)}"
                    yield f"{serde!r}, key {field} of {shown(data)}: {paths}"


def writing(serde: Serde, value: Value) -> Iterator[str]:
    """Write a value that the serde has, and read it again: the fields are the same.

    Args:
        serde: Writes and reads.
        value: All of its fields.
    """
    data = serde.encode(value)
    if not same(dict(value), found := _read(serde, data)):
        yield f"{serde!r} writes {shown(value)} as {shown(data)}, and reads that as {shown(found)}"


def agreeing(serde: Serde, data: bytes, partner: Callable[[bytes], Any]) -> Iterator[str]:
    """Compare what a serde reads with what the reference library of the format reads.

    Args:
        serde: Reads the value.
        data: The value.
        partner: Gives the fields that the library reads. It raises ValueError where it refuses the value.
    """
    found = _read(serde, data)
    try:
        expected = partner(data)
    except ValueError as error:
        if not isinstance(found, str):
            yield f"{serde!r} reads {shown(data)} as {shown(found)}; the library refuses it: {shown(error)}"
        return
    if isinstance(found, str):
        yield f"{serde!r} rejects {shown(data)}: {shown(found)}; the library reads {shown(expected)}"
    elif not same(expected, found):
        yield f"{serde!r} reads {shown(data)} as {shown(found)}; the library reads {shown(expected)}"


def same(expected: Any, observed: Any) -> bool:
    """Whether two values are of one type and equal, the zeros of both signs apart, and NaN is itself."""
    if type(expected) is not type(observed):
        return False
    if isinstance(expected, float):
        both_nan = math.isnan(expected) and math.isnan(observed)
        return both_nan or (expected == observed and math.copysign(1, expected) == math.copysign(1, observed))
    if isinstance(expected, Mapping):
        return expected.keys() == observed.keys() and all(same(each, observed[name]) for name, each in expected.items())
    if isinstance(expected, list):
        return len(expected) == len(observed) and all(map(same, expected, observed))
    if hasattr(expected, "as_tuple"):  # a Decimal: 1.0 is not 1.00
        return bool(expected.as_tuple() == observed.as_tuple())
    return bool(expected == observed)


def shown(value: Any) -> str:
    """A value in a finding."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _read(serde: Serde, data: bytes | None) -> dict[str, Any] | str:
    try:
        return serde.decode(data)
    except Undecodable as rejection:
        return str(rejection)


def _key(serde: Serde, field: str, data: bytes | None) -> bytes | str:
    try:
        return key_of(serde, field, data)
    except Undecodable as rejection:
        return str(rejection)
