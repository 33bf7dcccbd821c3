"""Kafka Streams' DSL in Python, over Spark SQL expressions: streams, tables, grouped streams.

Source: ``org.apache.kafka.streams.kstream``. An expression sees the fields of the value by their names, and the struct
``record`` with ``key``, ``timestamp``, ``topic``, ``partition`` and ``offset``; see ``docs/language.md``.

Every method takes ``name``, the name of its processor (``Named.as``). Without it the library's numbering gives one. A
method that is called wrongly records a fault with the line of the caller, and the declaration goes on, so that all
faults of a file are reported at once.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, overload

from streamplan.errors import did_you_mean
from streamplan.judged import NO_FIELDS, Diagnostic, Mistaken, judged, mistakes_of
from streamplan.judged_words import described, serde_meant, shown
from streamplan.model.diagnostics import caller_location, legal_name, name_fault
from streamplan.model.expressions import AGGREGATES, Expression, Text, paths_of, plain
from streamplan.model.functions import (
    ON_ERROR,
    OTHER,
    REJECT,
    STOP,
    THIS,
    OnError,
    Printer,
    PythonFunction,
    TakesBothSides,
    TakesKeyAndValue,
    TakesRecords,
    arguments_fault,
    function_name,
    given_classes,
    hinted_schema,
    is_of_batches,
    kind_fault,
    no_aggregate,
    returned_class,
    takes_key_and_value,
    told_result,
    unread_annotation,
    with_typed_records,
)
from streamplan.model.operations import (
    BUFFER,
    Aggregate,
    AggregateColumn,
    AggregateFunction,
    AggregateWindowsFunction,
    Branch,
    BufferedJoin,
    Cogroup,
    CogroupFunctions,
    CogroupFunctionSide,
    CogroupSide,
    Columns,
    Count,
    Filter,
    FilterFunction,
    FilterNot,
    FilterNotFunction,
    FinalAggregate,
    FinalAggregateWindowsFunction,
    FinalCount,
    FlatMap,
    FlatMapFunction,
    FlatMapValues,
    FlatMapValuesFunction,
    ForEach,
    GlobalJoin,
    GlobalStore,
    Join,
    JoinFunction,
    KeySelect,
    Map,
    MapFunction,
    MapValues,
    MapValuesFunction,
    Merge,
    Operation,
    OuterStreamJoin,
    Peek,
    PeekFunction,
    Process,
    ProcessToAct,
    ProcessValuesWithStores,
    ProcessWithoutStores,
    ProcessWithStores,
    Reduce,
    ReduceFunction,
    Split,
    StateStore,
    StreamJoin,
    Suppress,
    SuppressUpdates,
    TableAggregate,
    TableCount,
    TableFilter,
    TableJoin,
    TableKeySelect,
    TableMapValues,
    TableMapValuesFunction,
    TableReduce,
    ToStream,
    ToTable,
    until_closed,
)
from streamplan.model.processor import STREAM_TIME, WALL_CLOCK_TIME, KeyValueStore, Processor
from streamplan.model.processor_stores import AnyStore, Refusal, declared_store, schedules_of
from streamplan.model.streams_graph import GraphNode, Repartition, StreamsGraph, other_join, this_join
from streamplan.model.windows import (
    MOST_WINDOWS_OF_RECORD,
    CalendarWindows,
    CustomWindows,
    Duration,
    JoinWindows,
    OnWindowClose,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UntilTimeLimit,
    UntilWindowCloses,
    duration_ms,
    duration_text,
    is_duration,
)
from streamplan.model.words import NoSuchOperation, answers_words, operations_of
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import KEY_SERDES, STRING, Bytes, KeySerde, Primitive
from streamplan.serdes.record_classes import RecordClass
from streamplan.serdes.schema_serde import SchemaSerde
from streamplan.serdes.serde import Serde
from streamplan.serdes.subscriptions import Responses
from streamplan.serdes.windowed import Windowed

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    Made = TypeVar("Made", default=Any)
    NewKey = TypeVar("NewKey", default=Any)
else:  # a default is only for type checkers: a KStream of a text's schema has values of any class
    from typing import TypeVar

    K, V, Made, NewKey = map(TypeVar, ("K", "V", "Made", "NewKey"))

LATEST = "record.offset"
"""The expression by which :meth:`KGroupedStream.reduce` keeps the latest record."""

TODO = "TODO:"
"""An expression that begins so is still to be written: ``streamplan import`` says in it what it should be."""

RESERVED_FIELDS = ("record", "table", "element")
"""What expressions see beside the fields of the value. No field has one of these names."""

OF_RECORD = ("key", "timestamp", "topic", "partition", "offset")
"""What expressions see of ``record``, beside the window."""

TAKE_BATCHES = ("branch", "filter", "filter_not", "map", "map_values")
"""The operations that take a function of an Arrow batch."""

SEVERAL_RESULTS = ("flat_map", "flat_map_values", "process")
"""The operations whose functions may yield what they return."""

ANSWERED = ("other", "windows", "strategy", "within", "processor", "key_serde")
"""The arguments whose class the operations judge themselves, since they know more to say of it."""

_RECORD = "the record"
"""What a function of a record is called with."""

_LITERALS = ("true", "false", "null")
_BARE_NAMES = re.compile(r"[\w\s,]*")
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"")
_OTHER_THAN_KEY = re.compile(r"\brecord\b(?!\.key\b)", re.IGNORECASE)
_OTHER_THAN_WINDOWED_KEY = re.compile(r"\brecord\b(?!\.(?:key|window)\b)", re.IGNORECASE)
_FIELD_OF_RIGHT = {"table": re.compile(r"table\.(\w+)"), "other": re.compile(r"other\.(\w+)")}


@dataclass(frozen=True)
class Key:
    """What is known of the keys of a stream or of a table.

    Attributes:
        name: A name for what the key is, which joins compare; None where it was not given.
        serde: Reads and writes the keys.
    """

    name: str | None = None
    serde: KeySerde = STRING

    @classmethod
    def declared(
        cls, graph: StreamsGraph, operation: str, name: str | None, serde: KeySerde | Primitive[Any] | None
    ) -> Key:
        """Return a declared key.

        Args:
            graph: Takes the fault of a serde that is none of keys.
            operation: Whose parameters are read.
            name: A name for what the key is.
            serde: The declared serde. None stands for ``String()``.
        """
        if isinstance(serde, Json) and (fault := serde.key_fault):
            graph.fault(
                f"{operation}: key_serde={serde.name}: {fault}", "For example Json('customer string, n bigint')"
            )
        elif isinstance(serde, Windowed) and not isinstance(serde.key, Primitive):
            hint = f"For example {serde.kind}(String())"
            graph.fault(
                f"{operation}: key_serde: the key of a window is {shown(serde.key)}, no text and no number", hint
            )
            serde = None
        elif serde is not None and not isinstance(serde, Primitive | Json | Windowed):
            known = ", ".join(each.declaration for each in KEY_SERDES.values())
            hint = serde_meant(serde) if isinstance(serde, type) else f"One of {known}, Json('…')"
            if issubclass(serde if isinstance(serde, type) else type(serde), SchemaSerde):
                hint = "Write Bytes(): a key with a schema is its bytes. See 'Keys with a schema' in docs/language.md"
            graph.fault(f"{operation}: key_serde={shown(serde)} is no serde of keys", hint)
            serde = None
        return cls(name, typing.cast("KeySerde | None", serde) or STRING)


@dataclass(frozen=True, eq=False, repr=False)
class _Declared(Generic[K, V]):
    """What streams and tables have in common.

    Attributes:
        _graph: The graph that the declaration is added to.
        _node: The last node of this stream or table.
        _fields: The names of the value's fields; None where a fault before makes them unknown.
        _key: What is known of the keys.
        _sources: The names of the sources of the sub-topology so far.
        _window: The windows of the key; None for a plain key.
        _record_class: The dataclass whose objects functions are given; None where they are given other values.
    """

    _graph: StreamsGraph
    _node: GraphNode
    _fields: tuple[str, ...] | None
    _key: Key
    _sources: frozenset[str]
    _window: TimeWindows | SessionWindows | None = None
    _record_class: type | None = field(default=None, kw_only=True)

    _answered: ClassVar[tuple[str, ...]] = ANSWERED

    def __post_init__(self) -> None:
        """Behind a fault, which makes the fields unknown, no node is built: nobody can judge it."""
        if self._fields is None and self._graph.faults:
            unknown = GraphNode(self._node.name, self._node.build, self._node.location)
            object.__setattr__(self, "_node", unknown)

    def __repr__(self) -> str:
        """The class, the last node and the fields."""
        fields = "fields that a fault makes unknown" if self._fields is None else ", ".join(self._fields)
        return f"<{type(self).__name__} {self._node.name}: {fields}>"

    def __dir__(self) -> list[str]:
        """The operations, and what Python has."""
        return [name for name in object.__dir__(self) if name.startswith("__") or name in operations_of(type(self))]

    def _mistaken(self, mistakes: Iterable[Diagnostic], operation: str, returns: Any) -> Any:
        """Add the mistakes of a call; return a stand-in for its result, so that the declaration goes on."""
        self._graph.add_faults(mistakes)
        if operation in (
            "filter",
            "filter_not",
            "peek",
            "merge",
            "through",
            "emit_strategy",
        ):  # they change neither key nor fields
            return self
        return _stand_in(self._graph, self._node, self._sources, returns)

    def _field(self, text: Text, operation: str) -> str:
        """Return the text of an expression. Record a fault if it is a name, or a path, and no field has its beginning.

        Of an expression of :data:`streamplan.F` all fields are known. Spark judges other longer texts.
        """
        if isinstance(text, Expression):
            for name, *parts in paths_of(text):
                if self._fields is not None and name not in (*self._fields, *RESERVED_FIELDS):
                    hint = _there_are(name, self._fields)
                    if name in AGGREGATES and not parts:
                        hint = f"Write F.{name}(…) for the function"
                    hint = self._of_key(".".join([name, *parts]), hint, "F.")
                    self._graph.fault(f"{operation}: the value has no field {name!r}", hint)
            return plain(text)
        if not text.strip():
            self._graph.fault(f"{operation}: the expression is empty", "Write one, as in 'amount > 0'")
            return "null"
        if text.startswith(TODO):
            self._graph.fault(f"{operation}: {text!r}", "Write the expression")
            return "null"
        name = text.partition(".")[0] if _PATH.fullmatch(text) else text
        known = self._fields is None or name in self._fields or name in RESERVED_FIELDS or name.lower() in _LITERALS
        if self._fields is not None and name.isidentifier() and not known:
            hint = self._of_key(text, _meant_by(text, self._fields))
            self._graph.fault(f"{operation}: the value has no field {name!r}", hint)
        return text

    def _told(
        self,
        what: Text | Callable[..., Any],
        operation: str,
        on_error: OnError = REJECT,
        deterministic: bool = True,
    ) -> str | PythonFunction:
        """Return an expression, as :meth:`_field` does, or the function that tells what an expression would."""
        if isinstance(what, str | Expression):
            return self._field(what, operation)
        return self._function(what, operation, on_error, deterministic)

    def _of_key(self, text: str, hint: str, before: str = "") -> str:
        """What is said of a name, or of a path, that is no field of the value, and may be of the key.

        Args:
            text: The name or the path.
            hint: What is said of it otherwise.
            before: What stands before a name.
        """
        name = text.partition(".")[0]
        if name == "window" and self._window is not None:
            return f"Write {before}record.{text}"
        if name == self._key.name:
            hint = f"{hint}. The key {name} is {before}record.key"
        elif isinstance(self._key.serde, Json) and name in self._key.serde.fields:
            hint = f"{hint}. It is a part of the key: {before}record.key.{name}"
        if self._window is not None:
            hint = f"{hint}. The window is {before}record.window.start"
        return hint.replace("?.", "?")

    def _columns(self, value: Mapping[str, Text], operation: str) -> Columns:
        if not value:
            self._graph.fault(f"{operation}: the value has no field", "Name at least one: {'field': 'expression'}")
        columns = []
        for name, expression in value.items():
            columns.append((name, self._field(expression, f"{operation}, {name}")))
            if name in RESERVED_FIELDS or not name.isidentifier():
                legal = re.sub(r"\W+", "_", name).strip("_")
                self._graph.fault(
                    f"{operation}: a field cannot be named {name!r}",
                    f"Write {legal!r}"
                    if legal.isidentifier() and legal not in RESERVED_FIELDS
                    else f"Letters, digits and '_', and not {', '.join(RESERVED_FIELDS)}, which mean something else",
                )
        return tuple(columns)

    def _named(
        self, value: Mapping[str, Text] | None, fields: Mapping[str, Expression], operation: str
    ) -> Mapping[str, Text]:
        """The fields of a value: those of a mapping, and those that are given by keywords."""
        for name in sorted({*(value or {})} & {*fields}):
            self._graph.fault(f"{operation}: the field {name!r} is named twice", "Leave one of them out")
        return {**(value or {}), **fields}

    def _refuse_unlike_keys(self, right: _Declared, operation: str, what: str) -> None:
        if right._window is not None:
            self._graph.fault(
                f"{operation}: the keys differ: that of the {what} is windowed",
                "Join sides that both have plain keys",
            )
        name, other = self._key.name, right._key.name
        is_table = isinstance(self, KTable)
        if name is not None and other is not None and name != other:
            alike = "when they are the same thing, name them alike: key='…'"
            self._graph.fault(
                f"{operation}: the keys differ: that of the {'table' if is_table else 'stream'} is {name!r}, "
                f"that of the {what} {other!r}",
                alike.capitalize() if is_table else f"Before it, select_key({other!r}); or, {alike}",
            )
        self._refuse_unlike_serdes(right, operation, what)

    def _refuse_unlike_serdes(self, right: _Declared, operation: str, what: str) -> None:
        """The same key has other bytes, and so another partition, where another serde writes it."""
        own, other = self._key.serde, right._key.serde
        is_table = isinstance(self, KTable)
        if self._fields is None or right._fields is None:
            return  # after a fault the keys may be others
        if own.key_type != other.key_type:
            self._graph.fault(
                f"{operation}: keys of unlike serdes: the {'table' if is_table else 'stream'}'s are {own.name}, "
                f"the {what}'s {other.name}",
                "Write one of them into a topic with keys of the other serde, and read that as a table"
                if is_table
                else f"Before it, select_key('…', key_serde={other.declaration})",
            )

    def _joined(self, right: _Declared, value: Mapping[str, Text] | None, operation: str, side: str) -> Columns:
        """The columns of a join; ``side`` is what expressions call the fields of ``right``."""
        if value is not None:
            for name, expression in value.items():
                for wrong in _fields_of_right(expression, side):
                    if right._fields is not None and wrong not in right._fields:
                        what = "table" if side == "table" else "other stream"
                        self._graph.fault(
                            f"{operation}, {name}: the {what} has no field {wrong!r}", _there_are(wrong, right._fields)
                        )
            seen = self if self._fields is None else replace(self, _fields=(*self._fields, side))
            for name, expression in value.items():  # city, F.city: a field of the other side without what is before it
                text = plain(expression)
                if text in (right._fields or ()) and self._fields is not None and text not in self._fields:
                    written = f"F.{side}.{text}" if isinstance(expression, Expression) else f"{side}.{text}"
                    self._graph.fault(f"{operation}, {name}: the value has no field {text!r}", f"Write {written}")
                    value = {**value, name: "null"}
            for name, expression in value.items():  # customers.city, right.city: what the other side is called here
                path = expression.split(".") if isinstance(expression, str) and _PATH.fullmatch(expression) else []
                if path[1:] and seen._fields and path[0] not in seen._fields and path[1] in (right._fields or ()):
                    self._graph.fault(
                        f"{operation}, {name}: the value has no field {path[0]!r}", f"Write {side}.{'.'.join(path[1:])}"
                    )
                    value = {**value, name: "null"}
            return seen._columns(value, operation)
        this_fields, right_fields = self._fields or (), right._fields or ()
        if shared := set(this_fields) & set(right_fields):
            self._graph.fault(
                f"{operation}: both sides have the fields {', '.join(sorted(shared))}",
                f"Say what the result is: value={{'name': '{side}.name', …}}",
            )
        return tuple([(name, name) for name in this_fields] + [(name, f"{side}.{name}") for name in right_fields])

    def _can_take(self, other: object, expected: type[_Declared], operation: str, hint: str) -> bool:
        """Whether ``other`` can be joined or merged. Records a fault if not."""
        if not isinstance(other, expected):
            self._graph.fault(f"{operation}: with {described(other)}", hint)
            return False
        if other._graph is not self._graph:
            self._graph.fault(
                f"{operation}: with a {expected.__name__} of another topology", "Read its topic in this topology"
            )
            return False
        return True

    def _refuse_window(self, operation: str) -> None:
        if self._window is not None:
            self._graph.fault(
                f"{operation}: the key is windowed", "Give the records a plain key before: select_key('…')"
            )

    def _function(
        self,
        call: Callable[..., Any],
        operation: str,
        on_error: str,
        deterministic: bool,
        given: tuple[str, ...] = (_RECORD,),
        values: tuple[type | None, ...] | None = None,
    ) -> PythonFunction:
        if on_error not in ON_ERROR:
            self._graph.fault(f"{operation}: on_error={on_error!r}", f"One of {', '.join(map(repr, ON_ERROR))}")
        of_batches = is_of_batches(call)
        if of_batches and operation in TAKE_BATCHES:
            given = ("the Arrow batch",)
        of_key = not of_batches and given == (_RECORD,) and takes_key_and_value(call)
        if of_key:
            given, values = ("the key", "the value"), (None, self._record_class)
        if fault := arguments_fault(call, *given):
            what = f"function that takes {', '.join(given) or 'no argument'}{' alone' if len(given) == 1 else ''}"
            if given == (_RECORD,):
                what = "function that takes the record, or the key and the value"
            if operation == "process":
                what = "class without a constructor of its own"
            self._graph.fault(f"{operation}: {function_name(call)} {fault}", f"Write a {what}")
        several = operation in SEVERAL_RESULTS
        for each in _called_of(call):
            if wrong := kind_fault(each, several=several):
                self._graph.fault(f"{operation}: {function_name(each)} {wrong[0]}", wrong[1])
        if of_batches and operation not in TAKE_BATCHES:
            self._graph.fault(
                f"{operation}: {function_name(call)} is a function of an Arrow batch",
                f"{', '.join(TAKE_BATCHES)} take one: it gives one result for each record",
            )
        name = function_name(call)
        if not of_batches and given:
            classes = (self._record_class,) if values is None else values
            place = len(classes) - 1 if of_key or len(classes) == 1 else None
            call = self._with_records(call, operation, classes, place)
        return PythonFunction(name, TakesKeyAndValue(call) if of_key else call, on_error, deterministic, of_batches)

    def _initializer(
        self, call: Callable[[], Any], schema: str | None, on_error: str, deterministic: bool
    ) -> PythonFunction:
        """The function that makes the first aggregate of a key, which is judged."""
        function = self._function(call, "aggregate", on_error, deterministic, given=())
        if arguments_fault(call) is None and (begun := no_aggregate(call)) is not None:
            name = (schema or "").split(maxsplit=1)[0] if (schema or "").strip() else "total"
            self._graph.fault(
                f"aggregate: the initializer {function.name} returns {begun}, and an aggregate has fields",
                f"Write a mapping: lambda: {{{name!r}: 0}}",
            )
        return function

    def _with_records(
        self, call: Callable[..., Any], operation: str, values: tuple[type | None, ...], place: int | None
    ) -> Callable[..., Any]:
        """A function that is given objects of the dataclasses which its parameters, or the stream, have.

        ``place`` is the place of the argument that has the fields of this stream; None where there is none.
        """
        classes: list[RecordClass | None] = []
        for cls in given_classes(call, values):
            try:
                classes.append(None if cls is None else RecordClass.of(cls))
            except ValueError:  # an annotation that only a type checker can read, or a class that is a part of itself
                classes.append(None)
        if not any(classes):
            return call
        of_value = None if place is None else classes[place]
        if of_value is not None and self._fields is not None:
            required, cls = of_value.required, of_value.cls
            if missing := [name for name in required if name not in self._fields]:
                self._graph.fault(
                    f"{operation}: {function_name(call)} takes an object of {cls.__name__}, and the value has no field "
                    f"{', '.join(missing)}",
                    f"It has: {', '.join(self._fields)}. Give {cls.__name__}.{missing[0]} a default, or the stream the "
                    "field",
                )
        return TakesRecords(call, tuple(classes))

    def _made_by(
        self,
        function: PythonFunction,
        schema: str | None,
        operation: str,
        *,
        each: bool = False,
        timer_call: Callable[..., Any] | None = None,
    ) -> dict[str, str] | None:
        """The fields that a function returns, with their types; None, and a fault, where they are not known.

        ``timer_call`` is the method of a processor that also returns records.
        """
        calls = [function.call, *([] if timer_call is None else [timer_call])]
        told = [schema] if schema is not None else [hinted_schema(call, each=each) for call in calls]
        example = "For example schema='id string, risk double', or the return type hint of a dataclass"
        made: dict[str, str] = {}
        for each_told in filter(None, told):
            try:
                fields = dict(Json(each_told).fields)
            except ValueError as error:
                self._graph.fault(f"{operation}: schema: {error}", getattr(error, "hint", "") or example)
                return None
            for name, of_field in fields.items():
                if made.setdefault(name, of_field) != of_field:
                    types = f"{made[name]} of process and {of_field} of on_timer"
                    self._graph.fault(f"{operation}: {name}: {types}", "Return values of one class")
                    return None
        if not made:
            told_by = [result for call in calls if (result := told_result(call))]
            if schema is None and (unread := next(filter(None, map(unread_annotation, calls)), None)):
                said, example = f"an annotation of {function.name} cannot be read: {unread}", "Import it, or correct it"
            elif schema is None and told_by:
                said = f"{function.name} returns {told_by[0]}, which does not tell the fields of a value"
                example = "Annotate a dataclass, or an iterator of one" if each else "Annotate a dataclass"
                example += ", or write schema='id string, risk double'"
            else:
                said = f"what {function.name} returns is not known"
            self._graph.fault(f"{operation}: {said}", example)
            return None
        self._columns(dict.fromkeys(made, "null"), operation)
        return made

    def _field_of(self, made: Mapping[str, str] | None, expression: Text, operation: str) -> str:
        """Return the text of an expression over the fields that a function returns, which is judged."""
        return replace(self, _fields=_names(made))._field(expression, operation)

    def _merger(
        self,
        merger: Callable[[Any, Any, Any], Any] | None,
        functions: _Aggregating | None,
        on_error: OnError,
        deterministic: bool,
    ) -> PythonFunction | None:
        """The function that makes one of the aggregates of two sessions, which is judged."""
        of_sessions = isinstance(self._window, SessionWindows)
        if merger is None:
            if of_sessions and functions is not None:
                self._graph.fault(
                    "aggregate: sessions without a merger",
                    "Give merger=… too, a function of the key and the aggregates of two sessions",
                )
            return None
        if not of_sessions:
            self._graph.fault(
                f"aggregate: {function_name(merger)} is a merger, and time windows are not merged",
                "Leave merger out; SessionWindows need one",
            )
        given = ("the key", "the aggregate of a session", "the aggregate of another one")
        returned = None if functions is None else functions.record_class
        return self._function(merger, "aggregate", on_error, deterministic, given, (None, returned, returned))

    def _refuse_fields(self, fields: Mapping[str, Expression], operation: str) -> None:
        if fields:
            self._graph.fault(f"{operation}: both a function and fields are given", "The function returns the value")

    def _refuse_schema(self, schema: str | None, operation: str) -> None:
        if schema is not None:
            self._graph.fault(f"{operation}: a schema is given with expressions", "Expressions have types of their own")


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class KStream(_Declared[K, V]):
    """A stream of records.

    Example::

        def large(orders: KStream) -> KStream:
            return orders.filter(F.amount > 100)

    ``KStream[str, Order]`` is a stream of keys that are texts and of values of the dataclass ``Order``.

    Attributes:
        _repartition_required: The key has changed since the records were last placed by it, so that a grouping or a
            join needs a repartition topic.
    """

    _repartition_required: bool = False
    _repartition: list[Repartition] = field(default_factory=list)
    """The repartition node that was last made for a join of this stream. A join without a name uses it again."""

    # -- record by record

    @overload
    def filter(
        self,
        condition: Text | Callable[[V], bool | None],
        *,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, V]: ...

    @overload
    def filter(
        self,
        condition: Callable[[K, V], bool | None],
        *,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, V]: ...

    def filter(
        self,
        condition: Text | Callable[[V], bool | None] | Callable[[K, V], bool | None],
        *,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Pass the records for which a condition is true.

        Example: ``stream.filter("amount > 0")``

        Args:
            condition: A Spark SQL condition, as ``"amount > 0"``. A record for which it is null is not passed. Or a
                function of a record; see :meth:`map_values`.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            The stream of those records, with the same key and value.
        """
        if not isinstance(condition, str | Expression):
            function = self._function(condition, "filter", on_error, deterministic)
            return self._then("KSTREAM-FILTER-", name, FilterFunction(function))
        return self._then("KSTREAM-FILTER-", name, Filter(self._field(condition, "filter")))

    @overload
    def filter_not(
        self,
        condition: Text | Callable[[V], bool | None],
        *,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, V]: ...

    @overload
    def filter_not(
        self,
        condition: Callable[[K, V], bool | None],
        *,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, V]: ...

    def filter_not(
        self,
        condition: Text | Callable[[V], bool | None] | Callable[[K, V], bool | None],
        *,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Pass the records for which a condition is not true: those that :meth:`filter` does not pass.

        Example: ``stream.filter_not("amount > 0")``

        Args:
            condition: As for :meth:`filter`. A record for which it is null is passed.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
        """
        if not isinstance(condition, str | Expression):
            function = self._function(condition, "filter_not", on_error, deterministic)
            return self._then("KSTREAM-FILTER-", name, FilterNotFunction(function))
        return self._then("KSTREAM-FILTER-", name, FilterNot(self._field(condition, "filter_not")))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Divide the records among branches. Each record goes to the first branch whose condition is true.

        Example: ``stream.split(name="orders-").branch("amount > 100", name="large").no_default_branch()``. Then::

            branches = orders.split(name="orders-").branch("amount > 100", name="large").default_branch(name="small")
            branches["orders-large"].to("large-orders")

        Args:
            name: The name of the processor (``Named.as``), and the beginning of the names of the branches. Without it
                the library's numbering gives one.
        """
        conditions: list[str | PythonFunction] = []
        node = self._graph.processor(
            self._graph.name(name, "KSTREAM-BRANCH-"), lambda: Split(tuple(conditions)), self._node
        )
        split = replace(self, _node=node, _repartition=[])
        return BranchedKStream(split, conditions, _Branches(split))

    @overload
    def map_values(
        self,
        value: Mapping[str, Text] = ...,
        *,
        schema: None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KStream[K, Any]: ...

    @overload
    def map_values(
        self,
        value: Callable[[V], Mapping[str, Any] | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, Any]: ...

    @overload
    def map_values(
        self,
        value: Callable[[V], Made | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, Made]: ...

    @overload
    def map_values(
        self,
        value: Callable[[K, V], Mapping[str, Any] | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, Any]: ...

    @overload
    def map_values(
        self,
        value: Callable[[K, V], Made | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, Made]: ...

    def map_values(
        self,
        value: Mapping[str, Text] | Callable[[V], Any] | Callable[[K, V], Any] = NO_FIELDS,
        *,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[K, Any]:
        """Give each record a new value. The key stays.

        Examples: ``stream.map_values({"total": "price * count"})``, ``stream.map_values(total=F.price * F.count)``,
        ``stream.map_values(score, schema="risk double")``

        Args:
            value: The fields of the new value: name to Spark SQL expression. Or a Python function. It is given a record
                with the fields of its value as attributes, and ``record`` with ``key``, ``timestamp``, ``topic``,
                ``partition`` and ``offset``. It is given an object of a dataclass where its parameter is annotated with
                one, or has no annotation and the values of the stream are of one, as those of ``Json(Order)`` are. It
                returns a mapping, a dataclass or a named tuple; None for no value. A function of two arguments is given
                the key and the value (``ValueMapperWithKey``): ``lambda key, order: …``. One that is marked with
                :func:`streamplan.arrow_batch` is given many records at once.
            schema: The fields that a function returns, in Spark's DDL. Without it the function's return type tells
                them: a dataclass, a ``NamedTuple`` or a ``TypedDict``.
            on_error: What happens to a record for which a function raises: ``"reject"`` writes it to the dead-letter
                topic with the exception and its line. ``"stop"`` stops the application.
            deterministic: Whether a function returns the same for the same record. What comes after another function
                cannot be recounted.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further fields of the new value, as ``total=F.price * F.count``.
        """
        if callable(value):
            self._refuse_fields(fields, "map_values")
            function = self._function(value, "map_values", on_error, deterministic)
            made = self._made_by(function, schema, "map_values")
            operation = MapValuesFunction(function, tuple((made or {}).items()))
            returned = returned_class(value)
            return self._then("KSTREAM-MAPVALUES-", name, operation, _fields=_names(made), _record_class=returned)
        self._refuse_schema(schema, "map_values")
        columns = self._columns(self._named(value, fields, "map_values"), "map_values")
        return self._then("KSTREAM-MAPVALUES-", name, MapValues(columns), _fields=_column_names(columns))

    @overload
    def select_key(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: None = None,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[str, V]: ...

    @overload
    def select_key(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: Primitive[NewKey],
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[NewKey, V]: ...

    @overload
    def select_key(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: KeySerde | None,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, V]: ...

    def select_key(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: KeySerde | Primitive[Any] | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
    ) -> KStream[Any, V]:
        """Give each record a new key. A grouping or a join that follows repartitions the stream.

        Examples: ``stream.select_key("customer")``, ``stream.select_key(lambda order: order.customer.lower())``

        Args:
            key: A Spark SQL expression. Its text is the key, so that the number 1 becomes ``"1"``. Or a function of a
                record, or of its key and value, that returns the key in the type of the serde: a text without one. None
                is no key. See :meth:`map_values`.
            key_serde: The serde that writes the key instead, as ``Long()``. The expression has its type. A key of
                several fields: ``select_key("struct(customer, product)", key_serde=Json("customer string, product
                string"))``.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
        """
        told = self._told(key, "select_key", on_error, deterministic)
        new_key = Key.declared(self._graph, "select_key", _word(told), key_serde)
        return self._then("KSTREAM-KEY-SELECT-", name, KeySelect(told, new_key.serde), _key=new_key, rekeyed=True)

    @overload
    def map(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Mapping[str, Text] = ...,
        *,
        key_serde: KeySerde | None = ...,
        schema: None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KStream[Any, Any]: ...

    @overload
    def map(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Callable[[V], Mapping[str, Any] | None],
        *,
        key_serde: KeySerde | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, Any]: ...

    @overload
    def map(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Callable[[V], Made | None],
        *,
        key_serde: KeySerde | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, Made]: ...

    @overload
    def map(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Callable[[K, V], Mapping[str, Any] | None],
        *,
        key_serde: KeySerde | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, Any]: ...

    @overload
    def map(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Callable[[K, V], Made | None],
        *,
        key_serde: KeySerde | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, Made]: ...

    def map(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Mapping[str, Text] | Callable[[V], Any] | Callable[[K, V], Any] = NO_FIELDS,
        *,
        key_serde: KeySerde | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[Any, Any]:
        """Give each record a new key and a new value.

        Examples: ``stream.map("customer", {"total": "price * count"})``,
        ``stream.map(lambda order: order.customer.lower(), {"total": "price * count"})``

        A grouping or a join that follows repartitions the stream. :meth:`map_values` keeps the key and repartitions
        nothing.

        Args:
            key: A Spark SQL expression. Its text is the key. After a function it sees the fields of the new value. Or a
                function of the record before; see :meth:`select_key`.
            value: The fields of the new value: name to Spark SQL expression. Or a function that returns the new value;
                see :meth:`map_values`.
            key_serde: The serde that writes the key; see :meth:`select_key`.
            schema: For a function; see :meth:`map_values`.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further fields of the new value, as ``total=F.price * F.count``.
        """
        made_by = key if isinstance(key, str | Expression) else self._function(key, "map", on_error, deterministic)
        new_key = Key.declared(self._graph, "map", _word(made_by), key_serde)
        if callable(value):
            self._refuse_fields(fields, "map")
            function = self._function(value, "map", on_error, deterministic)
            made = self._made_by(function, schema, "map")
            told = made_by if isinstance(made_by, PythonFunction) else self._field_of(made, made_by, "map")
            by_function = MapFunction(function, tuple((made or {}).items()), told, new_key.serde)
            return self._then(
                "KSTREAM-MAP-", name, by_function,
                _fields=_names(made), _key=new_key, rekeyed=True, _record_class=returned_class(value),
            )  # fmt: skip
        self._refuse_schema(schema, "map")
        told = made_by if isinstance(made_by, PythonFunction) else self._field(made_by, "map")
        columns = self._columns(self._named(value, fields, "map"), "map")
        operation = Map(told, columns, new_key.serde)
        return self._then("KSTREAM-MAP-", name, operation, _fields=_column_names(columns), _key=new_key, rekeyed=True)

    @overload
    def flat_map(
        self,
        each: Text,
        *,
        key: Text,
        value: Mapping[str, Text] | None = ...,
        key_serde: KeySerde | None = ...,
        schema: None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KStream[Any, Any]: ...

    @overload
    def flat_map(
        self,
        each: Callable[[V], Iterable[Made | None] | None],
        *,
        key: Text,
        key_serde: KeySerde | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, Made]: ...

    @overload
    def flat_map(
        self,
        each: Callable[[K, V], Iterable[Made | None] | None],
        *,
        key: Text,
        key_serde: KeySerde | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[Any, Made]: ...

    def flat_map(
        self,
        each: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key: Text,
        value: Mapping[str, Text] | None = None,
        key_serde: KeySerde | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[Any, Any]:
        """Make one record for each element of an array, or for each value that a function returns.

        Example: ``stream.flat_map("split(line, ' ')", key="element", value={"word": "element"})``

        Args:
            each: A Spark SQL expression of an array. Or a function that returns any number of values; see
                :meth:`map_values`.
            key: The expression of the new key. It sees the element as ``element``; after a function it sees the fields
                of the new value.
            value: The fields of the new value: name to expression. They see the element as ``element``.
            key_serde: The serde that writes the key; see :meth:`select_key`.
            schema: For a function; see :meth:`map_values`. Its return type is a list or an iterator of such values.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further fields of the new value, as ``word=F.element``.
        """
        is_text = isinstance(each, str | Expression)
        new_key = Key.declared(self._graph, "flat_map", None if is_text else _word(key), key_serde)
        if not isinstance(each, str | Expression):
            self._refuse_fields(fields, "flat_map")
            function = self._function(each, "flat_map", on_error, deterministic)
            made = self._made_by(function, schema, "flat_map", each=True)
            if value is not None:
                self._graph.fault("flat_map: both a function and value are given", "The function returns the value")
            text = self._field_of(made, key, "flat_map")
            by_function = FlatMapFunction(function, tuple((made or {}).items()), text, new_key.serde)
            return self._then(
                "KSTREAM-FLATMAP-", name, by_function,
                _fields=_names(made), _key=new_key, rekeyed=True, _record_class=returned_class(each, each=True),
            )  # fmt: skip
        self._refuse_schema(schema, "flat_map")
        array, text = self._field(each, "flat_map"), self._field(key, "flat_map")
        columns = self._columns(self._named(value, fields, "flat_map"), "flat_map")
        operation = FlatMap(array, text, columns, new_key.serde)
        names = _column_names(columns)
        return self._then("KSTREAM-FLATMAP-", name, operation, _fields=names, _key=new_key, rekeyed=True)

    @overload
    def flat_map_values(
        self,
        each: Text,
        value: Mapping[str, Text] | None = ...,
        *,
        schema: None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KStream[K, Any]: ...

    @overload
    def flat_map_values(
        self,
        each: Callable[[V], Iterable[Made | None] | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, Made]: ...

    @overload
    def flat_map_values(
        self,
        each: Callable[[K, V], Iterable[Made | None] | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KStream[K, Made]: ...

    def flat_map_values(
        self,
        each: Text | Callable[[V], Any] | Callable[[K, V], Any],
        value: Mapping[str, Text] | None = None,
        *,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[K, Any]:
        """Make one record for each element of an array, or for each value that a function returns. The key stays.

        Example: ``stream.flat_map_values("split(line, ' ')", {"word": "element"})``

        Args:
            each: As for :meth:`flat_map`.
            value: As for :meth:`flat_map`.
            schema: As for :meth:`flat_map`.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further fields of the new value, as ``word=F.element``.
        """
        prefix = "KSTREAM-FLATMAPVALUES-"
        if not isinstance(each, str | Expression):
            self._refuse_fields(fields, "flat_map_values")
            function = self._function(each, "flat_map_values", on_error, deterministic)
            made = self._made_by(function, schema, "flat_map_values", each=True)
            if value is not None:
                self._graph.fault(
                    "flat_map_values: both a function and value are given", "The function returns the value"
                )
            by_function = FlatMapValuesFunction(function, tuple((made or {}).items()))
            returned = returned_class(each, each=True)
            return self._then(prefix, name, by_function, _fields=_names(made), _record_class=returned)
        self._refuse_schema(schema, "flat_map_values")
        array = self._field(each, "flat_map_values")
        columns = self._columns(self._named(value, fields, "flat_map_values"), "flat_map_values")
        return self._then(prefix, name, FlatMapValues(array, columns), _fields=_column_names(columns))

    def process(
        self,
        processor: type[Processor],
        *,
        store: str | None = None,
        state: str | None = None,
        stores: Mapping[str, AnyStore | KTable | GlobalKTable] | None = None,
        schema: str | None = None,
        key_serde: KeySerde | None = None,
        timer: str | None = None,
        timer_type: Literal["STREAM_TIME"] = STREAM_TIME,
        ttl: Duration | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Call a Python class with each record. It may keep state: a value for each key, or several stores of any keys.

        Example: ``payments.process(Detector, store="seen", state="count bigint", schema="alarm boolean")``

        Without a store the class forwards any number of records, with any key, timestamp and headers:
        ``orders.process(Copies, schema="id string")``

        With ``stores`` it also has all keys that its stream task has in some stores, and schedules punctuators:
        ``lines.process(WordCount, stores={"counts": KeyValueStore(String(), Long())}, schema="n bigint")``

        Args:
            processor: A subclass of :class:`streamplan.Processor`.
            store: The name of the key-value store (``StreamsBuilder.addStateStore``).
            state: The fields of the store's values, in Spark's DDL.
            stores: In place of ``store`` and ``state``, by their names the stores of the class, each a
                :class:`streamplan.KeyValueStore`, :class:`streamplan.WindowStore`,
                :class:`streamplan.SessionStore` or :class:`streamplan.VersionedKeyValueStore`. Processors share a store
                of the same name and declaration. Or a table, whose store the class can read:
                ``stores={"per-customer": counts}``. Or a global table, which the class can read, too.
            schema: The fields of the records that the class returns or forwards, in Spark's DDL. Without it the return
                type of its methods ``process`` and ``on_timer`` tells them; see :meth:`map_values`. A field that only
                one of them tells is null in the records of the other one. With ``stores``, a class without it forwards
                nothing.
            key_serde: With ``stores`` the serde of the keys of the records that the class forwards; by default that of
                the stream.
            timer: The field of the store's values that has the time of the key's timer, a timestamp. At this time
                ``on_timer`` is called. Null is no timer.
            timer_type: Which time it is: that of the records, ``"STREAM_TIME"``.
            ttl: A duration, as ``"7 days"``: a value that was not put for so long is gone.
            on_error: As for :meth:`map_values`. What a failed call has put does not remain.
            deterministic: As for :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            The stream of the records that the class returns or forwards. A grouping or a join that follows repartitions
            the stream, as in the library.
        """
        if not self._is_processor(processor, "process"):
            return replace(self, _fields=None)
        if stores is not None or (store is None and state is None):
            others = {"store": store, "state": state, "timer": timer, "ttl": ttl}
            of_key = [*filter(others.get, others)]
            if of_key and stores is None:
                self._graph.fault(
                    f"process: {', '.join(of_key)} without a store",
                    "It is a part of what a store has: store='seen', state='count bigint, due timestamp'",
                )
            elif of_key:
                self._graph.fault(
                    f"process: stores beside {', '.join(of_key)}", "A class has one form: store=…, or stores=…"
                )
            return self._process_any_keys(
                _Calls(processor, stores or {}, schema, key_serde, on_error, deterministic, name)
            )
        if key_serde is not None:
            self._graph.fault("process: key_serde without stores: the records keep their key", "Leave it out")
        if store is None or state is None:
            self._graph.fault(
                "process: the store is not declared",
                "store='seen', state='count bigint'; or stores={'seen': KeyValueStore(String(), Json('count bigint'))}",
            )
            return replace(self, _fields=None)
        held = self._state_of(state)
        self._judge_timer(processor, held, timer, timer_type)
        kept_for = None
        if ttl is not None:
            try:
                kept_for = duration_text(ttl)
                duration = duration_ms(kept_for)
            except ValueError as error:
                self._graph.fault(f"process: ttl: {error}", "For example ttl='7 days'")
            else:
                if duration == 0:
                    self._graph.fault("process: the ttl is 0", "For example ttl='7 days'")
        for method in (processor.process, processor.on_timer):
            what = "time" if method.__name__ == "on_timer" else "record"
            if fault := arguments_fault(method, "self", f"the {what}", "the store"):
                hint = f"Write def {method.__name__}(self, {what}, store)"
                self._graph.fault(f"process: {processor.__name__}.{method.__name__} {fault}", hint)
        function = self._function(processor, "process", on_error, deterministic, given=())
        made = self._made_by(
            replace(function, call=processor.process), schema, "process", each=True, timer_call=processor.on_timer
        )
        function = replace(function, call=with_typed_records(function.call))
        store_name = self._graph.store_name(store, "")
        fields_held, fields_made = tuple((held or {}).items()), tuple((made or {}).items())
        operation = Process(function, store_name, fields_held, fields_made, timer, kept_for)
        if name is None:
            name = self._graph.generate_name("KSTREAM-PROCESSOR-")
        elif fault := name_fault(name):  # the library draws no number for a processor with a name
            self._graph.fault(fault, legal_name(name))
        node = self._graph.processor(name, operation, self._node)
        fields = _names(made)
        return replace(
            self, _node=node, _fields=fields, _repartition_required=True, _repartition=[], _record_class=None
        )

    def process_values(
        self,
        processor: type[Processor],
        *,
        stores: Mapping[str, AnyStore | KTable | GlobalKTable] | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Call a Python class with each record. What it forwards has the record's key, so nothing is repartitioned.

        Example: ``orders.process_values(Copies, schema="id string")``

        Args:
            processor: A subclass of :class:`streamplan.Processor`, as ``FixedKeyProcessor`` of the library: it gives
                :meth:`ProcessorContext.forward` no key.
            stores: By their names the stores of the class; see :meth:`process`.
            schema: The fields of the records that the class returns or forwards; see :meth:`process`.
            on_error: As for :meth:`map_values`. What a failed call has put does not remain.
            deterministic: As for :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            The stream of the records that the class returns or forwards.
        """
        if not self._is_processor(processor, "process_values"):
            return replace(self, _fields=None)
        calls = _Calls(processor, stores or {}, schema, None, on_error, deterministic, name, keeps_key=True)
        return self._process_any_keys(calls)

    def _is_processor(self, processor: object, operation: str) -> bool:
        """Whether a class of processors is given; otherwise there is a fault."""
        self._refuse_window(operation)
        if not (isinstance(processor, type) and issubclass(processor, Processor)):
            hint = "Write a subclass of streamplan.Processor"
            if isinstance(processor, Processor):
                hint = f"Write {type(processor).__name__}, the class, of which each stream task makes an object"
            elif isinstance(processor, str) and processor.isidentifier():
                hint = f"Write {processor} without quotes, for it is the class that is given"
            self._graph.fault(f"{operation}: {shown(processor)} is no class of processors", hint)
            return False
        if processor.process is Processor.process:
            self._graph.fault(f"{operation}: {processor.__name__} has no process", "Write a subclass with this method")
        return True

    def _process_any_keys(self, calls: _Calls) -> KStream[Any, Any]:
        """A class that has all keys of some stores, or no store."""
        fault, processor, word = self._graph.fault, calls.processor, calls.word
        if processor.on_timer is not Processor.on_timer:
            hint = "With stores=…, context.schedule(…) in init" if calls.stores else "Declare a store and a timer of it"
            fault(f"{word}: {processor.__name__} has on_timer", hint)
        if wrong := arguments_fault(processor.process, "self", "the record"):
            hint = "Write def process(self, record)"
            if not calls.stores:
                hint += ", or declare the store of the record's key: store='seen', state='count bigint'"
            fault(f"{word}: {processor.__name__}.process {wrong}", hint)
        function = self._function(processor, "process", calls.on_error, calls.deterministic, given=())
        tells = calls.schema is not None or hinted_schema(processor.process, each=True) is not None
        of_method = replace(function, call=processor.process)
        made = self._made_by(of_method, calls.schema, word, each=True) if tells else {}
        known: dict[str, StateStore] = {}
        tables: dict[str, KTable[Any, Any]] = {}
        of_all: dict[str, GlobalStore] = {}
        for each, store in calls.stores.items():
            if isinstance(store, GlobalKTable):
                if self._can_read(each, store, word):
                    of_all[each] = GlobalStore(each, store._topic, store._serde, store._key.serde)
                continue
            if isinstance(store, KTable):
                if self._can_read(each, store, word):
                    tables[each] = store
                continue
            declared = declared_store(each, store)
            if isinstance(declared, StateStore):
                known[each] = declared
            else:
                fault(*declared)
            self._graph.add_faults(mistakes_of({**vars(store)} if hasattr(store, "__dict__") else store))
        are_known = len(known) + len(tables) + len(of_all) == len(calls.stores)
        stores = {each: _as_store(store) for each, store in calls.stores.items()}
        schedules = schedules_of(processor, stores) if are_known else ()
        if isinstance(schedules, Refusal):
            fault(*schedules)
            schedules = ()
        elif schedules and not (known or tables):
            fault(
                f"{word}: {processor.__name__}.init schedules a punctuator, and the processor has only global tables",
                "Give it a store of its own, too: stores={…, 'seen': KeyValueStore(…)}",
            )
        keys = Key(None, self._key.serde)
        if calls.key_serde is not None:
            keys = Key.declared(self._graph, "process", None, calls.key_serde)
        function = replace(function, call=with_typed_records(function.call))
        fields = tuple((made or {}).items())
        operation: ProcessWithStores | ProcessWithoutStores
        if known or tables:
            with_stores = ProcessValuesWithStores if calls.keeps_key else ProcessWithStores
            read = tuple(of_all.values())
            operation = with_stores(function, (*known, *tables), fields, keys.serde, schedules, read)
        else:
            without_stores = ProcessWithoutStores if tells else ProcessToAct
            operation = without_stores(function, fields, keys.serde, calls.keeps_key, tuple(of_all.values()))
        name = calls.name
        if name is None:
            name = self._graph.generate_name("KSTREAM-PROCESSVALUES-" if calls.keeps_key else "KSTREAM-PROCESSOR-")
        elif wrong := name_fault(name):  # the library draws no number for a processor with a name
            fault(wrong, legal_name(name))
        node = self._graph.processor(name, operation, self._node)
        for of_store in known.values():
            self._graph.state_store(of_store, node)
        processed = replace(self, _node=node, _fields=_names(made), _record_class=None)
        if calls.keeps_key:
            return processed
        return replace(processed, _key=keys, _repartition_required=True, _repartition=[])

    def _can_read(self, name: str, table: KTable[Any, Any] | GlobalKTable[Any, Any], word: str) -> bool:
        """Whether a class can read the store of a table under this name; otherwise there is a fault."""
        if isinstance(table, KTable):
            table._materialize()
        if table._graph is not self._graph:
            self._graph.fault(f"{word}: the table {name!r} is of another topology", "Take a table of this one")
        elif not table._store:
            self._graph.fault(
                f"{word}: the table {name!r} has no state store",
                "Take the table that an operation with store='…' gives, or topology.table(…, store='…')",
            )
        elif table._store != name:
            self._graph.fault(
                f"{word}: the store of the table is {table._store!r}, and not {name!r}",
                f"Write stores={{{table._store!r}: …}}"
                if isinstance(table, KTable)
                else f"Write global_table(…, store={name!r}), or stores={{{table._store!r}: …}}",
            )
        else:
            return True
        return False

    def _state_of(self, state: str) -> dict[str, str] | None:
        """The fields of a store's values, with their types; None, and a fault, where they are not told."""
        try:
            return dict(Json(state).fields)
        except (ValueError, TypeError) as error:
            hint = getattr(error, "hint", "") or "For example state='count bigint, last timestamp'"
            self._graph.fault(f"process: state: {error}", hint)
            return None

    def _judge_timer(
        self, processor: type[Processor], held: Mapping[str, str] | None, timer: str | None, timer_type: str
    ) -> None:
        if timer_type == WALL_CLOCK_TIME:
            self._graph.fault(
                f"process: there are no timers of {WALL_CLOCK_TIME}: the results of a timer belong to the record whose"
                " timestamp has reached the time of the timer",
                f"Use timers of {STREAM_TIME}: they follow the timestamps of the records",
            )
        elif timer_type != STREAM_TIME:
            self._graph.fault(f"process: timer_type={timer_type!r}", f"The type of timers is {STREAM_TIME!r}")
        calls = processor.on_timer is not Processor.on_timer
        if timer is None and calls:
            self._graph.fault(
                f"process: {processor.__name__} has on_timer, and no field has the time of a timer",
                "Name a timestamp of the state: timer='due'",
            )
        elif timer is not None and not calls:
            self._graph.fault(f"process: {processor.__name__} has no on_timer", "Write it, or leave timer out")
        if timer is not None and held is not None and held.get(timer) != "timestamp":
            of_type = f"a {held[timer]}" if timer in held else "no field"
            self._graph.fault(
                f"process: timer={timer!r} is {of_type} of the state",
                "A timestamp: state='…, due timestamp', timer='due'",
            )

    @overload
    def peek(
        self,
        action: Mapping[str, Text] = ...,
        *,
        on_error: OnError = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KStream[K, V]: ...

    @overload
    def peek(
        self, action: Callable[[V], object], *, on_error: OnError = ..., name: str | None = ...
    ) -> KStream[K, V]: ...

    @overload
    def peek(
        self, action: Callable[[K, V], object], *, on_error: OnError = ..., name: str | None = ...
    ) -> KStream[K, V]: ...

    def peek(
        self,
        action: Mapping[str, Text] | Callable[[V], object] | Callable[[K, V], object] = NO_FIELDS,
        *,
        on_error: OnError = REJECT,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[K, V]:
        """Call a function with each record, or log aggregates of each micro-batch. Pass the records unchanged.

        Examples: ``stream.peek({"orders": "count(*)"})``, ``stream.peek(notify)``

        Args:
            action: A Python function; see :meth:`foreach`. Or aggregates to log: name to Spark SQL aggregate.
            on_error: As for :meth:`foreach`. A record for which the function raises is passed in either case.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further aggregates to log, as ``orders=F.count()``.
        """
        if callable(action):
            self._refuse_fields(fields, "peek")
            function = self._function(action, "peek", on_error, deterministic=True)
            return self._then("KSTREAM-PEEK-", name, PeekFunction(function))
        return self._then("KSTREAM-PEEK-", name, Peek(self._columns(self._named(action, fields, "peek"), "peek")))

    @overload
    def foreach(self, action: Callable[[V], object], *, on_error: OnError = ..., name: str | None = ...) -> None: ...

    @overload
    def foreach(self, action: Callable[[K, V], object], *, on_error: OnError = ..., name: str | None = ...) -> None: ...

    def foreach(
        self,
        action: Callable[[V], object] | Callable[[K, V], object],
        *,
        on_error: OnError = REJECT,
        name: str | None = None,
    ) -> None:
        """Call a function with each record, for what the function does.

        Example: ``stream.foreach(notify)``

        A record that is processed again after a failure is given to the function again: at least once, and not exactly
        once. The function runs where Spark runs the stream task.

        Args:
            action: It is given a record as the functions of :meth:`map_values` are. What it returns is not used.
            on_error: What happens to a record for which it raises; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
        """
        function = self._function(action, "foreach", on_error, deterministic=True)
        self._then("KSTREAM-FOREACH-", name, ForEach(function))

    def print(self, label: str | None = None, *, name: str | None = None) -> None:
        """Print each record to the standard output of the process that runs the stream task.

        Example: ``stream.print(label="orders")``

        The output is ``[label]: key, value``, with the value as JSON.

        Args:
            label: Stands before each record (``Printed.withLabel``). Without it the name of the processor before.
            name: The name of the processor (``Printed.withName``). Without it the library's numbering gives one.
        """
        printer = Printer(self._node.name if label is None else label)
        self._then("KSTREAM-PRINTER-", name, ForEach(PythonFunction(f"print {printer.label}", printer, STOP)))

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Pass the records of two streams.

        Example: ``web_orders.merge(shop_orders)``

        Within a micro-batch a stream task takes the oldest of the next records of its topics, as in the library.

        Args:
            other: A stream of the same topology, with the same fields.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
        """
        if not self._can_take(other, KStream, "merge", "Merge a stream; a table's updates are one: .to_stream()"):
            return replace(self, _fields=None)
        if self._fields is not None and other._fields is not None and set(self._fields) != set(other._fields):
            self._graph.fault(
                f"merge: the streams have different fields: {', '.join(self._fields)} and {', '.join(other._fields)}",
                "Give both the same with map_values",
            )
        self._refuse_unlike_serdes(other, "merge", "other stream")
        if self._window != other._window and self._fields is not None and other._fields is not None:
            self._graph.fault("merge: one of the streams has a windowed key", "Give it a plain one with select_key")
        processor_name = self._graph.name(name, "KSTREAM-MERGE-")
        return KStream(
            self._graph,
            self._graph.processor(processor_name, Merge(), self._node, other._node),
            self._fields,
            self._key if self._key == other._key else Key(None, self._key.serde),
            self._sources | other._sources,
            self._window,
            self._repartition_required or other._repartition_required,
            _record_class=self._record_class if self._record_class == other._record_class else None,
        )

    # -- through topics

    def repartition(self, *, number_of_partitions: int | None = None, name: str | None = None) -> KStream[K, V]:
        """Write the records to a repartition topic and read them from there.

        Example: ``stream.repartition(number_of_partitions=4, name="by-customer")``

        Args:
            number_of_partitions: The partitions of the topic. Without it the count follows from the topics that the
                writer reads, and from the joins behind the topic.
            name: Names the topic ``<application.id>-<name>-repartition``.
        """
        if number_of_partitions is not None and number_of_partitions < 1:
            self._graph.fault(f"repartition: {number_of_partitions} partitions", "A topic has at least 1")
        self._refuse_window("repartition")
        prefix = self._name_of_topic(name) or self._graph.generate_name("KSTREAM-REPARTITION-")
        repartition = self._graph.draw_repartition(prefix, self._key.serde, number_of_partitions)
        self._graph.add_repartition(repartition, self._node)
        sources = frozenset({repartition.source})
        return KStream(
            self._graph, repartition.node, self._fields, self._key, sources, _record_class=self._record_class
        )

    def through(self, topic: str, *, name: str | None = None) -> KStream[K, V]:
        """Refused: the library has no ``through`` since 4.0 (KIP-221).

        Args:
            topic: What the library's ``through`` took.
            name: The same.
        """
        self._graph.fault(
            "through: the library has none since 4.0",
            f"Write repartition(name='…'), whose topic belongs to the application. Where others own {topic!r}: "
            f"to({topic!r}), and topology.stream({topic!r}, value=…)",
        )
        return self

    def to(
        self,
        topic: Text,
        *,
        topics: Sequence[str] | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic from outside, or each to one of several topics.

        Examples: ``stream.to("large-orders")``,
        ``events.to("concat('events-', country)", topics=("events-de", "events-fr"))``

        Args:
            topic: Its name in Kafka. Who creates it decides its partitions and configs. With ``topics`` a Spark SQL
                expression that gives the name of the topic of each record (``TopicNameExtractor``).
            topics: The topics that a record may have. A record of another one goes to the dead-letter topic.
            value: The serde that writes the values (``Produced.valueSerde``), as ``Avro("order.avsc")``. It has the
                fields of the stream. A serde of one text or number, as ``Long()``, writes a stream with one field, of
                any name. Without it a value that no operation has changed keeps its bytes, the updates of a count are
                written as 8 bytes, and everything else as JSON.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
        """
        is_expression = isinstance(topic, Expression) or "(" in topic or "||" in topic  # no name of a topic has these
        if is_expression and topics is None:
            self._graph.fault("to: an expression is given without the topics", "Write topics=('a', 'b') beside it")
            return
        chosen, topic = self._topics_of(topic, topics), plain(topic)
        for written in chosen or (topic,):
            if fault := name_fault(written):
                self._graph.fault(f"to: {fault}", legal_name(written))
        if value is not None:
            self._check_written(topic, value)
        self._graph.sink(self._graph.name(name, "KSTREAM-SINK-"), topic, value, self._node, chosen)

    def _topics_of(self, expression: Text, topics: Sequence[str] | None) -> tuple[str, ...]:
        """The topics that a record may have; none where all records have one topic."""
        if topics is None:
            return ()
        self._field(expression, "to")
        if not topics:
            self._graph.fault(f"to: topics={topics!r}", "Name the topics that a record may have: topics=('a', 'b')")
            return ()
        if len({*topics}) < len(topics):
            self._graph.fault("to: topics: a topic is named twice", "Name each topic once")
        return tuple(dict.fromkeys(topics))

    def _check_written(self, topic: str, value: Serde) -> None:
        try:
            fields = [*value.fields]
        except ValueError as error:
            self._graph.fault(f"to {topic!r}: {error}", "For example Avro('order.avsc')")
            return
        if self._fields is None or (isinstance(value, Primitive) and len(self._fields) == 1):
            return  # one text or number needs no name
        if missing := [name for name in fields if name not in self._fields]:
            self._graph.fault(
                f"to {topic!r}: the serde writes {', '.join(missing)}, and the stream has {', '.join(self._fields)}",
                f"Name what is missing in a map_values before: {{{missing[0]!r}: '…'}}",
            )
        if others := [name for name in self._fields if name not in fields]:
            self._graph.fault(
                f"to {topic!r}: the serde writes {', '.join(fields)}, and not {', '.join(others)} of the stream",
                "Leave out what it does not write, in a map_values before",
            )

    # -- grouping

    @overload
    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: None = None,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KGroupedStream[str, V]: ...

    @overload
    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: Primitive[NewKey],
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KGroupedStream[NewKey, V]: ...

    @overload
    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: KeySerde | None,
        on_error: OnError = ...,
        deterministic: bool = ...,
        name: str | None = ...,
    ) -> KGroupedStream[Any, V]: ...

    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: KeySerde | Primitive[Any] | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
    ) -> KGroupedStream[Any, V]:
        """Group the records by a new key. The key changes, so the records go through a repartition topic.

        Example: ``stream.group_by("country", name="by-country").count(store="orders-per-country")``

        Args:
            key: A Spark SQL expression. Its text is the new key. Or a function; see :meth:`KStream.select_key`.
            key_serde: The serde that writes the key instead (``Grouped.keySerde``), as ``Long()``. The expression has
                its type; see :meth:`KStream.select_key`.
            on_error: For a function; see :meth:`KStream.map_values`.
            deterministic: For a function; see :meth:`KStream.map_values`.
            name: Names the repartition topic ``<application.id>-<name>-repartition`` (``Grouped.as``).
        """
        told = self._told(key, "group_by", on_error, deterministic)
        new_key = Key.declared(self._graph, "group_by", _word(told), key_serde)
        select = KeySelect(told, new_key.serde)
        rekeyed = self._then("KSTREAM-KEY-SELECT-", name, select, _key=new_key, rekeyed=True)
        return rekeyed._grouped(name)

    def group_by_key(self, *, name: str | None = None) -> KGroupedStream[K, V]:
        """Group the records by their key.

        Example: ``stream.group_by_key().count(store="orders-per-customer")``

        The records go through a repartition topic only if an operation before has changed the key.

        Args:
            name: Names that repartition topic (``Grouped.as``).
        """
        self._refuse_window("group_by_key")
        return self._grouped(self._name_of_topic(name))

    # -- joins

    def join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any] | KStream[Any, Any],
        value: Mapping[str, Text] | Callable[..., Any] | None = None,
        *,
        key: Text | Callable[..., Any] | None = None,
        within: JoinWindows | None = None,
        grace: Duration | None = None,
        store: str | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[K, Any]:
        """Join each record with the table's value for the same key, or with the records of another stream.

        Examples: ``purchases.join(customers, {"id": "id", "city": "table.city"})``,
        ``orders.join(payments, {"id": "id", "paid": "other.amount"}, within=JoinWindows("10 minutes"))``,
        ``orders.join(products, {"id": "id", "price": "table.price"}, key="product")``,
        ``purchases.join(customers, lambda purchase, customer: {"city": customer.city}, schema="city string")``

        A record without a match is dropped. A record meets a row of a table only if the row's timestamp is not later
        than its own. If rows may be written later than the records that need them, declare a global table. Two streams
        give a record for each two records of the same key that are not further apart than the window allows. Its
        timestamp is the later one of both.

        Args:
            other: A table with the same key, from :meth:`Topology.table`, or a result that has a state store. Or a
                global table, from :meth:`Topology.global_table`. Or a stream with the same key.
            value: The fields of the result: name to Spark SQL expression, in which the table's fields are
                ``table.<field>``, and those of the other stream ``other.<field>``. Without it the result has the fields
                of both. Or a function of the values of both sides (``ValueJoiner``), or of the key and both
                (``ValueJoinerWithKey``): ``lambda purchase, customer: …``. A side without a match is None.
            key: For a global table: an expression of the key that is looked up (``KeyValueMapper``), as ``"product"``.
                Or a function of the record, or of its key and value; see :meth:`select_key`.
            within: For a stream: how far apart in time two records may be.
            grace: For a versioned table, a duration: a record waits until a record of its stream task is later by that,
                so that it meets rows that come late (``Joined.withGracePeriod``). None joins it at once.
            store: For a stream: the names of its two state stores are ``<store>-this-join-store`` and
                ``<store>-other-join-store`` (``StreamJoined.withStoreName``).
            schema: For a function; see :meth:`map_values`.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: The name of the processor (``Named.as``). For a stream the beginning of the names of its processors
                (``StreamJoined.withName``). Without it the library's numbering gives one.
            fields: Further fields of the result, as ``city=F.table.city``.

        Returns:
            The joined stream. The key stays. If a stream's key has changed, that stream is repartitioned first.
        """

        def join(columns: Mapping[str, Text] | None) -> KStream[K, Any]:
            return self._join(other, columns, key, within, grace, store, name, "join")

        return self._join_with(join, other, value, fields, schema, on_error, deterministic, "join")

    def left_join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any] | KStream[Any, Any],
        value: Mapping[str, Text] | Callable[..., Any] | None = None,
        *,
        key: Text | Callable[..., Any] | None = None,
        within: JoinWindows | None = None,
        grace: Duration | None = None,
        store: str | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[K, Any]:
        """Join as :meth:`join` does, but pass a record without a match, too, with the fields of the other side null.

        Example: ``purchases.left_join(customers, {"id": "id", "city": "table.city"})``

        A record of a stream is passed without a match once, when its window and the grace are over by the newest record
        of the stream task. It keeps its timestamp.

        Args:
            other: A table or a stream with the same key, or a global table.
            value: As for :meth:`join`.
            key: For a global table: an expression of the key that is looked up, as ``"product"``.
            within: As for :meth:`join`.
            grace: For a versioned table, a duration: so long a record waits for late rows; see :meth:`join`.
            store: For a stream: the names of its three state stores are ``<store>-this-join-store``,
                ``<store>-outer-other-join-store`` and ``<store>-left-shared-join-store``.
            schema: For a function; see :meth:`map_values`.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: As for :meth:`join`.
            fields: As for :meth:`join`.
        """

        def join(columns: Mapping[str, Text] | None) -> KStream[K, Any]:
            return self._join(other, columns, key, within, grace, store, name, "left_join")

        return self._join_with(join, other, value, fields, schema, on_error, deterministic, "left_join")

    def outer_join(
        self,
        other: KStream[Any, Any],
        value: Mapping[str, Text] | Callable[..., Any] | None = None,
        *,
        within: JoinWindows | None = None,
        store: str | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        name: str | None = None,
        **fields: Expression,
    ) -> KStream[K, Any]:
        """Join two streams as :meth:`left_join` does, but pass the other stream's records without a match, too.

        Example: ``orders.outer_join(payments, {"id": "id", "paid": "other.amount"}, within=JoinWindows("10 minutes"))``

        Args:
            other: A stream with the same key.
            value: As for :meth:`join`.
            within: As for :meth:`join`.
            store: The names of its three state stores are ``<store>-outer-this-join-store``,
                ``<store>-outer-other-join-store`` and ``<store>-outer-shared-join-store``.
            schema: For a function; see :meth:`map_values`.
            on_error: For a function; see :meth:`map_values`.
            deterministic: For a function; see :meth:`map_values`.
            name: As for :meth:`join`.
            fields: As for :meth:`join`.
        """

        def join(columns: Mapping[str, Text] | None) -> KStream[K, Any]:
            return self._join_stream(other, columns, within, store, name, "outer_join")

        return self._join_with(join, other, value, fields, schema, on_error, deterministic, "outer_join")

    def _join_with(
        self,
        join: Callable[[Mapping[str, Text] | None], KStream[K, Any]],
        other: object,
        value: Mapping[str, Text] | Callable[..., Any] | None,
        fields: Mapping[str, Expression],
        schema: str | None,
        on_error: str,
        deterministic: bool,
        operation: str,
    ) -> KStream[K, Any]:
        """Join by expressions, or by a function of both sides.

        Args:
            join: Joins by expressions.
        """
        if callable(value):
            self._refuse_fields(fields, operation)
            joiner = self._joiner(value, other, operation, schema, on_error, deterministic)
            return self._joined_by(joiner, join(self._both_sides(other)), value)
        self._refuse_schema(schema, operation)
        return join(self._named(value, fields, operation) if fields else value)

    def _joiner(
        self,
        call: Callable[..., Any],
        other: object,
        operation: str,
        schema: str | None,
        on_error: str,
        deterministic: bool,
    ) -> JoinFunction:
        """The function that makes the value of a join, of the values of both sides."""
        classes = (self._record_class, getattr(other, "_record_class", None))
        sides, with_key = ("the value", "the other value"), ("the key", "the value", "the other value")
        of_key = arguments_fault(call, *sides) is not None and arguments_fault(call, *with_key) is None
        function = self._function(
            call,
            operation,
            on_error,
            deterministic,
            with_key if of_key else sides,
            (None, *classes) if of_key else classes,
        )
        made = self._made_by(function, schema, operation)
        function = replace(function, call=TakesBothSides(function.call, of_key))
        return JoinFunction(function, tuple((made or {}).items()))

    def _both_sides(self, other: object) -> dict[str, Text]:
        """The values of both sides, as the fields of one."""
        side = "other" if isinstance(other, KStream) else "table"
        of_other: tuple[str, ...] | None = getattr(other, "_fields", None)
        return {
            THIS: f"struct({', '.join(f'`{name}`' for name in self._fields or ())})",
            OTHER: f"struct({', '.join(f'{side}.`{name}`' for name in of_other or ())})",
        }

    def _joined_by(self, joiner: JoinFunction, joined: KStream[K, Any], call: Callable[..., Any]) -> KStream[K, Any]:
        """The stream of what a function makes of a join. The library's join calls the function itself."""
        if joined._fields is None:
            return joined
        node = self._graph.processor(f"joiner of {joined._node.name}", joiner, joined._node)
        return replace(joined, _node=node, _fields=_names(dict(joiner.fields)), _record_class=returned_class(call))

    def _join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any] | KStream[Any, Any],
        value: Mapping[str, Text] | None,
        key: Text | Callable[..., Any] | None,
        within: JoinWindows | None,
        grace: Duration | None,
        store: str | None,
        name: str | None,
        operation: str,
    ) -> KStream[K, Any]:
        if grace is not None and not isinstance(other, KTable):
            is_stream = isinstance(other, KStream)
            self._graph.fault(
                f"{operation}: grace= is given, and the other side is no versioned table",
                "Give it to the window: within=JoinWindows('…', grace='…')" if is_stream else "Leave it out",
            )
        if key is not None and not isinstance(other, GlobalKTable):
            self._graph.fault(
                f"{operation}: key= is given, and the other side is no global table",
                "Leave it out, and give the stream that key before: select_key('…')",
            )
        if isinstance(other, KStream):
            return self._join_stream(other, value, within, store, name, operation)
        if within is not None or store is not None:
            self._graph.fault(f"{operation}: a table is joined without within and store", "Leave them out")
        if isinstance(other, GlobalKTable):
            return self._join_global_table(other, value, key, name, operation)
        return self._join_table(other, value, grace, name, operation)

    def _join_global_table(
        self,
        table: GlobalKTable[Any, Any],
        value: Mapping[str, Text] | None,
        key: Text | Callable[..., Any] | None,
        name: str | None,
        operation: str,
    ) -> KStream[K, Any]:
        """``KStreamImpl.globalTableJoin``: the key stays. Both joins have the same generated name."""
        if not self._can_take(table, GlobalKTable, operation, "Join a global table of this topology"):
            return replace(self, _fields=None)
        if key is None:
            self._graph.fault(
                f"{operation}: which key is looked up in the global table is not given",
                "For example key='product', an expression over the record",
            )
        columns = self._joined(table, value, operation, "table")
        left = operation == "left_join"
        looked_up = self._told(key or "record.key", f"{operation}, key")
        fields = None if self._fields is None or table._fields is None else tuple(column for column, _ in columns)
        return self._then(
            "KSTREAM-LEFTJOIN-",
            name,
            GlobalJoin(table._topic, table._serde, table._key.serde, looked_up, columns, left),
            _fields=fields,
        )

    def _join_table(
        self,
        table: KTable[Any, Any],
        value: Mapping[str, Text] | None,
        grace: Duration | None,
        name: str | None,
        operation: str,
    ) -> KStream[K, Any]:
        left = operation == "left_join"
        self._refuse_window(operation)
        hint = "Join a stream with a table, Topology.table(), or with a stream"
        if not self._can_take(table, KTable, operation, hint):
            return replace(self, _fields=None)
        if not table._store and table._window is None and table._fields is not None:
            self._graph.fault(
                f"{operation}: with the result of {table._result_of or 'a join of tables'}, which has no state store",
                "Give it one, in which the join looks up: store='…'",
            )
            return replace(self, _fields=None)
        self._refuse_unlike_keys(table, operation, "table")
        stream = self._repartitioned(name or self._node.name)
        sources = stream._sources | table._sources
        self._graph.copartition_groups.append(sources)
        table._materialize()
        columns = self._joined(table, value, operation, "table")
        processor_name = self._graph.name(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
        grace_ms = None if grace is None else self._grace_ms(grace, table, operation)
        if grace_ms is None:
            node = self._graph.processor(processor_name, Join(table._store, columns, left), stream._node)
        else:
            buffer = f"{processor_name}{BUFFER}"
            if name is None:
                self._graph.generated.add(buffer)
            join = BufferedJoin(table._store, columns, left, buffer)
            node = self._graph.buffered_join(processor_name, join, grace_ms, stream._node)
        fields = None if self._fields is None or table._fields is None else tuple(column for column, _ in columns)
        return replace(stream, _node=node, _fields=fields, _sources=sources, _repartition=[], _record_class=None)

    def _grace_ms(self, grace: Duration, table: KTable[Any, Any], operation: str) -> int | None:
        """The grace period in ms; None where it is refused. The library refuses it of the same tables."""
        if table._history_ms is None:
            if table._fields is not None:
                named = table._store not in self._graph.generated
                store = table._store if named or table._topic is None else table._topic[0]
                self._graph.fault(
                    f"{operation}: grace= is given, and the table is not versioned, so that it has no earlier rows",
                    "A table of a topic can have a versioned store: "
                    f"topology.table(…, store=Versioned({store!r}, history='…'))",
                )
            return None
        try:
            grace_ms = duration_ms(duration_text(grace))
        except ValueError as error:
            self._graph.fault(f"{operation}, grace: {error}", "For example grace='1 minute'")
            return None
        if grace_ms > table._history_ms:
            self._graph.fault(
                f"{operation}: grace={shown(grace)} is longer than the history of the table, which is "
                f"{table._history_ms:,} ms",
                "Give the table a longer history: a record that waits longer than that finds no row",
            )
            return None
        return grace_ms

    def _join_stream(
        self,
        other: KStream[Any, Any],
        value: Mapping[str, Text] | None,
        within: JoinWindows | None,
        store: str | None,
        name: str | None,
        operation: str,
    ) -> KStream[K, Any]:
        """``KStreamImpl.doJoin`` and ``KStreamImplJoin.join``."""
        self._refuse_window(operation)
        hint = "Join a stream of this topology"
        if operation == "outer_join" and isinstance(other, KTable | GlobalKTable):
            hint = "A stream and a table have no outer join. Write left_join(…)"
        if not self._can_take(other, KStream, operation, hint):
            return replace(self, _fields=None)
        windows = self._checked_windows(within, operation)
        for given in (name, store):
            if given is not None and (fault := name_fault(given)):
                self._graph.fault(fault, legal_name(given))
                return replace(self, _fields=None)
        self._refuse_unlike_keys(other, operation, "other stream")
        if self._fields is not None and "other" in self._fields:
            self._graph.fault(f"{operation}: the stream has a field named other", "Rename it before with map_values")
        this = self._repartitioned(self._node.name if name is None else f"{name}-left")
        that = other._repartitioned(other._node.name if name is None else f"{name}-right")
        sources = this._sources | that._sources
        self._graph.copartition_groups.append(sources)
        columns = self._joined(other, value, operation, "other")
        outer, both = operation != "join", operation == "outer_join"

        def named(suffix: str) -> str | None:
            return None if name is None else f"{name}-{suffix}"

        node = self._graph.stream_join(
            (this._node, that._node),
            (
                self._graph.name(named("this-windowed"), "KSTREAM-WINDOWED-"),
                self._graph.name(named("other-windowed"), "KSTREAM-WINDOWED-"),
            ),
            (
                self._graph.next_name("KSTREAM-OUTERTHIS-" if both else "KSTREAM-JOINTHIS-"),
                self._graph.next_name("KSTREAM-OUTEROTHER-" if outer else "KSTREAM-JOINOTHER-"),
            ),
            (named(this_join(both)), named(other_join(outer))),
            self._graph.name(named("merge"), "KSTREAM-MERGE-"),
            store,
            OuterStreamJoin(windows, columns, both) if outer else StreamJoin(windows, columns),
        )
        fields = None if self._fields is None or other._fields is None else tuple(column for column, _ in columns)
        key = self._key if self._key.name is not None else other._key
        return KStream(self._graph, node, fields, key, sources)

    def _checked_windows(self, within: JoinWindows | None, operation: str) -> JoinWindows:
        example = "For example within=JoinWindows('5 minutes')"
        if not isinstance(within, JoinWindows):
            said = (
                "how far apart in time the records may be is not given"
                if within is None
                else f"within={shown(within)} is no JoinWindows"
            )
            self._graph.fault(f"{operation}: {said}", example)
            return JoinWindows("5 minutes")
        for parameter in ("before", "after", "grace"):
            try:
                getattr(within, f"{parameter}_ms")
            except ValueError as error:
                self._graph.fault(f"{operation}: within: {parameter}: {error}", example)
                return JoinWindows("5 minutes")
        return within

    def _repartitioned(self, prefix: str) -> KStream[K, V]:
        """``KStreamImpl.repartitionForJoin``: the stream behind a repartition topic, where its key has changed."""
        if not self._repartition_required:
            return self
        repartition = self._graph.draw_repartition(prefix, self._key.serde)
        if not self._repartition or self._node.name != prefix:
            self._repartition[:] = [repartition]
            self._graph.add_repartition(repartition, self._node)
        (repartition,) = self._repartition
        return replace(
            self,
            _node=repartition.node,
            _sources=frozenset({repartition.source}),
            _repartition_required=False,
            _repartition=[],
        )

    def to_table(self, *, store: str | None = None, name: str | None = None) -> KTable[K, V]:
        """The records as the updates of a table: the last value of a key counts, and a null value deletes its key.

        Example: ``events.to_table().filter("active").to_stream().to("active-users")``

        Where the key has changed, a repartition topic comes before it.

        Args:
            store: The name of the state store (``Materialized.as``). Without it the table has one only where an
                operation needs it, as a join with the table does.
            name: The name of the processor (``Named.as``), and of the repartition topic. Without it the library's
                numbering gives one.

        Returns:
            A table with the fields of the stream. A record without a key is a dead letter.
        """
        graph = self._graph
        self._refuse_window("to_table")
        table_name = graph.name(name, "KSTREAM-TOTABLE-")
        of_table = store or ""
        if store is None:
            of_table = graph.next_name("KSTREAM-TOTABLE-STATE-STORE-")
        else:
            graph.store_name(store, "")
        parent, sources = self._node, self._sources
        if self._repartition_required:
            repartition = graph.draw_repartition(table_name, self._key.serde)
            graph.add_repartition(repartition, self._node)
            parent, sources = repartition.node, frozenset({repartition.source})
        stores = [store]

        def materialize() -> None:
            if stores[0] is None:
                graph.generated.add(of_table)
                stores[0] = of_table

        def send_old_values(force: bool) -> bool:
            if force:
                materialize()
            return stores[0] is not None

        node = graph.processor(table_name, lambda: ToTable(stores[0]), parent)
        return KTable(
            graph, node, self._fields, self._key, sources, None, of_table, materialize,
            _result_of="to_table", _send_old_values=send_old_values, _record_class=self._record_class,
        )  # fmt: skip

    # -- shared

    def _then(self, prefix: str, name: str | None, operation: Operation, **changes: Any) -> KStream[Any, Any]:
        node = self._graph.processor(self._graph.name(name, prefix), operation, self._node)
        rekeyed = changes.pop("rekeyed", False)
        if "_fields" in changes:  # another value
            changes.setdefault("_record_class", None)
        if rekeyed:
            changes |= {"_repartition_required": True, "_window": None}
        return replace(self, _node=node, _repartition=[], **changes)

    def _grouped(self, name: str | None) -> KGroupedStream[K, V]:
        return KGroupedStream(
            self._graph, self._node, self._fields, self._key, self._sources, None, self._repartition_required, name,
            _record_class=self._record_class,
        )  # fmt: skip

    def _name_of_topic(self, name: str | None) -> str | None:
        if name is not None and (fault := name_fault(name)):
            self._graph.fault(fault, legal_name(name))
        return name


@dataclass(frozen=True)
class _Calls:
    """A class of processors with any keys, and how it is called.

    Attributes:
        keeps_key: Whether what it forwards has the key of the record.
    """

    processor: type[Processor]
    stores: Mapping[str, AnyStore | KTable | GlobalKTable]
    schema: str | None
    key_serde: KeySerde | None
    on_error: OnError
    deterministic: bool
    name: str | None
    keeps_key: bool = False

    @property
    def word(self) -> str:
        """The operation of the declaration."""
        return "process_values" if self.keeps_key else "process"


def _as_store(store: AnyStore | KTable[Any, Any] | GlobalKTable[Any, Any]) -> AnyStore:
    """What a class is given when it is declared. It does nothing."""
    if isinstance(store, KTable | GlobalKTable):
        return KeyValueStore(store._key.serde, Json("value string"))
    return store


@dataclass(frozen=True)
class _Aggregating:
    """The functions of an aggregate.

    Attributes:
        initializer: The initializer.
        function: The aggregator.
        made: The fields of the aggregate, with their types; None where they are not known.
        record_class: The dataclass of the aggregate; None without one.
    """

    initializer: PythonFunction
    function: PythonFunction
    made: dict[str, str] | None
    record_class: type | None

    @property
    def fields(self) -> Columns:
        """The fields of the aggregate."""
        return tuple((self.made or {}).items())


@dataclass(frozen=True, eq=False, repr=False)
class _Grouped(_Declared[K, V]):
    """A grouped stream.

    Attributes:
        _repartition_required: The key has changed, so that an aggregation needs a repartition topic.
        _name: Names the repartition topic; None for a name that follows from the store.
        _final: Whether the result of each window is passed once, when the window closes.
        _idle_ms: A stream task without a record for so long goes on by the wall clock; None where it does not.
    """

    _repartition_required: bool = False
    _name: str | None = None
    _repartition: list[Repartition] = field(default_factory=list)
    _final: bool = False
    _idle_ms: int | None = None

    def _aggregate(
        self,
        prefix: str,
        name: str | None,
        store: str,
        operation: Operation,
        fields: tuple[str, ...] | None,
        record_class: type | None = None,
    ) -> KTable[K, Any]:
        """``GroupedStreamAggregateBuilder.build``."""
        processor_name = self._graph.name(name, prefix)
        parent, sources = self._node, self._sources
        if self._repartition_required:
            repartition = self._graph.draw_repartition(self._name or store, self._key.serde)
            if not self._repartition or self._name is None:
                self._repartition[:] = [repartition]
            self._graph.add_repartition(self._repartition[0], self._node)
            parent, sources = self._repartition[0].node, frozenset({self._repartition[0].source})
        is_suppressed: list[bool] = []
        suppress: Callable[[], None] | None = None
        taken: Operation | Callable[[], Operation] = operation
        if isinstance(operation, Count | Aggregate) and self._window is not None and not self._final:
            suppress = partial(is_suppressed.append, True)
            taken = partial(_passed, operation, is_suppressed)
        node = self._graph.processor(processor_name, taken, parent)
        return KTable(
            self._graph, node, fields, self._key, sources, self._window, store,
            _final=self._final, _record_class=record_class, _suppress=suppress,
        )  # fmt: skip

    def _refuse_function(self, value: Mapping[str, Text], function: Callable[..., Any]) -> KTable[K, Any]:
        """Record that a function aggregates, and its initializer is no function."""
        hint = "Write the expressions alone, or aggregate(initializer, aggregator)"
        if not value:
            hint = "Write a function that returns the mapping: lambda: {}, or dict"
        given = "expressions" if value else "a mapping without fields"
        self._graph.fault(f"aggregate: {function_name(function)} is given with {given}", hint)
        return KTable(self._graph, self._node, None, self._key, self._sources)

    def _count(self, store: str | None, name: str | None) -> KTable[K, Any]:
        store_name = self._graph.store_name(store, "KSTREAM-AGGREGATE-")
        counted = (
            FinalCount(store_name, self._window, self._idle_ms) if self._final else Count(store_name, self._window)
        )
        return self._aggregate("KSTREAM-AGGREGATE-", name, store_name, counted, ("count",))

    def _fold(self, value: Mapping[str, Text], store: str | None, name: str | None) -> KTable[K, Any]:
        columns = self._folded(value, "aggregate")
        store_name = self._graph.store_name(store, "KSTREAM-AGGREGATE-")
        operation = Aggregate(store_name, columns, self._window)
        if self._final:
            operation = FinalAggregate(store_name, columns, self._window, self._idle_ms)
        return self._aggregate("KSTREAM-AGGREGATE-", name, store_name, operation, tuple(value))

    def _aggregating(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any] | None,
        schema: str | None,
        on_error: OnError,
        deterministic: bool,
    ) -> _Aggregating | None:
        """The functions of an aggregate, which are judged; None, and a fault, without an aggregator."""
        first = self._initializer(initializer, schema, on_error, deterministic)
        if aggregator is None:
            self._graph.fault(
                f"aggregate: {first.name} is an initializer without an aggregator",
                "Write aggregate(initializer, aggregator), with aggregator(key, value, aggregate)",
            )
            return None
        given = ("the key", "the value", "the aggregate")
        returned = returned_class(aggregator) or returned_class(initializer)
        classes = (None, self._record_class, returned)
        function = self._function(aggregator, "aggregate", on_error, deterministic, given, classes)
        made = self._made_by(function, hinted_schema(initializer) if schema is None else schema, "aggregate")
        return _Aggregating(first, function, made, returned)

    def _folded(self, value: Mapping[str, Text], operation: str) -> tuple[AggregateColumn, ...]:
        columns = []
        for column, expression in self._columns(value, operation):
            try:
                parsed = AggregateColumn.parse(column, expression)
                columns.append(parsed)
                if not parsed.arguments.strip():
                    write = "count(*)" if parsed.function == "count" else f"{parsed.function}(field)"
                    said = f"{operation}, {column}: {parsed.function}() is called without an argument"
                    self._graph.fault(said, f"Write {write}")
                elif isinstance(value[column], str) and _BARE_NAMES.fullmatch(parsed.arguments):
                    for argument in parsed.arguments.split(","):
                        self._field(argument.strip(), f"{operation}, {column}")
            except ValueError as error:
                if expression in AGGREGATES and expression not in (self._fields or ()):
                    continue  # a function that is not called, of which the field was told
                self._graph.fault(f"{operation}, {column}: {error}", "Fold with those; compute on with map_values")
        return tuple(columns)


class _Branches(dict[str, KStream[Any, Any]]):
    """The branches of a stream. A name that no branch has is a fault, and the declaration goes on.

    Attributes:
        complete: Whether all branches are known: none is left out because of a fault.
    """

    def __init__(self, split: KStream[Any, Any]) -> None:
        super().__init__()
        self._split = split
        self.complete = True

    def __missing__(self, name: object) -> KStream[Any, Any]:
        """Return what stands for a branch that there is not."""
        split = self._split
        if self.complete:
            split._graph.fault(f"split: there is no branch {shown(name)}", _there_are(str(name), tuple(self)))
        stream: KStream[Any, Any] = _stand_in(split._graph, split._node, split._sources, KStream)
        return stream

    if not TYPE_CHECKING:  # a type checker goes on refusing such words

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"the branches have no attribute {name!r}")
            meant = next((each for each in self if each.endswith(name)), next(iter(self), "name"))
            raise NoSuchOperation(f"the branches have no attribute {name!r}. Write [{meant!r}]", name=name)


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class BranchedKStream(Generic[K, V]):
    """A stream that is divided among branches.

    Example: ``stream.split(name="orders-").branch("amount > 100", name="large").no_default_branch()``

    The conditions of the branches are computed for each branch: for the same record they have to give the same.
    """

    _split: KStream[K, V]
    _conditions: list[str | PythonFunction]
    _branches: _Branches

    def __repr__(self) -> str:
        """The class, the last node and the fields."""
        return repr(self._split).replace("KStream", "BranchedKStream", 1)

    def __dir__(self) -> list[str]:
        """As those of streams."""
        return [name for name in object.__dir__(self) if name.startswith("__") or name in operations_of(type(self))]

    def _mistaken(self, mistakes: Iterable[Diagnostic], operation: str, returns: Any) -> Any:
        """Add the mistakes of a call. The branch that it would have added is not known."""
        self._split._graph.add_faults(mistakes)
        self._branches.complete = False
        return self if operation == "branch" else self._branches

    @overload
    def branch(
        self,
        condition: Text | Callable[[V], bool | None],
        *,
        on_error: OnError = ...,
        name: str | None = ...,
    ) -> BranchedKStream[K, V]: ...

    @overload
    def branch(
        self,
        condition: Callable[[K, V], bool | None],
        *,
        on_error: OnError = ...,
        name: str | None = ...,
    ) -> BranchedKStream[K, V]: ...

    def branch(
        self,
        condition: Text | Callable[[V], bool | None] | Callable[[K, V], bool | None],
        *,
        on_error: OnError = REJECT,
        name: str | None = None,
    ) -> BranchedKStream[K, V]:
        """Add a branch. It takes the records for which its condition is true, and no condition before is.

        Example: ``stream.split(name="orders-").branch("amount > 100", name="large")``

        Args:
            condition: As for :meth:`KStream.filter`.
            on_error: For a function; see :meth:`KStream.map_values`.
            name: What the name of the branch ends with (``Branched.as``), behind that of the split. Without it that is
                the number of the branch, from 1.
        """
        if isinstance(condition, str | Expression):
            self._conditions.append(self._split._field(condition, "branch"))
        else:
            self._conditions.append(self._split._function(condition, "branch", on_error, deterministic=True))
        self._add(len(self._conditions), name)
        return self

    def default_branch(self, *, name: str | None = None) -> dict[str, KStream[K, V]]:
        """Add a branch that takes what no branch takes, and return all branches.

        Example: ``stream.split(name="orders-").branch("amount > 100", name="large").default_branch(name="small")``

        Args:
            name: What the name of the branch ends with (``Branched.as``); 0 without it.

        Returns:
            The stream of each branch, by its name: that of the split, and behind it that of the branch.
        """
        self._add(0, name)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Return all branches, as :meth:`default_branch` does. What no branch takes is not passed.

        Example: ``stream.split(name="orders-").branch("amount > 100", name="large").no_default_branch()``
        """
        return self._branches

    def _add(self, number: int, name: str | None) -> None:
        """``BranchedKStreamImpl.createBranch``, which draws a number that no name has."""
        if not self._branches.complete:
            return
        graph = self._split._graph
        split = self._split._node.name
        branch = graph.name(f"{split}{number if name is None else name}", "")
        if split in graph.generated:
            graph.generated.add(branch)
        node = graph.processor(branch, Branch(number), self._split._node)
        self._branches[branch] = replace(self._split, _node=node, _repartition=[])


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class KGroupedStream(_Grouped[K, V]):
    """A stream that is grouped by its key.

    Example: ``stream.group_by("country").count()``
    """

    def windowed_by(
        self, windows: TimeWindows | CalendarWindows | CustomWindows | SlidingWindows | SessionWindows
    ) -> WindowedKStream[K, V]:
        """Aggregate each key anew in each window, or in each session.

        Example: ``grouped.windowed_by(TimeWindows("1 minute")).count(store="per-minute")``

        Args:
            windows: As ``TimeWindows("1 minute")``, ``TimeWindows("5 minutes", advance="1 minute")``,
                ``CalendarWindows("1 day", time_zone="Europe/Berlin")``, ``CustomWindows(shifts, size="8 hours")``,
                ``SlidingWindows("5 minutes")``, or ``SessionWindows("5 minutes")``.
        """
        return WindowedKStream(
            self._graph, self._node, self._fields, self._key, self._sources, _judged_windows(self._graph, windows),
            self._repartition_required, self._name, self._repartition, _record_class=self._record_class,
        )  # fmt: skip

    def cogroup(
        self, value: Mapping[str, Text] | Callable[[Any, Any, Any], Any] = NO_FIELDS, **fields: Expression
    ) -> CogroupedKStream[K]:
        """Fold the records of this stream and of others into one store. Name the others with ``cogroup`` of the result.

        Examples: ``clicks.cogroup({"clicks": "count(*)"}).cogroup(grouped, {"spent": "sum(amount)"}).aggregate()``,
        ``clicks.cogroup(add_click).cogroup(grouped, add_order).aggregate(nothing_spent, schema="total double")``

        Args:
            value: The fields of the result that this stream is folded into: as for :meth:`aggregate`. Or an aggregator:
                a function that is given the key, the value of a record of this stream, and the aggregate of all streams
                so far, and returns the new aggregate (``Aggregator``). Then the other streams have aggregators, too.
            fields: Further fields of the result, as ``clicks=F.count()``.
        """
        grouped: CogroupedKStream[K] = CogroupedKStream(self._graph, self._node, (), self._key, self._sources)
        if callable(value):
            self._refuse_fields(fields, "cogroup")
            return grouped.cogroup(self, value)
        return grouped.cogroup(self, self._named(value, fields, "cogroup"))

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable[K, Any]:
        """Count the records of each key.

        Example: ``grouped.count(store="orders-per-customer")``

        Args:
            store: The name of the state store. Its changelog is ``<application.id>-<store>-changelog``.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table whose value has the field ``count``.
        """
        return self._count(store, name)

    @overload
    def aggregate(
        self,
        value: Mapping[str, Text] = ...,
        aggregator: None = ...,
        *,
        schema: None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KTable[K, Any]: ...

    @overload
    def aggregate(
        self,
        value: Callable[[], Made],
        aggregator: Callable[[K, V, Made], Made | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Made]: ...

    @overload
    def aggregate(
        self,
        value: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Any]: ...

    def aggregate(
        self,
        value: Mapping[str, Text] | Callable[[], Any] = NO_FIELDS,
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        *,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
        **fields: Expression,
    ) -> KTable[K, Any]:
        """Aggregate the records of each key, with expressions or with Python functions.

        Examples: ``grouped.aggregate({"total": "sum(amount)", "mean": "avg(amount)"}, store="totals")``,
        ``grouped.aggregate(total=F.amount.sum(), n=F.count())``,
        ``grouped.aggregate(nothing_spent, add_order, store="spent", schema="total double, orders int")``

        Args:
            value: The fields of the result: name to one call of a function in
                :data:`streamplan.model.expressions.AGGREGATES`. Or an initializer: a function without arguments
                that returns the aggregate of a key of which there is none (``Initializer``).
            aggregator: With an initializer a function that is given the key, the value of a record, and the aggregate
                so far, and returns the new aggregate (``Aggregator``). Records come in the order of their stream task.
                None deletes the key.
            schema: The fields of the aggregate, in Spark's DDL. Without it the return type of the aggregator, or of the
                initializer, tells them; see :meth:`KStream.map_values`.
            on_error: For functions; see :meth:`KStream.map_values`. After a failed call the aggregate is as before.
            deterministic: For functions; see :meth:`KStream.map_values`.
            store: The name of the state store.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further fields of the result, as ``total=F.amount.sum()``.

        Returns:
            A table with these fields.
        """
        if not callable(value):
            if aggregator is not None:
                return self._refuse_function(value, aggregator)
            self._refuse_schema(schema, "aggregate")
            return self._fold(self._named(value, fields, "aggregate"), store, name)
        self._refuse_fields(fields, "aggregate")
        functions = self._aggregating(value, aggregator, schema, on_error, deterministic)
        if functions is None:
            return KTable(self._graph, self._node, None, self._key, self._sources)
        store_name = self._graph.store_name(store, "KSTREAM-AGGREGATE-")
        operation = AggregateFunction(
            functions.function, store_name, functions.fields, functions.fields, initializer=functions.initializer
        )
        return self._aggregate(
            "KSTREAM-AGGREGATE-", name, store_name, operation, _names(functions.made), functions.record_class
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None] | None = None,
        *,
        max_by: Text | None = None,
        min_by: Text | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the value of one record of each key, or what a Python function makes of the values.

        Examples: ``grouped.reduce(max_by="amount", store="largest-orders")``,
        ``grouped.reduce(lambda old, new: new if new.amount > old.amount else old, store="largest-orders")``

        Without a function it is the latest value, unless ``max_by`` or ``min_by`` is given. The latest is the last one
        of its topic. Of merged topics it is the one with the newest timestamp.

        Args:
            reducer: A function that is given the value so far and the value of a record, and returns the new value
                (``Reducer``). Records come in the order of their stream task. The first value of a key is kept as it
                is. None deletes the key.
            max_by: A Spark SQL expression. The record with the greatest is kept, and of equals the latest.
            min_by: The same for the least. Give at most one of the three.
            on_error: For a function; see :meth:`KStream.map_values`. After a failed call the value is as before.
            deterministic: For a function; see :meth:`KStream.map_values`.
            store: The name of the state store.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table with the fields of the stream.
        """
        given = {"a function": reducer, "max_by": max_by, "min_by": min_by}
        if len(chosen := [what for what, argument in given.items() if argument is not None]) > 1:
            both = "both " if len(chosen) == 2 else ""
            self._graph.fault(f"reduce: {both}{' and '.join(chosen)} are given", "Choose one")
        operation: Operation
        if reducer is not None:
            given_values, classes = ("the old value", "the new value"), (self._record_class, self._record_class)
            function = self._function(reducer, "reduce", on_error, deterministic, given_values, classes)
            store_name = self._graph.store_name(store, "KSTREAM-REDUCE-")
            operation = ReduceFunction(function, store_name, (), ())
        else:
            by = self._field(next((one for one in (max_by, min_by) if one is not None), LATEST), "reduce")
            store_name = self._graph.store_name(store, "KSTREAM-REDUCE-")
            operation = Reduce(store_name, by, greatest=min_by is None)
        return self._aggregate("KSTREAM-REDUCE-", name, store_name, operation, self._fields, self._record_class)


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class WindowedKStream(_Grouped[K, V]):
    """A grouped stream that is aggregated anew in each window (``TimeWindowedKStream``, ``SessionWindowedKStream``).

    Example: ``stream.group_by_key().windowed_by(TimeWindows("1 minute")).count()``
    """

    def emit_strategy(self, strategy: OnWindowClose) -> WindowedKStream[K, V]:
        """Say when the results of windows are passed. Without it every update is.

        Example: ``grouped.windowed_by(TimeWindows("1 minute")).emit_strategy(OnWindowClose())``

        Args:
            strategy: ``OnWindowClose()``: the result of each window is passed once, when the window closes. With
                ``OnWindowClose(idle="10 minutes")`` a stream task that has had no record for ten minutes goes on by
                the wall clock, so that its windows close without a further record.
        """
        if not isinstance(strategy, OnWindowClose):
            self._graph.fault(
                f"emit_strategy: {shown(strategy)} is no emit strategy",
                "Write emit_strategy(OnWindowClose()), or nothing: every update is passed then",
            )
            return replace(self, _final=True)
        idle_ms = None
        try:
            idle_ms = strategy.idle_ms
            if idle_ms == 0:
                raise ValueError("idle: 0 would close each window at once")
        except ValueError as error:
            self._graph.fault(f"emit_strategy: {error}", 'Write OnWindowClose(idle="10 minutes")')
        return replace(self, _final=True, _idle_ms=idle_ms)

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable[K, Any]:
        """Count as :meth:`KGroupedStream.count` does, for each key and window.

        Example: ``grouped.windowed_by(TimeWindows("1 minute")).count(store="per-minute")``
        """
        return self._count(store, name)

    @overload
    def aggregate(
        self,
        value: Mapping[str, Text] = ...,
        aggregator: None = ...,
        *,
        merger: None = ...,
        schema: None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
        **fields: Expression,
    ) -> KTable[K, Any]: ...

    @overload
    def aggregate(
        self,
        value: Callable[[], Made],
        aggregator: Callable[[K, V, Made], Made | None],
        *,
        merger: Callable[[K, Made, Made], Made | None] | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Made]: ...

    @overload
    def aggregate(
        self,
        value: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        merger: Callable[[Any, Any, Any], Any] | None = ...,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Any]: ...

    def aggregate(
        self,
        value: Mapping[str, Text] | Callable[[], Any] = NO_FIELDS,
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        *,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
        **fields: Expression,
    ) -> KTable[K, Any]:
        """Aggregate the records of each key and window, with expressions or with Python functions.

        Examples: ``windowed.aggregate({"total": "sum(amount)"})``,
        ``windowed.aggregate(nothing_spent, add_order, store="spent", schema="total double, orders int")``,
        ``sessions.aggregate(nothing_spent, add_order, merger=both_spent, schema="total double, orders int")``

        Args:
            value: The fields of the result: name to one call of an aggregate function. Or an initializer: a function
                without arguments that returns the aggregate of a window of which there is none (``Initializer``).
            aggregator: With an initializer a function that is given the key, the value of a record, and the aggregate
                so far, and returns the new aggregate (``Aggregator``). The value may be None. Records come in the order
                of their stream task. None deletes the window.
            merger: For sessions a function that is given the key and the aggregates of two sessions, and returns the
                aggregate of both (``Merger``). The first of the two is at first what the initializer returns.
            schema: The fields of the aggregate, in Spark's DDL. Without it the return type of the aggregator, or of the
                initializer, tells them; see :meth:`KStream.map_values`.
            on_error: For functions; see :meth:`KStream.map_values`. After a failed call all windows are as before.
            deterministic: For functions; see :meth:`KStream.map_values`.
            store: The name of the state store.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
            fields: Further fields of the result, as ``total=F.amount.sum()``.
        """
        if not callable(value):
            if function := next((what for what in (aggregator, merger) if what is not None), None):
                return self._refuse_function(value, function)
            self._refuse_schema(schema, "aggregate")
            return self._fold(self._named(value, fields, "aggregate"), store, name)
        self._refuse_fields(fields, "aggregate")
        functions = self._aggregating(value, aggregator, schema, on_error, deterministic)
        merging = self._merger(merger, functions, on_error, deterministic)
        if functions is None:
            return KTable(self._graph, self._node, None, self._key, self._sources)
        store_name = self._graph.store_name(store, "KSTREAM-AGGREGATE-")
        operation = self._by_functions(
            store_name, functions.function, functions.fields, initializer=functions.initializer, merger=merging
        )
        return self._aggregate(
            "KSTREAM-AGGREGATE-", name, store_name, operation, _names(functions.made), functions.record_class
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        *,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep for each key and window what a Python function makes of the values.

        Example: ``windowed.reduce(lambda old, new: new if new.amount > old.amount else old, store="largest-orders")``

        Args:
            reducer: A function that is given the value so far and the value of a record, and returns the new value
                (``Reducer``). The new value may be None. Records come in the order of their stream task. The first
                value of a window is kept as it is. When one session is made of several, their values are reduced from
                the earliest session to the latest. None deletes the window.
            on_error: See :meth:`KStream.map_values`. After a failed call all windows are as before.
            deterministic: See :meth:`KStream.map_values`.
            store: The name of the state store.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table with the fields of the stream.
        """
        given_values, classes = ("the old value", "the new value"), (self._record_class, self._record_class)
        function = self._function(reducer, "reduce", on_error, deterministic, given_values, classes)
        store_name = self._graph.store_name(store, "KSTREAM-REDUCE-")
        operation = self._by_functions(store_name, function, ())
        return self._aggregate("KSTREAM-REDUCE-", name, store_name, operation, self._fields, self._record_class)

    def _by_functions(
        self, store: str, function: PythonFunction, fields: Columns, **others: PythonFunction | None
    ) -> AggregateWindowsFunction:
        if self._final:
            return FinalAggregateWindowsFunction(
                store,
                (),
                self._window,
                self._idle_ms,
                suppressed=False,
                function=function,
                fields=fields,
                **others,
            )
        return AggregateWindowsFunction(store, (), self._window, function=function, fields=fields, **others)


@dataclass(frozen=True)
class _CogroupArguments:
    """What is given to the aggregate of several streams, for the functions of it."""

    initializer: Callable[[], Any] | None
    merger: Callable[[Any, Any, Any], Any] | None
    schema: str | None
    on_error: OnError
    deterministic: bool


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class CogroupedKStream(_Declared[K, Any], Generic[K]):
    """Several grouped streams with keys of one kind, whose records are folded into one store.

    Example: ``clicks.cogroup({"clicks": "count(*)"}).aggregate()``

    Attributes:
        _streams: The streams, each with what its records are folded into.
        _aggregators: The functions that aggregate, of each stream; none where expressions do.
    """

    _streams: tuple[tuple[KGroupedStream[Any, Any], tuple[AggregateColumn, ...]], ...] = ()
    _repartitions: dict[KGroupedStream[Any, Any], Repartition] = field(default_factory=dict)
    """The repartition topics of the streams. A second aggregate of the same streams uses them again."""
    _aggregators: tuple[PythonFunction, ...] = ()

    def cogroup(
        self,
        other: KGroupedStream[Any, Any],
        value: Mapping[str, Text] | Callable[[Any, Any, Any], Any] = NO_FIELDS,
        **fields: Expression,
    ) -> CogroupedKStream[K]:
        """Fold the records of one more stream into the store.

        Example: ``cogrouped.cogroup(payments.group_by_key(), {"paid": "sum(amount)"})``

        Args:
            other: A grouped stream. Its keys mean the same, and have the same serde.
            value: The fields of the result that it is folded into: as for :meth:`KGroupedStream.aggregate`. A field
                that another stream has, too, is one aggregate of the records of both, with the same function. Or an
                aggregator: see :meth:`KGroupedStream.cogroup`.
            fields: Further fields of the result, as ``paid=F.amount.sum()``.
        """
        hint = "Group a stream first: cogroup(orders.group_by_key(), {…})"
        if not self._can_take(other, KGroupedStream, "cogroup", hint):
            return replace(self, _fields=None)
        if any(stream is other for stream, _ in self._streams):
            self._graph.fault("cogroup: the same grouped stream twice", "Name all of its fields at once")
            return self
        self._refuse_unlike_serdes(other, "cogroup", "other stream")
        columns, aggregators, all_fields = self._folded_from(other, value, fields)
        key = self._key if self._key == other._key else Key(None, self._key.serde)
        return replace(
            self,
            _fields=all_fields,
            _key=key,
            _sources=self._sources | other._sources,
            _streams=(*self._streams, (other, columns)),
            _aggregators=aggregators,
        )

    def _folded_from(
        self,
        other: KGroupedStream[Any, Any],
        value: Mapping[str, Text] | Callable[[Any, Any, Any], Any],
        fields: Mapping[str, Expression],
    ) -> tuple[tuple[AggregateColumn, ...], tuple[PythonFunction, ...], tuple[str, ...] | None]:
        """What the records of a stream are folded into: its columns, the functions of all streams, and all fields."""
        if self._streams and callable(value) != bool(self._aggregators):
            self._graph.fault(
                "cogroup: functions and expressions are given",
                "Write a function for each stream, cogroup(add_click).cogroup(orders, add_order), or expressions",
            )
            return (), self._aggregators, None
        if callable(value):
            self._refuse_fields(fields, "cogroup")
            given = ("the key", "the value", "the aggregate")
            classes = (None, other._record_class, returned_class(value))
            function = other._function(value, "cogroup", REJECT, True, given, classes)
            return (), (*self._aggregators, function), None
        columns = other._folded(self._named(value, fields, "cogroup"), "cogroup")
        functions = {column.name: column.function for _, others in self._streams for column in others}
        for column in columns:
            if (function_name := functions.get(column.name, column.function)) != column.function:
                self._graph.fault(
                    f"cogroup, {column.name}: it is a {function_name}() of one stream and a {column.function}() of "
                    "another",
                    "One function for both, or two fields",
                )
        named = (column.name for column in columns)
        return columns, (), None if self._fields is None else tuple(dict.fromkeys((*self._fields, *named)))

    def windowed_by(
        self, windows: TimeWindows | CalendarWindows | CustomWindows | SlidingWindows | SessionWindows
    ) -> WindowedCogroupedKStream[K]:
        """Aggregate each key anew in each window, or in each session, as :meth:`KGroupedStream.windowed_by` does.

        Example: ``cogrouped.windowed_by(TimeWindows("1 minute")).aggregate(store="per-minute")``

        Args:
            windows: As ``TimeWindows("1 minute")``, ``SlidingWindows("5 minutes")`` or
                ``SessionWindows("5 minutes")``.
        """
        return WindowedCogroupedKStream(replace(self, _window=_judged_windows(self._graph, windows)))

    def aggregate(
        self,
        initializer: Callable[[], Any] | None = None,
        *,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Aggregate the records of each key.

        Example: ``cogrouped.aggregate(store="per-customer")``

        A field is what its function gives of the records so far: of no record a count is 0, and everything else null.

        Args:
            initializer: With aggregators a function without arguments that returns the aggregate of a key of which
                there is none (``Initializer``).
            schema: With aggregators the fields of the aggregate, in Spark's DDL. Without it the return type of an
                aggregator, or of the initializer, tells them; see :meth:`KStream.map_values`.
            on_error: For functions; see :meth:`KStream.map_values`. After a failed call the aggregate is as before.
            deterministic: For functions; see :meth:`KStream.map_values`.
            store: The name of the state store. Its changelog is ``<application.id>-<store>-changelog``.
            name: The beginning of the names of the processors: ``<name>-cogroup-agg-0`` and so on for the streams, and
                ``<name>-cogroup-merge``. Without it the library's numbering gives names.

        Returns:
            A table with the fields of all streams.
        """
        return self._aggregated(_CogroupArguments(initializer, None, schema, on_error, deterministic), store, name)

    def _aggregated(self, given: _CogroupArguments, store: str | None, name: str | None) -> KTable[K, Any]:
        graph = self._graph
        if name is not None and (fault := name_fault(name)):
            graph.fault(fault, legal_name(name))
            name = None
        functions = self._functions_of(given)
        store_name = graph.store_name(store, "COGROUPKSTREAM-AGGREGATE-")
        parents, sources = [], set[str]()
        for stream, _ in self._streams:
            parent, of_stream = self._behind_repartition(stream, store_name)
            parents.append(parent)
            sources |= of_stream
        # The library names the sources before the repartition topics alone, and would take topics of unlike counts.
        graph.copartition_groups += [self._sources, frozenset(sources)]
        sides: list[tuple[str, CogroupSide]] = []
        for number, (_, columns) in enumerate(self._streams):
            side = CogroupSide(store_name, columns, self._window)
            if functions is not None:
                side = CogroupFunctionSide(store_name, (), self._window, number=number)
            sides.append((self._name_of(name, f"cogroup-agg-{number}", "AGGREGATE"), side))
        merge = self._name_of(name, "cogroup-merge", "MERGE")
        if functions is None:
            operation = Cogroup.of(store_name, tuple(columns for _, columns in self._streams), self._window)
            node = graph.cogroup(parents, sides, merge, operation)
            return KTable(graph, node, self._fields, self._key, frozenset(sources), self._window, store_name)
        aggregating, aggregators, merger = functions
        by_functions = CogroupFunctions(
            store_name,
            (),
            self._window,
            function=aggregating.function,
            fields=aggregating.fields,
            initializer=aggregating.initializer,
            merger=merger,
            aggregators=aggregators,
        )
        node = graph.cogroup(parents, sides, merge, by_functions)
        return KTable(
            graph, node, _names(aggregating.made), self._key, frozenset(sources), self._window, store_name,
            _record_class=aggregating.record_class,
        )  # fmt: skip

    def _functions_of(
        self, given: _CogroupArguments
    ) -> tuple[_Aggregating, tuple[PythonFunction, ...], PythonFunction | None] | None:
        """The functions that aggregate, which are judged: with the first of them, all, and the merger.

        None where expressions do.
        """
        if not self._aggregators:
            if given.initializer is not None or given.merger is not None:
                self._graph.fault(
                    "aggregate: functions are given, and the streams have expressions",
                    "Write cogroup(add_click).cogroup(orders, add_order).aggregate(initializer)",
                )
            self._refuse_schema(given.schema, "aggregate")
            return None
        first = self._aggregators[0]
        if given.initializer is None:
            self._graph.fault(
                f"aggregate: {first.name} is an aggregator without an initializer",
                "Write aggregate(initializer), with a function without arguments",
            )
            return _Aggregating(first, first, None, None), self._aggregators, None
        begin = given.initializer
        initializer = self._initializer(begin, given.schema, given.on_error, given.deterministic)
        aggregators = tuple(
            replace(each, on_error=given.on_error, deterministic=given.deterministic) for each in self._aggregators
        )
        told = next(filter(None, (hinted_schema(each.call) for each in (*aggregators, initializer))), None)
        made = self._made_by(first, told if given.schema is None else given.schema, "aggregate")
        aggregating = _Aggregating(initializer, aggregators[0], made, returned_class(begin))
        merger = self._merger(given.merger, aggregating, given.on_error, given.deterministic)
        return aggregating, aggregators, merger

    def _behind_repartition(self, stream: KGroupedStream[Any, Any], store: str) -> tuple[GraphNode, frozenset[str]]:
        """Return the node from which an aggregate takes a stream's records, and its sources."""
        if not stream._repartition_required:
            return stream._node, stream._sources
        repartition = self._graph.draw_repartition(stream._name or store, stream._key.serde)
        if stream not in self._repartitions:
            self._repartitions[stream] = repartition
            self._graph.add_repartition(repartition, stream._node)
        repartition = self._repartitions[stream]
        return repartition.node, frozenset({repartition.source})

    def _name_of(self, name: str | None, suffix: str, kind: str) -> str:
        return self._graph.name(None if name is None else f"{name}-{suffix}", f"COGROUPKSTREAM-{kind}-")


@answers_words
@judged
@dataclass(frozen=True, repr=False)
class WindowedCogroupedKStream(Generic[K]):
    """Several grouped streams that are aggregated anew in each window.

    Example: ``cogrouped.windowed_by(SessionWindows("5 minutes")).aggregate(store="per-session")``

    These are ``TimeWindowedCogroupedKStream`` and ``SessionWindowedCogroupedKStream``.
    """

    _cogrouped: CogroupedKStream[K]

    def __repr__(self) -> str:
        """The class, the last node and the fields."""
        return repr(self._cogrouped).replace("CogroupedKStream", "WindowedCogroupedKStream", 1)

    def __dir__(self) -> list[str]:
        """As those of streams."""
        return [name for name in object.__dir__(self) if name.startswith("__") or name in operations_of(type(self))]

    def _mistaken(self, mistakes: Iterable[Diagnostic], operation: str, returns: Any) -> Any:
        return self._cogrouped._mistaken(mistakes, operation, returns)

    def aggregate(
        self,
        initializer: Callable[[], Any] | None = None,
        *,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Aggregate as :meth:`CogroupedKStream.aggregate` does, for each key and window.

        Example: ``cogrouped.windowed_by(TimeWindows("1 minute")).aggregate(store="per-minute")``

        Args:
            initializer: With aggregators a function without arguments that returns the aggregate of a window of which
                there is none.
            merger: With aggregators, for sessions: see :meth:`WindowedKStream.aggregate`.
            schema: With aggregators the fields of the aggregate: see :meth:`CogroupedKStream.aggregate`.
            on_error: For functions; see :meth:`KStream.map_values`. After a failed call all windows are as before.
            deterministic: For functions; see :meth:`KStream.map_values`.
            store: The name of the state store.
            name: The beginning of the names of the processors.
        """
        given = _CogroupArguments(initializer, merger, schema, on_error, deterministic)
        return self._cogrouped._aggregated(given, store, name)


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class KTable(_Declared[K, V]):
    """A table: the last value of each key.

    Example::

        def in_lyon(customers: KTable) -> KTable:
            return customers.filter(F.city == "Lyon")

    Attributes:
        _store: The name of its state store. A joined table may have none.
        _final: Whether it has the result of each window once, when the window closes.
        _joined_from: For a table that two others are joined to: the stores that its values are computed from, or the
            one that has them.
    """

    _store: str = ""
    _materialize: Callable[[], None] = lambda: None
    """Called when a join looks up in the table. A table from a topic has a state store only then."""
    _final: bool = False
    _joined_from: tuple[str, ...] = ()
    _topic: tuple[str, Serde] | None = None
    """The topic that the table is read from, and the serde of its values; None for another table."""
    _is_by_foreign_key: bool = False
    """Whether it is the result of a join by a foreign key."""
    _result_of: str = ""
    """The operation without a look-up that gives its values: nothing is joined with its result. Empty elsewhere."""
    _send_old_values: Callable[[bool], bool] = lambda force: True
    """Asks for the value before each update, and tells whether it will be known (``enableSendingOldValues``).

    A table without a state store gets one where it is forced to.
    """
    _history_ms: int | None = None
    """Of a versioned store how many ms it keeps an earlier value. Then the table has no operation but joins of streams.
    """
    _suppress: Callable[[], None] | None = None
    """Lets the aggregate pass the final results alone. None for a table that is no aggregate of windows."""

    def filter(
        self,
        condition: Text | Callable[[V], bool | None],
        *,
        on_error: OnError = REJECT,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the values for which a condition is true. The keys of the others are deleted, with a null value.

        Example: ``counts.filter("count > 10").to_stream().to("often")``

        As in the library, every update of a table without a state store is passed: also the deletion of a key that had
        no value that was kept. Of an aggregate, and of another table with a state store, such a deletion is left out.

        Args:
            condition: A Spark SQL condition. Of ``record`` it sees the key, and its window. A value for which the
                condition is null is not kept. Or a function of the value, or of the key and the value; see
                :meth:`KStream.filter`. It is not called with a null value. It must return the same for the same value.
            on_error: For a function; see :meth:`KStream.map_values`. An update for which it fails is not passed.
            store: The name of a state store for the result (``Materialized.as``). Its changelog has the kept values.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table with the same fields.
        """
        return self._filtered(self._told(condition, "filter", on_error), store, name, "filter")

    def filter_not(
        self,
        condition: Text | Callable[[V], bool | None],
        *,
        on_error: OnError = REJECT,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the values for which a condition is not true: those that :meth:`filter` does not keep.

        Example: ``counts.filter_not("count > 10")``

        Args:
            condition: As for :meth:`filter`. A value for which it is null is kept.
            on_error: As for :meth:`filter`.
            store: As for :meth:`filter`.
            name: As for :meth:`filter`.
        """
        return self._filtered(self._told(condition, "filter_not", on_error), store, name, "filter_not")

    def map_values(
        self,
        value: Mapping[str, Text] | Callable[[V], Any] = NO_FIELDS,
        *,
        schema: str | None = None,
        on_error: OnError = REJECT,
        store: str | None = None,
        name: str | None = None,
        **fields: Expression,
    ) -> KTable[K, Any]:
        """Give each value a new one. A deletion stays a deletion.

        Example: ``counts.map_values({"often": "count > 10"})``

        Args:
            value: The fields of the new value: name to Spark SQL expression. Of ``record`` they see the key, and its
                window. Or a function of the value, or of the key and the value; see :meth:`KStream.map_values`. It is
                not called with a null value. None deletes the key. It must return the same for the same value.
            schema: For a function; see :meth:`KStream.map_values`.
            on_error: For a function; see :meth:`KStream.map_values`. An update for which it fails is not passed.
            store: As for :meth:`filter`.
            name: As for :meth:`filter`.
            fields: Further fields of the new value, as ``often=F.count > 10``.

        Returns:
            A table with these fields.
        """
        self._refuse_versioned("map_values")
        if callable(value):
            self._refuse_fields(fields, "map_values")
            function = self._function(value, "map_values", on_error, deterministic=True)
            made = tuple((self._made_by(function, schema, "map_values") or {}).items())
            mapping = TableMapValuesFunction((), store, function=function, fields=made)
            mapped = self._mapped(name, store, lambda: mapping)
            return replace(mapped, _fields=_names(dict(made)), _record_class=returned_class(value))
        self._refuse_schema(schema, "map_values")
        columns = self._columns(self._named(value, fields, "map_values"), "map_values")
        for column, expression in columns:
            self._refuse_record(expression, f"map_values, {column}")
        mapped = self._mapped(name, store, lambda: TableMapValues(columns, store))
        names = None if self._fields is None else _column_names(columns)
        return replace(mapped, _fields=names, _record_class=None)

    def _mapped(self, name: str | None, store: str | None, mapping: Callable[[], Operation]) -> KTable[K, Any]:
        """``KTableImpl.doMapValues``."""
        sends_old_values = self._send_old_values if store is None else lambda force: True
        return self._computed("KTABLE-MAPVALUES-", name, store, "map_values", mapping, sends_old_values)

    def _filtered(
        self, condition: str | PythonFunction, store: str | None, name: str | None, operation: str
    ) -> KTable[K, V]:
        """``KTableImpl.doFilter``."""
        self._refuse_record(condition, operation)
        known = [self._send_old_values(False)]

        def send_old_values(force: bool) -> bool:
            known[0] = known[0] or store is not None or self._send_old_values(force)
            return known[0]

        negated = operation == "filter_not"
        self._refuse_versioned(operation)

        def filtering() -> Operation:
            if self._final:  # a result has no old value, and no deletion comes of it
                if isinstance(condition, PythonFunction):
                    return FilterNotFunction(condition) if negated else FilterFunction(condition)
                return FilterNot(condition) if negated else Filter(condition)
            return TableFilter(condition, negated, store, known[0])

        return self._computed("KTABLE-FILTER-", name, store, operation, filtering, send_old_values)

    def _refuse_versioned(self, operation: str) -> None:
        if self._history_ms is not None:
            self._graph.fault(
                f"{operation}: the table is versioned, and a late update does not change its last value",
                f"Join streams with it, or give the table a store that is not versioned: store={self._store!r}",
            )

    def _refuse_record(self, expression: str | PythonFunction, operation: str) -> None:
        if isinstance(expression, str) and _OTHER_THAN_WINDOWED_KEY.search(_TEXT.sub("", expression)):
            self._graph.fault(
                f"{operation}: an operation of a table sees record.key and record.window, and nothing else of record",
                "Its result is a function of the value and the key; of a stream, to_stream(), it sees all of record",
            )

    def _computed(
        self,
        prefix: str,
        name: str | None,
        store: str | None,
        operation: str,
        computing: Callable[[], Operation],
        send_old_values: Callable[[bool], bool],
    ) -> KTable[K, Any]:
        """The table whose values an operation computes, each from one value of this table."""
        if store is not None:
            self._graph.store_name(store, "")
            if self._window is not None:
                self._graph.fault(
                    f"{operation}: a store of windows, whose keys have the bytes of no windowed store, is not written",
                    "Leave out store=, or write the updates with to_stream().to('…')",
                )
        node = self._graph.processor(self._graph.name(name, prefix), computing, self._node)
        return KTable(
            self._graph, node, self._fields, self._key, self._sources, self._window, store or "",
            _final=self._final, _result_of=operation, _send_old_values=send_old_values,
            _record_class=self._record_class,
        )  # fmt: skip

    def join(
        self,
        other: KTable[Any, Any],
        value: Mapping[str, Text] | None = None,
        *,
        foreign_key: Text | Callable[[V], Any] | Callable[[K, V], Any] | None = None,
        store: str | None = None,
        name: str | None = None,
        **fields: Expression,
    ) -> KTable[K, Any]:
        """Join the values that two tables have for the same key.

        Example: ``customers.join(addresses, {"name": "name", "city": "table.city"})``

        Each update of either table gives the key a new joined value, or a null value when there is none any more. Its
        timestamp is the later one of both values.

        With ``foreign_key`` each value of this table is joined with the value that the other table has of another key:
        ``orders.join(customers, {"amount": "amount", "name": "table.name"}, foreign_key="customer")``. An update of
        the other table gives new joined values to all keys whose foreign key it has. The timestamp is then that of the
        update, and else the later one of both values.

        Args:
            other: A table with the same key, from :meth:`Topology.table`, or the result of another join of tables. With
                ``foreign_key`` a table from :meth:`Topology.table` with other keys. This table is then one, too, or the
                result of another join by a foreign key, which gets a state store.
            value: The fields of the result: name to Spark SQL expression, in which the fields of the other table are
                ``table.<field>``. Of ``record`` it sees the key. Without it the result has the fields of both.
            foreign_key: A Spark SQL expression over the value of this table: the key of the other table. A value for
                which it is null is not joined. Or a function of the value, or of the key and the value, that returns
                this key; see :meth:`KStream.select_key`. It must return the same for the same value.
            store: The name of a state store for the result (``Materialized.as``). Its changelog has the joined values.
            name: The name of the last processor (``Named.as``), and the beginning of the names of the two before it.
                Without it the library's numbering gives one.
            fields: Further fields of the result, as ``city=F.table.city``.

        Returns:
            A table with these fields.
        """
        columns = self._named(value, fields, "join") if fields else value
        if foreign_key is not None:
            return self._join_by_foreign_key(other, columns, foreign_key, store, name, "join")
        return self._join(other, columns, store, name, "join")

    def left_join(
        self,
        other: KTable[Any, Any],
        value: Mapping[str, Text] | None = None,
        *,
        foreign_key: Text | Callable[[V], Any] | Callable[[K, V], Any] | None = None,
        store: str | None = None,
        name: str | None = None,
        **fields: Expression,
    ) -> KTable[K, Any]:
        """Join as :meth:`join` does, but keep the keys that this table alone has, with the other's fields null.

        Example: ``accounts.left_join(addresses, {"name": "name", "city": "table.city"})``

        Args:
            other: As for :meth:`join`.
            value: As for :meth:`join`.
            foreign_key: As for :meth:`join`. A value for which it is null is joined with nulls.
            store: As for :meth:`join`.
            name: As for :meth:`join`.
            fields: As for :meth:`join`.
        """
        columns = self._named(value, fields, "left_join") if fields else value
        if foreign_key is not None:
            return self._join_by_foreign_key(other, columns, foreign_key, store, name, "left_join")
        return self._join(other, columns, store, name, "left_join")

    def outer_join(
        self,
        other: KTable[Any, Any],
        value: Mapping[str, Text] | None = None,
        *,
        store: str | None = None,
        name: str | None = None,
        **fields: Expression,
    ) -> KTable[K, Any]:
        """Join as :meth:`join` does, but keep the keys that either table alone has, with the fields of the other null.

        Example: ``accounts.outer_join(addresses, {"name": "name", "city": "table.city"})``

        Args:
            other: As for :meth:`join`.
            value: As for :meth:`join`.
            store: As for :meth:`join`.
            name: As for :meth:`join`.
            fields: As for :meth:`join`.
        """
        columns = self._named(value, fields, "outer_join") if fields else value
        return self._join(other, columns, store, name, "outer_join")

    def _join(
        self,
        other: KTable[Any, Any],
        value: Mapping[str, Text] | None,
        store: str | None,
        name: str | None,
        operation: str,
    ) -> KTable[K, Any]:
        """``KTableImpl.doJoin``."""
        graph = self._graph
        if not self._can_take(other, KTable, operation, "Join a table of this topology"):
            return replace(self, _fields=None)
        if self._window is not None:
            graph.fault(f"{operation}: the key is windowed", "Join tables with plain keys")
        are_aggregates = self._is_aggregate and other._is_aggregate and self._store != other._store
        if (both := self._sources & other._sources) and not are_aggregates:
            graph.fault(
                f"{operation}: both tables come from {', '.join(sorted(both))}",
                "Compute what you need of it before: one table is one side of a join",
            )
            return replace(self, _fields=None)
        if computed := [table._result_of for table in (self, other) if table._result_of and not table._store]:
            graph.fault(
                f"{operation}: {'this' if self._result_of else 'the other'} table is the result of {computed[0]}, "
                "which has no state store",
                "Give it one, in which the join looks up: store='…'",
            )
            return replace(self, _fields=None)
        for table in (self, other):
            table._refuse_versioned(operation)
        self._refuse_unlike_keys(other, operation, "other table")
        columns = self._joined_values(other, value, operation)
        sources = self._sources | other._sources
        graph.copartition_groups.append(sources)
        stores = []
        for table in (self, other):
            table._materialize()
            stores.append(table._joined_from or (table._store,))
        if store is not None:
            graph.store_name(store, "")
        merge = graph.name(name, "KTABLE-MERGE-")
        sides = (graph.next_name("KTABLE-JOINTHIS-"), graph.next_name("KTABLE-JOINOTHER-"))
        if name is not None:
            sides = (f"{name}-join-this", f"{name}-join-other")
            if not name_fault(name) and (fault := name_fault(max(sides, key=len))):
                graph.fault(fault, "Choose a shorter name")
        join = TableJoin(columns, operation != "join", operation == "outer_join", store)
        node = graph.table_join((self._node, other._node), (*sides, merge), (stores[0], stores[1]), join)
        fields = None if self._fields is None or other._fields is None else tuple(column for column, _ in columns)
        joined_from = (store,) if store is not None else tuple(dict.fromkeys(stores[0] + stores[1]))
        key = self._key if self._key.name is not None else other._key
        return KTable(graph, node, fields, key, sources, None, store or "", _joined_from=joined_from)

    @property
    def _is_aggregate(self) -> bool:
        return bool(self._store) and self._topic is None and not self._result_of and not self._joined_from

    def _joined_values(self, other: KTable[Any, Any], value: Mapping[str, Text] | None, operation: str) -> Columns:
        """Return the fields of a join of tables, which see nothing of the record but its key."""
        columns = self._joined(other, value, operation, "table")
        for column, expression in columns:
            if _OTHER_THAN_KEY.search(_TEXT.sub("", expression)):
                self._graph.fault(
                    f"{operation}, {column}: a join of tables sees record.key, and nothing else of record",
                    "Its value is a function of both values and the key: an update of either gives it anew",
                )
        return columns

    def _join_by_foreign_key(
        self,
        other: KTable[Any, Any],
        value: Mapping[str, Text] | None,
        foreign_key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        store: str | None,
        name: str | None,
        operation: str,
    ) -> KTable[K, Any]:
        """``KTableImpl.doJoinOnForeignKey``."""
        graph = self._graph
        if not self._can_take(other, KTable, operation, "Join a table of this topology"):
            return replace(self, _fields=None)
        if self._window is not None or other._window is not None:
            graph.fault(f"{operation}: the key is windowed", "Join tables with plain keys")
        if both := self._sources & other._sources:
            graph.fault(
                f"{operation}: both tables come from {', '.join(sorted(both))}",
                "Write one of them into a compacted topic of its own, and read that as a table",
            )
            return replace(self, _fields=None)
        if None in (self._fields, other._fields) and None in (self._topic, other._topic):
            return replace(self, _fields=None)  # one of them stands for what a fault has left out
        is_this = self._topic is None and not self._is_by_foreign_key
        if is_this or other._topic is None:
            result_of = (self if is_this else other)._result_of
            graph.fault(
                f"{operation}: by a foreign key with {'this' if is_this else 'the other'} table being the "
                f"result of {result_of or 'an aggregate or of another join'}",
                "Write it to a compacted topic with to_stream().to('…') and join Topology.table('…')",
            )
            return replace(self, _fields=None)
        for table in (self, other):
            table._refuse_versioned(operation)
        columns = self._joined_values(other, value, operation)
        extracted = self._told(foreign_key, f"{operation}, foreign_key")
        if isinstance(extracted, str) and _OTHER_THAN_KEY.search(_TEXT.sub("", extracted)):
            graph.fault(
                f"{operation}: the foreign key sees record.key, and nothing else of record",
                "Use only the value and the key: an earlier value must give the same foreign key again",
            )
        for table in (self, other):
            table._materialize()
        needed = [store is not None]
        node, stored, registration, response = graph.foreign_key_join(
            (self._node, self._store, self._key.serde),
            (other._node, other._store, other._key.serde),
            Responses(*other._topic),
            extracted,
            columns,
            left=operation == "left_join",
            name=name,
            store=store,
            is_stored=lambda: needed[0],
        )

        def materialize() -> None:
            needed[0] = True

        def send_old_values(force: bool) -> bool:
            needed[0] = needed[0] or force
            return needed[0]

        graph.copartition_groups += [other._sources | {registration}, self._sources | {response}]
        sources = self._sources | {response}
        fields = None if self._fields is None or other._fields is None else tuple(column for column, _ in columns)
        return KTable(
            graph, node, fields, self._key, sources, None, stored, materialize,
            _joined_from=(stored,), _send_old_values=send_old_values, _is_by_foreign_key=True,
        )  # fmt: skip

    @overload
    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: None = None,
        on_error: OnError = ...,
        name: str | None = ...,
    ) -> KGroupedTable[str, V]: ...

    @overload
    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: Primitive[NewKey],
        on_error: OnError = ...,
        name: str | None = ...,
    ) -> KGroupedTable[NewKey, V]: ...

    @overload
    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: KeySerde | None,
        on_error: OnError = ...,
        name: str | None = ...,
    ) -> KGroupedTable[Any, V]: ...

    def group_by(
        self,
        key: Text | Callable[[V], Any] | Callable[[K, V], Any],
        *,
        key_serde: KeySerde | Primitive[Any] | None = None,
        on_error: OnError = REJECT,
        name: str | None = None,
    ) -> KGroupedTable[Any, V]:
        """Group the values that the table has now by a new key. An update takes the old value out of its group.

        Example: ``customers.group_by("city", name="by-city").count(store="customers-per-city")``

        Old and new values go through a repartition topic. A table that is read from a topic gets a state store.

        Args:
            key: A Spark SQL expression. Its text is the new key. Of ``record`` it sees the key, and its window. A value
                for which it is null is in no group. Or a function of the value, or of the key and the value; see
                :meth:`KStream.select_key`. It must return the same for the same value.
            key_serde: The serde that writes the key instead (``Grouped.keySerde``), as ``Long()``. The expression has
                its type; see :meth:`KStream.select_key`.
            on_error: For a function; see :meth:`KStream.map_values`. A value for which it fails is in no group.
            name: Names the processor, and the repartition topic ``<application.id>-<name>-repartition``
                (``Grouped.as``).
        """
        graph = self._graph
        told = self._told(key, "group_by", on_error)
        self._refuse_record(told, "group_by")
        self._refuse_versioned("group_by")
        new_key = Key.declared(graph, "group_by", _word(told), key_serde)
        if self._final:
            graph.fault(
                "group_by: the table has the final results of windows",
                "to_stream().group_by('…') groups them. Each of them comes once, and none is taken out of its group",
            )
        if self._joined_from and not self._store:
            graph.fault(
                "group_by: the table is the result of a join of tables without a state store",
                "Give the join a store: store='…'",
            )
        select = TableKeySelect(told, new_key.serde)
        node = graph.processor(graph.name(name, "KTABLE-SELECT-"), select, self._node)
        self._send_old_values(True)
        return KGroupedTable(
            graph, node, self._fields, new_key, self._sources, _name=name, _record_class=self._record_class
        )

    @overload
    def to_stream(self, key: None = None, *, key_serde: None = None, name: str | None = ...) -> KStream[K, V]: ...

    @overload
    def to_stream(self, key: Text, *, key_serde: KeySerde | None = None, name: str | None = ...) -> KStream[Any, V]: ...

    def to_stream(
        self, key: Text | None = None, *, key_serde: KeySerde | None = None, name: str | None = None
    ) -> KStream[Any, V]:
        """The updates of the table as a stream.

        Examples: ``table.to_stream().to("totals")``, ``table.to_stream("record.key", key_serde=String()).to("totals")``

        Args:
            key: A Spark SQL expression: the new key of each update. ``to_stream("record.key")`` of a table with windows
                gives the key without its window. It is short for ``to_stream().select_key(…)``, as in the library.
            key_serde: The serde that writes the new key, as for :meth:`KStream.select_key`.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.
        """
        self._refuse_versioned("to_stream")
        node = self._graph.processor(self._graph.name(name, "KTABLE-TOSTREAM-"), ToStream(), self._node)
        stream = KStream(
            self._graph, node, self._fields, self._key, self._sources, self._window, _record_class=self._record_class
        )
        if key is None:
            if key_serde is not None:
                self._graph.fault("to_stream: key_serde without key", "Write to_stream('record.key', key_serde=…)")
            return stream
        return stream.select_key(key, key_serde=key_serde)

    def suppress(self, suppressed: UntilWindowCloses | UntilTimeLimit, *, name: str | None = None) -> KTable[K, V]:
        """Pass the result of each window once, when the window closes, or the last update of a key after some time.

        Examples: ``windowed.count(store="per-minute").suppress(UntilWindowCloses()).to_stream().to("final")``,
        ``customers.suppress(UntilTimeLimit("5 minutes")).to_stream().to("calmer")``

        Time windows close as with ``emit_strategy(OnWindowClose())``. Sessions and sliding windows close a millisecond
        earlier, as in the library. The nodes are those of the library's ``suppress``.

        Args:
            suppressed: ``UntilWindowCloses()``. The table is an aggregate of windows, and nothing else takes its
                updates. Or ``UntilTimeLimit("5 minutes")`` for any table.
            name: The name of the processor (``Suppressed.withName``). Without it the library's numbering gives one.

        Returns:
            A table with the same fields.
        """
        graph = self._graph
        if isinstance(suppressed, UntilTimeLimit):
            return self._suppress_updates(suppressed, name)
        if self._suppress is None:
            graph.fault(f"suppress: {self._unlike_suppressed()}", self._instead_of_suppress())
            return self
        name, store = self._names_of_suppress(name)
        self._suppress()
        node = graph.processor(name, Suppress(store), self._node)
        return replace(self, _node=node, _store="", _final=True, _suppress=None)

    def _suppress_updates(self, suppressed: UntilTimeLimit, name: str | None) -> KTable[K, V]:
        graph, limit_ms = self._graph, 0
        example = "For example UntilTimeLimit('5 minutes', max_records=10_000)"
        try:
            limit_ms = suppressed.time_limit_ms
        except ValueError as error:
            graph.fault(f"suppress: time_limit: {error}", example)
        if suppressed.max_records is not None and suppressed.max_records < 1:
            graph.fault(f"suppress: max_records: {suppressed.max_records} is not above 0", example)
        if suppressed.max_records is None and suppressed.shut_down_when_full:
            graph.fault("suppress: shut_down_when_full without max_records: the buffer has no limit", example)
        if self._final:
            graph.fault("suppress: UntilTimeLimit of final results, each of which comes once", "Leave it out")
            return self
        name, store = self._names_of_suppress(name)
        self._send_old_values(True)  # the table gets a state store, as in the library
        shuts_down = suppressed.shut_down_when_full
        limits: dict[str, Any] = {"shuts_down": shuts_down, "window": self._window}
        operation = SuppressUpdates.of(store, limit_ms, suppressed.max_records, **limits)
        node = graph.processor(name, operation, self._node)

        def send_old_values(force: bool) -> bool:
            if self._send_old_values(force):
                graph.fault(
                    "suppress: an operation of a table behind it needs the value before each update, which the buffer "
                    "does not have",
                    "Write it before suppress, or to_stream() behind suppress",
                )
            return False

        return KTable(
            graph, node, self._fields, self._key, self._sources, self._window, _result_of="suppress",
            _send_old_values=send_old_values, _record_class=self._record_class,
        )  # fmt: skip

    def _names_of_suppress(self, name: str | None) -> tuple[str, str]:
        """The names of the processor and of its buffer."""
        graph = self._graph
        if name is None:
            return graph.generate_name("KTABLE-SUPPRESS-"), graph.store_name(None, "KTABLE-SUPPRESS-")
        if fault := name_fault(f"{name}-store"):
            graph.fault(fault, legal_name(name))
        return name, graph.store_name(f"{name}-store", "")

    def _unlike_suppressed(self) -> str:
        if self._window is None:
            return "the table has no windows"
        if self._final:
            return "the table has the final results already"
        return "of another table than an aggregate of windows of one stream"

    def _instead_of_suppress(self) -> str:
        if self._window is None:
            return "Leave it out. A micro-batch passes the last update of each key without it"
        if self._final:
            return "Leave it out"
        return "Write emit_strategy(OnWindowClose()), between windowed_by and the aggregate"


@answers_words
@dataclass(frozen=True, eq=False, repr=False)
class GlobalKTable(_Declared[K, V]):
    """A table of which each stream task has all rows. A stream is joined with it: :meth:`KStream.join`.

    A Python class reads its store: :meth:`KStream.process`, with ``stores={"products": products}``.

    Example::

        def priced(orders: KStream, products: GlobalKTable) -> KStream:
            return orders.join(products, {"id": "id", "price": "table.price"}, key="product")

    Attributes:
        _topic: The topic that it is read from.
        _serde: The serde of its values.
        _store: The name of its state store.
    """

    _topic: str = ""
    _serde: Serde = field(default_factory=Bytes)
    _store: str = ""


@answers_words
@judged
@dataclass(frozen=True, eq=False, repr=False)
class KGroupedTable(_Declared[K, V]):
    """A table whose values are grouped by new keys.

    Example: ``customers.group_by("city").count()``

    Attributes:
        _name: Names the repartition topic; None for a name that follows from the store.
        _repartition: The nodes around the repartition topic, where an aggregate has added them.
    """

    _name: str | None = None
    _repartition: list[Repartition] = field(default_factory=list)

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable[K, Any]:
        """Count the keys of the table that are in each group now.

        Example: ``customers.group_by("city").count(store="customers-per-city")``

        The count of a group that nothing is in any more is 0.

        Args:
            store: The name of the state store. Its changelog is ``<application.id>-<store>-changelog``.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table whose value has the field ``count``.
        """
        store_name = self._graph.store_name(store, "KTABLE-AGGREGATE-")
        return self._aggregate("KTABLE-AGGREGATE-", name, store_name, TableCount.of(store_name), ("count",))

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        *,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group with Python functions.

        Example: ``balances.group_by("country").reduce(plus, minus, store="balance-per-country")``

        Args:
            adder: A function that is given the value so far and one that comes into the group, and returns the new
                value (``Reducer``). The first value of a group is kept as it is.
            subtractor: A function that is given the value so far and one that leaves the group. It is called first
                where an update has both.
            on_error: See :meth:`KStream.map_values`. After a failed call the value is as before.
            deterministic: See :meth:`KStream.map_values`. It holds for all functions.
            store: The name of the state store.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table with the fields of the table. A function that returns None deletes the group.
        """
        given, classes = ("the value so far", "the value"), (self._record_class, self._record_class)
        added, removed = (
            self._function(function, "reduce", on_error, deterministic, given, classes)
            for function in (adder, subtractor)
        )
        store_name = self._graph.store_name(store, "KTABLE-AGGREGATE-")
        operation = TableReduce(added, store_name, (), (), subtractor=removed)
        return self._aggregate("KTABLE-REDUCE-", name, store_name, operation, self._fields, self._record_class)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Made],
        adder: Callable[[K, V, Made], Made | None],
        subtractor: Callable[[K, V, Made], Made | None],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Made]: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        *,
        schema: str | None = ...,
        on_error: OnError = ...,
        deterministic: bool = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Any]: ...

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        *,
        schema: str | None = None,
        on_error: OnError = REJECT,
        deterministic: bool = True,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Aggregate the values of each group with Python functions.

        Example: ``balances.group_by("country").aggregate(nothing, add, take, store="totals", schema="total double")``

        Args:
            initializer: A function without arguments that returns the aggregate of a group of which there is none
                (``Initializer``).
            adder: A function that is given the new key, a value that comes into the group, and the aggregate so far,
                and returns the new aggregate (``Aggregator``).
            subtractor: The same for a value that leaves the group. It is called first where an update has both.
            schema: The fields of the aggregate, in Spark's DDL. Without it the return type of the adder, or of the
                initializer, tells them; see :meth:`KStream.map_values`.
            on_error: See :meth:`KStream.map_values`. After a failed call the aggregate is as before.
            deterministic: See :meth:`KStream.map_values`. It holds for all functions.
            store: The name of the state store.
            name: The name of the processor (``Named.as``). Without it the library's numbering gives one.

        Returns:
            A table with these fields. A function that returns None deletes the group.
        """
        begun = self._initializer(initializer, schema, on_error, deterministic)
        given = ("the key", "the value", "the aggregate")
        returned = returned_class(adder) or returned_class(initializer)
        classes = (None, self._record_class, returned)
        added, removed = (
            self._function(function, "aggregate", on_error, deterministic, given, classes)
            for function in (adder, subtractor)
        )
        made = self._made_by(added, hinted_schema(initializer) if schema is None else schema, "aggregate")
        store_name = self._graph.store_name(store, "KTABLE-AGGREGATE-")
        columns = tuple((made or {}).items())
        operation = TableAggregate(added, store_name, columns, columns, subtractor=removed, initializer=begun)
        return self._aggregate("KTABLE-AGGREGATE-", name, store_name, operation, _names(made), returned)

    def _aggregate(
        self,
        prefix: str,
        name: str | None,
        store: str,
        operation: TableReduce,
        fields: tuple[str, ...] | None,
        record_class: type | None = None,
    ) -> KTable[K, Any]:
        """``KGroupedTableImpl.doAggregate``."""
        graph = self._graph
        repartition = graph.draw_table_repartition(self._name or store, name, self._key.serde)
        processor_name = graph.name(name, prefix)
        if not self._repartition or self._name is None:
            self._repartition[:] = [repartition]
        graph.add_repartition(self._repartition[0], self._node)
        node = graph.processor(processor_name, operation, self._repartition[0].node)
        sources = frozenset({self._repartition[0].source})
        return KTable(graph, node, fields, self._key, sources, None, store, _record_class=record_class)


def _stand_in(graph: StreamsGraph, node: GraphNode, sources: frozenset[str], returns: Any) -> Any:
    """What stands for the result of a wrong call: nothing is known of it, so nothing is wrong with it."""
    returns = typing.get_origin(returns) or returns
    if returns is type(None):
        return None
    if returns is WindowedCogroupedKStream:
        return WindowedCogroupedKStream(CogroupedKStream(graph, node, None, Key(), sources))
    if returns is BranchedKStream:
        stream: KStream[Any, Any] = KStream(graph, node, None, Key(), sources)
        branches = _Branches(stream)
        branches.complete = False
        return BranchedKStream(stream, [], branches)
    if isinstance(returns, type) and issubclass(returns, _Declared):
        return returns(graph, node, None, Key(), sources)
    return Mistaken(())


def stand_in(graph: StreamsGraph, returns: Any) -> Any:
    """Return what stands for a stream or a table that was declared wrongly.

    Args:
        graph: Has the faults.
        returns: :class:`KStream` or :class:`KTable`.
    """
    return _stand_in(graph, GraphNode("unknown", lambda parents: (), caller_location()), frozenset(), returns)


def _called_of(call: Callable[..., Any]) -> list[Callable[..., Any]]:
    """What is called of a function, or of a class of processors."""
    if isinstance(call, type) and issubclass(call, Processor):
        return [call.init, call.process, call.on_timer]
    return [] if isinstance(call, type) else [call]


def _there_are(name: str, names: tuple[str, ...]) -> str:
    """The names that there are, with the one that may be meant."""
    meant = did_you_mean(name, names) or did_you_mean(name, RESERVED_FIELDS)
    return ". ".join(filter(None, [f"It has: {', '.join(names) or 'none'}", meant]))


def _meant_by(text: str, names: tuple[str, ...]) -> str:
    """What to write in place of a name, or of a path, that begins with no field."""
    first, _, path = text.partition(".")
    if first == "F" and path:
        return f"F stands outside of texts. Write {path}"
    if path.partition(".")[0] in names:
        return f"Write {path}"
    return f"Write record.{text}" if first in OF_RECORD and not path else _there_are(first, names)


def _fields_of_right(expression: Text, side: str) -> list[str]:
    """The fields of the other side of a join that an expression is seen to name."""
    if isinstance(expression, Expression):
        return [path[1] for path in paths_of(expression) if path[0] == side and len(path) > 1]
    match = _FIELD_OF_RIGHT[side].fullmatch(expression.strip())
    return [match[1]] if match else []


def _names(fields: Mapping[str, str] | None) -> tuple[str, ...] | None:
    return None if fields is None else tuple(fields)


def judge_timestamp(
    read: KStream[Any, Any] | KTable[Any, Any], operation: str, timestamp: Text | PythonFunction | None
) -> None:
    """Record a fault if an expression that tells the timestamps of a topic is the name of no field.

    Args:
        read: What is read from the topic.
        operation: Whose parameter it is.
        timestamp: What :func:`extractor` gave.
    """
    if isinstance(timestamp, str | Expression):
        read._field(timestamp, f"{operation}, timestamp")


def extractor(
    graph: StreamsGraph, operation: str, timestamp: Text | Callable[[Any], Any] | None, value: Serde
) -> str | PythonFunction | None:
    """Return what tells the timestamps of the records of a topic; None where the topic tells them.

    Args:
        graph: Takes the fault of what can tell none.
        operation: Whose parameter it is.
        timestamp: An expression or a function.
        value: The serde of the values, whose dataclass the function may be given.
    """
    if timestamp is None or isinstance(timestamp, str | Expression):
        return plain(timestamp)
    name = function_name(timestamp)
    if is_of_batches(timestamp):
        graph.fault(f"{operation}: timestamp: {name} is a function of an Arrow batch", "Write a function of a record")
        return None
    if fault := arguments_fault(timestamp, "the record"):
        graph.fault(f"{operation}: timestamp: {name} {fault}", "Write a function that takes the record alone")
        return None
    (cls,) = given_classes(timestamp, (class_of(value),))
    try:
        takes = timestamp if cls is None else TakesRecords(timestamp, (RecordClass.of(cls),))
    except ValueError:  # as for the other functions
        takes = timestamp
    return PythonFunction(name, takes)


def class_of(value: Serde) -> type | None:
    """Return the dataclass that tells the schema of a serde; None where none does.

    Args:
        value: The serde.
    """
    return value.record_class.cls if isinstance(value, Json) and value.record_class is not None else None


def _word(expression: Text | PythonFunction) -> str | None:
    """The name of what the key is, if the expression is the bare name of a field."""
    if isinstance(expression, PythonFunction):
        return None
    text = plain(expression)
    return text if text.isidentifier() else None


def _passed(operation: Count | Aggregate, is_suppressed: list[bool]) -> Operation:
    """An aggregate of windows, which passes the final results alone where its table is suppressed."""
    return until_closed(operation) if is_suppressed else operation


def _column_names(columns: Columns) -> tuple[str, ...]:
    return tuple(name for name, _ in columns)


def _judged_windows(graph: StreamsGraph, windows: object) -> TimeWindows | SessionWindows:
    """Return the windows of an aggregate. Records the faults that they have."""
    if isinstance(windows, SessionWindows):
        _judge_sessions(graph, windows)
        return windows
    if not isinstance(windows, TimeWindows):
        given = described(windows) if isinstance(windows, type) else shown(windows)
        graph.fault(
            f"windowed_by: {given} is none of TimeWindows, CalendarWindows, CustomWindows, SlidingWindows and"
            " SessionWindows",
            f"Write TimeWindows({shown(windows)})"
            if is_duration(windows)
            else "For example TimeWindows('1 minute'), or SessionWindows('5 minutes')",
        )
        windows = TimeWindows("1 minute")
    durations: dict[str, int] = {}
    example = "For example TimeWindows('1 minute')"
    if isinstance(windows, SlidingWindows):
        example = "For example SlidingWindows('5 minutes', grace='1 minute')"
    if isinstance(windows, CalendarWindows):
        example = "For example CalendarWindows('1 day', time_zone='Europe/Berlin')"
        if fault := windows.zone_fault():
            graph.fault(f"windowed_by: time_zone: {fault[0]}", fault[1])
    if isinstance(windows, CustomWindows):
        example = "For example CustomWindows(shifts, size='8 hours', grace='1 hour')"
        if wrong := arguments_fault(windows.function, "the time in ms"):
            graph.fault(f"windowed_by: {function_name(windows.function)} {wrong}", "Write a function that takes a time")
    for parameter in ("size", "grace", "advance", "offset"):
        try:
            durations[parameter] = getattr(windows, f"{parameter}_ms")
        except ValueError as error:
            if parameter != "advance" or windows.advance is not None:
                named = "time_difference" if windows.slides and parameter == "size" else parameter
                if parameter == "size" and type(windows) is TimeWindows and windows.size in ("1 week", "1 month"):
                    example = f"Write CalendarWindows({windows.size!r}, time_zone='Europe/Berlin')"
                graph.fault(f"windowed_by: {named}: {error}", example)
    size, advance = durations.get("size"), durations.get("advance")
    if size == 0:
        graph.fault("windowed_by: the size is 0", "Write one as in '1 minute'")
    elif size is not None and advance is not None and not 0 < advance <= size:
        graph.fault(
            f"windowed_by: advance: {windows.advance!r} is not above 0 and at most the size, {windows.size!r}",
            "For example TimeWindows('5 minutes', advance='1 minute')",
        )
    elif size is not None and advance is not None and windows.overlap > MOST_WINDOWS_OF_RECORD:
        graph.fault(
            f"windowed_by: advance: a record would be in {windows.overlap:,} windows; at most"
            f" {MOST_WINDOWS_OF_RECORD:,} are possible",
            f"Write an advance of {-(-size // MOST_WINDOWS_OF_RECORD):,} milliseconds or more",
        )
    step = size if windows.advance is None else advance
    if step and windows.offset is not None and not 0 < durations.get("offset", 1) < step:
        bound = f"the size, {windows.size!r}" if windows.advance is None else f"the advance, {windows.advance!r}"
        graph.fault(
            f"windowed_by: offset: {windows.offset!r} is not above 0 and below {bound}",
            "For example TimeWindows('1 hour', offset='15 minutes')",
        )
    return windows


def _judge_sessions(graph: StreamsGraph, windows: SessionWindows) -> None:
    example = "For example SessionWindows('5 minutes', grace='1 hour')"
    for parameter in ("inactivity_gap", "grace"):
        try:
            duration = getattr(windows, f"{parameter}_ms")
        except ValueError as error:
            graph.fault(f"windowed_by: {parameter}: {error}", example)
        else:
            if parameter == "inactivity_gap" and duration == 0:
                graph.fault("windowed_by: the inactivity_gap is 0", example)
