"""Judges the calls of the language: what is wrong with the arguments, in which line, and what to write.

A call that does not fit the signature, or an argument that does not fit its annotation, is a :class:`Diagnostic` of the
line that calls. Streams and tables add it to their graph, so that all faults of a declaration are told at once. A value
that is made before there is a graph, such as a serde or windows, keeps its own mistakes. Whoever is given the value
tells them.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, InitVar, dataclass, is_dataclass
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

from streamplan.judged_words import (
    TOLD_ALONE,
    TOO_MANY,
    advice_on,
    described,
    is_not_called,
    is_of_the_language,
    is_text,
    is_told_as_text,
    listed,
    may_be,
    meant_by,
    name_meant,
    sample,
    shown,
    text_meant,
    windows_of_spark,
    words_of,
)

_PACKAGE = Path(__file__).parent
_DECLARES = {str(_PACKAGE), str(_PACKAGE / "model"), str(_PACKAGE / "serdes")}
"""The folders of the language itself. A declaration is the nearest caller outside of them."""

_MISTAKES = "_mistakes"

_EXAMPLE = re.compile(r"Examples?:\s+``(.+?)``", re.DOTALL)

NO_FIELDS: Mapping[str, Any] = types.MappingProxyType({})
"""The default of the argument that names the fields of a value, in an operation that also takes them by keywords, as
``map_values(total=F.price * F.count)``. It is required where there are none."""

_Judged = TypeVar("_Judged", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class SourceLocation:
    """A line of a declaration's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """A fault of a declaration: the ``message`` says what is wrong, the ``hint`` what to write.

    With ``is_warning`` it is none, and the declaration can run.
    """

    location: SourceLocation
    message: str
    hint: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.location}: {self.message}. {self.hint}"


def caller_frame() -> FrameType:
    """Return the frame of the nearest caller outside of the language, which is the one that declares something."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_of_the_language(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def caller_location() -> SourceLocation:
    """The line of the nearest caller outside of the language, which is the line that declares something."""
    frame = caller_frame()
    return SourceLocation(_shown_path(frame.f_code.co_filename), frame.f_lineno)


@cache
def _shown_path(file: str) -> str:
    path = Path(file)
    # The path from plugins/ on is the same on every machine, and a person can open it.
    return str(Path(*path.parts[path.parts.index("plugins") :]) if "plugins" in path.parts else path)


@cache
def _is_of_the_language(file: str) -> bool:
    # The generated __init__ of a dataclass has no file.
    return file == "<string>" or str(Path(file).parent) in _DECLARES


# -- what is wrong with a call


def judged(cls: _Judged, /) -> _Judged:
    """Judge the calls of the public methods of a class.

    The class has a method ``_mistaken(mistakes, operation, returns)``. It takes the mistakes of a call, and gives what
    the method returns instead; ``returns`` is the annotation.

    Args:
        cls: The class. Methods that it inherits are those of another class.
    """
    for name, method in list(vars(cls).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_") and name not in _fields(cls):
            if any(each.kind is each.VAR_POSITIONAL for each in _parameters(method)):
                continue  # it takes any number of values, and judges them itself
            setattr(cls, name, _judged_method(method))
    return cls


def judged_constructor(cls: _Judged, /) -> _Judged:
    """Judge the calls of the constructor of a class, and of class methods that make an object.

    A class may have a method ``_made_wrongly(mistakes, given)``, which takes the mistakes and the arguments by their
    names. The objects of all others keep the mistakes themselves, and so they do where the constructor raises
    ValueError; see :func:`mistakes_of`.

    Args:
        cls: The class.
    """
    initialize = inspect.getattr_static(cls, "__init__")
    setattr(cls, "__init__", _judged_init(cls, initialize))  # noqa: B010  mypy refuses the assignment
    for name, method in list(vars(cls).items()):
        if isinstance(method, classmethod) and not name.startswith("_"):
            setattr(cls, name, classmethod(_judged_class_method(method.__func__)))
    return cls


def judged_function(function: _Function) -> _Function:
    """Judge the calls of a function that stands alone. One that is called wrongly returns a :class:`Mistaken`."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = tuple(_judge(function, function.__name__, args, kwargs))
        return Mistaken(found) if found else function(*args, **kwargs)

    return typing.cast("_Function", call)


class Mistaken:
    """Stands for what a wrong call would have returned, so that a declaration goes on. All that is made of it is it.

    Whoever is given it tells the mistakes.
    """

    def __init__(self, mistakes: Sequence[Diagnostic]) -> None:
        self._mistakes = tuple(mistakes)

    def __call__(self, *args: Any, **kwargs: Any) -> Mistaken:
        """Return itself."""
        return self

    def __getitem__(self, key: object) -> Mistaken:
        """Return itself."""
        return self

    def __iter__(self) -> Iterator[Mistaken]:
        """Nothing: without this method Python would ask for one item after the other, without an end."""
        return iter(())

    def __getattr__(self, name: str) -> Mistaken:
        """Return itself, but for what Python asks for."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self


def mistakes_of(value: object) -> tuple[Diagnostic, ...]:
    """Return what is wrong with the call that has made a value, or one of the fields of a mapping."""
    if isinstance(value, Mapping):
        return tuple(mistake for part in value.values() for mistake in mistakes_of(part))
    found: tuple[Diagnostic, ...] = getattr(value, "__dict__", {}).get(_MISTAKES, ())
    return found


def refuse_mistaken(value: object) -> None:
    """Refuse to use a value that was made by a wrong call.

    Raises:
        ValueError: It was. The text has each mistake.
    """
    if found := mistakes_of(value):
        raise ValueError("; ".join(mistake.message.partition(": ")[2] for mistake in found))


def _fields(cls: type) -> Mapping[str, Field[Any]]:
    """The fields of a dataclass; one may have a function as its default."""
    return getattr(cls, "__dataclass_fields__", {})


def _judged_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        found = tuple(_judge(method, method.__name__, args, kwargs, self))
        if found:
            return self._mistaken(found, method.__name__, _hints(method).get("return"))
        return method(self, *args, **kwargs)

    return call


def _judged_class_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
        operation = f"{cls.__name__}.{method.__name__}"
        found = tuple(_judge(method, operation, args, kwargs, cls))
        if not found:
            try:
                return method(cls, *args, **kwargs)
            except ValueError as error:
                found = (Diagnostic(caller_location(), f"{operation}: {error}", f"For example {example_of(method)}"),)
        return _mistaken_value(cls, {}, found)

    return call


def _judged_init(cls: type, initialize: Callable[..., None]) -> Callable[..., None]:
    hook, example = getattr(cls, "_made_wrongly", None), example_of(cls)

    @wraps(initialize)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        found = tuple(_judge(initialize, cls.__name__, args, kwargs, self, example, cls))
        if not found:
            try:
                return initialize(self, *args, **kwargs)
            except ValueError as error:
                if hook is not None:
                    raise
                hint = getattr(error, "hint", "") or (f"For example {example}" if example else "Correct it")
                found = (Diagnostic(caller_location(), f"{cls.__name__}: {error}", hint),)
        given = {**dict(zip(_names(initialize)[0][1:], args, strict=False)), **kwargs}
        if hook is not None:
            hook(self, found, given)
            return None
        self.__dict__.clear()  # what the constructor has found before it stopped
        self.__dict__.update(_mistaken_value(cls, given, found).__dict__)
        return None

    return call


def _mistaken_value(cls: Any, given: Mapping[str, Any], mistakes: tuple[Diagnostic, ...]) -> Any:
    """A value that knows what is wrong with it: its fields are those that were given, or their defaults."""
    value = object.__new__(cls)
    for name, of_field in _fields(cls).items():
        default = of_field.default
        if default is MISSING:
            default = None if of_field.default_factory is MISSING else of_field.default_factory()
        value.__dict__[name] = given.get(name, default)
    value.__dict__[_MISTAKES] = mistakes
    return value


def _judge(
    function: Callable[..., Any],
    operation: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    owner: Any = MISSING,
    example: str = "",
    made: type | None = None,
) -> Iterator[Diagnostic]:
    """Yield what is wrong with a call.

    Args:
        function: What is called.
        operation: Its name in the messages.
        args: The arguments by place, without the object.
        kwargs: The arguments by name.
        owner: The object, for a method.
        example: A call that is right; by default the one of the docstring.
        made: The class, for a constructor.
    """
    parameters = [each for each in _parameters(function) if each.kind is not each.VAR_KEYWORD]
    parameters = parameters[0 if owner is MISSING else 1 :]
    if _is_right(function, args, kwargs, owner, made):
        return
    by_place = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY)]
    required = {each.name for each in by_place if each.default is each.empty or each.default is NO_FIELDS}
    given = dict(zip((each.name for each in by_place), args, strict=False))
    hints, example = _hints(function, made), example or example_of(function)
    for_example = f"For example {example}" if example else f"It takes {listed(parameters)}"
    known = {each.name: each for each in parameters}
    if other_form := _other_form(known, [*args, *kwargs.values()], {**kwargs, **given}):
        yield Diagnostic(caller_location(), f"{operation}: {other_form[0]}", other_form[1])
        return
    fields = _fields_by_name(function, kwargs, hints)
    # One that has the name of an argument was meant as a field, which is told.
    as_fields = fields or _fields_by_name(function, dict(enumerate(kwargs.values())), hints)
    empty = (inspect.Parameter.empty, *(() if as_fields else (NO_FIELDS,)))
    missing = [
        each.name
        for each in parameters
        if any(each.default is one for one in empty) and each.name not in {*given, *kwargs}
    ]

    def mistake(message: str, hint: str) -> Diagnostic:
        return Diagnostic(caller_location(), f"{operation}: {message}", hint)

    def fits(name: str, value: object) -> bool:
        if typing.get_origin(hints.get(name)) is Literal and not _is_word(value, hints[name]):
            return False
        return name in hints and _misfit(value, hints[name]) is None and may_be(name, value)

    surplus = args[len(by_place) :]
    if surplus:
        named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in kwargs]
        meant = next(
            (name for name in sorted(named, key=lambda name: name not in missing) if fits(name, surplus[0])), ""
        )
        most = f"at most {len(by_place)} without a name" if by_place else "none without a name"
        hint = TOO_MANY.get(operation) or (f"Write {meant}={shown(surplus[0])}" if meant else for_example)
        if operation in TOO_MANY and isinstance(surplus[0], Mapping):
            hint = f"Change the value before: map_values({shown(surplus[0])}).{operation}(…)"
        if operation == "stream" and isinstance(surplus[0], str) and may_be("name", surplus[0]):
            hint = f"Write the topics in parentheses: stream({shown(args)}, value=…)"
        if "stores" in known and not meant:
            hint = advice_on(surplus[0], str, "", operation, "store") or hint
        hint = (windows_of_spark(args) if operation == "group_by" else "") or hint
        yield mistake(f"{shown(surplus[0])} is one argument too many: it takes {most}", hint)
        missing = [name for name in missing if name != meant]
    for value in fields.values():
        yield from mistakes_of(value)
    unknown = {name: value for name, value in kwargs.items() if name not in known and name not in fields}
    given |= {name: value for name, value in kwargs.items() if name in known and name not in given}
    takes_fields = any(each.kind is each.VAR_KEYWORD for each in _parameters(function))
    if takes_fields and "aggregator" not in unknown:
        no_names = [
            name
            for name, value in unknown.items()
            if not name_meant(name, parameters) and not is_text(value) and not is_of_the_language(value)
        ]
        for name in no_names:
            wrong = unknown.pop(name)
            hint = f"Write {name}=F.lit({shown(wrong)})"
            if is_not_called(wrong) or not isinstance(wrong, int | float):
                hint = advice_on(wrong, str, "", operation, name) or f"For example {name}=F.amount"
            yield mistake(f"the field {name} is {described(wrong)}; it takes an expression of F", hint)
            missing = []
    if unknown and len(missing) == 1 and fits(missing[0], unknown):  # map_values(total="price * count")
        written = f"{operation}({missing.pop()}={shown(unknown)})"
        yield mistake(f"there is no argument {next(iter(unknown))!r}", f"Write {written}")
        unknown = {}
    for name, value in unknown.items():
        yield mistake(f"there is no argument {name!r}", meant_by(name, value, operation, parameters))
        missing = [each for each in missing if each != name_meant(name, parameters)] if name not in TOLD_ALONE else []
    for name, value in kwargs.items():
        if name in known and given[name] is not value:
            yield mistake(f"{name} is given twice, {shown(given[name])} and {shown(value)}", "Leave one of them out")
    if missing:
        which = f"{', '.join(missing[:-1])} and {missing[-1]} are" if missing[1:] else f"{missing[0]} is"
        yield mistake(f"the argument{'s' if missing[1:] else ''} {which} missing", for_example)
    answered = getattr(owner, "_answered", ())
    for name, value in given.items():
        if own := mistakes_of(value):
            yield from own
        elif name not in answered and (misfit := _misfit(value, hints.get(name, Any))) is not None:
            part, wrong, expected = misfit
            told_by_example = example and (name in required or f"{name}=" in example)
            of_classes = {kind: example_of(kind) for kind in _classes_of(expected) if example_of(kind)}
            other = next((each for each in known if each not in given and _is_meant_for(value, hints.get(each))), "")
            if operation.endswith("join"):
                is_global = type(given.get("other")).__name__ == "GlobalKTable"
                other = "key" if is_global and "key" in known and isinstance(value, str) else other
            if name in ("schema", "state"):
                other = ""
            hint = f"Write {other}={shown(value)}" if other else advice_on(wrong, expected, part, operation, name)
            if not hint and not part and name not in kwargs:
                left = [each for each in parameters if each.name not in given]
                meant = text_meant(value, left, hints) if operation != "Pipeline" else ""
                hint = f"Write {meant}={shown(value)}" if meant else ""
            if not hint and told_by_example and (not part or not of_classes):
                hint = for_example
            if not hint and example and words_of(expected) == "a function":
                hint = for_example
            hint = hint or sample(name if not part else "", expected, of_classes)
            if name in kwargs and _fields_by_name(function, {0: value}, hints):
                hint = f"A field of this name is written in a mapping: {operation}({{{name!r}: …}})"
            yield mistake(f"{name}{part} is {described(wrong)}; it takes {words_of(expected)}", hint)


def _other_form(known: Mapping[str, Any], values: Sequence[Any], given: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong, and what to write, where an aggregate is given in a form that it does not take."""
    if "subtractor" in known and any(isinstance(each, Mapping) or is_told_as_text(type(each)) for each in values):
        return (
            "expressions are given; a grouped table takes functions, since rows also leave their group",
            "Write count(), or aggregate(initializer, adder, subtractor, schema='…')",
        )
    begin = given.get("value")
    if "value" not in given or callable(begin) or not callable(given.get("aggregator")):
        return None
    if isinstance(begin, Mapping) and all(isinstance(each, str) for each in begin.values()):
        return None  # expressions, of which the operation knows more
    written = begin if isinstance(begin, Mapping) else "{…}"
    return f"{described(begin)} is given with an aggregator", f"Write a function that returns it: lambda: {written}"


def _classes_of(hint: Any) -> tuple[Any, ...]:
    """The classes of the language that an annotation takes."""
    arguments = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    of = [typing.get_origin(each) or each for each in arguments]
    of_the_language = [each for each in of if getattr(each, "__module__", "").startswith("streamplan.")]
    return tuple(each for each in of_the_language if not is_told_as_text(each))


def _is_meant_for(value: Any, hint: Any) -> bool:
    """Whether a value of a class of the language is what an argument takes."""
    if not is_of_the_language(value):
        return False
    return type(value) in _classes_of(hint) and _misfit(value, hint) is None


def _fields_by_name(
    function: Callable[..., Any], kwargs: Mapping[Any, Any], hints: Mapping[str, Any]
) -> Mapping[Any, Any]:
    """The fields of a value that are given by keywords, which only some operations take, and only as expressions."""
    takes = next((each.name for each in _parameters(function) if each.kind is each.VAR_KEYWORD), None)
    if takes is None:
        return {}
    known = {each.name for each in _parameters(function) if each.kind is not each.VAR_KEYWORD}
    return {name: value for name, value in kwargs.items() if name not in known and _misfit(value, hints[takes]) is None}


@cache
def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(function).parameters.values())


@cache
def _names(function: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """The names of the parameters that are given by place, of all, and of those that are required."""
    parameters = _parameters(function)
    parameters = tuple(each for each in parameters if each.kind is not each.VAR_KEYWORD)
    by_place = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
    required = frozenset(each.name for each in parameters if each.default is each.empty or each.default is NO_FIELDS)
    return by_place, frozenset(each.name for each in parameters), required


def _is_right(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], owner: Any, made: type | None
) -> bool:
    """Whether nothing is wrong with a call: the quick answer, which nearly all calls get."""
    by_place, known, required = _names(function)
    if owner is not MISSING:
        args = (owner, *args)
    given = {**dict(zip(by_place, args, strict=False)), **kwargs}
    if len(given) != len(args) + len(kwargs) or not required <= given.keys() <= known:
        return False  # or fields are given by keywords, which the long answer knows
    hints, answered = _hints(function, made), getattr(owner, "_answered", ())
    if owner is not MISSING:
        del given[by_place[0]]
    return not any(
        mistakes_of(value) or (name not in answered and _misfit(value, hints.get(name, Any)) is not None)
        for name, value in given.items()
    )


@cache
def _hints(function: Callable[..., Any], cls: type | None = None) -> Mapping[str, Any]:
    """The annotations of a function, or those of a constructor that a dataclass has made: those of its fields."""
    is_generated = is_dataclass(cls) and inspect.unwrap(function).__code__.co_filename == "<string>"
    return typing.get_type_hints(cls if is_generated else function)


@cache
def example_of(documented: Any) -> str:
    """Return the first example of a docstring; empty without one.

    Args:
        documented: A class or a function.
    """
    found = _EXAMPLE.search(documented.__doc__ or "")
    return " ".join(found[1].split()) if found else ""


# -- whether a value fits an annotation


def _misfit(value: Any, hint: Any) -> tuple[str, Any, Any] | None:
    """What of a value does not fit: the path to a part, the part, and what it should be; None where all fits."""
    if isinstance(hint, InitVar):
        hint = hint.type
    if isinstance(hint, TypeVar) and hint.__bound__ is not None:
        hint = hint.__bound__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        misfits = [_misfit(value, each) for each in arguments]
        if None in misfits:
            return None
        # The misfit of a part is told only where the whole is of the right kind.
        return next((each for each in misfits if each is not None and each[0]), ("", value, hint))
    if origin is Literal:
        # The words themselves are judged by the operation, which knows what to say of each.
        return None if any(type(value) is type(word) for word in arguments) else ("", value, hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _misfit_of_mapping(value, hint, arguments)
    if origin is tuple or (isinstance(origin, type) and issubclass(origin, Sequence)):
        if not isinstance(value, tuple | list):
            return "", value, hint
        elements = [arguments[0]] * len(value) if len(arguments) != len(value) or Ellipsis in arguments else arguments
        found = ((at, _misfit(part, of)) for at, (part, of) in enumerate(zip(value, elements, strict=False)))
        return next(((f"[{at}]{misfit[0]}", *misfit[1:]) for at, misfit in found if misfit is not None), None)
    if hint is Callable or (isinstance(origin, type) and origin is typing.get_origin(Callable[..., Any])):
        is_function = callable(value) and not is_told_as_text(type(value)) and not is_not_called(value)
        is_function = is_function and not getattr(type(value), "_is_declared", False)
        return None if is_function else ("", value, hint)
    if origin is type:
        return None if isinstance(value, type) else ("", value, hint)
    if isinstance(origin, type):  # of a generic class, as of Primitive[str]
        hint = origin
    return None if _is_a(value, hint) else ("", value, hint)


def _misfit_of_mapping(value: Any, hint: Any, arguments: tuple[Any, ...]) -> tuple[str, Any, Any] | None:
    if not isinstance(value, Mapping):
        return "", value, hint
    of_key, of_value = arguments or (Any, Any)
    for key, part in value.items():
        if (misfit := _misfit(key, of_key)) is not None:
            return f", the name {shown(key)},", *misfit[1:]
        if (misfit := _misfit(part, of_value)) is not None:
            return f"[{key!r}]{misfit[0]}", *misfit[1:]
    return None


def _is_a(value: Any, hint: Any) -> bool:
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is Any or not isinstance(hint, type):
        return True  # Any, a type variable
    if getattr(hint, "_is_protocol", False):
        words = [name for name in vars(hint) if not name.startswith("_")]
        absent = object()
        return not isinstance(value, type) and all(
            inspect.getattr_static(value, name, absent) is not absent for name in words
        )
    return isinstance(value, hint)


def _is_word(value: Any, hint: Any) -> bool:
    """Whether a value is one of the words of a Literal. An expression of fields has no truth value."""
    return isinstance(value, str) and value in typing.get_args(hint)
