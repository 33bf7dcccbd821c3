"""Which state cannot be moved to another number of stream tasks: what is judged by the time of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeAlias

import pytest
from streamplan.errors import Refused
from streamplan.maintenance.require_movable import require_movable
from streamplan.model.kstream import KStream
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, OnWindowClose, SessionWindows, TimeWindows
from streamplan.pipelines.orders import ORDER

from tests.support.fake_cluster import FakeCluster

MINUTE = TimeWindows("1 minute", grace="10 seconds")
SESSIONS = SessionWindows("1 minute", grace="10 seconds")
WITHIN = JoinWindows("1 minute", grace="10 seconds")
JOINED = {"one": "Id", "two": "other.Id"}

Build: TypeAlias = Callable[[KStream, KStream], object]
"""Declares what is done with two streams."""


class Counting(Processor):
    def process(self, record: Record, store: KeyValueStore) -> Iterable[dict[str, int]]:
        return ()


class Timed(Counting):
    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterable[dict[str, int]]:
        return ()


def processed(stream: KStream, processor: type[Processor] = Counting, **options: Any) -> KStream:
    return stream.process(processor, store="s", state="count bigint, due timestamp", schema="n bigint", **options)


TIMED: dict[str, tuple[Build, str]] = {
    "final results of time windows": (
        lambda a, b: a.group_by_key().windowed_by(MINUTE).emit_strategy(OnWindowClose()).count(),
        "which final results were passed",
    ),
    "final results of sessions behind a repartition topic": (
        lambda a, b: (
            a.group_by("ProductType", name="by-type")
            .windowed_by(SESSIONS)
            .emit_strategy(OnWindowClose(idle="5 seconds"))
            .aggregate({"sum": "sum(ProductType)"})
        ),
        "which final results were passed",
    ),
    "sessions": (
        lambda a, b: a.group_by_key().windowed_by(SESSIONS).count(),
        "which sessions take further records",
    ),
    "an inner join of streams": (lambda a, b: a.join(b, JOINED, within=WITHIN), "which records can still be met"),
    "a left join of streams": (lambda a, b: a.left_join(b, JOINED, within=WITHIN), "which records wait for a match"),
    "an outer join of streams": (lambda a, b: a.outer_join(b, JOINED, within=WITHIN), "which records wait for a match"),
    "timers": (lambda a, b: processed(a, Timed, timer="due"), "which timers have fired"),
    "values with a time to live": (lambda a, b: processed(a, ttl="1 day"), "which values are over"),
}

UNTIMED: dict[str, Build] = {
    "a count": lambda a, b: a.group_by("ProductType", name="by-type").count(),
    "time windows that pass each update": lambda a, b: a.group_by_key().windowed_by(MINUTE).count(),
    "a class with neither timers nor a time to live": lambda a, b: processed(a),
    "final results behind a topic whose count stays": lambda a, b: (
        a.repartition(number_of_partitions=2, name="fixed")
        .group_by_key()
        .windowed_by(MINUTE)
        .emit_strategy(OnWindowClose())
        .count()
    ),
}


def require(build: Build, *, before: int, after: int) -> None:
    """Require it of an application without records, whose two source topics get another number of partitions."""
    topology = Topology("moved")
    build(topology.stream("a-2", value=ORDER), topology.stream("b-2", value=ORDER))
    assert topology.faults == ()

    def pipeline(counts: int) -> Pipeline:
        topics, test_data = dict.fromkeys(topology.source_topics, counts), TestData((), lambda n: ("", b"", b""), "n")
        return Pipeline("moved", topology, "", topics, test_data, repartition_from={"a-2": "a", "b-2": "b"})

    cluster = FakeCluster()
    counts = {"a": before, "b": before} | {spec.name: spec.partitions for spec in pipeline(before).internal_topics()}
    for name, count in counts.items():
        cluster.create(name, count)
    require_movable(pipeline(after), cluster, counts, copied={})


@pytest.mark.parametrize(("before", "after"), [(2, 3), (1, 2), (4, 1)])
@pytest.mark.parametrize(("build", "reason"), TIMED.values(), ids=TIMED)
def test_what_is_judged_by_the_time_of_a_stream_task_is_not_moved_to_another(
    build: Build, reason: str, before: int, after: int
) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        require(build, before=before, after=after)
    assert "reads a, b from the beginning" in str(refused.value)


@pytest.mark.parametrize("build", [build for build, _ in TIMED.values()], ids=TIMED)
def test_with_as_many_partitions_as_before_each_stream_task_keeps_its_keys_and_its_time(build: Build) -> None:
    require(build, before=2, after=2)


@pytest.mark.parametrize("build", UNTIMED.values(), ids=UNTIMED)
def test_what_no_time_of_a_stream_task_judges_is_moved(build: Build) -> None:
    require(build, before=2, after=3)
