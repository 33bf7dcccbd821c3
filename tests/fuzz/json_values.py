"""JSON values. The partner is :mod:`json` of the standard library, with plain Python for the types of the fields."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from random import Random
from typing import Any, Never

from streamplan.serdes.field_types import ArrayType, DecimalType, FieldType, MapType, Scalar, StructType
from streamplan.serdes.json import Json

from tests.fuzz.bytes_and_values import TEXTS, mutated, value_of
from tests.fuzz.judging import agreeing, reading, writing

NAME = "json"

NUMBERS = (
    *("0", "-0", "-0.0", "0.10", "1.50", "1E2", "1e+2", "1E-2", "0e9", "0E-18", "1e22", "1E+5", "01", "1.", ".5", "+1"),
    *("1e-41", "1e-77", "1e-400000000", "1e400000000", "1e-9999999999999999999", "1e99999999999999999999", "-1e-39"),
    *("123456789012345678901234567890", "9" * 38, "9" * 39, "9" * 60, "-" + "9" * 20, "0." + "0" * 37 + "1"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("1.7976931348623157e308", "1.7976931348623159e308", "1e309", "5e-324", "2e-324", "2.2250738585072011e-308"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "Inf", "-Inf", "nan", "0x10", "1_0", "1e", "1e+", "--1", "1." + "0" * 45),
    *("253402300799999", "253402300800000", "-62135596800000", "-62135596800001", "9" * 700, "9" * 4301),
    *("12345678901234567890.123456789012345678", "1234567890123456789012345678.0000000000000000000"),
)  # fmt: skip
MOMENTS = (
    *("2026-11-24T20:38:34Z", "2026-11-24T20:38:34.1234567Z", "2026-11-24T20:38:34+01:00", "2026-11-24T20:38:34-2359"),
    *("2026-02-30T00:00:00Z", "2026-11-24T24:00:00Z", "2026-11-24T23:59:60Z", "0001-01-01T00:00:00+01:00"),
    *("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00Z", "2026-11-24T20:38:34+24:00"),
    *("0001-01-01", "0000-12-31", "9999-12-31", "2026-11-31", "2024-02-29", "2026-1-1", "２０２６-11-24"),
)  # fmt: skip
TOKENS = (
    *(f'"{text}"' for text in (*NUMBERS[:40], *MOMENTS, "", " 1", "1 ", "+1.5", ".", "-", "e5", "5e", "1\\u00655")),
    *('"\\u0031"', '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\x"', '"a\nb"', "true", "{}", "[]"),
    *("[" * 249 + "]" * 249, "[" * 499 + "]" * 499, "[" * 500 + "]" * 500, '{"a":' * 700 + "1" + "}" * 700, "[" * 600),
    *("1//c", "/*c*/1", '{"a":{"b":[1e-400000000]}}', '[{"v":1e5}]', "TRUE", "nul", "'a'", '"1e-400000000x"'),
)  # fmt: skip
BYTES = (
    b"\xef\xbb\xbf",
    b"\x00",
    b"NaN",
    b"e-400000000",
    b"\\u0065",
    b"\\",
    b'"',
    b",",
    b"}",
    b"]",
    b":",
    b"{",
    b"[",
    b"e",
    b"-",
)
SCALARS = ("string", "int", "bigint", "double", "boolean", "timestamp", "date")


def findings(random: Random) -> Iterator[str]:
    """One declaration, and a batch of values: written ones, changed ones, and documents with odd parts."""
    fields = {f"f{number}": _type(random, 2) for number in range(random.choice((1, 2, 4)))}
    serde = Json(", ".join(f"{name} {of_field}" for name, of_field in fields.items()))
    written = [
        value_of(random, StructType(tuple(fields.items())), 0.15) or {} for _ in range(random.choice((1, 3, 12)))
    ]
    for each in written:
        yield from writing(serde, {name: each.get(name) for name in fields})
    data = [serde.encode(each) for each in written]
    odd = [_document(random, fields, each).encode("utf-8", "surrogatepass") for each in written]
    changed = [mutated(random, each, BYTES) for each in (*data, *odd)]
    for each in (*odd, *changed):
        yield from agreeing(serde, each, partner(fields))
    yield from reading(serde, random.choice((data, [*data, *odd], [*data, *changed], [*odd, *changed, None])))
    for each in random.sample((*odd, *changed), 2):
        yield from reading(serde, [each])


def _type(random: Random, levels: int) -> FieldType:
    match random.randrange(10 if levels else 7):
        case 7:
            return StructType(
                tuple((f"p{number}", _type(random, levels - 1)) for number in range(random.choice((1, 2))))
            )
        case 8:
            return ArrayType(_type(random, levels - 1))
        case 9:
            return MapType(_type(random, levels - 1)) if random.random() < 0.3 else ArrayType(DecimalType(10, 2))
        case 0 | 1 | 2:
            precision = random.choice((1, 5, 10, 18, 19, 37, 38))
            return DecimalType(precision, random.choice((0, min(2, precision), precision // 2, precision)))
        case _:
            return Scalar(random.choice(SCALARS))


def _document(random: Random, fields: Mapping[str, FieldType], value: Mapping[str, Any]) -> str:
    """A document with odd tokens in place of some parts, and with further fields."""
    parts = []
    for name, of_field in fields.items():
        parts.append((name, _part(random, of_field, value.get(name))))
    if random.random() < 0.3:
        parts.insert(random.randrange(len(parts) + 1), ("other", _token(random)))
    if random.random() < 0.1:
        parts.append(random.choice(parts))
    space = random.choice(("", "", " ", "\n", "\t"))
    inner = f"{space},{space}".join(f'{space}"{name}"{space}:{space}{part}{space}' for name, part in parts)
    return f"{space}{{{inner}}}{space}"


def _part(random: Random, field_type: FieldType, value: Any) -> str:
    if random.random() < 0.25:
        return _token(random)
    match field_type:
        case StructType(fields=fields) if value is not None:
            return _document(random, dict(fields), value)
        case ArrayType(element=element) if value is not None:
            return f"[{','.join(_part(random, element, each) for each in value)}]"
        case MapType(value=part) if value is not None:
            return f"{{{','.join(f'{json.dumps(key)}:{_part(random, part, each)}' for key, each in value.items())}}}"
        case DecimalType() if value is not None:
            return random.choice((str(value), f'"{value}"', f"{value:f}"))
        case Scalar(name="timestamp") if value is not None:
            return f'"{value.isoformat()}"'
    return json.dumps(value, ensure_ascii=random.random() < 0.5, default=str)


def _token(random: Random) -> str:
    match random.randrange(4):
        case 0:
            return random.choice(TOKENS)
        case 1:
            return json.dumps(random.choice(TEXTS))
        case 2:
            digits = "".join(random.choices("0123456789", k=random.choice((1, 3, 20, 40))))
            point = random.randrange(len(digits) + 1)
            exponent = random.choice(("", "", f"e{random.randrange(-90, 90)}", f"E+{random.randrange(500)}"))
            return f"{random.choice(('', '-'))}{digits[:point] or '0'}.{digits[point:] or '0'}{exponent}"
    return random.choice(NUMBERS)


class _Text(str):
    """The text of a number."""

    __slots__ = ()


def partner(fields: Mapping[str, FieldType]) -> Callable[[bytes], dict[str, Any]]:
    """Return what reads the fields with the standard library. It raises ValueError for a value that it refuses."""

    def read(data: bytes) -> dict[str, Any]:
        if _levels(data) > 500:
            raise ValueError("too deep")
        document = json.loads(data.decode("utf-8"), parse_float=_Text, parse_int=_Text, parse_constant=_refuse)
        return _fields(fields, document)

    return read


def _refuse(constant: str) -> Never:
    raise ValueError(constant)


def _levels(data: bytes) -> int:
    level = most = 0
    in_text = escaped = False
    for each in data:
        if in_text:
            in_text, escaped = escaped or each != ord('"'), each == ord("\\") and not escaped
        elif each == ord('"'):
            in_text = True
        elif each in b"[{":
            level += 1
            most = max(most, level)
        elif each in b"]}":
            level -= 1
    return most


def _fields(fields: Mapping[str, FieldType], value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError("no object")
    return {name: _of_type(of_field, value.get(name)) for name, of_field in fields.items()}


def _of_type(field_type: FieldType, value: Any) -> Any:
    if value is None:
        return None
    match field_type:
        case StructType(fields=fields):
            return _fields(dict(fields), value)
        case ArrayType(element=element) if type(value) is list:
            return [_of_type(element, each) for each in value]
        case MapType(value=part) if type(value) is dict:
            return {_of_type(Scalar("string"), key): _of_type(part, each) for key, each in value.items()}
        case Scalar(name="string") if type(value) is str:
            value.encode()
            return value
        case Scalar(name="boolean") if type(value) is bool:
            return value
        case Scalar(name="int" | "bigint" as name) if _is_integer(value) and len(value) < 30:
            if -(bound := 2 ** (31 if name == "int" else 63)) <= int(value) < bound:
                return int(value)
        case Scalar(name="double") if type(value) is _Text and math.isfinite(number := float(value)):
            return 0.0 if value == "-0" else number
        case DecimalType(precision=precision, scale=scale) if isinstance(value, str):
            return _decimal(value, precision, scale)
        case Scalar(name="date") if type(value) is str and len(value) == 10 and value.isascii():
            return date.fromisoformat(value)
        case Scalar(name="timestamp"):
            return _moment(value)
    raise ValueError("another type")


def _is_integer(value: Any) -> bool:
    return type(value) is _Text and value.lstrip("-").isdigit()


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    if not text.isascii() or text.strip() != text or "_" in text:
        raise ValueError("another form")
    try:
        number = Decimal(text)
        if not number.is_finite() or (number and not -200 < number.adjusted() < 200):
            raise ValueError("beyond all decimals")
        exact = (number or Decimal(0)).quantize(
            Decimal((0, (1,), -scale)), context=Context(prec=400, traps=[Inexact, InvalidOperation])
        )
    except ArithmeticError as error:
        raise ValueError("other digits") from error
    if len(exact.as_tuple().digits) > precision:
        raise ValueError("too many digits")
    return exact


_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
"""Python's own reader takes other forms of ISO 8601, too."""


def _moment(value: Any) -> datetime:
    try:
        if _is_integer(value) and len(value) < 30:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(value))
        if type(value) is not str or not value.isascii() or not _FORM.fullmatch(value[:19]):
            raise ValueError("another form")
        moment, rest = datetime.fromisoformat(value[:19]).replace(tzinfo=UTC), value[19:]
        if rest[:1] == ".":
            digits = rest[1:].rstrip("Z").partition("+")[0].partition("-")[0]
            if not (digits.isdigit() and len(digits) <= 9):
                raise ValueError("another form")
            moment, rest = moment.replace(microsecond=int(digits[:6].ljust(6, "0"))), rest[1 + len(digits) :]
        if rest == "Z":
            return moment
        hours, minutes = rest[1:3], rest[3:].removeprefix(":")
        if rest[:1] not in ("+", "-") or len(hours + minutes) != 4 or not (hours + minutes).isdigit():
            raise ValueError("another form")
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError("no such zone")
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return moment - offset if rest[0] == "+" else moment + offset
    except OverflowError as error:
        raise ValueError("beyond the years") from error
