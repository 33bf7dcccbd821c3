"""What tests of all serdes share: why a value is rejected, changed bytes, and columns beside their values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from streamplan.serdes.serde import Serde, Undecodable


def reason_of(serde: Serde, data: bytes | None) -> str:
    """Return why a serde rejects a value, which it has to."""
    with pytest.raises(Undecodable) as rejection:
        serde.decode(data)
    return str(rejection.value)


def changed(data: bytes, generator: random.Random, inserted: Callable[[], int]) -> bytes:
    """Return bytes of which one is another, or some are cut off, or one is inserted; up to three times, or not at all.

    Args:
        data: The bytes.
        generator: Says what is changed.
        inserted: Gives a byte that is inserted.
    """
    found = bytearray(data)
    for _ in range(generator.choice((0, 0, 1, 3))):
        at = generator.randrange(len(found) + 1)
        match generator.randrange(3):
            case 0:
                found[at : at + 1] = bytes([generator.randrange(256)])
            case 1:
                del found[at:]
            case _:
                found.insert(at, inserted())
    return bytes(found)


def expect_column_as_values(serde: Serde, values: Sequence[bytes | None]) -> None:
    """Compare a column with its values read one by one. Some of them have to be rejected, and not all."""
    column = serde.decode_column(pa.array(values, pa.binary()))
    fields = column.fields.to_pylist(maps_as_pydicts="strict")
    assert len(fields) == len(values)
    for row, data in enumerate(values):
        if row in column.rejected:
            assert reason_of(serde, data) == column.rejected[row]
            assert fields[row] is None
        else:
            assert serde.decode(data) == fields[row]
    assert 0 < len(column.rejected) < len(values)
