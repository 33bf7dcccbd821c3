"""What the formats with a registered schema share: values of fields checked and converted, and the paths of misfits.

On the standard library alone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from streamplan.serdes.field_types import GREATEST_PRECISION, DecimalType
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.moments import EPOCH

Convert: TypeAlias = Callable[[Any], Any]

NULL = "is null, and the schema has no null there"

_DEEPEST = 100
_MOST_PLACES = 10 * GREATEST_PRECISION
_SHOWN_OF_PATH = 40

_FIRST_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Difference:
    """What a reader cannot read of what was written with another schema, as a sentence.

    Attributes:
        text: The sentence, without a full stop.
        always: Whether it concerns every value; else those that have what the sentence says.
    """

    text: str
    always: bool


def same(value: Any) -> Any:
    """Return the value itself: nothing is converted."""
    return value


def convert_elements(convert: Convert, elements: Iterable[Any]) -> list[Any]:
    """Convert each element of a list. The path of a misfit gets its place."""
    found: list[Any] = []
    for element in elements:
        try:
            found.append(convert(element))
        except Misfit as misfit:
            misfit.path = f"[{len(found)}]{misfit.path}"
            raise
    return found


def convert_entries(convert: Convert, entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Convert each value of a map. The path of a misfit gets its key."""
    found: dict[str, Any] = {}
    for key, value in entries:
        try:
            found[key] = convert(value)
        except Misfit as misfit:
            misfit.path = f"[{key!r}]{misfit.path}"
            raise
    return found


def require_shallow(path: str) -> None:
    """Refuse a type whose parts are nested too deep for those that read it one in another.

    Args:
        path: The path of a part, as ``lines[].price``.

    Raises:
        ValueError: It is too deep.
    """
    if path.count(".") + path.count("[]") > _DEEPEST:
        raise ValueError(f"{path[:_SHOWN_OF_PATH]}…: the types are nested more than {_DEEPEST} deep")


def told(misfit: Misfit) -> str:
    """Return a misfit as a sentence: the path of the field, and what is wrong with it."""
    return f"{misfit.path.lstrip('.') or 'the value'} {misfit.reason}"


def writer_of(types: tuple[type, ...], field_type: str, first: int = 0, last: int = 0) -> Convert:
    """Return what checks a value that is written.

    Args:
        types: The types of Python that it may have, exactly.
        field_type: The type of the field, for the reason.
        first: The least number. With ``first`` and ``last`` 0 there is no limit.
        last: The greatest number.
    """
    limited = first != last

    def write(value: Any) -> Any:
        if value is None:
            raise Misfit(NULL)
        if type(value) not in types or (limited and not first <= value <= last):
            raise Misfit(f"is not of type {field_type}")
        return value

    return write


def enum_writer(symbols: Iterable[str]) -> Convert:
    """Return what checks that a text is one of an enum's symbols."""
    allowed = tuple(symbols)

    def write(value: Any) -> str:
        if value is None:
            raise Misfit(NULL)
        if value not in allowed:
            raise Misfit(f"is {value!r}, and not one of {', '.join(allowed)}")
        return str(value)

    return write


def read_number(value: Any) -> float:
    """Return a finite number as a double."""
    if not math.isfinite(value):
        raise Misfit(f"is {value}, which is no number")
    return float(value)


def write_double(value: Any) -> float:
    """Return a double to write."""
    if value is None:
        raise Misfit(NULL)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Misfit("is not of type double")
    return read_number(value)


def write_float(value: Any) -> float:
    """Return a double to write as a float of 32 bits."""
    number = write_double(value)
    try:
        struct.pack("<f", number)
    except OverflowError as error:
        raise Misfit(f"is {value}, which no float of 32 bits can be") from error
    return number


def day_of(days: int) -> date:
    """Return the date that is this number of days after 1970-01-01."""
    try:
        return _FIRST_DAY + timedelta(days=days)
    except OverflowError as error:
        raise Misfit("is not of type date") from error


def days_of(value: Any) -> int:
    """Return the days of a date since 1970-01-01."""
    if value is None:
        raise Misfit(NULL)
    return int((value - _FIRST_DAY).days)


def moment_of(microseconds: int) -> datetime:
    """Return the moment that is this number of microseconds after 1970."""
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise Misfit("is not of type timestamp") from error


def microseconds_of(value: Any) -> int:
    """Return the microseconds of a moment since 1970."""
    if value is None:
        raise Misfit(NULL)
    return int((value - EPOCH) // _MICROSECOND)


def unscaled_of(value: Any, field_type: DecimalType) -> int:
    """Return a decimal without its point, as the digits of the type.

    Raises:
        Misfit: It has more digits than the type.
    """
    if value is None:
        raise Misfit(NULL)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise Misfit(f"is {value}, which is no number")
    number: int = int("".join(map(str, digits))) * (-1 if sign else 1)
    unscaled = shifted(number, exponent + field_type.scale)
    if unscaled is None or not -(10**field_type.precision) < unscaled < 10**field_type.precision:
        raise Misfit(f"is {value}, and not of type {field_type}")
    return unscaled


def shifted(number: int, places: int) -> int | None:
    """Return a number times ten to the power of ``places``; None where that is no whole number, or one without use.

    More places than any decimal of a field has are not computed: they would take any memory.
    """
    if number == 0:
        return 0
    if abs(places) > _MOST_PLACES:
        return None
    if places >= 0:
        return number * int(10**places)
    whole, rest = divmod(number, int(10**-places))
    return None if rest else whole


def decimal_of(unscaled: int, field_type: DecimalType) -> Decimal:
    """Return the decimal of a type with these digits.

    Raises:
        Misfit: There are more digits than the type has.
    """
    if not -(10**field_type.precision) < unscaled < 10**field_type.precision:
        raise Misfit(f"is not of type {field_type}")
    return Decimal(f"{unscaled}E-{field_type.scale}")


def bytes_of(unscaled: int) -> bytes:
    """Return a number in as many bytes as ``java.math.BigInteger.toByteArray`` gives."""
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)
