"""Answers a word that is no operation: one of the JVM's DSL, of Quix Streams or of PySpark, or one that is misspelt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

_COLUMNS = "map_values({'field': 'expression'}): it names every field of the new value"
_FOLD = "group_by('key').aggregate({{'{0}': '{0}(field)'}})"
_PROCESS = "process(MyProcessor, schema='…'), with stores={'…': KeyValueStore(…)} where it keeps state"
_PROCESS_VALUES = "process_values(MyProcessor, schema='…'), with stores={'…': KeyValueStore(…)} where it keeps state"
_SEEN = "print() on a stream, or TopologyTestDriver of streamplan.testing in a test"
_ORDER = "nothing: a stream has no end, so it has no order to sort it in. reduce(max_by='field') keeps the greatest"
_FIELDS = "repr(stream), which tells the fields"
_FINAL = "emit_strategy(OnWindowClose()), between windowed_by and the aggregate"

OTHER_WORDS: Mapping[str, str] = {
    # org.apache.kafka.streams
    "transform": _PROCESS,
    "transformValues": _PROCESS_VALUES,
    "flatTransform": _PROCESS,
    "flatTransformValues": _PROCESS_VALUES,
    "addStateStore": "process(MyProcessor, stores={'name': KeyValueStore(String(), Long())}) on a stream",
    "addSource": "stream('topic', value=…)",
    "addSink": "to('topic') on a stream",
    "addProcessor": "process(MyProcessor, stores={'name': KeyValueStore(String(), Long())}) on a stream",
    "build": "Pipeline(name='…', topology=topology, description='…')",
    "queryableStoreName": "store='name' at the operation: the name of the store is given there",
    # quixstreams
    "apply": "map_values({'field': 'expression'}) or map_values(function)",
    "update": "map_values({'field': 'expression'}) or map_values(function)",
    "toTopic": "to('topic')",
    "sink": "to('topic')",
    "tumblingWindow": "group_by('key').windowed_by(TimeWindows('1 minute'))",
    "hoppingWindow": "group_by('key').windowed_by(TimeWindows('5 minutes', advance='1 minute'))",
    "slidingWindow": "group_by('key').windowed_by(SlidingWindows('5 minutes'))",
    "sessionWindow": "group_by('key').windowed_by(SessionWindows('5 minutes'))",
    "final": _FINAL,
    "current": "nothing: without emit_strategy every update is passed",
    "concat": "merge(other)",
    "joinAsof": "join(table) with a table from topology.table('topic', value=…)",
    "joinLookup": "join(table) with a table from topology.table('topic', value=…)",
    "fill": "map_values({'field': \"coalesce(field, 'value')\"})",
    "dataframe": "stream('topic', value=…)",
    "topic": "stream('topic', value=…)",
    "toDf": "stream('topic', value=…)",
    "groupInto": "group_by('key')",
    # faust
    "agent": "operations behind topology.stream('topic', value=…), each of which sees all records",
    "timer": "a processor's context.schedule('1 minute', WALL_CLOCK_TIME, self.punctuate)",
    "crontab": "a processor's context.schedule('1 minute', WALL_CLOCK_TIME, self.punctuate)",
    "GlobalTable": "topology.global_table('topic', value=…)",
    "Stream": "topology.stream('topic', value=…)",
    "items": _SEEN,
    "events": _SEEN,
    "take": _SEEN,
    "echo": "to('topic')",
    "forwardTo": "to('topic')",
    "send": "to('topic')",
    "tumbling": "windowed_by(TimeWindows('1 minute'))",
    "hopping": "windowed_by(TimeWindows('5 minutes', advance='1 minute'))",
    # org.apache.flink
    "keyBy": "group_by('key'), or select_key('key')",
    "sinkTo": "to('topic')",
    "connect": "merge(other), or join(other)",
    "fromSource": "stream('topic', value=…)",
    # pandas
    "rename": _COLUMNS,
    "assign": _COLUMNS,
    "query": "filter('condition')",
    "head": _SEEN,
    "tail": _SEEN,
    "columns": _FIELDS,
    "dtypes": _FIELDS,
    "schema": _FIELDS,
    "start": "Pipeline(name='…', topology=topology, description='…'), which the aggregator runs",
    "awaitTermination": "Pipeline(name='…', topology=topology, description='…'), which the aggregator runs",
    "run": "Pipeline(name='…', topology=topology, description='…'), which the aggregator runs",
    # pyspark.sql
    "where": "filter('condition')",
    "select": _COLUMNS,
    "selectExpr": _COLUMNS,
    "withColumn": _COLUMNS,
    "withColumns": _COLUMNS,
    "withColumnRenamed": _COLUMNS,
    "drop": "map_values({'field': 'field'}), with the fields that stay",
    "dropna": "filter('field is not null')",
    "alias": "map_values({'name': 'expression'})",
    "cast": "map_values({'field': 'cast(field as bigint)'})",
    "agg": "group_by('key').aggregate({'total': 'sum(field)'})",
    "sum": _FOLD.format("sum"),
    "avg": _FOLD.format("avg"),
    "mean": _FOLD.format("avg"),
    "min": _FOLD.format("min"),
    "max": _FOLD.format("max"),
    "union": "merge(other)",
    "unionAll": "merge(other)",
    "unionByName": "merge(other)",
    "explode": "flat_map_values('array', {'field': 'element'})",
    "distinct": "group_by('key').reduce(), which keeps the latest value of each key",
    "dropDuplicates": "group_by('key').reduce(), which keeps the latest value of each key",
    "dropDuplicatesWithinWatermark": "group_by('key').reduce(), which keeps the latest value of each key",
    "orderBy": _ORDER,
    "sort": _ORDER,
    "limit": _ORDER,
    "withWatermark": "grace, at the windows: TimeWindows('1 minute', grace='10 seconds')",
    "window": "group_by('key').windowed_by(TimeWindows('1 minute'))",
    "writeStream": "to('topic')",
    "write": "to('topic')",
    "writeTo": "to('topic')",
    "foreachBatch": "foreach(function), which is called with each record, or to('topic')",
    "readStream": "stream('topic', value=…)",
    "read": "stream('topic', value=…)",
    "show": _SEEN,
    "collect": _SEEN,
    "toPandas": _SEEN,
    "printSchema": "describe() of the topology",
    "mapInPandas": "map_values(function), with a function that is marked with @arrow_batch",
    "mapInArrow": "map_values(function), with a function that is marked with @arrow_batch",
    "applyInPandasWithState": _PROCESS,
    "transformWithState": _PROCESS,
    "transformWithStateInPandas": _PROCESS,
    "cache": "nothing: a store keeps what is needed again",
    "persist": "nothing: a store keeps what is needed again",
}
"""Words of other libraries for operations, and what to write here."""

OTHER_CLASSES: Mapping[str, str] = {
    "StreamsBuilder": "Topology('application-id')",
    "KafkaStreams": "Pipeline(name='…', topology=topology, description='…')",
    "Application": "Topology('application-id')",
    "SparkSession": "Topology('application-id')",
    "Serdes": "Json('field type'), String(), Long() or another serde",
    "Consumed": "the arguments value=, key_serde= and name= of topology.stream",
    "Produced": "the arguments value= and name= of to",
    "Grouped": "the arguments key_serde= and name= of group_by",
    "Materialized": "the argument store= of the operation",
    "Named": "the argument name= of the operation",
    "Joined": "the argument name= of join",
    "StreamJoined": "the arguments store= and name= of join",
    "Repartitioned": "the arguments of repartition",
    "Branched": "the argument name= of branch",
    "Printed": "the arguments label= and name= of print",
    "TimestampExtractor": "the argument timestamp= of topology.stream",
    "TopicNameExtractor": "an expression, and the argument topics= of to",
    "Suppressed": "UntilWindowCloses() or UntilTimeLimit('5 minutes'), for suppress",
    "EmitStrategy": "OnWindowClose()",
    "Windows": "CustomWindows(function, size='1 day'), or CalendarWindows",
    "KeyValue": "map('key', {'field': 'expression'})",
    "App": "Topology('application-id')",
    "Table": "KTable, which topology.table returns",
    "Windowed": "TimeWindowed(String()), the serde of keys with a window",
    "Stores": "KeyValueStore(String(), Long()), WindowStore(…), SessionStore(…) or VersionedKeyValueStore(…)",
    "StoreBuilder": "KeyValueStore(String(), Long()), WindowStore(…), SessionStore(…) or VersionedKeyValueStore(…)",
    "MultiVersionedKeyQuery": "store.versions('key', first, last) of a VersionedKeyValueStore",
    "VersionedKeyQuery": "store.get('key', as_of) of a VersionedKeyValueStore",
    "ValueAndTimestamp": "a pair of a value and a time, for a TimestampedKeyValueStore",
    "RecordMetadata": "context.record_metadata()",
    "ProcessorSupplier": "the class of the processor: process(MyProcessor)",
    "FixedKeyProcessorSupplier": "the class of the processor: process_values(MyProcessor)",
    "FixedKeyProcessor": "Processor, for process_values",
    "FixedKeyProcessorContext": "ProcessorContext",
    "FixedKeyRecord": "Record",
    "ContextualProcessor": "Processor, whose init keeps the context",
    "ContextualFixedKeyProcessor": "Processor, whose init keeps the context, for process_values",
    "Punctuator": "a method of the processor, for context.schedule('1 minute', STREAM_TIME, self.punctuate)",
    "PunctuationType": "STREAM_TIME or WALL_CLOCK_TIME",
    "StreamingDataFrame": "KStream, which topology.stream returns",
    "State": "KeyValueStore",
    "col": "F.amount, with F of streamplan, or the expression as a text: 'amount > 0'",
    "expr": "the expression as a text: 'amount > 0'",
}
"""Names of other libraries that are imported, and what to write here."""

WINDOWS: Mapping[str, str] = {
    "TimeWindows": "TimeWindows('5 minutes', advance='1 minute', grace='10 seconds')",
    "CalendarWindows": "CalendarWindows('1 day', time_zone='Europe/Berlin', grace='1 hour')",
    "CustomWindows": "CustomWindows(shifts, size='8 hours', grace='1 hour')",
    "SessionWindows": "SessionWindows('5 minutes', grace='10 seconds')",
    "SlidingWindows": "SlidingWindows('5 minutes', grace='1 minute')",
    "JoinWindows": "JoinWindows('5 minutes', before='1 minute', after='5 minutes', grace='10 seconds')",
    "OnWindowClose": "OnWindowClose()",
    "UntilWindowCloses": "UntilWindowCloses()",
    "UntilTimeLimit": "UntilTimeLimit('5 minutes', max_records=10_000)",
    "Versioned": "Versioned('prices', history='1 hour')",
}
"""How windows are written, of which the JVM's DSL has builders."""

_JOIN_SIDES = "with before= or after= where the two differ"

_BUILDERS: Mapping[str, Mapping[str, str]] = {
    "TimeWindows": {
        "ofsizewithnograce": "TimeWindows('5 minutes', grace='0 seconds')",
        "ofsizeandgrace": "TimeWindows('5 minutes', grace='1 minute')",
        "of": "TimeWindows('5 minutes'), which has the same grace: a day",
        "advanceby": "TimeWindows('5 minutes', advance='1 minute')",
    },
    "SlidingWindows": {
        "oftimedifferencewithnograce": "SlidingWindows('5 minutes', grace='0 seconds')",
        "oftimedifferenceandgrace": "SlidingWindows('5 minutes', grace='1 minute')",
        "withtimedifferenceandgrace": "SlidingWindows('5 minutes', grace='1 minute')",
    },
    "SessionWindows": {
        "ofinactivitygapwithnograce": "SessionWindows('5 minutes', grace='0 seconds')",
        "ofinactivitygapandgrace": "SessionWindows('5 minutes', grace='1 minute')",
        "with": "SessionWindows('5 minutes'), which has the same grace: a day",
    },
    "JoinWindows": {
        "oftimedifferencewithnograce": f"JoinWindows('5 minutes', grace='0 seconds'), {_JOIN_SIDES}",
        "oftimedifferenceandgrace": f"JoinWindows('5 minutes', grace='1 minute'), {_JOIN_SIDES}",
        "of": f"JoinWindows('5 minutes'), which has the same grace: a day, {_JOIN_SIDES}",
    },
}
"""By class the builders of the JVM's DSL, without the case of letters and underscores, and what to write."""

_WINDOW_FIELDS = {"advance": "TimeWindows", "after": "JoinWindows", "before": "JoinWindows", "grace": "TimeWindows"}
"""Builders of the JVM's DSL that are arguments here, and a class that has them."""

_ONLY_JOINED = "a global table is only joined: stream.join(table, key='…')"

_WAYS: Mapping[tuple[str, str], str] = {
    ("KStream", "KGroupedStream"): "group the stream first: group_by('key').{}(…)",
    ("KStream", "KTable"): "this is a stream already. Leave {} out, or make a table of the stream first: to_table()",
    ("KStream", "WindowedKStream"): "group the stream and give it windows: group_by('key').windowed_by(…).{}(…)",
    ("KStream", "CogroupedKStream"): "group the stream first: group_by('key').{}(…)",
    ("KStream", "BranchedKStream"): "split the stream first: split().{}(…)",
    ("BranchedKStream", "KStream"): "write it behind a branch: no_default_branch()['name'].{}(…)",
    ("BranchedKStream", "KGroupedStream"): "group a branch first: no_default_branch()['name'].group_by('key').{}(…)",
    ("KTable", "KStream"): "take the updates of the table: to_stream().{}(…)",
    ("KTable", "KGroupedTable"): "group the table first: group_by('key').{}(…)",
    ("KTable", "WindowedKStream"): "write {0} before the aggregate: group_by('key').windowed_by(…).{0}(…).count()",
    ("KTable", "KGroupedStream"): "take its updates and group them: to_stream().group_by('key').{}(…)",
    ("KGroupedTable", "KStream"): "write it behind an aggregate: count().to_stream().{}(…)",
    ("KGroupedTable", "KTable"): "write it before group_by, or behind an aggregate: count().{}(…)",
    (
        "KGroupedTable",
        "KGroupedStream",
    ): "group the updates of the table: to_stream().group_by('key').{}(…)",
    ("KGroupedStream", "KStream"): "write it before group_by, or behind the aggregate: count().to_stream().{}(…)",
    ("KGroupedStream", "KTable"): "write it behind an aggregate: count().{}(…)",
    ("KGroupedStream", "WindowedKStream"): "give it windows first: windowed_by(TimeWindows('1 minute')).{}(…)",
    ("WindowedKStream", "KStream"): "write it before group_by, or behind the aggregate: count().to_stream().{}(…)",
    ("WindowedKStream", "KTable"): "write it behind an aggregate: count().{}(…)",
    ("WindowedKStream", "KGroupedStream"): "write {} behind group_by. A grouped stream in a variable can have it twice",
    (
        "CogroupedKStream",
        "KGroupedStream",
    ): "write it as a field of each stream: cogroup({{'n': 'count(*)'}}).aggregate()",
    (
        "WindowedCogroupedKStream",
        "KGroupedStream",
    ): "write it as a field of each stream: cogroup({{'n': 'count(*)'}}), and aggregate() here",
    ("CogroupedKStream", "KStream"): "write it behind the aggregate: aggregate().to_stream().{}(…)",
    ("CogroupedKStream", "KTable"): "write it behind the aggregate: aggregate().{}(…)",
    ("WindowedCogroupedKStream", "KStream"): "write it behind the aggregate: aggregate().to_stream().{}(…)",
    ("WindowedCogroupedKStream", "KTable"): "write it behind the aggregate: aggregate().{}(…)",
    ("GlobalKTable", "KStream"): f"{_ONLY_JOINED}. For {{}} read the topic as a stream",
    ("GlobalKTable", "KTable"): f"{_ONLY_JOINED}. For {{}} read the topic as a table",
    ("Topology", "KStream"): "begin with a stream: topology.stream('topic', value=…).{}(…)",
    ("Topology", "KTable"): "begin with a table: topology.table('topic', value=…).{}(…)",
    ("Topology", "KGroupedStream"): "begin with a stream: topology.stream('topic', value=…).group_by('key').{}(…)",
}
"""How an operation of another class is reached, of several ways by the first."""

_OF_STREAMS: Mapping[str, str] = {
    "suppress": "write it before to_stream(): count().suppress(UntilWindowCloses()).to_stream()",
}
"""Operations of a table that come before ``to_stream``, and not behind it."""

_MERGE = "Two streams become one with merge(other), and two that have the same keys with join(other)"
_COLUMN = "A stream is no column. Write a field in an expression: filter('amount > 0'), or filter(F.amount > 0)"
_NO_RECORDS = (
    "A declaration has no records yet. Write foreach(function) to call a function for each, and read them in a test "
    "with TopologyTestDriver of streamplan.testing"
)

_PYTHON_WORDS: Mapping[str, tuple[str, str]] = {
    "__getitem__": ("[…]", "A stream has no columns. Write a field in an expression: F.amount, or as a text 'amount'"),
    "__setitem__": ("[…] = …", f"Write {_COLUMNS}"),
    "__iter__": ("for … in", _NO_RECORDS),
    "__contains__": ("in", _NO_RECORDS),
    "__add__": ("+", _MERGE),
    "__or__": ("|", _MERGE),
    "__sub__": ("-", _COLUMN),
    "__mul__": ("*", _COLUMN),
    "__truediv__": ("/", _COLUMN),
    "__neg__": ("-", _COLUMN),
    "__invert__": ("~", "Write filter_not('condition')"),
    "__rshift__": (">>", "Write an operation behind it: stream.filter('condition').to('topic')"),
    "__len__": ("len", _NO_RECORDS),
    "__aiter__": ("async for … in", _NO_RECORDS),
    "__enter__": ("with", "A declaration opens nothing. Write stream = topology.stream('topic', value=…)"),
    "__exit__": ("with", "A declaration opens nothing. Write stream = topology.stream('topic', value=…)"),
    "__call__": ("(…)", "Write one of its operations: .filter(…), .to(…)"),
    "__and__": ("&", "Conditions stand in one filter: filter('a > 0 and b > 0')"),
    "__lt__": ("<", _COLUMN),
    "__le__": ("<=", _COLUMN),
    "__gt__": (">", _COLUMN),
    "__ge__": (">=", _COLUMN),
}
"""What Python's operators are answered with: the operator, and what to write."""

_END_OF_SPLIT = "End the split before: default_branch()['name'], or no_default_branch()['name']"

_Language = TypeVar("_Language", bound=type)

_CLASSES: dict[str, type] = {}
"""The classes of the language, by their names."""


class NoSuchOperation(AttributeError):
    """A word that is no operation of a class of the language. ``str()`` says what to write."""


def answers_words(cls: _Language, /) -> _Language:
    """Answer words that a class of the language does not have.

    A type checker does not see the method ``__getattr__`` that this adds, and goes on refusing such words.

    Args:
        cls: The class.
    """
    _CLASSES[cls.__name__] = cls
    setattr(cls, "_is_declared", True)  # noqa: B010  it is no function, although it answers a call
    setattr(cls, "__bool__", lambda self: True)  # noqa: B010  it answers len(), by which Python would ask

    def __getattr__(self: Any, name: str) -> Any:
        if name.startswith("_") or hasattr(cls, name):  # what Python asks for, or a property that failed
            return object.__getattribute__(self, name)
        own = vars(self)
        graph = vars(own.get("_split") or own.get("_cogrouped") or self).get("_graph")  # a part has it
        before = "".join(f"\n  {fault}" for fault in getattr(graph, "faults", ()))
        found_before = f"\nThe lines before it have faults, too:{before}" if before else ""
        answer = f"write a field in an expression: F.{name}" if name in (own.get("_fields") or ()) else ""
        answer = _sentence(answer or answer_to(cls, name))
        message = f"{cls.__name__!r} object has no attribute {name!r}. {answer}{found_before}"
        raise NoSuchOperation(message, name=name, obj=None)

    setattr(cls, "__getattr__", __getattr__)  # noqa: B010  mypy would see an assignment
    for method, (operator, answer) in _PYTHON_WORDS.items():
        if method == "__getitem__" and cls.__name__ == "BranchedKStream":
            answer = _END_OF_SPLIT
        setattr(cls, method, _no_operator(operator, answer))
    for name in operations_of(cls):
        if vars(cls).get(name) is not None and vars(cls)[name].__annotations__.get("return") == "None":
            setattr(cls, name, _ending(vars(cls)[name]))
    return cls


def _no_operator(operator: str, answer: str) -> Any:
    def answered(self: Any, *operands: Any) -> NoReturn:
        raise NoSuchOperation(f"{type(self).__name__!r} object has no {operator!r}. {answer}", name=operator, obj=None)

    return answered


def _ending(method: Any) -> Any:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> End:
        method(*args, **kwargs)
        return End(method.__name__)

    return call


class End:
    """What an operation returns behind which nothing follows. For a type checker it is None."""

    def __init__(self, operation: str) -> None:
        """``operation`` is its name."""
        self._operation = operation

    def __getattr__(self, name: str) -> NoReturn:
        """Answer what is written behind the operation."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoSuchOperation(
            f"{self._operation}(…) ends the stream, and nothing follows it. Keep the stream in a variable, and write "
            f"both behind it: stream.{self._operation}(…), and in the next line stream.{name}(…)",
            name=name,
        )

    def __bool__(self) -> bool:
        """False, as None is."""
        return False

    def __repr__(self) -> str:
        """What it is for a type checker."""
        return "None"


class NoBuilder(type):
    """The metaclass of windows. It answers the builders of the JVM's DSL, which windows do not have here."""

    if not TYPE_CHECKING:  # a type checker goes on refusing such words

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            written = f"Write {_windows_meant(cls, name)}"
            raise NoSuchOperation(f"type object {cls.__name__!r} has no attribute {name!r}. {written}", name=name)


def no_builder(windows: Any, name: str) -> NoReturn:
    """Answer a builder that is called on windows.

    Raises:
        NoSuchOperation: There is no such attribute. The text says how the windows are written.
    """
    cls = type(windows)
    if name.startswith("_") or hasattr(cls, name):
        object.__getattribute__(windows, name)  # raises what it raised before
    written = f"Write all of it at once: {_windows_meant(cls, name)}"
    raise NoSuchOperation(f"{cls.__name__!r} object has no attribute {name!r}. {written}", name=name)


def _windows_meant(cls: type, builder: str) -> str:
    builders = _BUILDERS.get(cls.__name__, {})
    return builders.get(builder.replace("_", "").lower()) or WINDOWS.get(cls.__name__, cls.__name__)


def window_field_called(source: str) -> str:
    """Return what to write where the source of a line calls a field of windows; empty where it calls none.

    A field of windows is a text, or None, and Python tells no more than that neither can be called.
    """
    called = re.search(rf"\.({'|'.join(_WINDOW_FIELDS)})\s*\(", source)
    if called is None:
        return ""
    named = [name for name in WINDOWS if re.search(rf"\b{name}\b", source)]
    return f"{called[1]} is an argument: {WINDOWS[named[0] if named else _WINDOW_FIELDS[called[1]]]}."


def operations_of(cls: type) -> list[str]:
    """Return the names of the operations of a class of the language."""
    return [
        name
        for base in reversed(cls.__mro__)
        for name, value in vars(base).items()
        if not name.startswith("_")
        and isinstance(value, FunctionType)
        and name not in getattr(cls, "__dataclass_fields__", ())
    ]


def answer_to(cls: type, word: str) -> str:
    """Return what to write in place of a word that a class of the language does not have."""
    operations = operations_of(cls)
    if own := _alike(word, operations):
        return f"write {own}(…)"
    if other := _alike(word, OTHER_WORDS):
        return f"write {_reached(cls, OTHER_WORDS[other])}"
    for (own_name, name), way in _WAYS.items():
        found = _alike(word, operations_of(_CLASSES[name])) if own_name == cls.__name__ else ""
        if found:
            return (_OF_STREAMS.get(found, way) if own_name == "KStream" else way).format(found)
    if close := get_close_matches(_snake(word), operations, 1, 0.7):
        return f"did you mean {close[0]}(…)?"
    listed = [name for name in operations if name not in getattr(cls, "_not_of_declarations", ())]
    return f"its operations are {', '.join(listed)}" if listed[1:] else f"its operation is {listed[0]}"


def _reached(cls: type, written: str) -> str:
    """An operation of a stream, written from another class of the language."""
    first = re.match(r"\w+", written)
    if first is None or first[0] not in operations_of(_CLASSES["KStream"]) or first[0] in operations_of(cls):
        return written
    before = {
        "Topology": "stream('topic', value=…).",
        "KTable": "to_stream().",
        "BranchedKStream": "no_default_branch()['name'].",
    }
    if cls.__name__ in before:
        return before[cls.__name__] + written
    return written.removeprefix("group_by('key').")


def answer_to_import(word: str, names: list[str]) -> str:
    """Return what to import in place of a name that the package does not have; empty where nothing is like it."""
    if word in OTHER_CLASSES:
        return f"Write {OTHER_CLASSES[word]}."
    same = _alike(word, names)
    close = [same] if same else get_close_matches(word, names, 1)
    return f"Did you mean {close[0]}?" if close else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _alike(word: str, words: Mapping[str, str] | list[str]) -> str:
    """The one of the words that differs in capitals and underscores alone; empty without one."""
    plain = word.replace("_", "").lower()
    return next((each for each in words if each.replace("_", "").lower() == plain), "")


def _snake(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()
