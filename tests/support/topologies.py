"""Topologies as data: one interpreter declares them with Streamplan, another with the library's ``StreamsBuilder``."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from streamplan.model.kstream import (
    CogroupedKStream,
    GlobalKTable,
    KGroupedTable,
    KStream,
    KTable,
    WindowedCogroupedKStream,
)
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topology import Topology
from streamplan.model.windows import (
    JoinWindows,
    OnWindowClose,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UntilTimeLimit,
    UntilWindowCloses,
    Versioned,
)
from streamplan.serdes.json import Json

from tests.support.kafka_streams import STREAMS, collection, strings

VALUE = Json("count bigint")
"""Of every stream and table here: a field that a count has, too, so that any two of them can be merged."""

WINDOWS = TimeWindows("1 minute", grace="5 seconds")
SESSIONS = SessionWindows("1 minute", grace="5 seconds")
SLIDING = SlidingWindows("1 minute", grace="5 seconds")
JOINED_WITHIN = JoinWindows("1 minute", grace="5 seconds", after="2 minutes")


_OF_TWO = ("join", "left_join", "outer_join", "merge", "cogroup")


# -- a topology as data


@dataclass(frozen=True)
class Step:
    """One operation, named as in ``streamplan.model.kstream``.

    ``of``     label of what it is called on; the step before where it is left out
    ``other``  label of the table that it joins, or of the stream that it merges
    ``label``  by which later steps call it
    ``foreign_key``  the expression of a join by a foreign key
    """

    word: str
    of: str = ""
    other: str = ""
    label: str = ""
    topic: str = ""
    name: str | None = None
    store: str | None = None
    partitions: int | None = None
    foreign_key: str | None = None
    history: int | None = None
    grace: int | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that one source reads; empty where it is one."""
        return tuple(self.topic.split(",")) if "," in self.topic else ()


Steps = tuple[Step, ...]


def parse(text: str) -> Steps:
    """Steps in a line: ``stream orders; select_key as=keyed; count store=counts; keyed.join users name=joiner``.

    A word is called on the step before it, or on the one of a label: ``keyed.join``. What is read has its topic for a
    label unless it says another.
    """
    parsed = []
    for part in text.split(";"):
        call, *words = part.split()
        of, _, word = call.rpartition(".")
        more = dict(pair.split("=") for pair in words if "=" in pair)
        argument = "".join(given for given in words if "=" not in given)
        topic, other = ("", argument) if word in _OF_TWO else (argument, "")
        parsed.append(
            Step(
                word,
                of,
                other,
                label=more.get("as", argument if word in ("stream", "table", "global_table") else ""),
                topic=topic,
                name=more.get("name"),
                store=more.get("store"),
                partitions=int(more["partitions"]) if "partitions" in more else None,
                foreign_key=more.get("by"),
                history=int(more["history"]) if "history" in more else None,
                grace=int(more["grace"]) if "grace" in more else None,
            )
        )
    return tuple(parsed)


def for_each_step(steps: Steps, apply: Callable[[Step, Any, Any], Any]) -> None:
    """Calls ``apply`` with each step, what it is called on, and its other operand."""
    made: dict[str, Any] = {}
    last = None
    for step in steps:
        last = apply(step, made[step.of] if step.of else last, made.get(step.other))
        if step.label:
            made[step.label] = last


class Idle(Processor):
    """A class that is never called: a topology is only described here."""

    def process(self, record: Record, store: KeyValueStore) -> None: ...


class Stateless(Processor):
    """The same without a store."""

    def process(self, record: Record) -> None: ...


def ours(steps: Steps) -> Topology:
    topology = Topology("app")
    same = {"count": "count"}

    def apply(step: Step, on: Any, other: Any) -> Any:
        name, store = step.name, step.store
        match step.word:
            case "stream":
                return topology.stream(step.topics or step.topic, value=VALUE, name=name)
            case "table" if step.history is not None:
                versioned = Versioned(store or "", f"{step.history} seconds")
                return topology.table(step.topic, value=VALUE, store=versioned, name=name)
            case "table":
                return topology.table(step.topic, value=VALUE, store=store, name=name)
            case "global_table":
                return topology.global_table(step.topic, value=VALUE, store=store, name=name)
            case ("join" | "left_join") as word if isinstance(other, GlobalKTable):
                return getattr(on, word)(other, {"count": "table.count"}, key="count", name=name)
            case "filter" | "filter_not" as word:
                return getattr(on, word)("count > 0", name=name, **({} if store is None else {"store": store}))
            case "to_table":
                return on.to_table(name=name, store=store)
            case "flat_map_values":
                return on.flat_map_values("array(count)", {"count": "element"}, name=name)
            case "foreach":
                return on.foreach(len, name=name)
            case "print":
                return on.print(name=name)
            case "peek_with":
                return on.peek(len, name=name)
            case "split":
                return on.split(name=name)
            case "branch":
                return on.branch("count > 0", name=name)
            case "default_branch":
                on.default_branch(name=name)
                return on
            case "the_branch":
                return on.no_default_branch()[step.topic]
            case "map_values":
                return on.map_values(same, name=name, **({} if store is None else {"store": store}))
            case "select_key":
                return on.select_key("count", name=name)
            case "map":
                return on.map("count", same, name=name)
            case "flat_map":
                return on.flat_map("array(count)", key="element", value={"count": "element"}, name=name)
            case "merge":
                return on.merge(other, name=name)
            case "peek":
                return on.peek({"seen": "count(*)"}, name=name)
            case ("process" | "process_values") as word if store is None:
                return getattr(on, word)(Stateless, schema="count bigint", name=name)
            case "process":
                return on.process(Idle, store=store or "", state="count bigint", schema="count bigint", name=name)
            case "repartition":
                return on.repartition(number_of_partitions=step.partitions, name=name)
            case "to":
                return on.to(step.topic, name=name)
            case "to_either":
                return on.to("'a'", topics=("a", "b"), name=name)
            case "group_by":
                return on.group_by("count", name=name)
            case "group_by_key":
                return on.group_by_key(name=name)
            case "windowed_by":
                return on.windowed_by({"sessions": SESSIONS, "sliding": SLIDING}.get(step.topic or "", WINDOWS))
            case "emit_strategy":
                return on.emit_strategy(OnWindowClose())
            case "suppress":
                waits = UntilTimeLimit("5 minutes") if step.topic == "limit" else UntilWindowCloses()
                return on.suppress(waits, name=step.name)
            case "count":
                return on.count(store=store, name=name)
            case "cogroup" if other is None:
                return on.cogroup({"count": "sum(count)"})
            case "cogroup":
                return on.cogroup(other, {"others": "sum(count)"})
            case "aggregate" if isinstance(on, CogroupedKStream | WindowedCogroupedKStream):
                return on.aggregate(store=store, name=name)
            case "aggregate" if isinstance(on, KGroupedTable):
                return on.aggregate(dict, max, max, schema="count bigint", store=store, name=name)
            case "reduce" if isinstance(on, KGroupedTable):
                return on.reduce(max, max, store=store, name=name)
            case "aggregate":
                return on.aggregate({"count": "sum(count)"}, store=store, name=name)
            case "reduce":
                return on.reduce(store=store, name=name)
            case ("join" | "left_join") as word if step.foreign_key is not None:
                value = {"count": "table.count"}
                return getattr(on, word)(other, value, foreign_key=step.foreign_key, store=store, name=name)
            case ("join" | "left_join" | "outer_join") as word if isinstance(on, KTable):
                return getattr(on, word)(other, {"count": "table.count"}, store=store, name=name)
            case "join" if isinstance(other, KStream):
                return on.join(other, {"count": "other.count"}, within=JOINED_WITHIN, store=store, name=name)
            case ("join" | "left_join") as word if step.grace is not None:
                return getattr(on, word)(other, {"count": "table.count"}, grace=f"{step.grace} seconds", name=name)
            case "join":
                return on.join(other, {"count": "table.count"}, name=name)
            case "left_join" if isinstance(other, KStream):
                return on.left_join(other, {"count": "other.count"}, within=JOINED_WITHIN, store=store, name=name)
            case "left_join":
                return on.left_join(other, {"count": "table.count"}, name=name)
            case "outer_join":
                return on.outer_join(other, {"count": "other.count"}, within=JOINED_WITHIN, store=store, name=name)
            case "to_stream" if step.topic == "keyed":
                return on.to_stream("count", name=name)
            case "to_stream":
                return on.to_stream(name=name)
        raise LookupError(step.word)

    for_each_step(steps, apply)
    return topology


def _function(interface: str) -> Any:
    """A function that the library never calls: a topology is only described here."""
    java = type("Java", (), {"implements": (f"{STREAMS}.kstream.{interface}",)})
    return type(interface, (), {"Java": java})()


def _extractor(jvm: Any) -> Any:
    """A ``TopicNameExtractor`` of Java's own: the library asks it for its hash code and its text."""
    of_class, handles = jvm.java.lang.Class.forName, jvm.java.lang.invoke.MethodHandles
    text, any_object = of_class("java.lang.String"), of_class("java.lang.Object")
    context = of_class(f"{STREAMS}.processor.RecordContext")
    constant = handles.constant(text, "a")
    chosen = handles.dropArguments(constant, 0, collection(jvm, [any_object, any_object, context]))
    interface = of_class(f"{STREAMS}.processor.TopicNameExtractor")
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, chosen)


def theirs(jvm: Any, steps: Steps) -> str:
    """The library's description; raises Py4JJavaError where it refuses the topology."""
    kstream = jvm.org.apache.kafka.streams.kstream
    builder = jvm.org.apache.kafka.streams.StreamsBuilder()

    def named(kind: str, name: str | None) -> list[Any]:
        """``<kind>.as(name)``, where there is a name."""
        return [] if name is None else [getattr(getattr(kstream, kind), "as")(name)]

    def apply(step: Step, on: Any, other: Any) -> Any:
        plain = named("Named", step.name)
        materialized = named("Materialized", step.store)
        match step.word:
            case "stream":
                topics = collection(jvm, step.topics) if step.topics else step.topic
                return builder.stream(topics, *named("Consumed", step.name))
            case "table":
                if step.history is not None:
                    seconds = jvm.java.time.Duration.ofSeconds(step.history)
                    stores = jvm.org.apache.kafka.streams.state.Stores
                    versioned = stores.persistentVersionedKeyValueStore(step.store, seconds)
                    materialized = [getattr(kstream.Materialized, "as")(versioned)]
                return builder.table(step.topic, *named("Consumed", step.name), *materialized)
            case "global_table":
                return builder.globalTable(step.topic, *named("Consumed", step.name), *materialized)
            case "join" | "left_join" if "GlobalKTable" in other.getClass().getSimpleName():
                join = {"join": on.join, "left_join": on.leftJoin}[step.word]
                return join(other, _function("KeyValueMapper"), _function("ValueJoiner"), *plain)
            case "filter":
                return on.filter(_function("Predicate"), *plain, *materialized)
            case "filter_not":
                return on.filterNot(_function("Predicate"), *plain, *materialized)
            case "to_table":
                return on.toTable(*plain, *materialized)
            case "flat_map_values":
                return on.flatMapValues(_function("ValueMapper"), *plain)
            case "foreach":
                return on.foreach(_function("ForeachAction"), *plain)
            case "print":
                printed = kstream.Printed.toSysOut()
                return on.print(printed if step.name is None else printed.withName(step.name))
            case "peek_with":
                return on.peek(_function("ForeachAction"), *plain)
            case "split":
                return on.split(*plain)
            case "branch":
                return on.branch(_function("Predicate"), *named("Branched", step.name))
            case "default_branch":
                on.defaultBranch(*named("Branched", step.name))
                return on
            case "the_branch":
                return on.noDefaultBranch().get(step.topic)
            case "map_values":
                return on.mapValues(_function("ValueMapper"), *plain, *materialized)
            case "select_key":
                return on.selectKey(_function("KeyValueMapper"), *plain)
            case "map":
                return on.map(_function("KeyValueMapper"), *plain)
            case "flat_map":
                return on.flatMap(_function("KeyValueMapper"), *plain)
            case "merge":
                return on.merge(other, *plain)
            case "peek":
                return on.peek(_function("ForeachAction"), *plain)
            case "process_values":
                supplier = kstream.internals.KStreamPeek(_function("ForeachAction"))
                return on.processValues(supplier, *plain, strings(jvm, []))
            case "process" if step.store is None:
                supplier = kstream.internals.KStreamPrint(_function("ForeachAction"))
                return on.process(supplier, *plain, strings(jvm, []))
            case "process":
                stores, serdes = (
                    jvm.org.apache.kafka.streams.state.Stores,
                    jvm.org.apache.kafka.common.serialization.Serdes,
                )
                kept = stores.persistentKeyValueStore(step.store)
                builder.addStateStore(stores.keyValueStoreBuilder(kept, serdes.String(), serdes.String()))
                supplier = kstream.internals.KStreamPrint(_function("ForeachAction"))  # the library calls it at once
                return on.process(supplier, *plain, strings(jvm, [step.store]))
            case "repartition":
                options = named("Repartitioned", step.name)
                if step.partitions is not None:
                    (first,) = options or [kstream.Repartitioned.numberOfPartitions(step.partitions)]
                    options = [first.withNumberOfPartitions(step.partitions)]
                return on.repartition(*options)
            case "to":
                return on.to(step.topic, *named("Produced", step.name))
            case "to_either":
                return on.to(_extractor(jvm), *named("Produced", step.name))
            case "group_by":
                return on.groupBy(_function("KeyValueMapper"), *named("Grouped", step.name))
            case "group_by_key":
                return on.groupByKey(*named("Grouped", step.name))
            case "windowed_by":
                millis = jvm.java.time.Duration.ofMillis
                if step.topic == "sessions":
                    gap, grace = millis(SESSIONS.inactivity_gap_ms), millis(SESSIONS.grace_ms)
                    return on.windowedBy(kstream.SessionWindows.ofInactivityGapAndGrace(gap, grace))
                size, grace = millis(WINDOWS.size_ms), millis(WINDOWS.grace_ms)
                if step.topic == "sliding":
                    return on.windowedBy(kstream.SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
                return on.windowedBy(kstream.TimeWindows.ofSizeAndGrace(size, grace))
            case "emit_strategy":
                return on.emitStrategy(kstream.EmitStrategy.onWindowClose())
            case "suppress":
                buffer = kstream.Suppressed.BufferConfig.unbounded()
                closed = kstream.Suppressed.untilWindowCloses(buffer)
                if step.topic == "limit":
                    closed = kstream.Suppressed.untilTimeLimit(jvm.java.time.Duration.ofMinutes(5), buffer)
                return on.suppress(closed if step.name is None else closed.withName(step.name))
            case "count":
                return on.count(*plain, *materialized)
            case "cogroup":
                return on.cogroup(*([] if other is None else [other]), _function("Aggregator"))
            case "aggregate" if "Cogrouped" in (kind := on.getClass().getSimpleName()):
                merger = [_function("Merger")] if "Session" in kind else []
                return on.aggregate(_function("Initializer"), *merger, *plain, *materialized)
            case "aggregate" | "reduce":
                if plain and not materialized:  # they take a name only together with a store
                    materialized = [getattr(kstream.Materialized, "with")(None, None)]
                subtractor = "KGroupedTable" in on.getClass().getSimpleName()
                if step.word == "reduce":
                    reducers = [_function("Reducer") for _ in range(1 + subtractor)]
                    return on.reduce(*reducers, *plain, *materialized)
                merger = [_function("Merger")] if "Session" in on.getClass().getSimpleName() else []
                aggregators = [_function("Aggregator") for _ in range(1 + subtractor)]
                return on.aggregate(_function("Initializer"), *aggregators, *merger, *plain, *materialized)
            case "join" | "left_join" if step.foreign_key is not None:
                extractor = type("Java", (), {"implements": ("java.util.function.Function",)})
                extracted, joiner = type("Function", (), {"Java": extractor})(), _function("ValueJoiner")
                joined = named("TableJoined", step.name)
                join = {"join": on.join, "left_join": on.leftJoin}[step.word]
                return join(other, extracted, joiner, *joined, *materialized)
            case "join" | "left_join" | "outer_join" if "KTable" in on.getClass().getSimpleName():
                join = {"join": on.join, "left_join": on.leftJoin, "outer_join": on.outerJoin}[step.word]
                return join(other, _function("ValueJoiner"), *plain, *materialized)
            case "join" | "left_join" | "outer_join" if "KStream" in other.getClass().getSimpleName():
                millis = jvm.java.time.Duration.ofMillis
                within = JOINED_WITHIN.before_ms, JOINED_WITHIN.grace_ms
                windows = kstream.JoinWindows.ofTimeDifferenceAndGrace(*map(millis, within))
                options = getattr(kstream.StreamJoined, "with")(None, None, None)
                options = options if step.name is None else options.withName(step.name)
                options = options if step.store is None else options.withStoreName(step.store)
                after = windows.after(millis(JOINED_WITHIN.after_ms))
                join = {"join": on.join, "left_join": on.leftJoin, "outer_join": on.outerJoin}[step.word]
                return join(other, _function("ValueJoiner"), after, options)
            case "join" | "left_join":
                options = named("Joined", step.name)
                if step.grace is not None:
                    (joined,) = options or [getattr(kstream.Joined, "with")(None, None, None)]
                    options = [joined.withGracePeriod(jvm.java.time.Duration.ofSeconds(step.grace))]
                join = {"join": on.join, "left_join": on.leftJoin}[step.word]
                return join(other, _function("ValueJoiner"), *options)
            case "to_stream" if step.topic == "keyed":
                return on.toStream(_function("KeyValueMapper"), *plain)
            case "to_stream":
                return on.toStream(*plain)
        raise LookupError(step.word)

    for_each_step(steps, apply)
    # The library prints the object that chooses a topic, and ours the expression.
    described = str(builder.build().describe().toString())
    return re.sub(r"\(extractor class: .*\)\n", "(extractor class: 'a')\n", described)


def refusal(jvm: Any, steps: Steps) -> str:
    """The message of the library's TopologyException; empty where it takes the topology."""
    try:
        theirs(jvm, steps)
    except Py4JJavaError as error:
        exception = error.java_exception
        assert exception.getClass().getSimpleName() == "TopologyException", str(exception)
        return str(exception.getMessage())
    return ""


# -- topologies by hand

CASES = {
    "a stream that is only read": "stream orders",
    "record by record": "stream orders; filter; map_values; select_key; map; flat_map; peek; to out",
    "record by record, named": "stream orders name=source; filter name=a; map_values name=b; select_key name=c; "
    "map name=d; flat_map name=e; peek name=f; to out name=sink",
    "more of it": "stream orders; filter_not; flat_map_values; peek_with; to out; orders.foreach; orders.print",
    "more of it, named": "stream orders; filter_not name=a; flat_map_values name=b; peek_with name=c; print name=d; "
    "orders.foreach name=e",
    "several topics": "stream eu,us; filter; to out",
    "several topics, named": "stream eu,us name=orders; filter name=a; to out",
    "several topics, read twice": "stream eu,us; filter; to out; stream us,eu; map_values; to other",
    "several topics of one topology": "stream a,b,c; stream d,e; a,b,c.merge d,e; to out",
    "twelve topics": f"stream {','.join(f'orders-{number}' for number in range(12))}; to out",
    "forty topics": f"stream {','.join(f'orders.of-{7 * number}' for number in range(40))}; group_by; count",
    "several topics, joined with a table": "table users; stream eu,us; join users; to out",
    "several topics, joined with a stream": "stream clicks; stream eu,us; join clicks; to out",
    "several topics, as a table": "stream eu,us; to_table store=users; to_stream; to out",
    "several topics, aggregated": "stream eu,us; group_by_key; count; to_stream; to out; eu,us.group_by; count",
    "written, and read again": "stream orders; filter; to passed; stream passed; group_by_key; count; "
    "passed.map_values; to out",
    "written, and read twice": "stream orders; to passed; stream passed; filter; to a; stream passed; peek; to b",
    "written, and read as a table": "stream orders; map; to users; table users; stream clicks; join users; to out",
    "written, and read with others": "stream orders; to us; stream eu,us; to out",
    "values of one key grouped by it": "stream orders; flat_map_values; group_by_key; count; to_stream; foreach",
    "split": "stream orders; split as=s; branch; branch; default_branch; s.the_branch KSTREAM-BRANCH-00000000011; "
    "to one; s.the_branch KSTREAM-BRANCH-00000000012; map_values; to two; s.the_branch KSTREAM-BRANCH-00000000010; "
    "to others",
    "split in turn": "stream orders; split as=s; branch; s.the_branch KSTREAM-BRANCH-00000000011; filter; to one; "
    "s.branch; s.the_branch KSTREAM-BRANCH-00000000012; group_by; count; s.default_branch",
    "split, named": "stream orders; split name=by- as=s; branch name=a; branch; default_branch name=z; "
    "s.the_branch by-a; to one; s.the_branch by-2; peek; to two; s.the_branch by-z; foreach",
    "split without branches": "stream orders; split",
    "split into one": "stream orders; split as=s; branch; s.the_branch KSTREAM-BRANCH-00000000011; to one",
    "split, re-keyed and grouped": "stream orders; select_key; split as=s; branch; default_branch; "
    "s.the_branch KSTREAM-BRANCH-00000000020; group_by_key; count",
    "split, and a branch joined": "table users; stream orders; select_key; split as=s; branch; default_branch; "
    "s.the_branch KSTREAM-BRANCH-00000000051; join users; to joined",
    "names of every legal character, as long as can be": f"stream orders name=aZ09._-; filter name={'n' * 249}",
    # aggregates
    "counted by the key there is": "stream orders; group_by_key; count",
    "counted by the key there is, the grouping named": "stream orders; group_by_key name=unused; count",
    "counted by a new key": "stream orders; group_by; count",
    "counted by a new key, the grouping named": "stream orders; group_by name=by-id; count",
    "counted by a new key, the store named": "stream orders; group_by; count store=counts",
    "counted by a new key, the processor named": "stream orders; group_by; count name=counter",
    "counted by a new key, all named": "stream orders; group_by name=by-id; count name=counter store=counts",
    "counted by a new key, grouping and store of one name": "stream orders; group_by name=by-id; count store=by-id",
    "aggregated": "stream orders; group_by; aggregate",
    "aggregated, the store named": "stream orders; group_by; aggregate store=totals",
    "aggregated, the processor named": "stream orders; group_by; aggregate name=folder",
    "aggregated, all named": "stream orders; group_by name=by-id; aggregate name=folder store=totals",
    "reduced": "stream orders; group_by; reduce",
    "reduced, the store named": "stream orders; group_by; reduce store=latest",
    "reduced, the processor named": "stream orders; group_by; reduce name=reducer",
    "reduced, all named": "stream orders; group_by name=by-id; reduce name=reducer store=latest",
    "a re-keyed stream grouped by its key": "stream orders; select_key; filter; group_by_key; count",
    "a re-keyed stream grouped by its key, named": "stream orders; select_key; group_by_key name=mine; count",
    "two aggregates of a grouping": "stream orders; group_by as=grouped; count; grouped.aggregate",
    "two aggregates of a grouping with a name": "stream orders; group_by name=x as=grouped; count; grouped.aggregate",
    "three aggregates of a grouping with a name, and what is behind them": "stream orders; group_by name=x as=grouped; "
    "count; to_stream; to counts; orders.filter; grouped.reduce; to_stream; grouped.aggregate store=totals; to_stream; "
    "to totals",
    "two groupings of a stream": "stream orders; select_key as=keyed; group_by; count; keyed.group_by_key; count",
    "an aggregate's updates aggregated": "stream orders; group_by name=by-id; count; to_stream; group_by; aggregate; "
    "to_stream name=updates; to out",
    # aggregates of several streams
    "cogrouped": "stream clicks; group_by_key as=c; stream orders; group_by_key; cogroup; cogroup c; aggregate; "
    "to_stream; to out",
    "cogrouped, the store named": "stream clicks; group_by_key as=c; stream orders; group_by_key; cogroup; cogroup c; "
    "aggregate store=totals",
    "cogrouped, the processors named": "stream clicks; group_by_key as=c; stream orders; group_by_key; cogroup; "
    "cogroup c; aggregate name=n; to_stream; filter; to out",
    "cogrouped by new keys, all named": "stream clicks; group_by name=x as=c; stream orders; group_by name=y; cogroup; "
    "cogroup c; aggregate name=n store=totals; to_stream; to out",
    "cogrouped by a new key": "stream clicks; group_by_key as=c; stream orders; group_by; cogroup; cogroup c; "
    "aggregate; to_stream; to out",
    "cogrouped by a new key, the second one": "stream clicks; select_key; filter; group_by_key as=c; stream orders; "
    "group_by_key; cogroup; cogroup c; aggregate store=totals; to_stream; to out",
    "cogrouped, three streams": "stream clicks; group_by name=x as=c; stream orders; group_by_key as=o; stream views; "
    "group_by name=y; cogroup; cogroup o; cogroup c; aggregate; to_stream; group_by; count",
    "cogrouped, one stream alone": "stream orders; group_by; cogroup; aggregate; to_stream; to out",
    "cogrouped with itself": "stream orders; group_by_key as=o; orders.group_by_key; cogroup; cogroup o; aggregate",
    "cogrouped and counted": "stream clicks; group_by_key as=c; stream orders; group_by_key as=o; cogroup; cogroup c; "
    "aggregate; to_stream; to out; o.count; c.aggregate",
    "cogrouped twice": "stream clicks; group_by name=x as=c; stream orders; group_by_key; cogroup; cogroup c as=both; "
    "aggregate store=a; to_stream; to out; both.aggregate store=b name=n",
    "cogrouped twice, with windows and without": "stream clicks; group_by as=c; stream orders; group_by_key; cogroup; "
    "cogroup c as=both; aggregate; both.windowed_by; aggregate; to_stream; to out",
    "cogrouped in windows": "stream clicks; group_by name=x as=c; stream orders; group_by_key; cogroup; cogroup c; "
    "windowed_by; aggregate; to_stream; select_key; to out",
    "cogrouped in windows, all named": "stream clicks; group_by name=x as=c; stream orders; group_by_key; cogroup; "
    "cogroup c; windowed_by; aggregate name=n store=s",
    "cogrouped in sessions": "stream clicks; group_by_key as=c; stream orders; group_by_key; cogroup; cogroup c; "
    "windowed_by sessions; aggregate; to_stream; to out",
    "cogrouped in sessions, all named": "stream clicks; group_by name=x as=c; stream orders; group_by name=y; cogroup; "
    "cogroup c; windowed_by sessions; aggregate name=n store=s",
    "tables' updates cogrouped": "table users; to_stream; group_by_key as=u; table items; to_stream; group_by; "
    "cogroup; cogroup u; aggregate; to_stream; to out",
    # windows
    "windows counted": "stream orders; group_by; windowed_by; count; to_stream",
    "windows counted, the store named": "stream orders; group_by; windowed_by; count store=counts",
    "windows counted, the processor named": "stream orders; group_by; windowed_by; count name=counter",
    "windows counted, all named": "stream orders; group_by name=x; windowed_by; count name=counter store=counts",
    "windows aggregated": "stream orders; group_by_key; windowed_by; aggregate",
    "windows aggregated, the processor named": "stream orders; group_by; windowed_by; aggregate name=folder",
    "windows aggregated, all named": "stream orders; group_by name=x; windowed_by; aggregate name=folder store=totals; "
    "to_stream; filter; to out",
    "with windows and without": "stream orders; group_by as=grouped; windowed_by; count; grouped.count",
    "with windows and without, named": "stream orders; group_by name=x as=grouped; windowed_by; count; grouped.count",
    "windows counted, with another key": "stream orders; group_by; windowed_by; count; to_stream keyed; to out",
    "a table's updates with another key": "table users; to_stream keyed name=updates; group_by_key; count",
    "windows re-keyed and counted": "stream orders; group_by; windowed_by; count; to_stream; group_by; count",
    # sessions
    "sessions counted": "stream orders; group_by; windowed_by sessions; count; to_stream; to out",
    "sessions counted by the key there is": "stream orders; group_by_key; windowed_by sessions; count",
    "sessions counted, the store named": "stream orders; group_by; windowed_by sessions; count store=counts",
    "sessions counted, all named": "stream orders; group_by name=x; windowed_by sessions; "
    "count name=counter store=counts",
    "sessions aggregated": "stream orders; group_by_key; windowed_by sessions; aggregate",
    "sessions aggregated, the processor named": "stream orders; group_by; windowed_by sessions; aggregate name=folder",
    "sessions aggregated, all named": "stream orders; group_by name=x; windowed_by sessions; "
    "aggregate name=folder store=totals; to_stream; filter; to out",
    "sessions re-keyed and counted": "stream orders; group_by; windowed_by sessions; count; to_stream; group_by; count",
    # final results
    "windows counted, final results": "stream orders; group_by; windowed_by; emit_strategy; count; to_stream; to out",
    "windows aggregated, final results, all named": "stream orders; group_by name=x; windowed_by; emit_strategy; "
    "aggregate name=folder store=totals; to_stream; filter; to out",
    "windows counted, suppressed": "stream orders; group_by; windowed_by; count; suppress; to_stream; to out",
    "windows aggregated, suppressed, all named": "stream orders; group_by name=x; windowed_by as=w; "
    "aggregate name=folder store=totals; suppress name=closed; to_stream; filter; to out; w.count; suppress; to_stream",
    "windows suppressed and joined": "table users; stream orders; group_by; windowed_by; count; suppress; to_stream; "
    "select_key; join users; to out",
    "a table suppressed until a time limit": "table users; suppress limit; to_stream; to out",
    "a count suppressed until a time limit, by two": "stream orders; group_by name=x; count as=c; suppress limit; "
    "to_stream; to out; c.suppress limit; to_stream; to other",
    "sessions counted, suppressed": "stream orders; group_by; windowed_by sessions; count; suppress; to_stream; to out",
    "sessions aggregated, suppressed, all named": "stream orders; group_by name=x; windowed_by sessions; "
    "aggregate name=folder store=totals; suppress name=closed; to_stream; filter; to out",
    "sliding windows counted, suppressed": "stream orders; group_by; windowed_by sliding; count; suppress; to_stream",
    "cogrouped in sliding windows": "stream clicks; group_by_key as=c; stream orders; group_by; cogroup; cogroup c; "
    "windowed_by sliding; aggregate; to_stream; to out",
    "sessions counted, final results": "stream orders; group_by; windowed_by sessions; emit_strategy; count; to_stream",
    # repartition topics
    "repartitioned": "stream orders; repartition; group_by_key; count",
    "repartitioned, named": "stream orders; repartition name=wide; group_by_key; count",
    "repartitioned into three": "stream orders; repartition partitions=3; to out",
    "repartitioned into three, named": "stream orders; repartition name=wide partitions=3; filter",
    "repartitioned twice": "stream orders; repartition; select_key; repartition name=b",
    "a repartition topic that is called one": "stream orders; repartition name=my-repartition; filter",
    "a repartition topic with a name like a generated one": "stream orders; repartition name=KSTREAM-A-0000000042",
    "a grouping with a name like a generated one": "stream orders; group_by name=KSTREAM-A-0000000042 as=grouped; "
    "count; grouped.reduce",
    # tables
    "a table that nothing looks up in": "table users",
    "a table with a store": "table users store=names",
    "a table, named": "table users name=users-table",
    "a table, all named": "table users name=users-table store=names; to_stream",
    "a table's updates": "table users; to_stream; to out",
    "a table's updates counted": "table users; to_stream name=updates; group_by_key; count",
    # joins
    "joined": "table users; stream orders; join users; to out",
    "joined, named": "table users; stream orders; join users name=joiner",
    "joined, matched or not": "stream orders; table users; orders.left_join users",
    "joined, matched or not, named": "stream orders; table users; orders.left_join users name=joiner",
    "joined with a table, all named": "table users name=t store=names; stream orders; join users name=joiner",
    "a re-keyed stream joined": "table users; stream orders; select_key; join users",
    "a re-keyed stream joined, named": "table users; stream orders; select_key; join users name=joiner",
    "a re-keyed and named stream joined": "table users; stream orders; select_key name=keyed; join users",
    "two joins of a re-keyed stream": "table users; table items; stream orders; select_key as=keyed; keyed.join users; "
    "keyed.left_join items",
    "two joins of a re-keyed stream, the first one named": "table users; table items; stream orders; "
    "select_key as=keyed; keyed.join users name=j; keyed.join items",
    "two joins of a re-keyed stream, the second one named": "table users; table items; stream orders; "
    "select_key as=keyed; keyed.join users; keyed.join items name=j",
    "two joins of a re-keyed stream, both named": "table users; table items; stream orders; select_key as=keyed; "
    "keyed.join users name=j1; keyed.join items name=j2",
    "a re-keyed stream joined and counted": "table users; stream orders; select_key as=keyed; join users; "
    "keyed.group_by_key; count",
    "joins in a row": "table users; table items; stream orders; select_key; join users; join items",
    "joined twice with a table": "table users; stream orders; join users; join users",
    "joined with an aggregate": "stream clicks; group_by; count as=counts; stream orders; join counts",
    "joined with an aggregate of its own": "stream orders; group_by_key; count as=counts; orders.join counts",
    "joined with an aggregate of a join": "table users; stream orders; select_key; join users; group_by_key; "
    "count as=counts; stream clicks; left_join counts; to out",
    # joins of two streams
    "two streams joined": "stream clicks; stream orders; join clicks; to out",
    "two streams joined, named": "stream clicks; stream orders; join clicks name=j; to out",
    "two streams joined, the stores named": "stream clicks; stream orders; join clicks store=s",
    "two streams joined, all named": "stream clicks; stream orders; join clicks name=j store=s; filter",
    "two streams joined, the first one re-keyed": "stream clicks; stream orders; select_key; join clicks; to out",
    "two streams joined, the second one re-keyed": "stream clicks; select_key as=keyed; stream orders; join keyed",
    "two streams joined, both re-keyed": "stream clicks; select_key as=keyed; stream orders; map; join keyed; to out",
    "two streams joined, both re-keyed and all named": "stream clicks; select_key as=keyed; stream orders; map; "
    "join keyed name=j store=s; to out",
    "two streams joined behind operations": "stream clicks; filter as=some; stream orders; map_values; peek; "
    "join some; map_values; to out; orders.to copies",
    "two streams joined, left": "stream clicks; stream orders; left_join clicks; to out",
    "two streams joined, left, named": "stream clicks; stream orders; left_join clicks name=j; to out",
    "two streams joined, left, the stores named": "stream clicks; stream orders; left_join clicks store=s",
    "two streams joined, left, all named": "stream clicks; stream orders; left_join clicks name=j store=s; filter",
    "two streams joined, left, re-keyed": "stream clicks; stream orders; select_key; left_join clicks; to out",
    "two streams joined, outer": "stream clicks; stream orders; outer_join clicks; to out",
    "two streams joined, outer, named": "stream clicks; stream orders; outer_join clicks name=j; to out",
    "two streams joined, outer, the stores named": "stream clicks; stream orders; outer_join clicks store=s",
    "two streams joined, outer, all named": "stream clicks; stream orders; outer_join clicks name=j store=s; filter",
    "two streams joined, outer, both re-keyed": "stream clicks; select_key as=keyed; stream orders; select_key; "
    "outer_join keyed; group_by_key; count",
    "two streams joined and counted": "stream clicks; stream orders; join clicks; group_by; count; to_stream; to out",
    "a stream joined with itself": "stream orders; join orders; to out",
    "a re-keyed stream joined with itself": "stream orders; select_key as=keyed; join keyed; to out",
    "two joins of two streams": "stream clicks; stream orders; select_key as=keyed; keyed.join clicks; "
    "keyed.join orders name=again; merge clicks",
    # processors of the Processor API
    "processed": "stream orders; process store=s; to out",
    "processed, named": "stream orders; process store=s name=p; map_values; to out",
    "processed and counted": "stream orders; process store=s; group_by_key; count",
    "processed, named, and counted": "stream orders; filter; process store=s name=p; peek; group_by_key name=x; count",
    "processed and joined": "table users; stream orders; process store=s; join users; to out",
    "processed behind a new key": "stream orders; select_key; repartition name=r; process store=s; to out; "
    "orders.to copy",
    "processed twice": "stream orders; process store=s; repartition; process store=t; to out",
    "processed without a store": "stream orders; process; to out",
    "processed without a store, named": "stream orders; map_values; process name=p; filter; to out",
    "processed without a store and counted": "stream orders; process; group_by_key; count; orders.process name=p; "
    "group_by_key name=x; count store=s",
    "values processed": "stream orders; process_values; to out",
    "values processed, named": "stream orders; process_values name=p; map_values; to out",
    "values processed and counted": "stream orders; process_values; group_by_key; count; orders.select_key; "
    "process_values; group_by_key; count",
    # joins of tables
    "two tables joined": "table users; table items; users.join items; to_stream; to out",
    "two tables joined, named": "table users; table items; users.join items name=j; to_stream; to out",
    "two tables joined, the store named": "table users; table items; users.join items store=s; to_stream name=updates",
    "two tables joined, all named": "table users name=u store=a; table items; users.join items name=j store=s; "
    "to_stream; filter; to out",
    "two tables joined, left": "table items; table users; left_join items; to_stream; to out",
    "two tables joined, left, all named": "table items; table users; left_join items name=j store=s; to_stream",
    "two tables joined, outer": "table items; table users; outer_join items; to_stream; select_key; to out",
    "two tables joined, outer, all named": "table items; table users; outer_join items name=j store=s; to_stream",
    "two tables joined, and their own updates": "table items; to_stream; to copies; table users; join items; "
    "to_stream; to out; users.to_stream; filter; to others",
    "joined by a foreign key": "table users; table items; users.join items by=count; to_stream; to out",
    "joined by a foreign key, named": "table users; table items; users.join items by=count name=j; to_stream; to out",
    "joined by a foreign key, the store named": "table users; table items; users.join items by=count store=s",
    "joined by a foreign key, all named": "table users name=u store=a; table items name=i; users.join items by=count "
    "name=j store=s; to_stream name=updates; filter; group_by; count",
    "joined by a foreign key, left": "table items; table users; left_join items by=count; to_stream; to out",
    "joined by a foreign key, left, all named": "table items; to_stream; to copies; table users; left_join items "
    "by=count name=j store=s; to_stream; to out; users.to_stream; to copied",
    "joined by a foreign key twice": "table items; table users; table towns; users.join items by=count; "
    "users.left_join towns by=count; to_stream; to out",
    "joined by foreign keys in a row": "table items; table towns; table users; join items by=count; "
    "left_join towns by=count; to_stream; to out",
    "joined by foreign keys in a row, all named": "table items; table towns; table users; "
    "join items by=count name=j store=s; to_stream; to some; table orders; left_join users by=count name=l; "
    "join items by=count name=k store=t; join towns by=count name=m; to_stream; to out",
    "joined with one table by two foreign keys": "table items; table users; join items by=count; join items by=count; "
    "to_stream; to out",
    "joined by a foreign key, and joined with by another one": "table items; table towns; table users; "
    "users.join items by=count; to_stream; to out; towns.left_join users by=count; to_stream; to others",
    "two tables joined and counted": "table items; table users; join items; to_stream; group_by; count; to_stream; "
    "to out",
    "joins of tables in a row": "table a; table b; table c; table d; a.join b as=ab; left_join c as=abc; "
    "d.outer_join abc; to_stream; to out; ab.to_stream; to some",
    "joins of tables in a row, named": "table a; table b; table c; a.join b name=ab store=s; left_join c name=abc; "
    "to_stream; to out",
    "joined tables joined": "table a; table b; table c; table d; a.join b as=ab; c.outer_join d as=cd; "
    "ab.left_join cd; to_stream; to out",
    "a table joined twice": "table a; table b; table c; a.join b; to_stream; to out; a.left_join c; to_stream; to more",
    "a table joined with an aggregate": "stream orders; group_by; count as=counts; table users; left_join counts; "
    "to_stream; to out",
    # graphs
    "branches": "stream orders; filter; to big; orders.filter; to small; orders.filter name=odd; map_values; to odd",
    "many branches of different lengths": "stream orders; select_key as=keyed; "
    + "; ".join("keyed.filter" + "; peek" * further for further in (0, 3, 1, 2, 0, 4, 1, 0, 2, 1)),
    "a diamond": "stream orders; filter as=a; orders.map_values as=b; a.merge b name=both; to out",
    "diamonds in a row": "stream orders; filter as=a; a.merge orders as=b; peek as=c; orders.merge c; merge a; to out; "
    "b.to b",
    "a stream merged with itself": "stream orders; merge orders; group_by_key; count",
    "a re-keyed stream merged": "stream clicks; stream orders; select_key as=keyed; clicks.merge keyed; group_by_key; "
    "count",
    "an aggregate's updates merged with its source": "stream orders; group_by name=x as=grouped; count; to_stream; "
    "merge orders; group_by; reduce; grouped.aggregate",
    "a topic read twice": "stream orders; filter; stream orders; map_values; to out",
    "a topic read twice, named": "stream orders name=first; filter; stream orders name=second; to out",
    "a topic read twice and merged": "stream orders; stream orders as=again; merge orders",
    "a topic read three times, merged with another": "stream clicks; stream orders; peek; stream orders; filter as=b; "
    "stream orders; merge clicks; merge b; to out",
    "sub-topologies side by side": "stream orders; group_by name=x; count; stream clicks; to out; table users; "
    "stream views; group_by; count",
    "sub-topologies brought together by a store": "stream orders; stream clicks; group_by_key; count as=counts; "
    "orders.join counts; to out",
    "it reads the topic that it writes": "stream orders; to out; stream out; to orders",
}

OF_TABLES = {
    "a table filtered": "table users; filter; to_stream; to out",
    "a table, all its operations": "table users; filter; filter_not; map_values; to_stream; to out",
    "a table, all its operations named": "table users name=u; filter name=a; filter_not name=b; map_values name=c; "
    "to_stream name=d; to out",
    "a table, all its operations with stores": "table users store=s; filter store=a; filter_not store=b; "
    "map_values store=c; to_stream; to out",
    "a table, operations with names and stores": "table users; filter store=a name=x; filter_not store=b name=y; "
    "map_values store=c name=z; to_stream; to out",
    "an aggregate filtered": "stream orders; group_by; count; filter; map_values; to_stream; to out",
    "an aggregate filtered twice": "stream orders; group_by; aggregate store=s as=t; filter; to_stream; to some; "
    "t.filter_not store=others; to_stream; select_key; group_by_key; count",
    "windows filtered": "stream orders; group_by_key; windowed_by; count; filter; map_values; to_stream; to out",
    "a joined table filtered": "table users; table places; users.join places; filter; to_stream; to out",
    "a filtered table beside a join": "table users; filter; to_stream; to out; stream orders; join users; to joined",
    "a stream as a table": "stream orders; filter; to_table; filter; to_stream; to out",
    "a stream as a table, named": "stream orders; to_table name=t; map_values; to_stream; to out",
    "a stream as a table with a store": "stream orders; to_table store=s; to_stream; to out",
    "a stream as a table, the store and the processor named": "stream orders; to_table name=t store=s; to_stream; to o",
    "a re-keyed stream as a table": "stream orders; select_key; to_table; to_stream; to out",
    "a re-keyed stream as a table, named": "stream orders; map; to_table name=t; filter; to_stream; to out",
    "a re-keyed stream as a table twice": "stream orders; select_key as=k; to_table; to_stream; to a; "
    "k.to_table store=s; to_stream; to b",
    "a table grouped": "table users; group_by; count; to_stream; to out",
    "a table grouped, all named": "table users name=u store=s; group_by name=by; count name=c store=counts; to_stream",
    "a table grouped, the store named": "table users; group_by; reduce store=r; to_stream; to out",
    "a table grouped, the processor named": "table users; group_by; aggregate name=a; to_stream; to out",
    "a table grouped, reduced by a named processor": "table users; group_by; reduce name=r; to_stream; to out",
    "a grouped table aggregated twice": "table users; group_by as=g; count; g.aggregate store=s; to_stream; to out",
    "a grouping of a table with a name, aggregated twice": "table users; group_by name=x as=g; count; g.reduce; "
    "to_stream; to out",
    "a table filtered and grouped": "table users; filter; map_values; group_by; count; to_stream; to out; users.filter",
    "a table with a store, filtered and grouped": "table users store=s; filter store=t; group_by; count; filter; "
    "to_stream; to out",
    "an aggregate grouped": "stream orders; group_by; count; group_by; aggregate; group_by; count; to_stream; to out",
    "a stream as a table grouped": "stream orders; to_table; group_by; count; to_stream; to out; orders.filter",
    "a stream as a table with a store grouped": "stream orders; select_key; to_table store=s; filter; group_by; reduce",
    "a grouped table joined": "stream orders; table users; orders.join users; to out; users.group_by; count",
    "a table joined and grouped": "table users; users.group_by; count; to_stream; to out; stream orders; join users",
}
"""Operations of tables. An import writes some of them."""

WITH_GLOBAL_TABLES = {
    "a global table alone": "global_table users",
    "joined with a global table": "global_table users; stream orders; join users; to out",
    "joined with a global table behind the stream": "stream orders; global_table users; orders.join users; to out",
    "joined with a global table, matched or not": "stream orders; global_table users; orders.left_join users; to out",
    "joined with a global table, all named": "global_table users name=u store=s; stream orders; join users name=j; "
    "left_join users name=k; to out",
    "joined with a global table, re-keyed": "global_table users; stream orders; select_key; join users; to out",
    "joined with a global table and counted": "global_table users; stream orders; join users; group_by; count; "
    "to_stream; to out",
    "joined with a global table behind a new key and counted": "stream orders; select_key; global_table users; "
    "stream clicks; left_join users; select_key; group_by_key; count; to_stream; to out",
    "an aggregate's updates joined with a global table": "stream orders; group_by; count; to_stream as=updates; "
    "global_table users; updates.join users; to out",
    "two global tables between two streams": "stream orders; global_table users; stream clicks; global_table items; "
    "orders.join users; left_join items; to out; clicks.join items; to clicked",
    "joined with a global table and a table": "global_table users; table items; stream orders; join users; join items; "
    "to out",
    "joined with a table and a global table": "global_table users; table items; stream orders; join items; join users; "
    "to out; orders.join users; merge orders; to all",
}
"""Joins with global tables."""

VERSIONED = "table users history=60 store=v; stream orders; "

WITH_GRACE = {
    "a join with a grace period": f"{VERSIONED} join users grace=10; to out",
    "a left join with a grace period, named": f"{VERSIONED} filter; left_join users grace=10 name=late; to out",
    "a join with a grace period behind a new key": f"{VERSIONED} select_key; join users grace=60; peek; to out",
    "a grace period behind a new key, named": f"{VERSIONED} select_key; join users grace=60 name=late; to out",
    "joins with and without a grace period": f"{VERSIONED} join users grace=10; to out; orders.left_join users; "
    "to all; orders.join users grace=20; filter; to some",
    "a join with a grace period behind another one": f"{VERSIONED} table items history=30 store=w; orders.join users "
    "grace=10; left_join items grace=0; to out",
    "a join with a grace period that is counted": f"{VERSIONED} join users grace=10; group_by_key; count; to_stream; "
    "to out; orders.to copied",
    "a join with a grace period between branches": f"{VERSIONED} split; branch as=rest; rest.default_branch; "
    "orders.join users grace=10; merge orders; to out",
}
"""Joins with versioned tables that have a grace period."""


# -- topologies at random


def drawn(seed: int, *, careless: bool = False, words: Sequence[str] | None = None) -> Steps:
    """A topology at random. Careless ones now and then use a name, a store or a topic twice, or an illegal name."""
    chosen = random.Random(seed)
    steps: list[Step] = []
    kinds: dict[str, list[str]] = {
        kind: [] for kind in ("stream", "table", "grouped", "windows", "end", "cogrouped", "cogrouped windows")
    }
    windowed: set[str] = set()
    unread = [f"table-{number}" for number in range(4)]

    def text(fresh: str, used: Iterable[str | None]) -> str:
        if careless and chosen.random() < 0.1:
            return chosen.choice([name for name in used if name] or ["", ".", "a b", "a" * 242, "a" * 243, "a" * 250])
        return fresh

    def add(kind: str, word: str, of: str = "", *, keyed_anew: bool = False, other: str = "", **more: Any) -> None:
        label, name = f"{word}-{len(steps)}", None
        if chosen.random() < 0.3 and word not in ("windowed_by", "cogroup"):
            name = text(f"n{len(steps)}", [step.name for step in steps])
        steps.append(Step(word, of, other=other, label=label, name=name, **more))
        kinds[kind].append(label)
        if word == "windowed_by" or (of in windowed and not keyed_anew):
            windowed.add(label)

    def pick(kind: str, *, plain: bool = False) -> str | None:
        found = [label for label in kinds[kind] if not (plain and label in windowed)]
        if found and chosen.random() < 0.6:
            found = found[-3:]
        return chosen.choice(found) if found else None

    def store() -> str | None:
        return text(f"store-{len(steps)}", [step.store for step in steps]) if chosen.random() < 0.4 else None

    add("stream", "stream", topic="topic-0")
    for _ in range(chosen.randint(2, 30)):
        word = chosen.choice(words or _WORDS)
        stream = pick("stream", plain=word in ("repartition", "join", "left_join", "stream_join", "group_by_key"))
        table = pick("table", plain=word in ("join", "left_join"))
        match word:
            case "stream":
                add("stream", word, topic=f"topic-{chosen.randrange(4)}")
            case "table" if unread:
                add("table", word, topic=text(unread.pop(), [step.topic for step in steps]), store=store())
            case "filter" | "map_values" | "peek" if stream:
                add("stream", word, stream)
            case "select_key" | "map" | "flat_map" if stream:
                add("stream", word, stream, keyed_anew=True)
            case "merge" if stream:
                others = [label for label in kinds["stream"] if (label in windowed) == (stream in windowed)]
                add("stream", word, stream, other=chosen.choice(others))
            case "repartition" if stream:
                add("stream", word, stream, partitions=chosen.choice([None, 3]))
            case "to" if stream:
                add("end", word, stream, topic=f"{chosen.choice(['out', 'topic'])}-{chosen.randrange(4)}")
            case "group_by" if stream:
                add("grouped", word, stream, keyed_anew=True)
            case "group_by_key" if stream:
                add("grouped", word, stream)
            case "windowed_by" if grouped := pick("grouped"):
                add("windows", word, grouped)
            case "count" | "aggregate" if grouped := pick(chosen.choice(["grouped", "windows"])):
                add("table", word, grouped, store=store())
            case "reduce" if grouped := pick("grouped"):
                add("table", word, grouped, store=store())
            case "cogroup" if grouped := pick("grouped"):
                add("cogrouped", word, grouped)
                for other in chosen.sample(kinds["grouped"], min(2, len(kinds["grouped"]))):
                    if other != grouped:
                        add("cogrouped", word, kinds["cogrouped"][-1], other=other)
                of_streams = kinds["cogrouped"][-1]
                for _ in range(chosen.choice([1, 1, 2])):
                    if chosen.random() < 0.3:
                        add("cogrouped windows", "windowed_by", of_streams)
                        add("table", "aggregate", kinds["cogrouped windows"][-1], store=store())
                    else:
                        add("table", "aggregate", of_streams, store=store())
            case "join" | "left_join" if stream and table:
                add("stream", word, stream, other=table)
            case "stream_join" if stream and (other := pick("stream", plain=True)):
                word = chosen.choice(["join", "left_join", "outer_join"])
                add("stream", word, stream, other=other, store=store())
            case "to_stream" if table:
                add("stream", word, table)
    return tuple(steps)


_WORDS = (
    *("stream", "table", "filter", "map_values", "select_key", "map", "flat_map", "merge", "peek", "repartition", "to"),
    *("group_by", "group_by_key", "windowed_by", "count", "count", "aggregate", "aggregate", "reduce"),
    *("join", "join", "left_join", "stream_join", "to_stream", "to_stream"),
)

WITH_COGROUP = (*_WORDS, "stream", "group_by", "cogroup", "cogroup", "cogroup")
"""The words of topologies at random in which several streams are folded into one store."""
