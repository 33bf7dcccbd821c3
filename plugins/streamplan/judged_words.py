"""What is said of a wrong call: a value, what an annotation takes, and what to write in its place."""

from __future__ import annotations

import inspect
import re
import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal

_OTHER_WORDS = {
    "as_": "name",
    "named": "name",
    "processor_name": "name",
    "materialized": "store",
    "store_name": "store",
    "state_store": "store",
    "window": "within",
    "windows": "within",
    "join_windows": "within",
    "grace_ms": "grace",
    "duration": "size",
    "duration_ms": "size",
    "advance_by": "advance",
    "step": "advance",
    "gap": "inactivity_gap",
    "partitions": "number_of_partitions",
    "num_partitions": "number_of_partitions",
    "value_serde": "value",
    "value_serializer": "value",
    "value_deserializer": "value",
    "serde": "value",
    "key_serializer": "key_serde",
    "key_deserializer": "key_serde",
    "timestamp_extractor": "timestamp",
    "initializer": "value",
    "app_id": "application_id",
    "schedule": "health_schedule",
}
"""Words of other libraries for our parameters."""

_JOIN_WORDS = {
    "on": "Records are joined by their key: give both sides the same key before, with select_key('…')",
    "how": "Each kind of join has a method of its own: join, left_join, outer_join",
}
"""Parameters of PySpark's ``join``."""

SEVERAL_KEYS = dict.fromkeys(
    ("group_by", "select_key"),
    "Write a key of several fields as one: 'struct(a, b)', key_serde=Json('a string, b string')",
)
"""What several keys are answered with."""


def shown(value: Any) -> str:
    """A value as a declaration has it, in a few characters."""
    if isinstance(value, type):
        return value.__name__
    if is_dataclass(value):
        fields = value.__dataclass_fields__.values()
        parts = [(each.name, getattr(value, each.name)) for each in fields if each.repr and each.init]
        given = [f"{name}={shown(part)}" for name, part in parts if part != getattr(type(value), name, {})]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return "lambda …" if value.__name__ == "<lambda>" else value.__name__
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    return re.sub(r" at 0x[0-9a-f]+", "", short.repr(value))


def described(value: Any) -> str:
    """A value with its kind: ``the number 5``."""
    match value:
        case None | bool():
            return str(value)
        case str():
            return f"the text {shown(value)}"
        case int() | float():
            return f"the number {value}"
        case bytes():
            return f"the bytes {shown(value)}"
        case type():
            return f"the class {value.__name__}"
        case Mapping():
            return "a mapping"
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def words_of(hint: Any) -> str:
    """What an annotation takes."""
    if isinstance(hint, InitVar):
        hint = hint.type
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        told = [each for each in arguments if each is not type(None) and not is_told_as_text(each)]
        words = list(dict.fromkeys(map(words_of, told)))
        return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        of = (typing.get_args(hint) or (Any, Any))[1]
        part = "2" if of is int else "'expression'" if str in _kinds(of) else "…"
        return f"a mapping such as {{'name': {part}}}"
    if origin is tuple or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return "a tuple"
    if hint is Callable or origin is typing.get_origin(Callable[..., Any]):
        return "a function"
    if origin is type:
        return "a dataclass" if arguments[0] is Any else f"a subclass of {arguments[0].__name__}"
    simple = {str: "a text", bool: "True or False", int: "a whole number", float: "a number", bytes: "bytes"}
    if hint in simple:
        return simple[hint]
    name = getattr(hint, "__name__", str(hint))
    return f"a {name.lower() if getattr(hint, '_is_protocol', False) else name}"


def is_told_as_text(kind: Any) -> bool:
    """Whether values of a class stand for a text, as expressions do."""
    return isinstance(kind, type) and "_told_as_text" in vars(kind)


def _kinds(hint: Any) -> set[Any]:
    """The classes that an annotation takes."""
    if isinstance(hint, InitVar):
        hint = hint.type
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return {kind for each in typing.get_args(hint) for kind in _kinds(each)}
    return {typing.get_origin(hint) or hint}


def advice_on(value: Any, hint: Any, part: str) -> str:
    """What to write in place of a value, or of a part of one, where it tells what is meant."""
    kinds = _kinds(hint)
    of_mapping = any(isinstance(kind, type) and issubclass(kind, Mapping) for kind in kinds)
    is_serde = any(getattr(kind, "__name__", "") == "Serde" for kind in kinds)
    match value:
        case type() if any(isinstance(kind, type) and (is_serde or value is kind) for kind in kinds):
            return f"Write {value.__name__}(…), an object of the class"
        case bool() if str in kinds and part:  # true is an expression, but no name of a topic
            return f"Write it as a text: {str(value).lower()!r}"
        case int() | float() if str in kinds and part:
            return f"Write it as a text: {str(value)!r}"
        case bytes() if str in kinds:
            return f"Write it as a text: {value.decode(errors='replace')!r}"
        case Mapping() if str in kinds and value and all(isinstance(each, str) for each in value.values()):
            return f"Write it as one text: {', '.join(f'{name} {each}' for name, each in value.items())!r}"
        case str() if of_mapping:
            return f"Say what the field is called: {{'name': {value!r}}}"
        case str() if is_serde:
            return f"Write Json({value!r})" if " " in value.strip() else "For example Json('Id string, Amount bigint')"
        case list() | tuple() | set() if of_mapping and value and all(isinstance(each, str) for each in value):
            return f"Write {{{', '.join(f'{each!r}: {each!r}' for each in value)}}}"
        case str() if kinds & {tuple, Sequence}:
            return f"Write ({value!r},)"
        case str() if kinds & {int, float} and re.fullmatch(r"\d+(\.\d+)?", value):
            return f"Write it without quotes: {value}"
        case str() if bool in kinds and value.lower() in ("true", "false"):
            return f"Write it without quotes: {value.capitalize()}"
    if str in kinds and type(value).__module__.partition(".")[0] == "pyspark":
        return 'Write the expression as a text, in Spark SQL: "amount > 0"'
    if str in kinds and callable(value) and not isinstance(value, type):
        return "Write an expression in Spark SQL as a text, and compute what needs a function in a map_values before it"
    return ""


def meant_by(name: str, value: Any, operation: str, parameters: Sequence[inspect.Parameter]) -> str:
    """What to write in place of an argument that there is not."""
    names = [each.name for each in parameters]
    if name in _JOIN_WORDS and operation.endswith("join"):
        return _JOIN_WORDS[name]
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    meant = word if word in names else _OTHER_WORDS.get(word, "")
    if meant not in names:
        meant = next(iter(get_close_matches(word, names, 1)), "")
    return f"Write {meant}={shown(value)}" if meant else f"It takes {listed(parameters)}"


def listed(parameters: Sequence[inspect.Parameter]) -> str:
    """The names of the parameters; those with an equals sign are given by their names."""
    names = [f"{each.name}=" if each.kind is each.KEYWORD_ONLY else each.name for each in parameters]
    return ", ".join(names) or "no argument"
