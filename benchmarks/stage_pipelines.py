"""One pipeline for each kind of state, all with the same records. ``stages.py`` measures them.

A record has the key ``k<number>``. Each of the 1,000 keys comes four times in 40 ms, and again after 40 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamplan import (
    JoinWindows,
    Json,
    KeyValueStore,
    KStream,
    Long,
    OnWindowClose,
    Pipeline,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    String,
    TimeWindows,
    Topology,
)

KEYS = 1_000
PARTITIONS = 2
VALUE = Json("n bigint, of string")
BOTH = {"n": "n", "m": "other.n"}
WITH_ROW = {"n": "n", "m": "table.n"}
WINDOWS = TimeWindows("1 minute", grace="1 minute")


class Total(Processor):
    """Adds the numbers of a key."""

    def process(self, record: Record, store: Any) -> Iterator[dict[str, Any]]:
        """Pass each sum."""
        seen = store.get()
        total = record.value.n + (0 if seen is None else seen.total)
        store.put({"total": total})
        yield {"total": total}


class StoredTotal(Processor):
    """Does the same with a store of all keys."""

    def init(self, context: ProcessorContext) -> None:
        """Take the store."""
        self.context = context
        self.totals = context.get_state_store("totals")

    def process(self, record: Record) -> None:
        """Pass each sum."""
        total = record.value.n + (self.totals.get(record.key) or 0)
        self.totals.put(record.key, total)
        self.context.forward({"total": total})


def greater(old: Any, new: Any) -> Any:
    """Return the value with the greater number."""
    return new if new.n > old.n else old


@dataclass(frozen=True)
class Kind:
    """A kind of state.

    Attributes:
        declare: Declares what is done with the records, of a topology and the name of the pipeline.
        topics: What the records go to, in turn.
        rows: The topic with one row of each key, which is there before the records; empty without one.
    """

    declare: Callable[[Topology, str], KStream]
    topics: tuple[str, ...] = ("a",)
    rows: str = ""


def _stream(topology: Topology, name: str, topic: str = "a") -> KStream:
    return topology.stream(f"{name}-{topic}", value=VALUE)


def _table(topology: Topology, name: str, topic: str) -> Any:
    return topology.table(f"{name}-{topic}", value=VALUE, store=topic)


def _counted(stream: KStream) -> KStream:
    return stream.group_by_key().count(store="counts").to_stream()


def _also_counted(stream: KStream) -> KStream:
    _counted(stream)
    return stream


def _processed(stream: KStream) -> KStream:
    return stream.process(Total, store="totals", state="total bigint", schema="total bigint")


def _counted_windows(stream: KStream, store: str = "counts") -> KStream:
    return stream.group_by_key().windowed_by(WINDOWS).count(store=store).to_stream()


def _beside_windows_of_some(stream: KStream) -> KStream:
    _counted_windows(stream.filter("n >= 0"), "some")
    return _counted_windows(stream)


def _final(stream: KStream) -> KStream:
    windowed = stream.group_by_key().windowed_by(WINDOWS).emit_strategy(OnWindowClose())
    return windowed.count(store="counts").to_stream()


KINDS: Mapping[str, Kind] = {
    "no state": Kind(lambda t, name: _stream(t, name).filter("n >= 0").map_values({"n": "n + 1"})),
    "count": Kind(lambda t, name: _counted(_stream(t, name))),
    "windows": Kind(lambda t, name: _counted_windows(_stream(t, name))),
    "final results": Kind(lambda t, name: _final(_stream(t, name))),
    "sessions": Kind(
        lambda t, name: (
            _stream(t, name)
            .group_by_key()
            .windowed_by(SessionWindows("30 seconds", grace="30 seconds"))
            .count(store="counts")
        ).to_stream()
    ),
    "reduce by a function": Kind(
        lambda t, name: _stream(t, name).group_by_key().reduce(greater, store="greatest").to_stream()
    ),
    "process": Kind(lambda t, name: _processed(_stream(t, name))),
    "process with stores": Kind(
        lambda t, name: _stream(t, name).process(
            StoredTotal, stores={"totals": KeyValueStore(String(), Long())}, schema="total bigint"
        )
    ),
    "join with a table": Kind(
        lambda t, name: _stream(t, name).join(_table(t, name, "t"), WITH_ROW), topics=("a",), rows="t"
    ),
    "join of streams": Kind(
        lambda t, name: _stream(t, name).join(
            _stream(t, name, "b"), BOTH, within=JoinWindows("10 seconds", grace="10 seconds"), store="joined"
        ),
        topics=("a", "b"),
    ),
    "left join of streams": Kind(
        lambda t, name: _stream(t, name).left_join(
            _stream(t, name, "b"), BOTH, within=JoinWindows("10 seconds", grace="10 seconds"), store="joined"
        ),
        topics=("a", "b"),
    ),
    "join of tables": Kind(
        lambda t, name: _table(t, name, "t").join(_table(t, name, "u"), WITH_ROW).to_stream(), topics=("t", "u")
    ),
    "join by a foreign key": Kind(
        lambda t, name: (
            _table(t, name, "t").join(_table(t, name, "u"), WITH_ROW, foreign_key="of", store="joined").to_stream()
        ),
        topics=("t",),
        rows="u",
    ),
    "class beside a count": Kind(lambda t, name: _processed(_also_counted(_stream(t, name)))),
    "class behind a count": Kind(lambda t, name: _processed(_counted(_stream(t, name)).map_values({"n": "count"}))),
    "windows beside windows": Kind(lambda t, name: _beside_windows_of_some(_stream(t, name))),
}
"""By name what is measured. The first one has no state, to compare with. The last three have two states."""


def name_of(kind: str) -> str:
    """Return the name of the pipeline of a kind, which is that of its application, too."""
    return f"stage-{kind.replace(' ', '-')}"


def _pipeline(kind: str) -> Pipeline:
    name = name_of(kind)
    topology = Topology(name)
    KINDS[kind].declare(topology, name).to(f"{name}-out")
    used = dict.fromkeys((*topology.source_topics, *topology.sink_topics), PARTITIONS)
    return Pipeline(name, topology, f"Measured: {kind}.", used)


PIPELINES = tuple(map(_pipeline, KINDS))
