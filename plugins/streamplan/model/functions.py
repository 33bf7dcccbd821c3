"""Python functions of a declaration: their name, and the fields of what they return."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

from streamplan.judged import judged_function

REJECT: Final = "reject"
STOP: Final = "stop"
OnError: TypeAlias = Literal["reject", "stop"]
ON_ERROR = (REJECT, STOP)
"""What happens where a function raises: the record is rejected, or the application stops."""

_FIELD_TYPES: Mapping[type, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    datetime: "timestamp",
    date: "date",
}

_ARROW_TYPES: Mapping[str, str] = {
    "StringArray": "string",
    "Int32Array": "int",
    "Int64Array": "bigint",
    "DoubleArray": "double",
    "BooleanArray": "boolean",
    "TimestampArray": "timestamp",
    "Date32Array": "date",
}
"""By the name of a class of pyarrow the type of a field."""

_OF_BATCHES = "_is_given_an_arrow_batch"

_Function = TypeVar("_Function", bound=Callable[..., Any])


@judged_function
def arrow_batch(function: _Function) -> _Function:
    """Mark a function of :meth:`KStream.map_values` or :meth:`KStream.filter` that is given many records at once.

    It is given a ``pyarrow.RecordBatch`` with a column for each field of the value, and a struct ``record`` with
    ``key``, ``timestamp``, ``topic``, ``partition`` and ``offset``. For ``map_values`` it returns columns by the names
    of their fields: a mapping, a dataclass, a named tuple, a record batch or a struct array. For ``filter`` it returns
    a column of booleans. A column has one value for each record, in the order of the records.

    Example: ``stream.map_values(arrow_batch(score))``, or as a decorator::

        @arrow_batch
        def score(orders: pa.RecordBatch) -> dict[str, pa.Array]:
            return {"risk": pc.divide(orders["amount"], 1000.0)}

    Args:
        function: Gives each record its result, whatever records come with it.

    Returns:
        The same function.
    """
    try:
        setattr(function, _OF_BATCHES, True)
    except (AttributeError, TypeError):  # what is written in C takes no mark

        def call(batch: Any) -> Any:
            return function(batch)

        return arrow_batch(typing.cast("_Function", call))
    return function


@dataclass(frozen=True)
class Printer:
    """Prints a record as the library's ``Printed.toSysOut()`` does, with its value as JSON.

    Attributes:
        label: Stands before each record.
    """

    label: str

    def __call__(self, record: Any) -> None:
        """Print the key and the value of a record; ``null`` for a value all of whose fields are null."""
        fields = {name: field for name, field in vars(record).items() if name != "record" and field is not None}
        value = json.dumps(fields, ensure_ascii=False, default=_shown) if fields else "null"
        key = record.record.key
        sys.stdout.write(f"[{self.label}]: {'null' if key is None else key}, {value}\n")
        sys.stdout.flush()


def _shown(part: Any) -> Any:
    """A part of a value that JSON has no form for: a struct as its fields, anything else as its text."""
    return vars(part) if isinstance(part, types.SimpleNamespace) else str(part)


@dataclass(frozen=True)
class PythonFunction:
    """A function that is called with each record.

    Only its name is part of a checkpoint's identity, as only the text of an expression is.

    Attributes:
        name: Module and qualified name.
        call: The function. It is given the fields of a value as attributes, and ``record``.
        on_error: One of :data:`ON_ERROR`.
        deterministic: Whether equal records give equal results, so that they can be recounted.
        of_batches: Whether it is called with Arrow batches instead; see :func:`arrow_batch`.
    """

    name: str
    call: Callable[..., Any] = field(repr=False)
    on_error: str = field(default=REJECT, repr=False)
    deterministic: bool = field(default=True, repr=False)
    of_batches: bool = field(default=False, repr=False)


def is_of_batches(function: Callable[..., Any]) -> bool:
    """Return whether a function is marked with :func:`arrow_batch`."""
    return getattr(function, _OF_BATCHES, False) is True


def function_name(function: Callable[..., Any]) -> str:
    """Return the module and the qualified name of a function, or those of the class of another callable."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def arguments_fault(function: Callable[..., Any], *given: str) -> str | None:
    """Return why a function cannot be called with these arguments; None where it can, or where nobody knows.

    Args:
        function: The function, or a class.
        given: What the arguments are called.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it is not written in Python
        return None
    try:
        signature.bind(*given)
    except TypeError:
        taken = f"takes ({', '.join(map(str, signature.parameters.values()))})"
        return f"{taken}, and is called with {', '.join(given) or 'no argument'}"
    return None


def hinted_schema(function: Callable[..., Any], *, each: bool = False) -> str | None:
    """Return the schema that the type hint of a function's result tells, in Spark's DDL; None where it tells none.

    The hint is a dataclass, a ``NamedTuple`` or a ``TypedDict``. Its fields are of ``str``, ``int``, ``float``,
    ``bool``, ``datetime`` or ``date``, of another such class, or of a ``list`` or ``dict`` of these, each perhaps
    ``| None``. A ``Decimal`` does not tell its digits.

    Args:
        function: The function.
        each: Whether the function returns several results, so that the hint is that of a list or an iterator.
    """
    try:
        result: Any = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):  # a name that is only known to a type checker; an object without hints
        return None
    if each:
        arguments = typing.get_args(_without_none(result))
        result = arguments[0] if arguments else None
    return _hinted_fields(_without_none(result), ())


def _hinted_fields(hint: Any, around: tuple[Any, ...]) -> str | None:
    """The fields of a class with their types; None where it tells none. It is a part of the classes ``around``."""
    if not isinstance(hint, type) or not (
        dataclasses.is_dataclass(hint) or typing.is_typeddict(hint) or hasattr(hint, "_fields")
    ):
        return None
    hints = typing.get_type_hints(hint)
    types_of = {name: _hinted_type(_without_none(of), (*around, hint)) for name, of in hints.items()}
    if not types_of or None in types_of.values():
        return None
    return ", ".join(f"{name} {field_type}" for name, field_type in types_of.items())


def _hinted_type(hint: Any, around: tuple[Any, ...]) -> str | None:
    if hint in around:  # it would be a part of itself
        return None
    if isinstance(hint, type) and hint in _FIELD_TYPES:
        return _FIELD_TYPES[hint]
    if isinstance(hint, type) and hint.__module__.partition(".")[0] == "pyarrow":
        return _ARROW_TYPES.get(hint.__name__)
    match typing.get_origin(hint), [_without_none(argument) for argument in typing.get_args(hint)]:
        case kind, [element] if kind is list:
            found = _hinted_type(element, around)
            return found and f"array<{found}>"
        case kind, [key, value] if kind is dict and key is str:
            found = _hinted_type(value, around)
            return found and f"map<string, {found}>"
    fields = _hinted_fields(hint, around)
    return fields and f"struct<{fields}>"


def _without_none(hint: Any) -> Any:
    """``str`` of ``str | None``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
