"""Changed bytes, and values of any field type with an inclination to the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from streamplan.serdes.field_types import ArrayType, DecimalType, FieldType, MapType, Scalar, StructType

TEXTS = ("", "a", "Jackets", "ä", "\u2028", "😀", "\x00", '"', "\\", "a\nb", "\ufeff", "\x7f", "null", "1", "x" * 300)
INTEGERS = (0, 1, -1, 7, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**53 + 1, 10**15)
DOUBLES = (
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    1e22,
    1e300,
    1.7976931348623157e308,
    5e-324,
    2.2250738585072014e-308,
    1e-7,
    2.0**63,
)
_DOCUMENTS = (b"\x00", b"\xff", b"\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\n", b" ", b"\r", b"\x1f\x8b")


def mutated(random: Random, data: bytes, pieces: Sequence[bytes] = ()) -> bytes:
    """Bytes with some changes, or with none: a byte is another, a part is gone, doubled, or moved in from elsewhere.

    Args:
        random: Decides.
        data: The bytes.
        pieces: What the format has at its bounds, and is inserted.
    """
    found = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 1, 2, 5))):
        at = random.randrange(len(found) + 1)
        until = min(len(found), at + random.choice((1, 1, 2, 4, 16)))
        match random.randrange(7):
            case 0:
                found[at:until] = random.randbytes(until - at)
            case 1:
                del found[at:until]
            case 2:
                del found[at:]
            case 3:
                found[at:at] = found[at:until]
            case 4:
                found[at:until] = random.choice((*pieces, *_DOCUMENTS))
            case 5:
                found[at:at] = random.choice((*pieces, *_DOCUMENTS))
            case _ if at < len(found):
                found[at] ^= 1 << random.randrange(8)
    return bytes(found)


def value_of(random: Random, field_type: FieldType, nulls: float = 0.15) -> Any:
    """A value of a type, or None.

    Args:
        random: Decides.
        field_type: The type.
        nulls: How often None is given, of 1; also for the parts.
    """
    if random.random() < nulls:
        return None
    match field_type:
        case StructType(fields=fields):
            return {name: value_of(random, of_field, nulls) for name, of_field in fields}
        case ArrayType(element=element):
            return [value_of(random, element, nulls) for _ in range(random.choice((0, 1, 2, 5)))]
        case MapType(value=part):
            return {random.choice(TEXTS): value_of(random, part, nulls) for _ in range(random.choice((0, 1, 3)))}
        case DecimalType(precision=precision, scale=scale):
            digits = random.choice((10**precision - 1, random.randrange(10**precision), random.randrange(10), 0))
            sign = int(digits != 0 and random.random() < 0.5)
            return Decimal((sign, tuple(map(int, str(digits))), -scale))
        case Scalar(name=name):
            return _scalar(random, name)


def _scalar(random: Random, name: str) -> Any:
    match name:
        case "string":
            return random.choice(TEXTS) if random.random() < 0.7 else "".join(map(_character, [random] * 8))
        case "int":
            return random.choice([n for n in INTEGERS if -(2**31) <= n < 2**31] + [random.randrange(-(2**31), 2**31)])
        case "bigint":
            return random.choice((*INTEGERS, random.randrange(-(2**63), 2**63)))
        case "double":
            return random.choice((*DOUBLES, random.uniform(-1e6, 1e6)))
        case "boolean":
            return random.random() < 0.5
        case "date":
            return random.choice((date.min, date.max, date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29)))
        case "timestamp":
            first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
            near = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randrange(-(10**16), 10**16))
            return random.choice((first, last, near, near.replace(microsecond=0)))
    raise AssertionError(f"no value of type {name}")


def _character(random: Random) -> str:
    return chr(random.choice((random.randrange(32, 127), random.randrange(0xD800), random.randrange(0xE000, 0x110000))))
