"""Python functions of a declaration: their name, and the fields of what they return."""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar

from streamplan.judged import judged_function
from streamplan.judged_words import described
from streamplan.model.processor import Record
from streamplan.serdes.record_classes import RecordClass, is_record_class, schema_of, without_none

REJECT: Final = "reject"
STOP: Final = "stop"
OnError: TypeAlias = Literal["reject", "stop"]
ON_ERROR = (REJECT, STOP)
"""What happens where a function raises: the record is rejected, or the application stops."""

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


def kind_fault(function: Callable[..., Any], *, several: bool = False) -> tuple[str, str] | None:
    """Return why calling a function gives no result, and what to write; None where it gives one.

    Args:
        several: Whether it may yield its results.
    """
    if not inspect.isroutine(function):  # an object that is called
        function = getattr(type(function), "__call__", function)  # noqa: B004  what is looked at is the method
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is an async def, whose result nobody awaits", "Write def"
    if inspect.isgeneratorfunction(function) and not several:
        return "yields, and one result is expected", "Write return. flat_map_values(function) gives several records"
    return None


def no_aggregate(initializer: Callable[[], Any]) -> str | None:
    """Return what an initializer returns, where it is no aggregate: a number, a text or a list has no fields.

    Args:
        initializer: A function without arguments. One that raises is judged when it is used.
    """
    try:
        begun = initializer()
    except Exception:  # noqa: BLE001  whatever a function of a declaration raises
        return None
    is_tuple = isinstance(begun, tuple) and hasattr(begun, "_fields")
    has_no_fields = isinstance(begun, int | float | str | bytes | list | set | tuple) and not is_tuple
    return described(begun) if has_no_fields else None


def unread_annotation(function: Callable[..., Any]) -> str | None:
    """Return why an annotation of a function cannot be read; None where all can."""
    function = _of_user(function)
    try:
        typing.get_type_hints(function)
    except NameError as error:
        return str(error)
    except TypeError:  # an object without hints
        pass
    return None


def told_result(function: Callable[..., Any]) -> str:
    """Return how the type hint of a function's result is written; empty without one that says something."""
    function = _of_user(function)
    if getattr(function, "__module__", "").startswith("streamplan."):  # a method that a processor inherits
        return ""
    hint = getattr(function, "__annotations__", {}).get("return", "")
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint).removeprefix(f"{function.__module__}.")
    return "" if text in ("None", "Any", "typing.Any") else text


def hinted_schema(function: Callable[..., Any], *, each: bool = False) -> str | None:
    """Return the schema that the type hint of a function's result tells, in Spark's DDL; None where it tells none.

    The hint is a dataclass, a ``NamedTuple`` or a ``TypedDict``. :mod:`streamplan.serdes.record_classes` has the types
    of its fields.

    Args:
        each: Whether the function returns several results, so that the hint is that of a list or an iterator.
    """
    function = _of_user(function)
    try:
        result: Any = typing.get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError):  # a name that is only known to a type checker; an object without hints
        return None
    if each:
        arguments = typing.get_args(without_none(result))
        result = arguments[0] if arguments else None
    try:
        return schema_of(without_none(result))
    except ValueError:
        return None


@dataclass(frozen=True)
class CallsFunction:
    """What calls the function of a user with other arguments than its own.

    Attributes:
        call: The function.
    """

    call: Callable[..., Any]

    @property
    def __code__(self) -> types.CodeType:
        """The code of the user's function. The line of an exception is looked for in its file."""
        code: types.CodeType = self.call.__code__
        return code


@dataclass(frozen=True)
class TakesRecords(CallsFunction):
    """A function that is given objects of dataclasses in place of values with attributes.

    Attributes:
        classes: For each argument its class; None for one that is given as it is.
    """

    classes: tuple[RecordClass | None, ...]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        read = zip(self.classes, arguments, strict=True)
        return self.call(*(each if cls is None or each is None else cls.read(each) for cls, each in read))


@dataclass(frozen=True)
class TakesKeyAndValue(CallsFunction):
    """A function of a key and a value that is called with a record, as the library's ``ValueMapperWithKey``."""

    def __call__(self, record: Any) -> Any:
        """Call the function with the key and the value of a record."""
        return self.call(record.record.key, record)


THIS, OTHER = "this", "other"
"""What the two sides of a join are called in the record that its function is called with."""


@dataclass(frozen=True)
class TakesBothSides(CallsFunction):
    """A function of the values of both sides of a join, as the library's ``ValueJoiner`` and ``ValueJoinerWithKey``.

    Attributes:
        with_key: Whether it is given the key, too, which comes first.
    """

    with_key: bool

    def __call__(self, record: Any) -> Any:
        """Call the function. A side all of whose fields are null is None: there is no such value."""
        this, other = (
            None if side is None or all(field is None for field in vars(side).values()) else side
            for side in (getattr(record, THIS), getattr(record, OTHER))
        )
        if this is not None:
            this.record = record.record
        return self.call(*([record.record.key] if self.with_key else []), this, other)


def _of_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a declaration has."""
    while isinstance(function, CallsFunction):
        function = function.call
    return function


def takes_key_and_value(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called with a key and a value, and not with a value alone."""
    return arguments_fault(function, "the value") is not None and arguments_fault(function, "key", "value") is None


@dataclass(frozen=True)
class TakesTypedRecords:
    """A class of processors whose method ``process`` is given records with objects of a dataclass.

    Attributes:
        call: The class.
        record_class: Makes the objects.
    """

    call: Callable[[], Any]
    record_class: RecordClass

    def __call__(self) -> Any:
        """Return a new processor."""
        processor = self.call()
        processor.process = _TypedProcess(processor.process, self.record_class)
        return processor


@dataclass(frozen=True)
class _TypedProcess(CallsFunction):
    record_class: RecordClass

    def __call__(self, record: Any, *store: Any) -> Any:
        value = None if record.value is None else self.record_class.read(record.value)
        return self.call(replace(record, value=value), *store)


def with_typed_records(processor: Callable[[], Any]) -> Callable[[], Any]:
    """Return a class of processors so that it is given objects where its method takes a ``Record[str, Order]``.

    Args:
        processor: The class.
    """
    try:
        hints = typing.get_type_hints(processor.process)  # type: ignore[attr-defined]
        (cls,) = (typing.get_args(hint)[1] for hint in hints.values() if typing.get_origin(hint) is Record)
        return TakesTypedRecords(processor, RecordClass.of(cls)) if is_record_class(cls) else processor
    except (NameError, TypeError, ValueError):  # no such annotation, or one that only a type checker can read
        return processor


def given_classes(function: Callable[..., Any], values: Sequence[type | None]) -> tuple[type | None, ...]:
    """Return the dataclasses whose objects a function is given.

    Args:
        function: The function. A parameter that is annotated with a dataclass is given its objects. One that is
            annotated otherwise, also with ``Any``, is given a value with attributes.
        values: For each argument the dataclass of the stream, for a parameter without an annotation.
    """
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function if hasattr(function, "__annotations__") else type(function).__call__)
    except (NameError, TypeError, ValueError, AttributeError):  # it has none, or one that only a type checker knows
        return tuple(values)
    names = [each.name for each in signature.parameters.values() if each.kind is not each.KEYWORD_ONLY]
    found = []
    for place, of_stream in enumerate(values):
        hint = hints.get(names[place], MISSING) if place < len(names) else MISSING
        hint = without_none(hint)
        found.append(of_stream if hint is MISSING else hint if is_record_class(hint) else None)
    return tuple(found)


def returned_class(function: Callable[..., Any], *, each: bool = False) -> type | None:
    """Return the dataclass that the type hint of a function's result names; None for another one, and for columns.

    Args:
        each: Whether the function returns several results; see :func:`hinted_schema`.
    """
    if is_of_batches(function):
        return None
    try:
        result: Any = without_none(typing.get_type_hints(function).get("return"))
    except (NameError, TypeError):
        return None
    if each:
        result = without_none((typing.get_args(result) or (None,))[0])
    return result if is_record_class(result) else None
