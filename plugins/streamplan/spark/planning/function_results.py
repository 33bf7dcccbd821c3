"""What Python functions and classes of a declaration return: judged by its schema, and the reason where they raise."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamplan.errors import StreamplanError
from streamplan.model.functions import STOP
from streamplan.serdes.json_values import exact_decimal
from streamplan.serdes.reason import harmless, representation_of, text_of

NOT_OF_A_FUNCTION = (KeyboardInterrupt, GeneratorExit)
"""What is raised in a function and does not come from it: a person interrupts, or Python closes a generator."""

_TRACEBACK_CHARACTERS = 64_000
"""The most characters of a traceback that go to the driver, and so to the log."""


class Unfit(TypeError):
    """A function returned what its declaration does not allow. ``str()`` says what."""

    def __init__(self, reason: str) -> None:
        super().__init__(harmless(reason))


class FunctionFailed(StreamplanError):
    """A function of a declaration raised what cannot be passed on as it is. ``str()`` is its :func:`reason_of`."""


def reason_of(name: str, call: Callable[..., Any], error: BaseException) -> str:
    """Return why a record is rejected: the function, the exception, and the line where it was raised.

    Args:
        name: The name of the function.
        call: The function.
        error: What it raised.
    """
    if isinstance(error, Unfit):
        return harmless(f"{name} {error}")
    code = getattr(call, "__code__", None)
    frames = [at for at in traceback.extract_tb(error.__traceback__) if code and at.filename == code.co_filename]
    line = f" in line {frames[-1].lineno}" if frames else ""
    return harmless(f"{name} raised {type(error).__name__}{line}: {text_of(error)}")


def rejected_by(name: str, call: Callable[..., Any], error: BaseException, on_error: str) -> str:
    """Return the :func:`reason_of` what a function raised, or raise it where it stops the application.

    Also ``SystemExit``, ``CancelledError`` and a panic of a library in Rust (PyO3's ``PanicException``) are reasons of
    a record, although they are no ``Exception``: a worker that passes them on ends without a word.

    Args:
        name: The name of the function.
        call: The function.
        error: What it raised.
        on_error: ``reject`` or ``stop``.

    Raises:
        Exception: The error itself: the application is to stop.
        FunctionFailed: In its place, where the error is no ``Exception``, or where its text is too long or cannot be
            encoded: Spark's worker would end without a word.
    """
    if on_error != STOP:
        return reason_of(name, call, error)
    told = "".join(traceback.format_exception(error))
    if isinstance(error, Exception) and harmless(told, _TRACEBACK_CHARACTERS) == told:
        raise error
    raise FunctionFailed(reason_of(name, call, error)) from None


def values_of(results: Any, fields: Collection[str]) -> list[dict[str, Any] | None]:
    """Return the fields of each of the values that a function has made; see :func:`fields_of`.

    Args:
        results: Any number of values; None for none.
        fields: The names that a value may have.

    Raises:
        Unfit: They are no such values.
    """
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable | None):
        raise Unfit(f"returned {type(results).__name__}, and not a list of values")
    return [fields_of(result, fields) for result in results or ()]


def fields_of(result: Any, fields: Collection[str]) -> dict[str, Any] | None:
    """Return the fields of one value that a function has made; None for no value.

    Args:
        result: A mapping, a dataclass, a named tuple, or a part of a record.
        fields: The names that it may have.

    Raises:
        Unfit: It is something else, or has a field of another name.
    """
    if result is None:
        return None
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        value = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    elif isinstance(result, tuple) and hasattr(result, "_asdict"):
        value = result._asdict()
    elif isinstance(result, Mapping):
        value = dict(result)
    elif isinstance(result, SimpleNamespace):  # a part of a record
        value = dict(vars(result))
    else:
        raise Unfit(f"returned {type(result).__name__}, and not a mapping of fields")
    if unknown := value.keys() - set(fields):
        raise Unfit(f"returned the field {min(map(str, unknown))}, which its schema does not have")
    return value


def parts_of(value: Mapping[str, Any], value_type: pa.StructType, path: str) -> dict[str, Any]:
    """Return the fields of a value that a function has made, or of a part of it, as Arrow takes them.

    Args:
        value: What :func:`fields_of` gave.
        value_type: Their types.
        path: What the name of a field begins with in a reason.

    Raises:
        Unfit: A field is of another type.
    """
    return {name: _item_of(item, value_type.field(name).type, f"{path}{name}") for name, item in value.items()}


def _item_of(item: Any, data_type: pa.DataType, path: str) -> Any:
    """One field of a returned value as Arrow takes it; ``path`` names it.

    Raises:
        Unfit: It is of another type.
    """
    if item is None:
        return None
    try:
        if pa.types.is_struct(data_type):
            return parts_of(fields_of(item, data_type.names) or {}, data_type, f"{path}.")
        if pa.types.is_list(data_type):
            _require(isinstance(item, list | tuple), "a list is expected")
            return [_item_of(each, data_type.value_type, f"{path}[{place}]") for place, each in enumerate(item)]
        if pa.types.is_map(data_type):
            _require(isinstance(item, Mapping) and all(isinstance(key, str) for key in item), "texts are its keys")
            for key in item:
                key.encode()  # raises for half of a surrogate pair
            return {key: _item_of(each, data_type.item_type, f"{path}[{key!r}]") for key, each in item.items()}
        if pa.types.is_integer(data_type):
            _require(isinstance(item, Integral), "Arrow would cut off its fraction")
        elif pa.types.is_floating(data_type):
            _require(not isinstance(item, bool), "Arrow would make 1.0 of True")
        elif pa.types.is_timestamp(data_type):
            _require(isinstance(item, datetime) and item.tzinfo is not None, "without a zone it is no moment")
            item = item.astimezone(UTC)  # raises beyond the years 1 to 9999
        elif pa.types.is_date(data_type):
            _require(isinstance(item, date) and not isinstance(item, datetime), "Arrow would cut off its time")
        elif pa.types.is_decimal(data_type):
            return _decimal_of(item, data_type)
        elif pa.types.is_string(data_type):
            _require(isinstance(item, str), "a text is expected")
        scalar = pa.scalar(item, data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, Unfit):
            raise
        raise Unfit(f"returned a {path} of another type than its schema: {representation_of(item)}") from error
    if pa.types.is_floating(data_type) and not pc.is_finite(scalar).as_py():
        raise Unfit(f"returned {representation_of(item)} as {path}, which is no number")
    return item


def _decimal_of(item: Any, data_type: pa.Decimal128Type) -> Decimal:
    """An exact number, judged without Arrow, which crashes on some and reads others as another number."""
    _require(isinstance(item, int | Decimal) and not isinstance(item, bool), "a decimal is expected")
    exact = exact_decimal(Decimal(item), data_type.precision, data_type.scale)
    if exact is None:
        raise TypeError(f"decimal({data_type.precision},{data_type.scale}) has no such number")
    return exact


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise TypeError(reason)
