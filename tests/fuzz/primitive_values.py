"""Values that are one text or one number. The partners are :mod:`struct`, :mod:`uuid` and UTF-8 of Python."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from streamplan.serdes.field_types import parse_type
from streamplan.serdes.primitive import UUID, Bytes, Double, Integer, Long, Primitive, String

from tests.fuzz.bytes_and_values import mutated, value_of
from tests.fuzz.judging import agreeing, reading, writing

NAME = "primitive"


def _number(form: str) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        if len(data) != struct.calcsize(form) or not math.isfinite(number := struct.unpack(form, data)[0]):
            raise ValueError("no number of this size")
        return number

    return read


def _uuid(data: bytes) -> str:
    text = data.decode("ascii")
    if str(found := uuid.UUID(text)) != text.lower():
        raise ValueError("another form of a UUID")
    return str(found)


PARTNERS: dict[Primitive, Callable[[bytes], Any]] = {
    String(): lambda data: data.decode("utf-8"),
    Integer(): _number(">i"),
    Long(): _number(">q"),
    Double(): _number(">d"),
    UUID(): _uuid,
    Bytes(): bytes,
}
NUMBERS = (
    b"\x7f\xf0" + bytes(6),
    b"\x7f\xf8" + bytes(6),
    b"\xff\xf0" + bytes(6),
    b"\x80" + bytes(7),
    b"\x7f\xff\xff\xff",
)


def findings(random: Random) -> Iterator[str]:
    """One batch of values."""
    serde = random.choice([*PARTNERS])

    def value() -> Any:
        if isinstance(serde, UUID):
            return str(uuid.UUID(int=random.getrandbits(128)))
        if isinstance(serde, Bytes):
            return random.randbytes(random.randrange(20))
        return value_of(random, parse_type(serde.field_type), nulls=0)

    written = [{"value": value()} for _ in range(random.choice((1, 3, 20)))]
    for each in written:
        yield from writing(serde, each)
    data = [mutated(random, serde.encode(each), NUMBERS) for each in written]
    for each in data:
        yield from agreeing(serde, each, lambda data: {"value": PARTNERS[serde](data)})
    yield from reading(serde, [serde.encode(each) for each in written])
    yield from reading(serde, [*data, *random.choice(((), (None,)))])
