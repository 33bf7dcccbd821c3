"""Topologies declared twice, here and with the library, so that both compute the same. A program is data.

Each word of a program is an operation of our language with fixed expressions. Of every stream here the value is
``{"n": an integer, "s": a text}``; either field, and the value, may be missing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.java_gateway import get_field
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import OF_RECORD, KeyValueStore, Processor, ProcessorContext, Record
from streamplan.model.stages import stage_of
from streamplan.model.stages.chain import StageChain
from streamplan.model.topology import Topology
from streamplan.model.windows import (
    CalendarWindows,
    CustomWindows,
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
from streamplan.serdes.primitive import String
from streamplan.serdes.windowed import TimeWindowed

from tests.support.kafka_streams import STREAMS, collection
from tests.support.library_processor import TaskProcessor, moment_of, processed, processed_freely
from tests.support.library_windows import own_windows, shifts
from tests.support.streams_library import Callback, Library, raw

VALUE = Json("n bigint, s string")
WINDOWS = {
    "windowed_by": TimeWindows("1 minute", grace="1 day"),
    "short_windows": TimeWindows("1 minute", grace="10 seconds"),
    "hopping_windows": TimeWindows("2 minutes", grace="1 day", advance="1 minute"),
    "strict_windows": TimeWindows("1 minute", grace="0 seconds"),
    "short_hops": TimeWindows("1 minute", grace="10 seconds", advance="20 seconds"),
    "later_windows": TimeWindows("1 minute", grace="10 seconds", offset="15 seconds"),
    "later_hops": TimeWindows("1 minute", grace="10 seconds", advance="20 seconds", offset="7 seconds"),
    "shifts": CustomWindows(shifts, size="50 seconds", grace="10 seconds"),
    "berlin_days": CalendarWindows("1 day", time_zone="Europe/Berlin", grace="1 hour"),
    "sliding_windows": SlidingWindows("60007 milliseconds", grace="10 seconds"),
    "utc_weeks": CalendarWindows("1 week", time_zone="UTC", grace="1 hour", offset="6 hours"),
}
SESSIONS = {
    "sessions": SessionWindows("30 seconds", grace="1 day"),
    "short_sessions": SessionWindows("30 seconds", grace="10 seconds"),
    "brief_sessions": SessionWindows("3 seconds", grace="2 seconds"),
}
JOINED_WITHIN = {
    "join_stream": JoinWindows("1 minute", grace="1 day"),
    "join_soon": JoinWindows("30 seconds", grace="10 seconds", after="1 minute"),
    "left_join_soon": JoinWindows("30 seconds", grace="10 seconds", after="1 minute"),
    "outer_join_soon": JoinWindows("30 seconds", grace="10 seconds", after="1 minute"),
}


FOREIGN_KEY = "if(n = 7, null, s)"
"""The key of the other table in a value of this one. The library's twin is :func:`_foreign_key`."""

HISTORY_SECONDS = 30
"""How long a versioned table keeps a row that was replaced."""

GRACE_SECONDS = 10
"""How long a record waits for late rows of a versioned table."""

LOOKED_UP = "if(n = 7, null, translate(s, 'xyz', 'klm'))"
"""The key of a global table in a record. The library's twin is :func:`_looked_up`."""

STREAMS_OF_TOPICS = ("stream", "stream_at", "stream_told")
"""The words that read a topic: with its timestamps, and with those that an expression or a function tells."""

TOPICS = (*STREAMS_OF_TOPICS, "table", "unstored_table", "versioned_table", "global_table")
"""The words that read a topic."""

TOLD_FROM = 1_767_268_800_000
"""The earliest timestamp that is told: 2026-01-01T12:00:00Z."""

WINDOW_START = "unix_millis(record.window.start)"

ALIKE = (
    *("python_table_filter", "python_table_filter_not", "python_table_map_values", "python_left_join_global"),
    *("python_select_key", "python_group_by", "python_group_table", "python_group_even"),
    *("python_foreign_inner", "python_foreign_left"),
)
"""The words that stand for a Python function here, and that the library has in the same way without ``python_``."""

JOINED_TABLES = {"join": "join", "left": "left_join", "outer": "outer_join"}
"""By the first part of a word the method that joins two tables. The word may say ``_stored``."""


@dataclass(frozen=True)
class Step:
    """``word`` applied to the results of the steps with these numbers. ``topic`` is the one that it reads or writes.

    One source reads several topics, as in ``stream a,b``.
    """

    word: str
    of: tuple[int, ...] = ()
    topic: str = ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads."""
        return tuple(self.topic.split(","))


Program = tuple[Step, ...]


def program(text: str) -> Program:
    """Steps in a line: ``stream a; filter; to big; @0 select_key; to copied; stream b; merge 0``.

    A word is applied to the step before it, or to the one with the number behind ``@``. A number behind it is that of
    its second operand.
    """
    steps: list[Step] = []
    for number, part in enumerate(text.split(";")):
        of, *words = part.split() if part.split()[0].startswith("@") else (f"@{number - 1}", *part.split())
        word, *rest = words
        operands = () if word in TOPICS else (int(of[1:]), *(int(one) for one in rest if one.isdigit()))
        steps.append(Step(word, operands, "".join(one for one in rest if not one.isdigit())))
    return tuple(steps)


# -- ours


def is_small(record: Any) -> bool | None:
    return None if record.n is None else record.n < 6


def is_large(value: Any) -> bool | None:
    """Is not called with a null value of a table."""
    return None if value.n is None else value.n > 1


def of_table(key: str, value: Any) -> dict[str, Any]:
    return {"n": 7 if value.n is None else 2 * value.n, "s": None if value.s is None else value.s + key}


def text_of(record: Any) -> str | None:
    """The key that a record has in place of its own."""
    text: str | None = record.s
    return text


def key_of_map(key: str, record: Any) -> str | None:
    """The same as the expression of ``map``."""
    return None if record.n is None or record.s is None else f"{record.s}-{record.n % 3}"


def key_of_tripled(record: Any) -> str | None:
    return None if record.n is None or record.s is None else f"{record.s}-{3 * record.n % 2}"


def even_or_none(key: str, value: Any) -> str | None:
    return "even" if is_even(value) else None


def referred_to(value: Any) -> str | None:
    """The same as ``FOREIGN_KEY``."""
    return None if value.n == 7 else value.s


def looked_up(record: Any) -> str | None:
    """The same as ``LOOKED_UP``."""
    return None if record.n == 7 or record.s is None else record.s.translate(str.maketrans("xyz", "klm"))


def tripled(record: Any) -> dict[str, Any] | None:
    return None if record.n is None else {"n": 3 * record.n, "s": record.s}


def told_moment(record: Any) -> datetime | int | None:
    """The same as the expression of ``stream_at``, as a moment, or in ms."""
    if record.n is None:
        return None
    at = -5 if record.n == 7 else TOLD_FROM + record.n * 25_000
    return at if record.n % 2 else datetime.fromtimestamp(at / 1000, UTC)


def is_even(record: Any) -> bool | None:
    return None if record.n is None else record.n % 2 == 0


def of_both(one: Any, other: Any) -> dict[str, Any]:
    """What a join with a table gives. A side of which nothing is known is None."""
    return {"n": one and one.n, "s": other and other.s}


def met(key: str, one: Any, other: Any) -> dict[str, Any]:
    """What a join of streams gives: a field is null where either is."""
    n, s = [[side and getattr(side, name) for side in (one, other)] for name in ("n", "s")]
    return {"n": None if None in n else 10 * n[0] + n[1], "s": None if None in s else "".join(s)}


def odd_ones(record: Any) -> list[dict[str, Any]]:
    return [{"n": record.n, "s": record.s}] if record.n is not None and record.n % 2 else []


def in_a_row(old: Any, new: Any) -> dict[str, Any] | None:
    """Depends on the order of the records. A sum that 5 divides deletes the key. In windows either may be None."""
    n = getattr(new, "n", None)
    total = (old.n or 0) + (n or 0)
    return {"n": total, "s": f"{n}{old.s}"[:6]} if total % 5 else None


def counted_in_a_row(key: str, value: Any, aggregate: Any) -> dict[str, Any] | None:
    """The same of an aggregate, which may delete a key that there is not."""
    n = getattr(value, "n", None)
    total = (aggregate.n or 0) + (n or 0)
    return {"n": total, "s": f"{key}{n}{aggregate.s}"[:6]} if total % 4 else None


def of_other_stream(key: str, value: Any, aggregate: Any) -> dict[str, Any] | None:
    """What a record of the second of two streams makes of their aggregate."""
    n = getattr(value, "n", None)
    total = 2 * (aggregate.n or 0) + (n or 0)
    return {"n": total, "s": f"{aggregate.s}{n}"[-6:]} if total % 3 else None


def one_after_the_other(key: str, one: Any, other: Any) -> dict[str, Any]:
    """The aggregate of two sessions. The earlier one comes first."""
    return {"n": (one.n or 0) + (other.n or 0), "s": f"{other.s}{one.s}"[:6]}


def came(so_far: Any, value: Any) -> dict[str, Any] | None:
    """Depends on the order of the calls. A sum that 7 divides deletes the group."""
    total = (so_far.n or 0) + (value.n or 0)
    return {"n": total, "s": f"{so_far.s}+{value.n}"[-7:]} if total % 7 else None


def went(so_far: Any, value: Any) -> dict[str, Any] | None:
    total = (so_far.n or 0) - (value.n or 0)
    return {"n": total, "s": f"{so_far.s}-{value.n}"[-7:]} if total % 5 else None


def came_to(key: str, value: Any, aggregate: Any) -> dict[str, Any] | None:
    """The same of an aggregate. No number is missing."""
    return {"n": (aggregate.n or 0) + value.n, "s": f"{key}{value.n}{aggregate.s}"[:6]}


def went_from(key: str, value: Any, aggregate: Any) -> dict[str, Any] | None:
    return {"n": aggregate.n - value.n, "s": f"-{aggregate.s}"[:6]} if aggregate.n - value.n else None


GAPS_STATE = "n bigint, s string, due timestamp"


class Gaps(Processor):
    """Adds the numbers of a key, and tells of the sum a minute after a record. A record without a text deletes it."""

    def process(self, record: Record, store: KeyValueStore) -> list[dict[str, Any] | None]:
        seen = store.get()
        if record.value is None:
            return [None]
        if record.value.s is None:
            store.delete()
            return []
        total = (0 if seen is None else seen.n) + (record.value.n or 0)
        store.put({"n": total, "s": record.value.s, "due": record.timestamp + timedelta(minutes=1)})
        return [{"n": total, "s": record.value.s}] * (total % 3)

    def on_timer(self, time: datetime, store: KeyValueStore) -> list[dict[str, Any]]:
        seen = store.get()
        if seen.n % 2:
            store.put({"n": seen.n + 1, "s": seen.s, "due": time + timedelta(minutes=1)})
        if seen.n > 20:
            store.delete()
        return [{"n": seen.n, "s": f"{seen.s} {store.key}"}]


class Copies(Processor):
    """Forwards up to three copies of a record, with other keys and times. Of a null value one under another key.

    ``child``  the node that is given one more record
    """

    child = ""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        if record.value is None:
            self.context.forward(None, key="none")
            return
        for copy in range((record.value.n or 0) % 4):
            key = f"{record.value.s}-{copy}" if copy else None if record.value.s == "z" else OF_RECORD
            value = {"n": record.value.n + copy, "s": record.value.s}
            self.context.forward(value, key=key, timestamp=record.timestamp + timedelta(seconds=copy))
        if record.value.s == "y" and self.child:
            self.context.forward({"n": record.value.n, "s": "for one"}, child=self.child)


class CopiesOfKey(Copies):
    """The same with the key of the record."""

    def process(self, record: Record) -> None:
        if record.value is None:
            self.context.forward(None)
            return
        for copy in range((record.value.n or 0) % 4):
            value = {"n": record.value.n + copy, "s": record.value.s}
            self.context.forward(value, timestamp=record.timestamp + timedelta(seconds=copy))


class Reads(Processor):
    """Tells of each record what another operation has stored: of all keys, and of that of the record."""

    store: str

    def init(self, context: ProcessorContext) -> None:
        self.context, self.table = context, context.get_state_store(self.store)

    def process(self, record: Record) -> None:
        stored = [told_of(key, vars(of.value), of.timestamp) for key, of in self.table.all()]
        one = None if record.key is None else self.table.get(record.key)
        own = "" if one is None else told_of(record.key, vars(one.value), one.timestamp)
        self.context.forward({"n": len(stored), "s": f"{own} of {' '.join(stored)}"})


def told_of(key: Any, value: dict[str, Any], at: datetime) -> str:
    numbers = {"n": value["count"]} if "count" in value else value
    return f"{key}={numbers.get('n')},{numbers.get('s')}@{at.timestamp():.3f}"


def ours(steps: Program, application_id: str, partitions: int) -> Pipeline:
    """Raises Refused for a program that our language refuses."""
    topology = Topology(application_id)
    made: list[Any] = []
    for number, step in enumerate(steps):
        made.append(_our_step(topology, step, [made[operand] for operand in step.of], f"x{number}"))
    topics = dict.fromkeys((*topology.source_topics, *topology.sink_topics), partitions)
    return Pipeline(application_id, topology, "", topics)


OF_TABLES: dict[str, Callable[[Any, str | None], Any]] = {
    "table_filter": lambda table, store: table.filter("n > 1", store=store),
    "table_filter_not": lambda table, store: table.filter_not("n > 1", store=store),
    "table_map_values": lambda table, store: table.map_values(
        {"n": "coalesce(2 * n, 7)", "s": "concat(s, record.key)"}, store=store
    ),
    "often": lambda table, store: table.filter("count > 1", store=store),
    "count_values": lambda table, store: table.map_values({"n": "count", "s": "'c'"}, store=store),
    "to_table": lambda stream, store: stream.to_table(store=store),
    "python_table_filter": lambda table, store: table.filter(is_large, store=store),
    "python_table_filter_not": lambda table, store: table.filter_not(lambda key, value: is_large(value), store=store),
    "python_table_map_values": lambda table, store: table.map_values(of_table, schema=VALUE.schema, store=store),
}
"""By word an operation of a table; behind ``_stored`` it has a store."""


def _our_step(topology: Topology, step: Step, operands: list[Any], name: str) -> Any:
    match step.word, operands:
        case "stream", []:
            return topology.stream(step.topics, value=VALUE)
        case "stream_at", []:
            return topology.stream(step.topics, value=VALUE, timestamp=f"if(n = 7, -5, {TOLD_FROM} + n * 25000)")
        case "stream_told", []:
            return topology.stream(step.topics, value=VALUE, timestamp=told_moment)
        case "table", []:
            return topology.table(step.topic, value=VALUE, store=f"{step.topic}-store")
        case "unstored_table", []:
            return topology.table(step.topic, value=VALUE)
        case "versioned_table", []:
            store = Versioned(f"{step.topic}-store", f"{HISTORY_SECONDS} seconds")
            return topology.table(step.topic, value=VALUE, store=store)
        case "global_table", []:
            return topology.global_table(step.topic, value=VALUE)
        case (("join_global" | "left_join_global") as word, [stream, table]):
            join = stream.join if word == "join_global" else stream.left_join
            return join(table, {"n": "n", "s": "table.s"}, key=LOOKED_UP, name=name)
        case "python_left_join_global", [stream, table]:
            return stream.left_join(table, {"n": "n", "s": "table.s"}, key=looked_up, name=name)
        case word, [table] if (plain := word.removesuffix("_stored")) in OF_TABLES:
            return OF_TABLES[plain](table, name if word.endswith("_stored") else None)
        case "filter", [stream]:
            return stream.filter("n > 1")
        case "filter_not", [stream]:
            return stream.filter_not("n > 1")
        case "python_filter_not", [stream]:
            return stream.filter_not(lambda key, value: is_even(value))
        case "flat_map_values", [stream]:
            return stream.flat_map_values(
                "filter(array(1, 2, 3), x -> x <= n)", {"n": "n + element", "s": "s"}, name=name
            )
        case "python_flat_map_values", [stream]:
            return stream.flat_map_values(lambda key, value: odd_ones(value), schema=VALUE.schema)
        case "split", [stream]:
            return stream.split(name=name).branch("n > 4").branch(is_even).branch("s = 'x'", name="x").default_branch()
        case "split_loosely", [stream]:
            return stream.split(name=name).branch(is_even).branch("n > 4").no_default_branch()
        case word, [branches] if word.startswith("branch_"):
            return next(stream for name, stream in branches.items() if name.endswith(word.removeprefix("branch_")))
        case "map_values", [stream]:
            return stream.map_values({"n": "2 * n", "s": "s"})
        case "select_key", [stream]:
            return stream.select_key("s")
        case "python_select_key", [stream]:
            return stream.select_key(text_of)
        case "map", [stream]:
            return stream.map("concat(s, '-', n % 3)", {"n": "n + 1", "s": "s"})
        case "keyed_map", [stream]:
            return stream.map(key_of_map, {"n": "n + 1", "s": "s"})
        case "keyed_python_map", [stream]:
            return stream.map(key_of_tripled, tripled, schema=VALUE.schema)
        case "flat_map", [stream]:
            value = {"n": "element * 3", "s": "s"}
            return stream.flat_map("filter(array(n), x -> x % 2 = 0)", key="concat(s, element)", value=value)
        case "each", [stream]:
            value = {"n": "n + element", "s": "s"}
            return stream.flat_map("filter(array(1, 2, 3), x -> x <= n)", key="concat(s, element)", value=value)
        case "python_filter", [stream]:
            return stream.filter(is_small)
        case "python_map_values", [stream]:
            return stream.map_values(lambda key, value: tripled(value), schema=VALUE.schema)
        case "python_map", [stream]:
            return stream.map("concat(s, '-', n % 2)", tripled, schema=VALUE.schema)
        case "python_flat_map", [stream]:
            return stream.flat_map(odd_ones, schema=VALUE.schema, key="s")
        case "process", [stream]:
            return stream.process(Gaps, store=name, state=GAPS_STATE, schema=VALUE.schema, timer="due")
        case "read_table", [stream, table]:
            reads = type("Reading", (Reads,), {"store": table._store})
            return stream.process(reads, stores={table._store: table}, schema=VALUE.schema)
        case "process_freely", [stream]:
            return stream.process(Copies, schema=VALUE.schema)
        case "process_for_one", [stream]:
            copies = type("CopiesForOne", (Copies,), {"child": f"{name}-child"})
            made = stream.process(copies, schema=VALUE.schema, name=name)
            made.filter_not("n > 1", name=f"{name}-child").to(f"{name}-one")
            return made
        case "process_values", [stream]:
            return stream.process_values(CopiesOfKey, schema=VALUE.schema)
        case "merge", [stream, other]:
            return stream.merge(other)
        case "peek", [stream]:
            return stream.peek({"seen": "count(*)"})
        case "repartition", [stream]:
            return stream.repartition(name=name)
        case "group_by", [stream]:
            return stream.group_by("s", name=name)
        case "python_group_by", [stream]:
            return stream.group_by(lambda key, value: text_of(value), name=name)
        case "python_group_table", [table]:
            return table.group_by(text_of, name=name)
        case "python_group_even", [table]:
            return table.group_by(even_or_none)
        case "group_table", [table]:
            return table.group_by("s", name=name)
        case "group_even", [table]:
            return table.group_by("if(n % 2 = 0, 'even', null)")
        case "group_plainly", [table]:
            return table.group_by("record.key")
        case "group_of_window", [table]:
            key = "if(s is null, null, struct(s as key, unix_millis(record.window.start) as start))"
            return table.group_by(key, key_serde=TimeWindowed(String()), name=name)
        case "table_reduce", [grouped]:
            return grouped.reduce(came, went, store=name)
        case "table_aggregate", [grouped]:
            return grouped.aggregate(dict, came_to, went_from, schema=VALUE.schema, store=name)
        case "group_by_key", [stream]:
            return stream.group_by_key(name=name)
        case word, [grouped] if word in WINDOWS or word in SESSIONS:
            return grouped.windowed_by((WINDOWS | SESSIONS)[word])
        case "on_close", [windowed]:
            return windowed.emit_strategy(OnWindowClose())
        case "suppress", [table]:
            return table.suppress(UntilWindowCloses())
        case "suppress_for", [table]:
            return table.suppress(UntilTimeLimit("20 seconds"))
        case "suppress_two", [table]:
            return table.suppress(UntilTimeLimit("20 seconds", max_records=2))
        case "suppress_or_stop", [table]:
            return table.suppress(UntilTimeLimit("20 seconds", max_records=2, shut_down_when_full=True))
        case "count", [grouped]:
            return grouped.count(store=name)
        case "cogroup", [grouped, other]:
            first, second = {"n": "sum(n)", "c": "count(*)"}, {"d": "count(s)", "s": "max(s)", "n": "sum(n)"}
            return grouped.cogroup(first).cogroup(other, second)
        case "cogrouped", [grouped]:
            return grouped.aggregate(store=name)
        case "python_cogroup", [grouped, other]:
            return grouped.cogroup(counted_in_a_row).cogroup(other, of_other_stream)
        case "python_cogrouped", [grouped]:
            of_sessions = isinstance(getattr(grouped, "_cogrouped", grouped)._window, SessionWindows)
            merger = {"merger": one_after_the_other} if of_sessions else {}
            return grouped.aggregate(dict, **merger, schema=VALUE.schema, store=name)
        case "aggregate", [grouped]:
            return grouped.aggregate({"n": "sum(n)", "s": "max(s)"}, store=name)
        case "reduce", [grouped]:
            return grouped.reduce(store=name)
        case "greatest", [grouped]:
            return grouped.reduce(max_by="n", store=name)
        case "python_reduce", [grouped]:
            return grouped.reduce(in_a_row, store=name)
        case "python_aggregate", [grouped]:
            merger = {"merger": one_after_the_other} if isinstance(grouped._window, SessionWindows) else {}
            return grouped.aggregate(dict, counted_in_a_row, **merger, schema=VALUE.schema, store=name)
        case "join", [stream, table]:
            return stream.join(table, {"n": "n", "s": "table.s"}, name=name)
        case (("python_join" | "python_left_join") as word, [stream, table]):
            join = stream.join if word == "python_join" else stream.left_join
            return join(table, of_both, schema=VALUE.schema, name=name)
        case "python_join_global", [stream, table]:
            return stream.left_join(table, of_both, key=LOOKED_UP, schema=VALUE.schema, name=name)
        case (("python_join_soon" | "python_outer_join_soon") as word, [stream, other]):
            within = JOINED_WITHIN[word.removeprefix("python_")]
            join = stream.join if word == "python_join_soon" else stream.outer_join
            return join(other, met, within=within, schema=VALUE.schema, name=name)
        case word, [stream, other] if word in JOINED_WITHIN:
            value = {"n": "10 * n + other.n", "s": "concat(s, other.s)"}
            if word in ("join_stream", "join_soon"):
                return stream.join(other, value, within=JOINED_WITHIN[word], name=name)
            join = stream.left_join if word == "left_join_soon" else stream.outer_join
            value = {"n": "10 * coalesce(n, 0) + coalesce(other.n, 0)", "s": "concat_ws('', s, '-', other.s)"}
            return join(other, value, within=JOINED_WITHIN[word], name=name)
        case word, [table, other] if word.startswith(("foreign_", "python_foreign_")):
            value = {"n": "10 * coalesce(n, 0) + coalesce(table.n, 0)", "s": "concat_ws('', s, '-', table.s)"}
            join = table.left_join if "left" in word else table.join
            foreign_key = referred_to if word.startswith("python_") else FOREIGN_KEY
            return join(other, value, foreign_key=foreign_key, store=name if word.endswith("stored") else None)
        case word, [table, other] if word.endswith(("_tables", "_tables_stored")):
            value = {"n": "10 * coalesce(n, 0) + coalesce(table.n, 0)", "s": "concat_ws('', s, '-', table.s)"}
            join = getattr(table, JOINED_TABLES[word.partition("_")[0]])
            return join(other, value, store=name if word.endswith("stored") else None)
        case "left_join", [stream, table]:
            return stream.left_join(table, {"n": "n", "s": "table.s"}, name=name)
        case (("join_late" | "left_join_late") as word, [stream, table]):
            join = stream.join if word == "join_late" else stream.left_join
            return join(table, {"n": "n", "s": "table.s"}, grace=f"{GRACE_SECONDS} seconds", name=name)
        case (("join_counts" | "left_join_counts") as word, [stream, table]):
            join = stream.join if word == "join_counts" else stream.left_join
            return join(table, {"n": "table.count", "s": "s"}, name=name)
        case "to_stream", [table]:
            return table.to_stream()
        case "counts", [stream]:
            return stream.map_values({"n": "count", "s": "record.key"})
        case "windows", [stream]:
            return stream.map("concat(record.key, '@', unix_millis(record.window.start))", {"n": "n", "s": "s"})
        case "plain_counts", [stream]:
            return stream.map("record.key", {"n": "count", "s": f"concat({WINDOW_START}, '')"})
        case "one_key_counts", [stream]:
            value = {"n": "count", "s": f"concat(record.key, '@', {WINDOW_START})"}
            return stream.map("'all'", value)
        case "key_counts", [stream]:
            return stream.map("'all'", {"n": "count", "s": "record.key"})
        case "plain_sessions", [stream]:
            value = {"n": "count", "s": f"concat({WINDOW_START}, '-', unix_millis(record.window.end))"}
            return stream.map("record.key", value)
        case "window_counts", [stream]:
            key = "concat(record.key, '@', unix_millis(record.window.start))"
            return stream.map(key, {"n": "count", "s": "record.key"})
        case ("session_counts" | "session_values") as word, [stream]:
            key = "concat(record.key, '@', unix_millis(record.window.start), '-', unix_millis(record.window.end))"
            value = {"n": "count", "s": "record.key"} if word == "session_counts" else {"n": "n", "s": "s"}
            return stream.map(key, value)
        case "by_window", [stream]:
            key = "if(s is null, null, struct(s as key, unix_millis(record.window.start) as start))"
            return stream.select_key(key, key_serde=TimeWindowed(String()))
        case (("to_windowed" | "to_text_windowed" | "group_windowed") as word, [stream]):
            return stream.group_by_key(name=name) if word == "group_windowed" else stream.to(step.topic)
        case "to_either", [stream]:
            return stream.to("if(n > 4, 'large', 'small')", topics=("large", "small"), name=name)
        case (("to" | "to_text" | "to_sessions"), [stream]):
            return stream.to(step.topic)
    raise LookupError(step.word)


# -- the library's


def theirs(steps: Program, library: Library) -> None:
    made: list[Any] = []
    for number, step in enumerate(steps):
        made.append(_their_step(library, step, [made[operand] for operand in step.of], f"x{number}"))


Fields = dict[str, Any] | None


def read(value: Any) -> Fields:
    """The fields that are there."""
    if value is None:
        return None
    return {name: field for name, field in json.loads(bytes(value)).items() if field is not None}


def written(fields: Fields) -> bytes | None:
    """The value in the bytes that Spark gives it: a join by a foreign key sends their hash."""
    if fields is None:
        return None
    present = {name: field for name, field in fields.items() if field is not None}
    return json.dumps(present, separators=(",", ":")).encode()


def text_or_none(*parts: Any) -> bytes | None:
    return None if None in parts else "".join(map(str, parts)).encode()


def _function(interface: str, method: str, function: Callable[..., Any]) -> Callback:
    return Callback(f"{STREAMS}.kstream.{interface}", **{method: function})


def _value_mapper(function: Callable[[dict[str, Any]], Fields]) -> Callback:
    """A new value for a record that has one. Of no value ours makes none, too: all fields of it are null."""

    def apply(value: Any) -> bytes | None:
        fields = read(value)
        return None if fields is None else written(function(fields))

    return _function("ValueMapper", "apply", apply)


def _told(record: Any, partition_time: int) -> int:
    """The library skips a record with a negative timestamp. A small number would reach it as an int, and not a long."""
    n = (read(record.value()) or {}).get("n")
    return -(1 << 40) if n is None or n == 7 else TOLD_FROM + n * 25_000


def _predicate(function: Callable[[dict[str, Any]], bool]) -> Callback:
    return _function("Predicate", "test", lambda key, value: function(read(value) or {}))


def _is_even(fields: dict[str, Any]) -> bool:
    return bool(fields.get("n") is not None and fields["n"] % 2 == 0)


def _values_mapper(library: Library, function: Callable[[Fields], Iterable[Any]]) -> Callback:
    return _function("ValueMapper", "apply", lambda value: collection(library.jvm, [*function(read(value))]))


def _flat_mapper(library: Library, function: Callable[[Fields], Iterable[tuple[Any, Any]]]) -> Callback:
    pair = library.jvm.org.apache.kafka.streams.KeyValue

    def apply(key: Any, value: Any) -> Any:
        return collection(library.jvm, [pair(*made) for made in function(read(value))])

    return _function("KeyValueMapper", "apply", apply)


def _plus(number: int | None, more: int) -> int | None:
    return None if number is None else number + more


def _mapped(value: Fields) -> tuple[Any, Any]:
    fields = value or {}
    n, s = fields.get("n"), fields.get("s")
    made = None if value is None else {"n": _plus(n, 1), "s": s}
    return text_or_none(s, "-", None if n is None else n % 3), written(made)


def _tripled(value: Fields) -> tuple[Any, Any]:
    n, s = (value or {}).get("n"), (value or {}).get("s")
    if n is None:
        return None, None if value is None else written({})
    return text_or_none(s, "-", 3 * n % 2), written({"n": 3 * n, "s": s})


def _flat_mapped(value: Fields) -> list[tuple[Any, Any]]:
    fields = value or {}
    n, s = fields.get("n"), fields.get("s")
    return [(text_or_none(s, n), written({"n": n * 3, "s": s}))] if n is not None and n % 2 == 0 else []


def _odd_ones(value: Fields) -> list[tuple[Any, Any]]:
    n = (value or {}).get("n")
    return [(text_or_none((value or {}).get("s")), written(value))] if n is not None and n % 2 else []


def _each(value: Fields) -> list[tuple[Any, Any]]:
    fields = value or {}
    n, s = fields.get("n"), fields.get("s")
    numbers = [] if n is None else range(1, min(n, 3) + 1)
    return [(text_or_none(s, number), written({"n": n + number, "s": s})) for number in numbers if n is not None]


def _added(key: Any, value: Any, total: Any) -> bytes | None:
    fields, before = read(value) or {}, read(total) or {}
    numbers = [one["n"] for one in (fields, before) if "n" in one]
    texts = [one["s"] for one in (fields, before) if "s" in one]
    return written({"n": sum(numbers) if numbers else None, "s": max(texts, default=None)})


def _in_a_row(old: Any, new: Any) -> bytes | None:
    before, fields = read(old) or {}, read(new) or {}
    total = (before.get("n") or 0) + (fields.get("n") or 0)
    return written({"n": total, "s": f"{fields.get('n')}{before.get('s')}"[:6]}) if total % 5 else None


def _counted_in_a_row(key: Any, value: Any, aggregate: Any) -> bytes | None:
    before, fields = read(aggregate) or {}, read(value) or {}
    total = (before.get("n") or 0) + (fields.get("n") or 0)
    text = f"{bytes(key).decode()}{fields.get('n')}{before.get('s')}"[:6]
    return written({"n": total, "s": text}) if total % 4 else None


def _of_other_stream(key: Any, value: Any, aggregate: Any) -> bytes | None:
    before, fields = read(aggregate) or {}, read(value) or {}
    total = 2 * (before.get("n") or 0) + (fields.get("n") or 0)
    return written({"n": total, "s": f"{before.get('s')}{fields.get('n')}"[-6:]}) if total % 3 else None


def _one_after_the_other(key: Any, one: Any, other: Any) -> bytes | None:
    first, second = read(one) or {}, read(other) or {}
    n = (first.get("n") or 0) + (second.get("n") or 0)
    return written({"n": n, "s": f"{second.get('s')}{first.get('s')}"[:6]})


def _came(so_far: Any, value: Any) -> bytes | None:
    before, fields = read(so_far) or {}, read(value) or {}
    total = (before.get("n") or 0) + (fields.get("n") or 0)
    return written({"n": total, "s": f"{before.get('s')}+{fields.get('n')}"[-7:]}) if total % 7 else None


def _went(so_far: Any, value: Any) -> bytes | None:
    before, fields = read(so_far) or {}, read(value) or {}
    total = (before.get("n") or 0) - (fields.get("n") or 0)
    return written({"n": total, "s": f"{before.get('s')}-{fields.get('n')}"[-7:]}) if total % 5 else None


def _came_to(key: str, value: Any, aggregate: Any) -> bytes | None:
    before, fields = read(aggregate) or {}, read(value) or {}
    return written({"n": before.get("n", 0) + fields["n"], "s": f"{key}{fields['n']}{before.get('s')}"[:6]})


def _went_from(key: str, value: Any, aggregate: Any) -> bytes | None:
    before, fields = read(aggregate) or {}, read(value) or {}
    n = before["n"] - fields["n"]
    return written({"n": n, "s": f"-{before['s']}"[:6]}) if n else None


def _added_of_first(key: Any, value: Any, total: Any) -> bytes | None:
    """What a record of the first of two streams adds to their aggregate."""
    n, before = (read(value) or {}).get("n"), read(total) or {}
    return written({"n": _sum(n, before.get("n")), "c": before["c"] + 1, "d": before["d"], "s": before.get("s")})


def _added_of_second(key: Any, value: Any, total: Any) -> bytes | None:
    fields, before = read(value) or {}, read(total) or {}
    texts = [one["s"] for one in (fields, before) if "s" in one]
    n, d = _sum(fields.get("n"), before.get("n")), before["d"] + ("s" in fields)
    return written({"n": n, "c": before["c"], "d": d, "s": max(texts, default=None)})


def _brought_together(key: Any, one: Any, other: Any) -> bytes | None:
    """The aggregate of two sessions of both streams."""
    left, right = read(one) or {}, read(other) or {}
    texts = [each["s"] for each in (left, right) if "s" in each]
    n, c, d = _sum(left.get("n"), right.get("n")), left["c"] + right["c"], left["d"] + right["d"]
    return written({"n": n, "c": c, "d": d, "s": max(texts, default=None)})


def _sum(*numbers: int | None) -> int | None:
    there = [number for number in numbers if number is not None]
    return sum(there) if there else None


def _merged(key: Any, one: Any, other: Any) -> bytes | None:
    return _added(key, one, other)


def _session_key(windowed: Any) -> bytes:
    return b"%b-%d" % (_window_key(windowed), windowed.window().end())


def _greater(one: Any, other: Any) -> bytes | None:
    """The later of equals. A value without the number is less than any other."""
    ranks = [((read(value) or {}).get("n") is not None, (read(value) or {}).get("n") or 0) for value in (one, other)]
    return raw(other if ranks[1] >= ranks[0] else one)


def _window_key(windowed: Any) -> bytes:
    return b"%b@%d" % (bytes(windowed.key()), windowed.window().start())


def _joined(left: Any, right: Any) -> bytes | None:
    return written({"n": (read(left) or {}).get("n"), "s": (read(right) or {}).get("s")})


def _with_count(value: Any, count: int | None) -> bytes | None:
    return written({"n": count, "s": (read(value) or {}).get("s")})


def _met(one: Any, other: Any) -> bytes | None:
    """The record of a join of two streams: a field is null where either is."""
    left, right = read(one) or {}, read(other) or {}
    n = None if None in (left.get("n"), right.get("n")) else 10 * left["n"] + right["n"]
    s = None if None in (left.get("s"), right.get("s")) else left["s"] + right["s"]
    return written({"n": n, "s": s})


def _foreign_key(value: Any) -> bytes | None:
    found = read(value) or {}
    return None if found.get("n") == 7 else text_or_none(found.get("s"))


def _looked_up(value: Any) -> bytes | None:
    found = read(value) or {}
    if found.get("n") == 7 or "s" not in found:
        return None
    return str(found["s"]).translate(str.maketrans("xyz", "klm")).encode()


def _met_or_not(one: Any, other: Any) -> bytes | None:
    """The record of a left or outer join of two streams, of which either side may be missing."""
    left, right = read(one) or {}, read(other) or {}
    s = f"{left.get('s') or ''}-{right.get('s') or ''}"
    return written({"n": 10 * (left.get("n") or 0) + (right.get("n") or 0), "s": s})


class _Reads:
    """The same with the Processor API."""

    def __init__(self, jvm: Any, store: str) -> None:
        self._jvm, self._store = jvm, store

    def init(self, context: Any) -> None:
        self._context, self._table = context, context.getStateStore(self._store)

    def process(self, record: Any) -> None:
        entries, stored = self._table.all(), []
        while entries.hasNext():
            entry = entries.next()
            stored.append(self._told(get_field(entry, "key"), get_field(entry, "value")))
        entries.close()
        one = None if record.key() is None else self._table.get(record.key())
        own = "" if one is None else self._told(record.key(), one)
        value = {"n": len(stored), "s": f"{own} of {' '.join(stored)}"}
        self._context.forward(record.withValue(written(value)))

    def _told(self, key: Any, stored: Any) -> str:
        value, at = stored.value(), datetime.fromtimestamp(stored.timestamp() / 1000, UTC)
        return told_of(bytes(key).decode(), {"count": value} if isinstance(value, int) else read(value) or {}, at)


class _Copies:
    """The same with the Processor API."""

    def __init__(self, jvm: Any, child: str = "") -> None:
        self._jvm, self._child = jvm, child

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        value, at = read(record.value()), record.timestamp()
        if value is None:
            self.forward(record, b"none", None, at)
            return
        for copy in range(value.get("n", 0) % 4):
            text = value.get("s")
            key = f"{text}-{copy}".encode() if copy else None if text == "z" else record.key()
            self.forward(record, key, written({**value, "n": value["n"] + copy}), at + 1000 * copy)
        if value.get("s") == "y" and self._child:
            fields = {"n": value.get("n"), "s": "for one"}
            self._context.forward(record.withValue(written(fields)), self._child)

    def forward(self, record: Any, key: Any, value: bytes | None, at: int) -> None:
        self._context.forward(record.withKey(key).withValue(value).withTimestamp(at))


class _CopiesOfKey(_Copies):
    def forward(self, record: Any, key: Any, value: bytes | None, at: int) -> None:
        self._context.forward(record.withValue(value).withTimestamp(at))


class _Gaps(TaskProcessor):
    """The same with the Processor API."""

    timer = "due"

    def on_record(self, key: bytes, value: dict[str, Any] | None, at: int) -> None:
        seen = self.get(key)
        if value is None:
            self.forward(key, None, at)
        elif value.get("s") is None:
            self.delete(key)
        else:
            total = (seen or {}).get("n", 0) + (value.get("n") or 0)
            self.put(key, {"n": total, "s": value["s"], "due": moment_of(at + MINUTE)})
            for _ in range(total % 3):
                self.forward(key, {"n": total, "s": value["s"]}, at)

    def on_timer(self, key: bytes, value: dict[str, Any], at: int) -> None:
        if value["n"] % 2:
            self.put(key, {**value, "n": value["n"] + 1, "due": moment_of(at + MINUTE)})
        if value["n"] > 20:
            self.delete(key)
        self.forward(key, {"n": value["n"], "s": f"{value['s']} {key.decode()}"}, at)


MINUTE = 60_000


def _their_table(word: str, table: Any, stored: list[Any]) -> Any:
    """What :data:`OF_TABLES` gives. The library calls none of these functions with a null value."""
    is_large = _function("Predicate", "test", lambda key, value: (json.loads(bytes(value)).get("n") or 0) > 1)
    match word:
        case "table_filter":
            return table.filter(is_large, *stored)
        case "table_filter_not":
            return table.filterNot(is_large, *stored)
        case "table_map_values":

            def mapped(key: Any, value: Any) -> bytes | None:
                fields = json.loads(bytes(value))
                n, s = fields.get("n"), fields.get("s")
                plain = key if isinstance(key, bytes | bytearray) else key.key()  # without its window
                text = None if s is None else s + bytes(plain).decode()
                return written({"n": 7 if n is None else 2 * n, "s": text})

            return table.mapValues(_function("ValueMapperWithKey", "apply", mapped), *stored)
        case "often":
            return table.filter(_function("Predicate", "test", lambda key, count: count > 1), *stored)
        case "count_values":
            made = _function("ValueMapper", "apply", lambda count: written({"n": count, "s": "c"}))
            return table.mapValues(made, *stored)
        case "to_table":
            return table.toTable(*stored)
    raise LookupError(word)


def _their_step(library: Library, step: Step, operands: list[Any], name: str) -> Any:
    if step.word.removesuffix("_stored") in ALIKE:
        step = replace(step, word=step.word.removeprefix("python_"))
    pair = library.jvm.org.apache.kafka.streams.KeyValue
    bytes_serde = library.bytes

    def named_join() -> Any:
        return library.option("Joined", "with", bytes_serde, bytes_serde, bytes_serde).withName(name)

    match step.word, operands:
        case "stream", []:
            return library.builder.stream(collection(library.jvm, step.topics), library.consumed(n=int, s=str))
        case (("stream_at" | "stream_told"), []):
            extractor = Callback(f"{STREAMS}.processor.TimestampExtractor", extract=_told)
            consumed = library.consumed(n=int, s=str).withTimestampExtractor(extractor)
            return library.builder.stream(collection(library.jvm, step.topics), consumed)
        case "table", []:
            return library.builder.table(
                step.topic, library.consumed(n=int, s=str), library.stored(f"{step.topic}-store")
            )
        case "unstored_table", []:
            return library.builder.table(step.topic, library.consumed(n=int, s=str))
        case "versioned_table", []:
            history = library.jvm.java.time.Duration.ofSeconds(HISTORY_SECONDS)
            store = library.jvm.org.apache.kafka.streams.state.Stores.persistentVersionedKeyValueStore(
                f"{step.topic}-store", history
            )
            return library.builder.table(step.topic, library.consumed(n=int, s=str), library.stored(store))
        case "global_table", []:
            return library.builder.globalTable(step.topic, library.consumed(n=int, s=str))
        case (("join_global" | "left_join_global" | "python_join_global") as word, [stream, table]):
            join = stream.join if word == "join_global" else stream.leftJoin
            looked_up = _function("KeyValueMapper", "apply", lambda key, value: _looked_up(value))
            joined = _function("ValueJoiner", "apply", _joined)
            return join(table, looked_up, joined, library.option("Named", "as", name))
        case word, [table] if word.removesuffix("_stored") in OF_TABLES:
            # In its cache the library keeps back the deletion of a key that the store does not have.
            stored = library.stored(name).withCachingDisabled()
            stored = stored.withValueSerde(library.serdes.Long()) if word == "often_stored" else stored
            return _their_table(word.removesuffix("_stored"), table, [stored] if word.endswith("_stored") else [])
        case "filter", [stream]:
            return stream.filter(
                _function("Predicate", "test", lambda key, value: ((read(value) or {}).get("n") or 0) > 1)
            )
        case "filter_not", [stream]:
            return stream.filterNot(_predicate(lambda fields: (fields.get("n") or 0) > 1))
        case "python_filter_not", [stream]:
            return stream.filterNot(_predicate(_is_even))
        case "flat_map_values", [stream]:
            made = _values_mapper(library, lambda fields: [value for _, value in _each(fields)])
            return stream.flatMapValues(made, library.option("Named", "as", name))
        case "python_flat_map_values", [stream]:
            return stream.flatMapValues(_values_mapper(library, lambda fields: [v for _, v in _odd_ones(fields)]))
        case "split", [stream]:
            branches = stream.split(library.option("Named", "as", name))
            branches = branches.branch(_predicate(lambda fields: (fields.get("n") or 0) > 4))
            branches = branches.branch(_predicate(_is_even))
            of_x = _predicate(lambda fields: fields.get("s") == "x"), library.option("Branched", "as", "x")
            return branches.branch(*of_x).defaultBranch()
        case "split_loosely", [stream]:
            branches = stream.split(library.option("Named", "as", name)).branch(_predicate(_is_even))
            return branches.branch(_predicate(lambda fields: (fields.get("n") or 0) > 4)).noDefaultBranch()
        case word, [branches] if word.startswith("branch_"):
            return next(branches[name] for name in branches if name.endswith(word.removeprefix("branch_")))
        case "map_values", [stream]:
            return stream.mapValues(_value_mapper(lambda v: {**v, "n": None if "n" not in v else 2 * v["n"]}))
        case "select_key", [stream]:
            select = _function("KeyValueMapper", "apply", lambda key, value: text_or_none((read(value) or {}).get("s")))
            return stream.selectKey(select)
        case (("map" | "keyed_map"), [stream]):
            return stream.map(_function("KeyValueMapper", "apply", lambda k, v: pair(*_mapped(read(v)))))
        case "flat_map", [stream]:
            return stream.flatMap(_flat_mapper(library, _flat_mapped))
        case "each", [stream]:
            return stream.flatMap(_flat_mapper(library, _each))
        case "python_filter", [stream]:
            small = _function("Predicate", "test", lambda key, value: (read(value) or {}).get("n", 9) < 6)
            return stream.filter(small)
        case "python_map_values", [stream]:
            return stream.mapValues(_value_mapper(lambda v: {**v, "n": 3 * v["n"]} if "n" in v else {}))
        case (("python_map" | "keyed_python_map"), [stream]):
            return stream.map(_function("KeyValueMapper", "apply", lambda k, v: pair(*_tripled(read(v)))))
        case "python_flat_map", [stream]:
            return stream.flatMap(_flat_mapper(library, _odd_ones))
        case "process", [stream]:
            return processed(library, stream, name, lambda: _Gaps(library.jvm, name, 1))
        case "read_table", [stream, table]:
            store = table.queryableStoreName()
            reads = (lambda: _Reads(library.jvm, store)), "Processor", stream.process
            return processed_freely(library, *reads, stores=[store])
        case "process_freely", [stream]:
            return processed_freely(library, lambda: _Copies(library.jvm), "Processor", stream.process)
        case "process_for_one", [stream]:
            named = library.jvm.org.apache.kafka.streams.kstream.Named
            freely = (lambda: _Copies(library.jvm, f"{name}-child")), "Processor"
            made = processed_freely(library, *freely, stream.process, named=getattr(named, "as")(name))
            large = _function("Predicate", "test", lambda key, value: (read(value) or {}).get("n", 0) > 1)
            for_one = made.filterNot(large, getattr(named, "as")(f"{name}-child"))
            for_one.to(f"{name}-one", library.option("Produced", "with", bytes_serde, bytes_serde))
            return made
        case "process_values", [stream]:
            freely = (lambda: _CopiesOfKey(library.jvm)), "FixedKeyProcessor", stream.processValues
            return processed_freely(library, *freely)
        case "merge", [stream, other]:
            return stream.merge(other)
        case "peek", [stream]:
            return stream.peek(_function("ForeachAction", "apply", lambda key, value: None))
        case "repartition", [stream]:
            return stream.repartition(library.option("Repartitioned", "with", bytes_serde, bytes_serde).withName(name))
        case "group_by", [stream]:
            return library.grouped(stream, lambda key, value: text_or_none((read(value) or {}).get("s")), name)
        case (("group_table" | "group_even" | "group_plainly") as word, [table]):
            names = [name] if word == "group_table" else []
            grouped = library.option("Grouped", "with", *names, library.serdes.String(), bytes_serde)

            def of_group(key: Any, value: Any) -> Any:
                found = json.loads(bytes(value))
                even = "even" if found.get("n") is not None and found["n"] % 2 == 0 else None
                if word == "group_plainly":
                    return pair(bytes(key).decode(), raw(value))
                return pair(found.get("s") if word == "group_table" else even, raw(value))

            return table.groupBy(_function("KeyValueMapper", "apply", of_group), grouped)
        case "group_of_window", [table]:
            kstream = library.jvm.org.apache.kafka.streams.kstream

            def of_window(key: Any, value: Any) -> Any:
                text = (read(value) or {}).get("s")
                return pair(None if text is None else kstream.Windowed(text, key.window()), raw(value))

            # Of two keys of bytes, the library never says that they are equal.
            of_windows = kstream.WindowedSerdes.TimeWindowedSerde(library.serdes.String(), 60_000)
            grouped = library.option("Grouped", "with", name, of_windows, bytes_serde)
            return table.groupBy(_function("KeyValueMapper", "apply", of_window), grouped)
        case "table_reduce", [grouped]:
            reducers = (_function("Reducer", "apply", each) for each in (_came, _went))
            return grouped.reduce(*reducers, library.stored(name))
        case "table_aggregate", [grouped]:
            empty = _function("Initializer", "apply", lambda: b"{}")
            aggregators = (_function("Aggregator", "apply", each) for each in (_came_to, _went_from))
            return grouped.aggregate(empty, *aggregators, library.stored(name))
        case "to_text", [stream]:
            return stream.to(step.topic, library.option("Produced", "with", library.serdes.String(), bytes_serde))
        case "group_by_key", [stream]:
            return stream.groupByKey(library.option("Grouped", "with", name, bytes_serde, bytes_serde))
        case word, [grouped] if word in WINDOWS:
            millis, windows = library.jvm.java.time.Duration.ofMillis, WINDOWS[word]
            if windows.slides:
                sizes = millis(windows.size_ms), millis(windows.grace_ms)
                return grouped.windowedBy(library.option("SlidingWindows", "ofTimeDifferenceAndGrace", *sizes))
            if windows.offset is not None or not windows.begin_at_multiples:
                return grouped.windowedBy(own_windows(library.jvm, windows))
            sizes = millis(windows.size_ms), millis(windows.grace_ms)
            declared = library.option("TimeWindows", "ofSizeAndGrace", *sizes)
            return grouped.windowedBy(declared.advanceBy(millis(windows.advance_ms)))
        case word, [grouped] if word in SESSIONS:
            millis, sessions = library.jvm.java.time.Duration.ofMillis, SESSIONS[word]
            durations = millis(sessions.inactivity_gap_ms), millis(sessions.grace_ms)
            return grouped.windowedBy(library.option("SessionWindows", "ofInactivityGapAndGrace", *durations))
        case "on_close", [windowed]:
            return windowed.emitStrategy(library.option("EmitStrategy", "onWindowClose"))
        case "suppress", [table]:
            suppressed = library.jvm.org.apache.kafka.streams.kstream.Suppressed
            return table.suppress(
                suppressed.untilWindowCloses(suppressed.BufferConfig.unbounded().withLoggingDisabled())
            )
        case ("suppress_for" | "suppress_two" | "suppress_or_stop") as word, [table]:
            suppressed = library.jvm.org.apache.kafka.streams.kstream.Suppressed
            buffer = suppressed.BufferConfig.unbounded()
            if word == "suppress_two":
                buffer = suppressed.BufferConfig.maxRecords(2).emitEarlyWhenFull()
            elif word == "suppress_or_stop":
                buffer = suppressed.BufferConfig.maxRecords(2).shutDownWhenFull()
            return table.suppress(suppressed.untilTimeLimit(library.jvm.java.time.Duration.ofSeconds(20), buffer))
        case "cogroup", [grouped, other]:
            first, second = (_function("Aggregator", "apply", added) for added in (_added_of_first, _added_of_second))
            return grouped.cogroup(first).cogroup(other, second)
        case "python_cogroup", [grouped, other]:
            first, second = (_function("Aggregator", "apply", each) for each in (_counted_in_a_row, _of_other_stream))
            return grouped.cogroup(first).cogroup(other, second)
        case "python_cogrouped", [grouped]:
            empty = _function("Initializer", "apply", lambda: b"{}")
            kind = grouped.getClass().getSimpleName()
            if "Session" in kind:
                merger = _function("Merger", "apply", _one_after_the_other)
                return grouped.aggregate(empty, merger, library.stored(name).withCachingDisabled())
            stored = library.stored(name)
            return grouped.aggregate(empty, stored.withCachingDisabled() if "Sliding" in kind else stored)
        case "cogrouped", [grouped]:
            nothing = _function("Initializer", "apply", lambda: b'{"c": 0, "d": 0}')
            if "Session" in grouped.getClass().getSimpleName():
                merger = _function("Merger", "apply", _brought_together)
                return grouped.aggregate(nothing, merger, library.stored(name).withCachingDisabled())
            return grouped.aggregate(nothing, library.stored(name))
        case ("count" | "aggregate") as word, [grouped]:
            kind = grouped.getClass().getSimpleName()
            of_sessions = "Session" in kind
            stored = library.stored(name)
            if of_sessions or "Sliding" in kind:  # in its cache the library still finds what its store has forgotten
                stored = stored.withCachingDisabled()
            if word == "count":
                return grouped.count(stored)
            empty = _function("Initializer", "apply", lambda: b"{}")
            merger = [_function("Merger", "apply", _merged)] if of_sessions else []
            return grouped.aggregate(empty, _function("Aggregator", "apply", _added), *merger, stored)
        case "reduce", [grouped]:
            return grouped.reduce(_function("Reducer", "apply", lambda one, other: raw(other)), library.stored(name))
        case "greatest", [grouped]:
            return grouped.reduce(_function("Reducer", "apply", _greater), library.stored(name))
        case (("python_reduce" | "python_aggregate") as word, [grouped]):
            kind = grouped.getClass().getSimpleName()
            of_sessions = "Session" in kind
            stored = library.stored(name)
            if of_sessions or "Sliding" in kind:  # in its cache the library still finds what its store has forgotten
                stored = stored.withCachingDisabled()
            if word == "python_reduce":
                return grouped.reduce(_function("Reducer", "apply", _in_a_row), stored)
            empty = _function("Initializer", "apply", lambda: b"{}")
            merger = [_function("Merger", "apply", _one_after_the_other)] if of_sessions else []
            return grouped.aggregate(empty, _function("Aggregator", "apply", _counted_in_a_row), *merger, stored)
        case (("join" | "python_join"), [stream, table]):
            return stream.join(table, _function("ValueJoiner", "apply", _joined), named_join())
        case word, [stream, other] if word.removeprefix("python_") in JOINED_WITHIN:
            word = word.removeprefix("python_")
            millis, within = library.jvm.java.time.Duration.ofMillis, JOINED_WITHIN[word]
            windows = library.jvm.org.apache.kafka.streams.kstream.JoinWindows.ofTimeDifferenceAndGrace(
                millis(within.before_ms), millis(within.grace_ms)
            ).after(millis(within.after_ms))
            options = library.option("StreamJoined", "with", bytes_serde, bytes_serde, bytes_serde).withName(name)
            if word in ("join_stream", "join_soon"):
                return stream.join(other, _function("ValueJoiner", "apply", _met), windows, options)
            join = stream.leftJoin if word == "left_join_soon" else stream.outerJoin
            return join(other, _function("ValueJoiner", "apply", _met_or_not), windows, options)
        case word, [table, other] if word.startswith("foreign_"):
            join = table.leftJoin if "left" in word else table.join
            extractor = Callback("java.util.function.Function", apply=_foreign_key)
            stored = [library.stored(name)] if word.endswith("stored") else []
            return join(other, extractor, _function("ValueJoiner", "apply", _met_or_not), *stored)
        case word, [table, other] if word.endswith(("_tables", "_tables_stored")):
            method = JOINED_TABLES[word.partition("_")[0]]
            join = {"join": table.join, "left_join": table.leftJoin, "outer_join": table.outerJoin}[method]
            stored = [library.stored(name)] if word.endswith("stored") else []
            return join(other, _function("ValueJoiner", "apply", _met_or_not), *stored)
        case (("left_join" | "python_left_join"), [stream, table]):
            return stream.leftJoin(table, _function("ValueJoiner", "apply", _joined), named_join())
        case (("join_late" | "left_join_late") as word, [stream, table]):
            join = stream.join if word == "join_late" else stream.leftJoin
            joined = named_join().withGracePeriod(library.jvm.java.time.Duration.ofSeconds(GRACE_SECONDS))
            return join(table, _function("ValueJoiner", "apply", _joined), joined)
        case (("join_counts" | "left_join_counts") as word, [stream, table]):
            join = stream.join if word == "join_counts" else stream.leftJoin
            return join(table, _function("ValueJoiner", "apply", _with_count), named_join())
        case "to_stream", [table]:
            return table.toStream()
        case "counts", [stream]:
            with_key = _function(
                "ValueMapperWithKey",
                "apply",
                lambda key, count: written({"n": count, "s": key if isinstance(key, str) else bytes(key).decode()}),
            )
            return stream.mapValues(with_key)
        case "windows", [stream]:
            return stream.map(
                _function("KeyValueMapper", "apply", lambda key, value: pair(_window_key(key), raw(value)))
            )
        case ((("plain_counts" | "one_key_counts" | "key_counts" | "plain_sessions") as word), [stream]):

            def unwindowed(windowed: Any, count: Any) -> Any:
                key = bytes(windowed if word == "key_counts" else windowed.key()).decode()
                window = None if word == "key_counts" else windowed.window()
                shown = {
                    "plain_counts": lambda: (key, f"{window.start()}"),
                    "one_key_counts": lambda: ("all", f"{key}@{window.start()}"),
                    "key_counts": lambda: ("all", key),
                    "plain_sessions": lambda: (key, f"{window.start()}-{window.end()}"),
                }
                name, text = shown[word]()
                return pair(name.encode(), written({"n": count, "s": text}))

            return stream.map(_function("KeyValueMapper", "apply", unwindowed))
        case "window_counts", [stream]:

            def counted(key: Any, count: Any) -> Any:
                return pair(_window_key(key), written({"n": count, "s": bytes(key.key()).decode()}))

            return stream.map(_function("KeyValueMapper", "apply", counted))
        case "session_counts", [stream]:

            def counted_session(key: Any, count: Any) -> Any:
                return pair(_session_key(key), written({"n": count, "s": bytes(key.key()).decode()}))

            return stream.map(_function("KeyValueMapper", "apply", counted_session))
        case "session_values", [stream]:
            return stream.map(
                _function("KeyValueMapper", "apply", lambda key, value: pair(_session_key(key), raw(value)))
            )
        case "to_sessions", [stream]:
            of_sessions = library.jvm.org.apache.kafka.streams.kstream.WindowedSerdes.SessionWindowedSerde(bytes_serde)
            return stream.to(step.topic, library.option("Produced", "with", of_sessions, bytes_serde))
        case "by_window", [stream]:

            def with_window(key: Any, value: Any) -> Any:
                text = text_or_none((read(value) or {}).get("s"))
                windowed = library.jvm.org.apache.kafka.streams.kstream.Windowed
                return None if text is None else windowed(text, key.window())

            return stream.selectKey(_function("KeyValueMapper", "apply", with_window))
        case (("to_windowed" | "group_windowed") as word, [stream]):
            windowed_serdes = library.jvm.org.apache.kafka.streams.kstream.WindowedSerdes
            of_windows = windowed_serdes.TimeWindowedSerde(bytes_serde, 60_000)
            if word == "to_windowed":
                return stream.to(step.topic, library.option("Produced", "with", of_windows, bytes_serde))
            return stream.groupByKey(library.option("Grouped", "with", name, of_windows, bytes_serde))
        case "to_text_windowed", [stream]:
            windowed_serdes = library.jvm.org.apache.kafka.streams.kstream.WindowedSerdes
            of_texts = windowed_serdes.TimeWindowedSerde(library.serdes.String(), 60_000)
            return stream.to(step.topic, library.option("Produced", "with", of_texts, bytes_serde))
        case "to_either", [stream]:
            chosen = Callback(
                f"{STREAMS}.processor.TopicNameExtractor",
                extract=lambda key, value, context: "large" if ((read(value) or {}).get("n") or 0) > 4 else "small",
                hashCode=lambda: 1,  # the library describes it
                toString=lambda: "chosen",
            )
            return stream.to(chosen, library.option("Produced", "with", bytes_serde, bytes_serde).withName(name))
        case "to", [stream]:
            return stream.to(step.topic, library.option("Produced", "with", bytes_serde, bytes_serde))
    raise LookupError(step.word)


# -- programs at random

_STREAM_WORDS = (
    *("filter", "map_values", "select_key", "map", "flat_map", "peek", "repartition"),
    *("python_filter", "python_map_values", "python_map", "python_flat_map"),
    *("filter_not", "python_filter_not", "python_flat_map_values"),
)
_LEAST_STEPS = 7
_KINDS = ("stateless", "aggregation", "join", "merge", "source", "to")
_WEIGHTS = (4, 2, 4, 2, 3, 1)
_STATE_WORDS = ("count", "aggregate", "reduce", "greatest", "window count", "window aggregate")


def drawn(seed: int) -> Program:
    """A program at random that our language takes.

    A record makes at most one record at each step, so that a micro-batch has one update of a key, as the library has.
    So two streams that come from one topic are neither merged nor joined.
    """
    chosen = random.Random(seed)
    while True:
        steps = _drawn(chosen)
        if len(steps) < _LEAST_STEPS:
            continue
        try:
            ours(steps, "drawn", 1)
        except Refused:
            continue
        return steps


def _drawn(chosen: random.Random) -> Program:
    steps: list[Step] = [Step("stream", topic="a")]
    streams: dict[int, frozenset[str]] = {0: frozenset("a")}
    tables: dict[int, frozenset[str]] = {}
    sources = ["b", "t", "u"]
    chosen.shuffle(sources)

    def add(word: str, *of: int, topic: str = "", comes_from: frozenset[str] = frozenset()) -> int:
        steps.append(Step(word, of, topic))
        origin = frozenset().union(comes_from, *({**streams, **tables}.get(one, frozenset()) for one in of))
        number = len(steps) - 1
        if word == "table":
            tables[number] = origin
        elif word not in ("to", "group_by", "group_by_key", "windowed_by", *_STATE_WORDS):
            streams[number] = origin
        return number

    for _ in range(chosen.randint(3, 9)):
        stream = chosen.choice(list(streams)[-3:])
        match chosen.choices(_KINDS, _WEIGHTS)[0]:
            case "stateless":
                add(chosen.choice(_STREAM_WORDS), stream)
            case "aggregation":
                _aggregate(chosen, add, stream, streams)
            case "join":
                fitting = [table for table in tables if not tables[table] & streams[stream]]
                if fitting:
                    add(chosen.choice(["join", "left_join"]), stream, chosen.choice(fitting))
            case "merge":
                fitting = [other for other in streams if not streams[other] & streams[stream]]
                if fitting:
                    add("merge", stream, chosen.choice(fitting))
            case "source" if sources:
                topic = sources.pop()
                word = "stream" if topic == "b" else "table"
                made = add(word, topic=topic, comes_from=frozenset(topic))
                if word == "table" and chosen.random() < 0.3:
                    add("to_stream", made)
            case "to":
                add("to", stream, topic=f"out-{len(steps)}")
    add("to", list(streams)[-1], topic=f"out-{len(steps)}")
    return tuple(steps)


def drawn_chain(seed: int) -> Program:
    """Two to four states at random in one sub-topology, beside each other and behind each other.

    No class is behind an aggregate of functions: that passes its changes at once, and the library's record cache behind
    the timers of a record.
    """
    chosen = random.Random(seed)
    steps = [Step("stream", topic="a")]
    streams, of_functions = [0], {0: False}

    def add(word: str, *of: int, topic: str = "") -> int:
        steps.append(Step(word, of, topic))
        return len(steps) - 1

    for _ in range(chosen.randint(2, 4)):
        before = stream = chosen.choice(streams[-2:])
        if chosen.random() < 0.4:
            stream = add(chosen.choice(["filter", "filter_not", "map_values", "peek", "python_filter"]), stream)
        words = ["count", "aggregate", "reduce", "greatest", "python_reduce", "python_aggregate", "short_windows"]
        word = chosen.choice(words if of_functions[before] else [*words, "process", "process"])
        if word == "process":
            made = add("process", stream)
        elif word == "short_windows":
            made = add("plain_counts", add("to_stream", add("count", add(word, add("group_by_key", stream)))))
        else:
            made = add("to_stream", add(word, add("group_by_key", stream)))
            made = add("counts", made) if word == "count" else made
            streams.append(made)
            of_functions[made] = of_functions[before] or word.startswith("python_")
        add("to", made, topic=f"out-{made}")
    return tuple(steps)


def drawn_merges(seed: int) -> Program:
    """Two or three states at random in one sub-topology, whose results are merged with what they are made of.

    Of functions there are none: those that aggregate pass each change, and the library's record cache the last one.
    """
    chosen = random.Random(seed)
    steps = [Step("stream", topic="a")]
    streams = [0]

    def add(word: str, *of: int, topic: str = "") -> int:
        steps.append(Step(word, of, topic))
        return len(steps) - 1

    def merged(made: int) -> int:
        other = chosen.choice(streams)
        pair = (made, other) if chosen.random() < 0.5 else (other, made)
        return add("merge", *pair)

    for _ in range(chosen.randint(2, 3)):
        stream = chosen.choice(streams[-2:])
        if chosen.random() < 0.6:
            stream = add(chosen.choice(["filter", "filter_not", "map_values", "python_filter"]), stream)
            streams.append(stream)
        word = chosen.choice(["count", "aggregate", "reduce", "greatest", "short_windows", "process", "process"])
        if word == "process":
            made = merged(add("process", stream))
        elif word == "short_windows":
            made = merged(add("plain_counts", add("to_stream", add("count", add(word, add("group_by_key", stream))))))
        else:
            made = add("to_stream", add(word, add("group_by_key", stream)))
            made = merged(add("counts", made) if word == "count" else made)
            streams.append(made)
        add("to", made, topic=f"out-{made}")
    return tuple(steps)


def drawn_states(seed: int) -> Program:
    """Up to five states of any kind in one sub-topology, beside each other and behind each other.

    A class is not alone. Records that do not reach it would not move its time on, as they do in the library.
    """
    chosen = random.Random(seed)
    while True:
        steps = _DrawnStates(chosen).steps
        try:
            subtopologies = ours(tuple(steps), "drawn", 1).topology.subtopologies
        except Refused:
            continue
        if len(subtopologies) > 1:
            continue
        if isinstance(stage_of(subtopologies[0]), StageChain) or all(step.word != "process" for step in steps):
            return tuple(steps)


class _DrawnStates:
    """Some states at random.

    The library's record cache passes the last of several updates that a record makes of a key. Functions, and
    operations of tables, pass each of them here. So these are not put behind what may make several.
    """

    def __init__(self, chosen: random.Random) -> None:
        self._chosen = chosen
        self.steps = [Step("stream", topic="a")]
        self._streams, self._tables, self._counts = [0], list[int](), list[int]()
        self._origins: list[set[str]] = [{"a"}]
        self._of_functions, self._several = set[int](), set[int]()
        self._unread = chosen.sample("btu", 3)
        kinds = [self._aggregate, self._aggregate, self._windows, self._process]
        kinds += [self._look_up, self._look_up, self._join, self._join_tables, self._table]
        if chosen.random() < 0.5:
            self._source()
        for _ in range(chosen.randint(3, 5)):
            stream = chosen.choice(self._streams[-3:])
            if chosen.random() < 0.3:
                stream = self._add(chosen.choice(["filter", "filter_not", "map_values", "python_filter"]), stream)
                self._streams.append(stream)
            chosen.choice(kinds)(stream)

    def _add(self, word: str, *of: int, topic: str = "") -> int:
        self.steps.append(Step(word, of, topic))
        number = len(self.steps) - 1
        self._origins.append({topic} if not of else set().union(*(self._origins[each] for each in of)))
        if self._of_functions & {*of} or word in ("python_reduce", "python_aggregate"):
            self._of_functions.add(number)
        both = word.endswith(("_tables", "_tables_stored")) and self._origins[of[0]] & self._origins[of[1]]
        if self._several & {*of} or both or word.endswith("join_soon"):
            self._several.add(number)
        return number

    def _source(self) -> None:
        if self._unread:
            topic = self._unread.pop()
            word, made = ("stream", self._streams) if topic == "b" else ("table", self._tables)
            made.append(self._add(word, topic=topic))

    def _passed(self, made: int) -> None:
        self._add("to", made, topic=f"out-{made}")
        self._streams.append(made)

    def _aggregate(self, stream: int) -> None:
        functions = [] if stream in self._several else ["python_reduce", "python_aggregate"]
        word = self._chosen.choice(["count", "aggregate", "reduce", "greatest", *functions])
        table = self._add(word, self._add("group_by_key", stream))
        (self._counts if word == "count" else self._tables).append(table)
        made = self._add("to_stream", table)
        self._passed(self._add("counts", made) if word == "count" else made)

    def _windows(self, stream: int) -> None:
        words = ["short_windows", "strict_windows", "hopping_windows", "sliding_windows", "sessions"]
        word = self._chosen.choice(words)
        grouped = self._add(word, self._add("group_by_key", stream))
        final = self._chosen.choice(["", "", "on_close", "suppress"]) if word == "strict_windows" else ""
        if final == "on_close":
            grouped = self._add(final, grouped)
        counted = self._add("count", grouped)
        updates = self._add("to_stream", self._add(final, counted) if final == "suppress" else counted)
        made = self._add("session_counts" if word in SESSIONS else "plain_counts", updates)
        self._add("to", made, topic=f"out-{made}")

    def _process(self, stream: int) -> None:
        if stream not in self._of_functions:  # see drawn_chain
            made = self._add("process", stream)
            self._add("to", made, topic=f"out-{made}")

    def _look_up(self, stream: int) -> None:
        left = self._chosen.choice(["", "left_"])
        if self._counts and (not self._tables or self._chosen.random() < 0.3):
            self._passed(self._add(f"{left}join_counts", stream, self._chosen.choice(self._counts)))
        elif self._tables:
            self._passed(self._add(f"{left}join", stream, self._chosen.choice(self._tables)))
        else:
            self._source()

    def _join(self, stream: int) -> None:
        others = [each for each in self._streams if each != stream]
        if others:
            word = self._chosen.choice(["join_soon", "left_join_soon", "outer_join_soon"])
            self._passed(self._add(word, stream, self._chosen.choice(others)))
        else:
            self._source()

    def _join_tables(self, stream: int) -> None:
        if len(self._tables) < 2:
            self._source()
            return
        one, other = self._chosen.sample(self._tables, 2)
        is_stored = not self._origins[one] & self._origins[other] and self._chosen.random() < 0.5
        word = f"{self._chosen.choice([*JOINED_TABLES])}_tables{'_stored' if is_stored else ''}"
        self._updates_of(self._add(word, one, other))

    def _table(self, stream: int) -> None:
        tables = [each for each in self._tables if each not in self._several]
        if tables:
            word = self._chosen.choice(["table_filter", "table_filter_not", "table_map_values"])
            self._updates_of(self._add(word + self._chosen.choice(["", "_stored"]), self._chosen.choice(tables)))
        elif stream not in self._several:
            self._updates_of(self._add(self._chosen.choice(["to_table", "to_table_stored"]), stream))

    def _updates_of(self, table: int) -> None:
        self._tables.append(table)
        self._passed(self._add("to_stream", table))


def _aggregate(chosen: random.Random, add: Callable[..., int], stream: int, streams: dict[int, frozenset[str]]) -> None:
    word = chosen.choice(_STATE_WORDS)
    windowed = word.startswith("window ")
    grouped = add(chosen.choice(["group_by", "group_by_key"]), stream)
    if windowed:
        grouped = add("windowed_by", grouped)
    word = word.removeprefix("window ")
    table = add(word, grouped)
    if chosen.random() < 0.7:
        updates = add("to_stream", table)
        if windowed:
            updates = add("window_counts" if word == "count" else "windows", updates)
        elif word == "count":
            updates = add("counts", updates)
        streams[updates] = streams[stream]


def is_ordered_by_time(steps: Program) -> bool:
    """Whether a stream meets another topic: what comes of it then depends on the order of times, here and there."""
    return any(step.word in ("join", "left_join", "merge", "read_table") for step in steps)
