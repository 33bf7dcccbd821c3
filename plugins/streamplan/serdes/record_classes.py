"""Classes that describe records: the schema that a class tells, and its objects, made of the values that were read.

A dataclass whose fields are annotated is a schema: ``Json(Order)``. A function whose parameter is annotated with it is
given an ``Order``, and the type of what a function returns tells the schema of its results.

    ============================================  =========================================
    Annotation                                    Type in Spark's DDL
    ============================================  =========================================
    ``str``, ``int``, ``float``, ``bool``         ``string``, ``bigint``, ``double``, ``boolean``
    ``datetime``, ``date``                        ``timestamp``, ``date``
    a subclass of ``IntEnum`` or ``StrEnum``      ``bigint``, ``string``
    another dataclass                             ``struct<…>``
    ``list[str]``, ``dict[str, int]``             ``array<string>``, ``map<string, bigint>``
    ``Annotated[Decimal, "decimal(10,2)"]``       the type in the annotation
    ============================================  =========================================

Each may stand beside ``None``, as in ``str | None``.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Annotated, Any

from streamplan.serdes.field_types import WrongFields, parse_type

_FIELD_TYPES: Mapping[type, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    datetime: "timestamp",
    date: "date",
}

_CLASSES: Mapping[str, type] = {
    **{of_field: cls for cls, of_field in _FIELD_TYPES.items()},
    "int": int,
    "decimal": Decimal,
}
"""By the name of a type without parts the class of its values."""

_ARROW_TYPES: Mapping[str, str] = {
    "StringArray": "string",
    "Int32Array": "int",
    "Int64Array": "bigint",
    "DoubleArray": "double",
    "BooleanArray": "boolean",
    "TimestampArray": "timestamp",
    "Date32Array": "date",
}
"""By the name of a class of pyarrow the type of a field, for functions of Arrow batches."""

_ADVICE: Mapping[Any, str] = {
    Decimal: "a Decimal does not tell its digits: write Annotated[Decimal, 'decimal(10,2)']",
    bytes: "JSON has no bytes: write str, for a text such as Base64",
    list: "a list does not tell its elements: write list[str]",
    dict: "a dict does not tell its values: write dict[str, str]",
}


_ALIKE: Mapping[Any, str] = {
    **dict.fromkeys((set, frozenset, tuple), "list[…]"),
    complex: "a dataclass with two floats",
    time: "str, as in '12:30:00'",
    timedelta: "int, the milliseconds",
    uuid.UUID: "str",
    bytearray: "str, for a text such as Base64",
}
"""For classes of Python that no field has what is written in their place."""

_EXAMPLE = "For example @dataclass class Order: id: str; amount: int"


def is_record_class(hint: Any) -> bool:
    """Return whether an annotation is a class with fields: a dataclass."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def schema_of(hint: Any) -> str:
    """Return the fields of a class with their types, in Spark's DDL.

    Args:
        hint: A dataclass, a ``NamedTuple`` or a ``TypedDict``.

    Raises:
        ValueError: A field has no type in Spark's DDL. The text names it.
    """
    fields = _fields_of(hint, ())
    return ", ".join(f"{name} {field_type}" for name, field_type in fields.items())


def allowed_by(cls: type) -> dict[str, dict[Any, str]]:
    """Return for each field of a class that is an enumeration its values, each with the name of its member.

    Flags are no such field: each sum of their values is one.

    Args:
        cls: A dataclass.
    """
    hints = _hints(cls)
    plain = {name: _bare(hint) for name, hint in hints.items()}
    return {
        name: {member.value: member.name for member in hint}
        for name, hint in plain.items()
        if isinstance(hint, type) and issubclass(hint, Enum) and not issubclass(hint, Flag)
    }


def without_none(hint: Any) -> Any:
    """Return ``str`` of ``str | None``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint


# -- the schema of a class


def _has_fields(hint: Any) -> bool:
    return is_record_class(hint) or typing.is_typeddict(hint) or (isinstance(hint, type) and hasattr(hint, "_fields"))


def _fields_of(hint: Any, around: tuple[Any, ...]) -> dict[str, str]:
    """The fields of a class with their types. It is a part of the classes ``around``."""
    if not _has_fields(hint):
        if isinstance(hint, type):
            is_own = hint.__module__ != "builtins"
            hint_to_write = f"Write @dataclass before class {_shown(hint)}" if is_own else _EXAMPLE
            raise WrongFields(f"{_shown(hint)} is not a dataclass with annotated fields", hint_to_write)
        raise ValueError(f"{_shown(hint)} is not a dataclass with annotated fields")
    hints = _hints(hint)
    if not hints:
        raise WrongFields(f"{hint.__name__} has no fields", _EXAMPLE)
    return {name: _type_of(of, (*around, hint), f"{hint.__name__}.{name}") for name, of in hints.items()}


def _type_of(hint: Any, around: tuple[Any, ...], path: str) -> str:
    hint = without_none(hint)
    if typing.get_origin(hint) is Annotated:
        told = next((each for each in typing.get_args(hint)[1:] if isinstance(each, str)), None)
        base = without_none(typing.get_args(hint)[0])
        try:
            if told is None:
                return _type_of(base, around, path)
            field_type = str(parse_type(told))
        except ValueError as error:
            raise ValueError(f"{path}: {str(error).removeprefix('the type: ')}") from error
        _require_class(base, field_type, path)
        return field_type
    if hint in around:
        raise WrongFields(f"{path}: {hint.__name__} would be a part of itself", "Write the fields of the part you need")
    if isinstance(hint, type) and hint in _FIELD_TYPES:
        return _FIELD_TYPES[hint]
    if isinstance(hint, type) and hint.__module__.partition(".")[0] == "pyarrow" and hint.__name__ in _ARROW_TYPES:
        return _ARROW_TYPES[hint.__name__]
    if isinstance(hint, type) and issubclass(hint, Enum):
        if issubclass(hint, int | str):
            return "bigint" if issubclass(hint, int) else "string"
        kinds = {type(member.value) for member in hint}
        base = "IntEnum" if kinds == {int} else "StrEnum"
        raise WrongFields(
            f"{path}: {hint.__name__} is neither an IntEnum nor a StrEnum", f"Write class {hint.__name__}({base})"
        )
    match typing.get_origin(hint), typing.get_args(hint):
        case kind, (element,) if kind is list:
            return f"array<{_type_of(element, around, f'{path}[]')}>"
        case kind, (key, value) if kind is dict and key is str:
            return f"map<string, {_type_of(value, around, f'{path}[]')}>"
    if _has_fields(hint):
        fields = _fields_of(hint, around)
        return f"struct<{', '.join(f'{name} {of_field}' for name, of_field in fields.items())}>"
    if hint in _ADVICE:
        said, _, write = _ADVICE[hint].partition(": ")
        raise WrongFields(f"{path}: {said}", write[:1].upper() + write[1:])
    raise WrongFields(f"{path}: {_shown(hint)} cannot be the type of a field", _in_place_of(hint))


def _require_class(base: Any, field_type: str, path: str) -> None:
    """Refuse a class whose values are others than those of the type beside it, as ``Annotated[int, "string"]``."""
    if not isinstance(base, type):
        return
    kind = field_type.partition("(")[0].partition("<")[0]
    of_type = _CLASSES.get(kind)
    if of_type is not None and base is not of_type and not (issubclass(base, of_type) and issubclass(base, Enum)):
        raise WrongFields(
            f"{path}: a value of the type {field_type} is given as {of_type.__name__}, and not as {_shown(base)}",
            f"Write Annotated[{of_type.__name__}, {field_type!r}]",
        )


def _in_place_of(hint: Any) -> str:
    """What to write in place of an annotation that no field has."""
    origin = typing.get_origin(hint) or hint
    if origin in (types.UnionType, typing.Union):
        return "Write one type, or one and None: str | None"
    if origin is dict:
        return "Write dict[str, …]: the names of an object of JSON are texts"
    if isinstance(origin, type) and origin in _ALIKE:
        return f"Write {_ALIKE[origin]}"
    return "Write str, int, float, bool, datetime, date, list[…], dict[str, …], a StrEnum or another dataclass"


def _hints(cls: Any) -> dict[str, Any]:
    """The annotations of the fields of a class."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise WrongFields(
            f"{cls.__name__}: an annotation cannot be read: {error}",
            "Define the class in the module, and not in a function, before it is used",
        ) from error
    if is_record_class(cls):
        return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return hints


def _bare(hint: Any) -> Any:
    hint = without_none(hint)
    return without_none(typing.get_args(hint)[0]) if typing.get_origin(hint) is Annotated else hint


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


# -- the objects of a class


@dataclass(frozen=True)
class RecordClass:
    """Makes objects of a dataclass of the values of records.

    The annotations are read where the function is declared, so that a worker need not find their names.

    Attributes:
        cls: The dataclass.
        parts: What each field is made of.
    """

    cls: type
    parts: tuple[tuple[str, _Part], ...]

    @classmethod
    def of(cls, record: type, around: tuple[type, ...] = ()) -> RecordClass:
        """Return what makes objects of a class.

        Args:
            record: A dataclass, or a ``NamedTuple`` or a ``TypedDict`` that is a part of one. A field whose annotation
                is none of the table is given what was read.
            around: The classes that it is a part of.

        Raises:
            ValueError: An annotation cannot be read, the class is a part of itself, or its objects are made of more
                than its fields.
        """
        if record in around:
            raise ValueError(f"{record.__name__} would be a part of itself")
        hints, around = _hints(record), (*around, record)
        if not is_record_class(record):
            defaults = getattr(record, "_field_defaults", {})
            return cls(record, tuple((name, _part(of, around, name in defaults)) for name, of in hints.items()))
        given = {each.name: each for each in dataclasses.fields(record) if each.init}
        _require_made_of(record, given)
        parts = ((name, _part(hints[name], around, _has_default(each))) for name, each in given.items())
        return cls(record, tuple(parts))

    @property
    def required(self) -> tuple[str, ...]:
        """The fields without which there is no object."""
        return tuple(name for name, part in self.parts if not part.is_optional and not part.has_default)

    def read(self, value: Any, path: str = "") -> Any:
        """Return the object of a value.

        Args:
            value: Has the fields as attributes. An object of the class is returned as it is.
            path: What the name of a field begins with in an error.

        Raises:
            ValueError: A field is null that may not be, or is none of its enumeration.
        """
        if not typing.is_typeddict(self.cls) and isinstance(value, self.cls):
            return value
        given = {}
        for name, part in self.parts:
            item = getattr(value, name, None)
            if item is None and not part.is_optional and part.has_default:
                continue
            given[name] = part.read(item, f"{path}{name}")
        made = self.cls(**given)
        if hasattr(value, "record") and hasattr(made, "__dict__"):
            vars(made).setdefault("record", value.record)  # key, timestamp and so on, also of a frozen class
        return made


@dataclass(frozen=True)
class _Part:
    """One field, or an element of a list or of a map.

    Attributes:
        is_optional: Whether it may be None.
        has_default: Whether the class has a value for a field that is absent or null.
        enumeration: The class of its values; None for another field.
        record: Makes its objects; None for another field.
        element: The elements of a list or of a map; None for another field.
    """

    is_optional: bool
    has_default: bool = False
    enumeration: Callable[[Any], Any] | None = None
    record: RecordClass | None = None
    element: _Part | None = None

    def read(self, item: Any, path: str) -> Any:
        if item is None:
            if self.is_optional:
                return None
            raise ValueError(f"{path} is null, and its annotation has no None")
        if self.enumeration is not None:
            try:
                return self.enumeration(item)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
        if self.record is not None:
            return self.record.read(item, f"{path}.")
        if self.element is not None and isinstance(item, Mapping):
            return {key: self.element.read(each, f"{path}[{key!r}]") for key, each in item.items()}
        if self.element is not None:
            return [self.element.read(each, f"{path}[{place}]") for place, each in enumerate(item)]
        return item


def _has_default(of_field: dataclasses.Field[Any]) -> bool:
    return (of_field.default, of_field.default_factory) != (MISSING, MISSING)


def _require_made_of(record: type, names: Collection[str]) -> None:
    """Refuse a dataclass whose objects need more than its fields, as one with an ``InitVar`` without a default."""
    try:
        inspect.signature(record).bind(**dict.fromkeys(names))
    except TypeError as error:
        raise WrongFields(
            f"{record.__name__} cannot be made of its fields {', '.join(names)}: {error}",
            "Give the others a default, or leave them out",
        ) from error


def _part(hint: Any, around: tuple[type, ...], has_default: bool = False) -> _Part:
    bare = _bare(hint)
    inner = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    is_optional = type(None) in typing.get_args(inner) or inner is Any
    elements = typing.get_args(bare)
    return _Part(
        is_optional,
        has_default,
        bare if isinstance(bare, type) and issubclass(bare, Enum) else None,
        RecordClass.of(bare, around) if _has_fields(bare) else None,
        _part(elements[-1], around) if typing.get_origin(bare) in (list, dict) else None,
    )
