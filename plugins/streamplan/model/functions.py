"""Python functions of a declaration: their name, and the fields of what they return."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

REJECT, STOP = "reject", "stop"
ON_ERROR = (REJECT, STOP)
"""What happens where a function raises: the record is rejected, or the application stops."""

_FIELD_TYPES: Mapping[type, str] = {str: "string", int: "bigint", float: "double", bool: "boolean"}


@dataclass(frozen=True)
class PythonFunction:
    """A function that is called with each record.

    Only its name is part of a checkpoint's identity, as only the text of an expression is.

    Attributes:
        name: Module and qualified name.
        call: The function. It is given the fields of a value as attributes, and ``record``.
        on_error: One of :data:`ON_ERROR`.
        deterministic: Whether equal records give equal results, so that they can be recounted.
    """

    name: str
    call: Callable[[Any], Any] = field(repr=False)
    on_error: str = field(default=REJECT, repr=False)
    deterministic: bool = field(default=True, repr=False)


def function_name(function: Callable[..., Any]) -> str:
    """Return the module and the qualified name of a function, or those of the class of another callable."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def hinted_schema(function: Callable[..., Any], *, each: bool = False) -> str | None:
    """Return the schema that the type hint of a function's result tells, in Spark's DDL; None where it tells none.

    The hint is a dataclass, a ``NamedTuple`` or a ``TypedDict``. Its fields are of ``str``, ``int``, ``float`` or
    ``bool``, each perhaps ``| None``.

    Args:
        function: The function.
        each: Whether the function returns several results, so that the hint is that of a list or an iterator.
    """
    try:
        result: Any = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):  # a name that is only known to a type checker; an object without hints
        return None
    if each:
        arguments = typing.get_args(result)
        result = arguments[0] if arguments else None
    result = _without_none(result)
    if not isinstance(result, type) or not (
        dataclasses.is_dataclass(result) or typing.is_typeddict(result) or hasattr(result, "_fields")
    ):
        return None
    hints = typing.get_type_hints(result)
    names = {name: _FIELD_TYPES.get(_without_none(hint)) for name, hint in hints.items()}
    if not names or None in names.values():
        return None
    return ", ".join(f"{name} {field_type}" for name, field_type in names.items())


def _without_none(hint: Any) -> Any:
    """``str`` of ``str | None``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
