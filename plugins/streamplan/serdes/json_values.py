"""The values of JSON fields as Python values: checked and read, and written. On the standard library alone.

``timestamp`` is a ``datetime`` in UTC, ``date`` a ``date``, ``decimal`` a ``Decimal`` with the declared scale, a struct
and a map a ``dict``, and an array a ``list``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeAlias

from streamplan.serdes.field_types import (
    TIMESTAMP,
    ArrayType,
    DecimalType,
    FieldType,
    MapType,
    Scalar,
    StructType,
    parse_fields,
)
from streamplan.serdes.moments import as_datetime

_SHOWN_OF_KEY = 40
"""At most this many characters of a map's key stand in a reason."""

_INTEGER_BITS = {"int": 31, "bigint": 63}
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])([01]\d|2[0-3]):?([0-5]\d))", re.ASCII
)
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

_MOMENT_FORM = ": a text has date, time and zone, as 2026-11-24T20:38:34Z"
_DECIMAL_FORM = ": the number has more digits"

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts of doubles that are no numbers of JSON, as Spark's ``to_json`` and Jackson write them."""

Reader: TypeAlias = Callable[[Any], Any]


class Number(str):
    """The text of a JSON number that is no integer, or a long one. A double is made of it, or an exact decimal."""

    __slots__ = ()


class Misfit(ValueError):
    """A value that is not of the type: why, and the path to it within the field.

    It is raised without a path, and each struct, array and map around it adds its part.

    Attributes:
        path: As ``.address.city`` or ``[2].price``.
        reason: As ``is not of type string``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path = ""
        self.reason = reason


@lru_cache(maxsize=1024)
def readers(schema: str, has_non_finite: bool = False) -> tuple[tuple[str, Reader], ...]:
    """Return for each field of a declaration its name and what reads its values, made once.

    A reader takes what JSON has, and no null; a number that is no integer is a :class:`Number`. It raises
    :class:`Misfit`.

    Args:
        schema: The fields as DDL of Spark, such as ``id string, amount double``.
        has_non_finite: Whether a double may be one of the texts :data:`NON_FINITE`.
    """
    return tuple((name, _reader(of_field, has_non_finite)) for name, of_field in parse_fields(schema).items())


def _reader(field_type: FieldType, has_non_finite: bool) -> Reader:
    match field_type:
        case Scalar(name="string"):
            return _text
        case Scalar(name="int" | "bigint" as name):
            limit = 1 << _INTEGER_BITS[name]
            # Exactly an int: to isinstance a bool is one.
            return _scalar(field_type, (int,), lambda value: value if -limit <= value < limit else None)
        case Scalar(name="double") if has_non_finite:
            return _scalar(
                field_type,
                (int, Number, str),
                lambda value: NON_FINITE.get(value) if type(value) is str else _double(value),
            )
        case Scalar(name="double"):
            return _scalar(field_type, (int, Number), _double)
        case Scalar(name="boolean"):
            return _scalar(field_type, (bool,), lambda value: value)
        case Scalar(name="timestamp"):
            return _scalar(field_type, (str, int), moment_of_json, _form_of_moments)
        case Scalar(name="date"):
            return _scalar(field_type, (str,), day_of_text)
        case DecimalType(precision=precision, scale=scale):
            return _scalar(
                field_type,
                (int, str, Number),
                lambda value: _decimal(value, precision, scale),
                lambda value: _DECIMAL_FORM if _is_decimal(value) else "",
            )
        case StructType(fields=fields):
            return _struct([(name, _reader(of_field, has_non_finite)) for name, of_field in fields])
        case ArrayType(element=element):
            return _array(_reader(element, has_non_finite))
        case MapType(value=of_value):
            return _map(_reader(of_value, has_non_finite))
    raise AssertionError(f"{field_type} is not read from JSON")


def _form_of_moments(value: Any) -> str:
    """What a text lacks that is no moment. A number is one, or says by itself why not."""
    return _MOMENT_FORM if type(value) is str else ""


def _scalar(
    field_type: FieldType, types: tuple[type, ...], convert: Reader, why: Callable[[Any], str] = lambda value: ""
) -> Reader:
    """Return what reads a value of one of these types.

    Args:
        convert: It returns None for a value that does not fit.
        why: It returns what the reason says more of a value that does not fit. The value itself is not in it, so that
            there are few reasons.
    """
    reason = f"is not of type {field_type}"

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise Misfit(reason)
        if (converted := convert(value)) is not None:
            return converted
        raise Misfit(f"{reason}{why(value)}")

    return read


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Misfit("is not of type string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # Half of a surrogate pair.
        raise Misfit("is not valid Unicode") from error
    return value


def _struct(parts: Sequence[tuple[str, Reader]]) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Misfit("is not of type struct")
        found = {}
        for name, read_part in parts:
            part = value.get(name)
            try:
                found[name] = None if part is None else read_part(part)
            except Misfit as misfit:
                misfit.path = f".{name}{misfit.path}"
                raise
        return found

    return read


def _array(read_element: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise Misfit("is not of type array")
        found: list[Any] = []
        for element in value:
            try:
                found.append(None if element is None else read_element(element))
            except Misfit as misfit:
                misfit.path = f"[{len(found)}]{misfit.path}"
                raise
        return found

    return read


def _map(read_element: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Misfit("is not of type map")
        found = {}
        for key, element in value.items():
            try:
                found[_text(key)] = None if element is None else read_element(element)
            except Misfit as misfit:
                misfit.path = f"[{key[:_SHOWN_OF_KEY]!r}]{misfit.path}"
                raise
        return found

    return read


def write_object(types: Mapping[str, FieldType], value: Mapping[str, Any]) -> str:
    """Return a JSON object as Spark's ``to_json`` writes it: a field that is None is left out.

    Timestamps have three digits of a second, and six where one of the object's timestamps needs them.

    Raises:
        ValueError: A part has another class than its type has in Python; the message has the path to it.
    """
    struct = StructType(tuple(types.items()))
    try:
        digits = 3 if all(moment.microsecond % 1000 == 0 for moment in _moments(struct, value)) else 6
        return _written(struct, value, digits)
    except (AttributeError, TypeError) as error:
        raise ValueError(next(_other_classes(struct, value, ""), str(error))) from error


_CLASSES = {"timestamp": datetime, "date": date, "string": str, "boolean": bool}
"""The classes that values of a type have; numbers may have any that JSON can write."""


def _other_classes(field_type: FieldType, value: Any, path: str) -> Iterator[str]:
    """Yield for each part of another class than its type has the path, the class, and what is expected."""
    if value is None:
        return
    expected: type | None = None
    parts: list[tuple[FieldType, Any, str]] = []
    match field_type:
        case StructType(fields=fields):
            expected = dict
            if isinstance(value, Mapping):
                expected = None
                parts = [(of, value.get(name), f"{path}.{name}" if path else name) for name, of in fields]
        case ArrayType(element=element):
            expected = list
            if isinstance(value, list | tuple):
                expected, parts = None, [(element, each, f"{path}[{row}]") for row, each in enumerate(value)]
        case MapType(value=of_value):
            expected = dict
            if isinstance(value, Mapping):
                expected, parts = None, [(of_value, each, f"{path}[{key!r}]") for key, each in value.items()]
        case Scalar(name=name):
            expected = _CLASSES.get(name)
    if expected is not None and not isinstance(value, expected):
        yield f"{path or 'the value'}: expected {expected.__name__}, observed {type(value).__name__} ({value!r:.40})"
    for part in parts:
        yield from _other_classes(*part)


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


def _double(value: int | Number) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def moment_of_json(value: Any) -> datetime | None:
    """Return the moment of an ISO 8601 text with a zone, or of milliseconds since the epoch; None where it is none.

    Digits below a microsecond are dropped.
    """
    try:
        if type(value) is int:
            return as_datetime(value)
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


def day_of_text(value: str) -> date | None:
    """Return the day of a text such as ``2026-01-31``; None where it is none."""
    found = _DAY.fullmatch(value)
    try:
        return date(*map(int, found.groups())) if found else None
    except ValueError:
        return None


def _is_decimal(value: int | str) -> bool:
    return type(value) is int or _DECIMAL.fullmatch(str(value)) is not None


def _decimal(value: int | str, precision: int, scale: int) -> Decimal | None:
    """The number of a field as :func:`exact_decimal` gives it; None where it is none."""
    if not _is_decimal(value):
        return None
    try:
        return exact_decimal(Decimal(value), precision, scale)
    except InvalidOperation:  # An exponent beyond all numbers.
        return None


def exact_decimal(number: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return a number with exactly ``scale`` digits behind the point; None where ``decimal(precision,scale)`` lacks it.

    Arrow must not be asked: it shifts the point of some numbers without a bound.
    """
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):  # NaN, or an infinity
        return None
    significant = "".join(map(str, digits)).lstrip("0")
    if not significant:
        return Decimal((0, (0,), -scale))
    stripped = significant.rstrip("0")
    exponent += len(significant) - len(stripped)
    if exponent < -scale or len(stripped) + exponent + scale > precision:
        return None
    return Decimal((sign, tuple(map(int, stripped)) + (0,) * (exponent + scale), -scale))
