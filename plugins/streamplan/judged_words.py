"""What is said of a wrong call: a value, what an annotation takes, and what to write in its place."""

from __future__ import annotations

import inspect
import re
import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, fields, is_dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Literal

_OTHER_WORDS = {
    "size": "time_difference",
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
    "schema": "value",
    "key_serializer": "key_serde",
    "key_deserializer": "key_serde",
    "timestamp_extractor": "timestamp",
    "initializer": "value",
    "app_id": "application_id",
    "schedule": "health_schedule",
    "returns": "schema",
    "return_type": "schema",
    "output_schema": "schema",
    "result_schema": "schema",
    "state_schema": "state",
    "length": "size",
    "slide": "advance",
    "topic_name": "topic",
    "by": "max_by",
    "time_difference_ms": "time_difference",
    "retention_ms": "retention",
    "retention_period": "retention",
    "window_size": "size",
    "tz": "time_zone",
    "partition_counts": "topic_partitions",
}
"""Words of other libraries for our parameters."""

_GRACE = (
    "Windows take it: TimeWindows('…', grace='…'), JoinWindows('…', grace='…'). So does the join of a stream with a "
    "versioned table: stream.join(table, …, grace='…')"
)

_NO_BUFFER = (
    "Leave it out: windows wait in the state store of the aggregate, and not in memory. A window is passed when it "
    "closes, and not before"
)

_ELSEWHERE = {
    "within": "Two streams are joined within a time. Tables are joined by their keys alone",
    # of PySpark's join
    "on": "Records are joined by their key: give both sides the same key before, with select_key('…')",
    "how": "Each kind of join has a method of its own: join, left_join, outer_join",
    # of windows, and of the library's join with a versioned table
    "grace": _GRACE,
    "grace_period": _GRACE,
    # of topics
    "partitioner": "The partition of a record follows from its key: select_key('…') before it",
    "stream_partitioner": "The partition of a record follows from its key: select_key('…') before it",
    "partitions": "Declare the count of an external topic at the pipeline: topic_partitions={'topic': 2}",
    # of a consumer
    "auto_offset_reset": "Write it at the pipeline: Pipeline(…, auto_offset_reset='latest')",
    "offset_reset_policy": "Write it at the pipeline: Pipeline(…, auto_offset_reset='latest')",
    "starting_offsets": "Write it at the pipeline: Pipeline(…, auto_offset_reset='latest')",
    "consumer_group": "The application id is the consumer group: Topology('application-id')",
    "group_id": "The application id is the consumer group: Topology('application-id')",
    # of where a pipeline runs
    "bootstrap_servers": "A declaration names no brokers: streamplan run FILE --bootstrap-servers …, or Airflow's "
    "connection, which kafka_conn_id names",
    "broker_address": "A declaration names no brokers: streamplan run FILE --bootstrap-servers …, or Airflow's "
    "connection, which kafka_conn_id names",
    "broker": "A declaration names no brokers: streamplan run FILE --bootstrap-servers …, or Airflow's connection, "
    "which kafka_conn_id names",
    "master": "A declaration names no Spark: Airflow's connection has it, which spark_conn_id names",
    "checkpoint_location": "STREAMPLAN_HOME says where checkpoints are kept, not the declaration",
    "processing_guarantee": "Nothing needs to be said: every pipeline is exactly-once",
    # of Suppressed
    "max_records": _NO_BUFFER,
    "max_bytes": _NO_BUFFER,
    "shut_down_when_full": _NO_BUFFER,
    "emit_early_when_full": "A buffer with max_records passes early what waits longest: leave it out",
    "time_to_wait": "A window is passed when it closes. A micro-batch passes the last update of each key without it",
}
"""Parameters of other libraries that stand elsewhere here, and where."""

_FOLDED = {
    "max_by": "The rows of a group also leave it, so that the greatest is not known. Write reduce(adder, subtractor)",
    "min_by": "The rows of a group also leave it, so that the least is not known. Write reduce(adder, subtractor)",
}
"""What to write in place of an argument that grouped tables do not have."""

TOLD_ALONE = ("max_by", "min_by")
"""Arguments of something else, with which the arguments that are missing are not told."""

SEVERAL_KEYS = "Write a key of several fields as one: 'struct(a, b)', key_serde=Json('a string, b string')"
"""What several keys are answered with."""

TOO_MANY = {
    "group_by": SEVERAL_KEYS,
    "select_key": SEVERAL_KEYS,
    "merge": "Merge one after the other: a.merge(b).merge(c)",
}
"""What to write where an operation is given more than it takes."""

_WINDOW_OF_SPARK = re.compile(r"\s*(session_)?window\s*\((.*)\)\s*", re.DOTALL | re.IGNORECASE)


def windows_of_spark(keys: Sequence[Any]) -> str:
    """Return what to write in place of keys of which one is a window of Spark; empty where none is.

    Args:
        keys: The keys that were given.
    """
    texts = [str(each) if is_text(each) else "" for each in keys]
    found = next((match for text in texts if (match := _WINDOW_OF_SPARK.fullmatch(text))), None)
    if found is None:
        return ""
    others = [each for each, text in zip(keys, texts, strict=True) if not _WINDOW_OF_SPARK.fullmatch(text)]
    size, *advance = re.findall(r"'([^']*)'", found[2]) or ["5 minutes"]
    advances = f", advance={advance[0]!r}" if advance and not found[1] else ""
    windows = f"{'SessionWindows' if found[1] else 'TimeWindows'}({size!r}{advances})"
    key = shown(others[0]) if len(others) == 1 else "'struct(a, b)'" if others else "'key'"
    return f"Write group_by({key}).windowed_by({windows})"


_LISTS = {
    ("group_by", "key"): SEVERAL_KEYS,
    ("select_key", "key"): SEVERAL_KEYS,
    ("stream", "topic"): "Write the topics in parentheses: topology.stream(('a', 'b'), value=…)",
    ("table", "topic"): "A table has one topic",
    ("to", "topic"): "Write to('topic') for each of them. Where each record has its topic: to(\"concat('a-', b)\", "
    "topics=('a-x', 'a-y'))",
    ("merge", "other"): "Merge one after the other: a.merge(b).merge(c)",
}
"""What to write in place of a list, where one thing is taken: by operation and argument."""

_NAMES = ("name", "store", "label")
"""Arguments that are names of something in Kafka: what is no such name was not meant for them."""

_OTHER_TEXTS = (*_NAMES, "topic", "schema", "state", "timer")
"""Arguments for which no text was meant that was given in the place of another one."""

_SERDES = {str: "String()", int: "Long()", float: "Double()", bytes: "Bytes()", bool: "Json('name boolean')"}
"""By a type of Python what serde was meant."""


def completed(value: Any, *others: str) -> list[str]:
    """What ``dir()`` lists of a value of a declaration: what is declared, some other names, and what Python has.

    Args:
        value: Of a dataclass.
        others: Properties and methods that its users call.
    """
    declared = {each.name for each in fields(value) if each.init and each.repr}
    return [name for name in object.__dir__(value) if name.startswith("__") or name in declared or name in others]


def shown(value: Any) -> str:
    """A value as a declaration has it, in a few characters."""
    if isinstance(value, type):
        return value.__name__
    if path := getattr(value, "_path", ()) if is_told_as_text(type(value)) else ():
        return "".join(["F", *(f".{each}" if each.isidentifier() else f"[{each!r}]" for each in path)])
    if is_told_as_text(type(value)) and not hasattr(type(value), "_no_value"):
        return repr(str(value))
    if type(value).__module__ == "streamplan.model.processor":  # a store, whose repr is its declaration
        return repr(value)
    if isinstance(value, timedelta):
        return repr(value).removeprefix("datetime.")
    if isinstance(value, slice):
        return ":".join("" if each is None else shown(each) for each in (value.start, value.stop, value.step)[:2])
    if is_dataclass(value):
        fields = value.__dataclass_fields__.values()
        if any(each.name.startswith("_") for each in fields):  # a stream or a table, whose repr is short
            return repr(value)
        parts = [(each.name, getattr(value, each.name)) for each in fields if each.repr and each.init]
        given = [
            shown(part) if name == "schema" else f"{name}={shown(part)}"
            for name, part in parts
            if part != getattr(type(value), name, {})
        ]
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
    if hasattr(type(value), "_no_value"):
        return repr(value)
    if is_not_called(value):
        return f"the method {value.__name__}, which is not called"
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def words_of(hint: Any) -> str:
    """What an annotation takes."""
    if isinstance(hint, InitVar):
        hint = hint.type
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if is_key_serde(hint):
        return "a serde of keys"
    if origin in (types.UnionType, typing.Union):
        told = [each for each in arguments if each is not type(None) and not is_told_as_text(each)]
        words = list(dict.fromkeys(map(words_of, told)))
        return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        of = (typing.get_args(hint) or (Any, Any))[1]
        are_expressions = str in _kinds(of) and any(map(is_told_as_text, _kinds(of)))
        part = "2" if of is int else "'expression'" if are_expressions else "'…'" if of is str else "…"
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


def is_not_called(value: Any) -> bool:
    """Whether a value is a method of a stream, a table or an expression, whose parentheses were forgotten."""
    return isinstance(value, types.MethodType) and type(value.__self__).__module__.startswith("streamplan.model.")


def _of(hint: Any) -> tuple[Any, ...]:
    """The annotations of which a union is made."""
    if isinstance(hint, InitVar):
        hint = hint.type
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(part for each in typing.get_args(hint) for part in _of(each))
    return (hint,)


def is_key_serde(hint: Any) -> bool:
    """Whether an annotation takes the serdes of keys."""
    return {"String", "Long"} <= {getattr(kind, "__name__", "") for kind in _kinds(hint)}


def _kinds(hint: Any) -> set[Any]:
    """The classes that an annotation takes."""
    return {typing.get_origin(each) or each for each in _of(hint)}


def _type_text(value: Any) -> str:
    """A type of Spark's DDL, as the value of a mapping that was meant as a schema; empty for anything else."""
    if isinstance(value, type):
        return {str: "string", int: "bigint", float: "double", bool: "boolean"}.get(value, "")
    return value if isinstance(value, str) else ""


def serde_meant(cls: type) -> str:
    """Return what to write where a class stands in place of a serde.

    Args:
        cls: The class: a serde, a dataclass, or a type of Python.
    """
    if cls.__module__ == "streamplan.serdes.windowed":
        return f"Write {cls.__name__}(String())"
    if is_dataclass(cls) and "decode" not in dir(cls):
        return f"Write Json({cls.__name__})"
    if cls in _SERDES:
        return f"Write {_SERDES[cls]}"
    if "decode" not in dir(cls):
        return "For example Json('id string, amount bigint')"
    needs = [each for each in inspect.signature(cls).parameters.values() if each.default is each.empty]
    return f"Write {cls.__name__}({'…' if needs else ''}), an object of the class"


def sample(name: str, hint: Any, examples: Mapping[Any, str]) -> str:
    """Return an argument as one might write it, where nothing tells what is meant.

    Args:
        name: The argument.
        hint: Its annotation.
        examples: For classes a call of each.
    """
    kinds = _kinds(hint)
    written = next((example for kind, example in examples.items() if kind in kinds), "")
    if not written and timedelta in kinds:
        written = "'5 minutes'"
    if not written and bool not in kinds:
        written = "'…'" if str in kinds else words_of(hint).removeprefix("a mapping such as ")
        if str not in kinds:
            return f"Write {written}"
    if not written:
        return f"Write {words_of(hint)}"
    return f"For example {f'{name}=' if name else ''}{written}"


OF_ANOTHER_LIBRARY = "Write the expression with F from streamplan: F.amount > 0"
"""What to write in place of an expression of PySpark, or of another library."""

_EXPRESSIONS_OF = ("pyspark", "polars", "pandas", "sqlalchemy", "ibis", "duckdb")
"""Libraries that have expressions of their own."""


_EXAMPLE_OF_JSON = "Json('id string, amount double')"


def _of_spark_type(value: Any, operation: str, name: str, is_serde: bool) -> str:
    """What to write in place of a type of PySpark; empty where it may be anything.

    Args:
        value: The type.
        operation: What is called.
        name: The argument.
        is_serde: Whether the argument takes a serde.
    """
    if operation in ("Avro", "JsonSchema", "Protobuf"):
        return ""
    of = getattr(value, "fields", None)
    fields = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in of or ())
    json = f"Json({fields!r})" if fields else _EXAMPLE_OF_JSON
    if operation == "Json":
        return f"Write it as one text: {json}"
    if is_serde and of is not None:
        return f"Write {json}"
    if name in ("schema", "state"):
        return f"Write it as one text: {fields or 'id string, amount double'!r}"
    return f"Write {value.simpleString()!r}" if name == "field_type" else ""


def advice_on(value: Any, hint: Any, part: str, operation: str, name: str) -> str:
    """What to write in place of a value, or of a part of one, where it tells what is meant.

    Args:
        value: The value, or its part.
        hint: The annotation of what it should be.
        part: The path to the part; empty for the whole value.
        operation: What is called.
        name: The argument.
    """
    kinds = _kinds(hint)
    of_texts = any(typing.get_origin(each) is Mapping and str in _kinds(typing.get_args(each)[1]) for each in _of(hint))
    is_serde = any(getattr(kind, "__name__", "") == "Serde" for kind in kinds)
    records = [kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind)]
    if written := getattr(type(value), "_no_value", ""):
        return str(written)
    if is_not_called(value):
        return f"Write {_before(value.__self__)}{value.__name__}()"
    if type(value).__module__ == "pyspark.sql.types" and (written := _of_spark_type(value, operation, name, is_serde)):
        return written
    if type(value).__module__.partition(".")[0] in _EXPRESSIONS_OF and str in kinds:
        return OF_ANOTHER_LIBRARY
    if hasattr(value, "schema") and isinstance(value.schema, str) and name in ("schema", "state"):
        return f"Write its text: {value.schema!r}"
    if type(value).__module__ == "streamplan.model.processor" and name in ("store", "state"):
        is_of_class = operation.startswith("process")  # other operations have a store of one kind
        return f"Write stores={{'name': {shown(value)}}}" if is_of_class else "Write its name: store='name'"
    match value:
        case type() if is_serde or is_key_serde(hint):
            return serde_meant(value)
        case _ if is_key_serde(hint):
            return "For example String(), Long() or Json('customer string, product string')"
        case type() if any(value is kind for kind in kinds if kind is not str):
            return f"Write {value.__name__}(…), an object of the class"
        case type() if str in kinds and is_dataclass(value) and name == "schema":
            return f"Annotate what the function returns: def function(record) -> {value.__name__}"
        case Mapping() if records and value.keys() <= records[0].__dataclass_fields__.keys():
            fields = ", ".join(f"{each}={shown(of)}" for each, of in value.items())
            return f"Write {records[0].__name__}({fields})"
        case re.Pattern() if name == "topic":
            return (
                "Name the topics, as in stream(('a', 'b'), value=…). Their partitions must be known when the "
                "application is deployed, and a topic that matches later would have no positions"
            )
        case list() | tuple() | set() if (operation, name) in _LISTS and not part:
            return windows_of_spark(tuple(value)) or _LISTS[operation, name]
        case list() | tuple() if str in kinds and name == "schema" and all(isinstance(each, str) for each in value):
            return f"Write it as one text: {', '.join(value)!r}"
        case bool() if str in kinds and name in ("condition", "key"):
            return (
                "Python has computed it before there is a record. Write an expression: 'amount > 0', and "
                "F.amount.is_null() for 'is None'"
            )
        case Mapping() if str in kinds and name == "schema" and operation in ("Avro", "JsonSchema"):
            return f"Write it as a text, {operation}(json.dumps(…)), or the name of a file that has it"
        case bool() if str in kinds and part:  # true is an expression, but no name of a topic
            return f"Write it as a text: {str(value).lower()!r}"
        case int() | float() if str in kinds and part:
            return f"Write it as a text: {str(value)!r}"
        case bytes() if str in kinds:
            return f"Write it as a text: {value.decode(errors='replace')!r}"
        case Mapping() if str in kinds and value and all(map(_type_text, value.values())):
            return f"Write it as one text: {', '.join(f'{of} {_type_text(each)}' for of, each in value.items())!r}"
        case str() if of_texts and operation.endswith("join"):
            return _ELSEWHERE["on"]
        case str() if of_texts and operation == "Pipeline":
            return f"Write {name}={{'new-topic': {value!r}}}" if name == "repartition_from" else ""
        case str() if of_texts:
            expression, of = aliased(value) or (value, "name")
            return f"Say what the field is called: {{{of!r}: {expression!r}}}"
        case str() if is_serde:
            return f"Write Json({value!r})" if " " in value.strip() else "For example Json('id string, amount bigint')"
        case list() | tuple() | set() if of_texts and value and all(map(is_text, value)):
            named = (aliased(str(each)) or (str(each), str(each)) for each in value)
            return f"Write {{{', '.join(f'{of!r}: {expression!r}' for expression, of in named)}}}"
        case str() if kinds & {tuple, Sequence}:
            return f"Write ({value!r},)"
        case str() if kinds & {int, float} and re.fullmatch(r"\d+(\.\d+)?", value):
            return f"Write it without quotes: {value}"
        case str() if bool in kinds and value.lower() in ("true", "false"):
            return f"Write it without quotes: {value.capitalize()}"
    if of_texts and is_told_as_text(type(value)):
        text = repr(value).removeprefix("<Expression ").removesuffix(">")
        return f"Say what the field is called: {{'name': {text!r}}}"
    if str in kinds and type(value).__module__.partition(".")[0] == "pyspark":
        return 'Write the expression as a text, in Spark SQL: "amount > 0"'
    if operation == "Json" and name == "schema" and callable(value) and not isinstance(value, type):
        return f"Write it as one text: {_EXAMPLE_OF_JSON}"
    is_declared = getattr(type(value), "_is_declared", False)  # a stream answers a call, and is no function
    if str in kinds and callable(value) and not isinstance(value, type) and not is_declared:
        if operation == "flat_map":
            return "The key is an expression over the new value: flat_map(function, key='key', schema='…')"
        return (
            "Write an expression in Spark SQL as a text. What needs a function is computed before it, in map_values of "
            "a stream"
        )
    is_function = callable(value) and not isinstance(value, type) and not is_declared
    if of_texts and is_function and operation.endswith("join"):  # that of a stream takes a function
        return (
            "Tables are joined by expressions, as {'id': 'id', 'city': 'table.city'}. With a function write "
            "to_stream().map_values(function) behind it"
        )
    return ""


_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_ALIASED = re.compile(r"(.*\S)\s+as\s+(\w+|`[^`]+`)\s*", re.DOTALL | re.IGNORECASE)


def aliased(expression: str) -> tuple[str, str] | None:
    """Return an expression and the name that stands behind it, as in ``amount * 2 as double``; None without one.

    Args:
        expression: The text.
    """
    found = _ALIASED.fullmatch(_LITERAL.sub(lambda literal: "§" * len(literal[0]), expression))
    if found is None or found[1].count("(") != found[1].count(")") or "--" in found[1]:
        return None
    return expression[: found.end(1)].strip(), found[2].strip("`")


def is_of_the_language(value: Any) -> bool:
    """Whether a value is an object of a class of the language, and no expression."""
    is_object = not isinstance(value, type) and type(value).__module__.startswith("streamplan.")
    return is_object and not is_told_as_text(type(value))


def is_text(value: Any) -> bool:
    """Whether a value is a text, or stands for one as expressions do."""
    return isinstance(value, str) or is_told_as_text(type(value))


def _before(of: Any) -> str:
    """What stands before the name of a method: ``F.amount.``."""
    text = shown(of) if is_told_as_text(type(of)) else ""
    return f"{text}." if text.startswith("F.") else ""


def text_meant(value: Any, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> str:
    """Return the argument that a text was meant for, which was given in the place of another one; empty without one.

    Args:
        value: What was given.
        parameters: The arguments that were not given.
        hints: The annotations.
    """
    if not is_text(value):
        return ""
    names = (each.name for each in parameters if each.name not in _OTHER_TEXTS and str in _kinds(hints.get(each.name)))
    return next(names, "")


def name_meant(name: str, parameters: Sequence[inspect.Parameter]) -> str:
    """Return the argument that was meant by another name; empty where none is like it."""
    names = [each.name for each in parameters]
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    for meant in (word, _OTHER_WORDS.get(word, ""), *get_close_matches(word, names, 1)):
        if meant in names:
            return meant
    inside = [each for each in names if word in each.split("_")]
    return inside[0] if len(inside) == 1 else ""


def meant_by(name: str, value: Any, operation: str, parameters: Sequence[inspect.Parameter]) -> str:
    """Return what to write in place of an argument that there is not."""
    meant = name_meant(name, parameters)
    if meant == "value" and operation in ("stream", "table", "global_table", "to"):
        if isinstance(value, str):
            return f"Write value=Json({value!r})"
        if type(value).__module__ == "pyspark.sql.types" and (written := _of_spark_type(value, operation, "", True)):
            return written.replace("Write ", "Write value=")
    if name in ("on", "how") and operation.endswith("join"):
        return _ELSEWHERE[name]
    if operation == "UntilTimeLimit" and name == "max_bytes":
        return "The buffer is on disk, and bounded by its number of keys: max_records=10_000"
    if meant:
        return f"Write {meant}={shown(value)}"
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if word in _ELSEWHERE and (word not in ("on", "how") or operation.endswith("join")):
        return _ELSEWHERE[word]
    if word in _FOLDED:
        is_table = any(each.name == "subtractor" for each in parameters)
        return _FOLDED[word] if is_table else f"Write aggregate({{'field': {f'{word}(field, {value})'!r}}})"
    if word in ("key_serde", "key"):
        return "Give the records the key before: select_key('…', key_serde=…)"
    return f"It takes {listed(parameters)}"


def may_be(name: str, value: Any) -> bool:
    """Return whether a value may be meant for an argument: a condition is no name.

    Args:
        name: The argument.
        value: A value that fits its annotation.
    """
    return name not in _NAMES or not isinstance(value, str) or re.fullmatch(r"[\w.-]+", value) is not None


def listed(parameters: Sequence[inspect.Parameter]) -> str:
    """The names of the parameters; those with an equals sign are given by their names."""
    declared = [each for each in parameters if each.name != "partitions_of_others"]  # which a cluster has
    names = [f"{each.name}=" if each.kind is each.KEYWORD_ONLY else each.name for each in declared]
    return ", ".join(names) or "no argument"
