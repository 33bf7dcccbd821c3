"""The values of JSON fields as Python values: checked and read, and written. On the standard library alone.

``timestamp`` is a ``datetime`` in UTC, ``date`` a ``date``, ``decimal`` a ``Decimal`` with the declared scale, a struct
and a map a ``dict``, and an array a ``list``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from streamplan.serdes.field_types import TIMESTAMP, ArrayType, DecimalType, FieldType, MapType, Scalar, StructType
from streamplan.serdes.serde import Undecodable

_SHOWN_OF_KEY = 40
"""So many characters of a map's key stand in a reason."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER_BITS = {"int": 31, "bigint": 63}
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])([01]\d|2[0-3]):?([0-5]\d))", re.ASCII
)
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class Number(str):
    """The text of a JSON number that is no integer. A double is made of it, or an exact decimal."""

    __slots__ = ()


def read_value(field_type: FieldType, path: str, value: Any) -> Any:
    """Return the value of a field; None for a null.

    Args:
        field_type: The declared type.
        path: Names the field in reasons, as ``customer.address.city``.
        value: What JSON has. A number that is no integer is a :class:`Number`.

    Raises:
        Undecodable: The value is not of the type.
    """
    if value is None:
        return None
    match field_type:
        case Scalar(name="string") if type(value) is str:
            return _text(path, value)
        case Scalar(name="int" | "bigint" as name) if type(value) is int:  # Exactly: to isinstance a bool is an int.
            limit = 1 << _INTEGER_BITS[name]
            read: Any = value if -limit <= value < limit else None
        case Scalar(name="double") if type(value) in (int, Number):
            read = _double(value)
        case Scalar(name="boolean") if type(value) is bool:
            read = value
        case Scalar(name="timestamp"):
            read = _moment(value)
        case Scalar(name="date") if type(value) is str:
            read = _day(value)
        case DecimalType(precision=precision, scale=scale) if type(value) in (int, str, Number):
            read = _decimal(value, precision, scale)
        case StructType(fields=fields) if type(value) is dict:
            return {name: read_value(of_field, f"{path}.{name}", value.get(name)) for name, of_field in fields}
        case ArrayType(element=element) if type(value) is list:
            return [read_value(element, f"{path}[{place}]", each) for place, each in enumerate(value)]
        case MapType(value=of_value) if type(value) is dict:
            return {
                _text(f"a key of {path}", key): read_value(of_value, f"{path}[{key[:_SHOWN_OF_KEY]!r}]", each)
                for key, each in value.items()
            }
        case _:
            read = None
    if read is None:
        raise Undecodable(f"{path} is not of type {_told(field_type)}")
    return read


def write_object(types: Mapping[str, FieldType], value: Mapping[str, Any]) -> str:
    """Return a JSON object as Spark's ``to_json`` writes it: a field that is None is left out.

    Timestamps have three digits of a second, and six where one of the object's timestamps needs them.
    """
    struct = StructType(tuple(types.items()))
    digits = 3 if all(moment.microsecond % 1000 == 0 for moment in _moments(struct, value)) else 6
    return _written(struct, value, digits)


def _moments(field_type: FieldType, value: Any) -> Iterator[datetime]:
    """Yield all timestamps in a value."""
    if value is None:
        return
    match field_type:
        case Scalar() if field_type == TIMESTAMP:
            yield value
        case StructType(fields=fields):
            for name, of_field in fields:
                yield from _moments(of_field, value.get(name))
        case ArrayType(element=element):
            for each in value:
                yield from _moments(element, each)
        case MapType(value=of_value):
            for each in value.values():
                yield from _moments(of_value, each)


def _written(field_type: FieldType, value: Any, digits: int) -> str:
    if value is None:
        return "null"
    match field_type:
        case StructType(fields=fields):
            present = ((name, of_field) for name, of_field in fields if value.get(name) is not None)
            return f"{{{','.join(f'{_json(name)}:{_written(of, value[name], digits)}' for name, of in present)}}}"
        case ArrayType(element=element):
            return f"[{','.join(_written(element, each, digits) for each in value)}]"
        case MapType(value=of_value):
            pairs = (f"{_json(key)}:{_written(of_value, each, digits)}" for key, each in value.items())
            return f"{{{','.join(pairs)}}}"
        case Scalar(name="timestamp"):
            moment = value.astimezone(UTC).replace(tzinfo=None)
            return f'"{moment.isoformat(timespec="milliseconds" if digits == 3 else "microseconds")}Z"'
        case Scalar(name="date"):
            return f'"{value.isoformat()}"'
        case DecimalType():
            return str(value)
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _told(field_type: FieldType) -> str:
    """A type in a reason: of a nested one only what it is, since its parts have reasons of their own."""
    match field_type:
        case StructType():
            return "struct"
        case ArrayType():
            return "array"
        case MapType():
            return "map"
    return str(field_type)


def _text(path: str, value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # Half of a surrogate pair.
        raise Undecodable(f"{path} is not valid Unicode") from error
    return value


def _double(value: int | Number) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _moment(value: Any) -> datetime | None:
    """A moment from ISO 8601 text with a zone, or from milliseconds since the epoch; digits below 1 us are dropped."""
    try:
        if type(value) is int:
            return _EPOCH + timedelta(milliseconds=value)
        found = _MOMENT.fullmatch(value) if type(value) is str else None
        if found is None:
            return None
        year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
        microsecond = int((found[7] or "")[:6].ljust(6, "0"))
        moment = datetime(year, month, day, hour, minute, second, microsecond, UTC)
        if found[8] is None:
            return moment
        offset = timedelta(hours=int(found[9]), minutes=int(found[10]))
        return moment - offset if found[8] == "+" else moment + offset
    except (ValueError, OverflowError):  # There is no such day or hour, or it is beyond the years 1 to 9999.
        return None


def _day(value: str) -> date | None:
    found = _DAY.fullmatch(value)
    try:
        return date(*map(int, found.groups())) if found else None
    except ValueError:
        return None


def _decimal(value: int | str, precision: int, scale: int) -> Decimal | None:
    """The number with exactly ``scale`` digits behind the point; None where it has more digits than the type."""
    if type(value) is not int and not _DECIMAL.fullmatch(str(value)):
        return None
    try:
        sign, digits, exponent = Decimal(value).as_tuple()
    except InvalidOperation:  # An exponent beyond all numbers.
        return None
    assert isinstance(exponent, int), "a number that is not finite"
    significant = "".join(map(str, digits)).lstrip("0")
    if not significant:
        return Decimal((0, (0,), -scale))
    stripped = significant.rstrip("0")
    exponent += len(significant) - len(stripped)
    if exponent < -scale or len(stripped) + exponent + scale > precision:
        return None
    return Decimal((sign, tuple(map(int, stripped)) + (0,) * (exponent + scale), -scale))
