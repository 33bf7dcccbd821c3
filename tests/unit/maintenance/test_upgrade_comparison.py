"""What the comparison of the stores of two applications finds, on a cluster in memory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping

import pytest
from streamplan.maintenance import upgrade_comparison
from streamplan.maintenance.upgrade_comparison import Ends, compare_stores
from streamplan.maintenance.upgrade_plan import Comparison, StoreComparison
from streamplan.model.checkpoint_identity import store_content
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.windows import TimeWindows
from streamplan.serdes.json import Json
from streamplan.spark.recount import last_values

from tests.support.fake_cluster import FakeCluster
from tests.support.upgraded_processor import Counting

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000

OLD, NEW = (f"{application}-totals-changelog" for application in ("old", "new"))


def declared(*, windowed: bool = False) -> Pipeline:
    topology = Topology("new")
    grouped = topology.stream("orders", value=Json("kind string, amount double")).group_by("kind", name="by-kind")
    if windowed:
        grouped.windowed_by(TimeWindows("1 minute", grace="1 minute")).count(store="totals")
    else:
        grouped.aggregate({"total": "sum(amount)"}, store="totals")
    return Pipeline("orders", topology, "", {"orders": 2}, upgrade_from="old")


def content(pipeline: Pipeline) -> Mapping[str, str]:
    ((group, node),) = pipeline.stores
    return {"totals": store_content(group, node)}


def write(
    cluster: FakeCluster, topic: str, values: Mapping[str, float | None], at: int = NOW_MS, suffix: bytes = b""
) -> None:
    for key, value in values.items():
        stored = None if value is None else json.dumps({"total": value}).encode()
        cluster.produce(topic, key.encode() + suffix, stored, partition=len(key) % 2, timestamp=at)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create(OLD, 2)
    made.create(NEW, 2)
    return made


def compare(cluster: FakeCluster, held: Mapping[str, str] | None = None, ends: Ends | None = None) -> StoreComparison:
    pipeline = declared()
    (found,) = compare_stores(pipeline, cluster, content(pipeline) if held is None else held, ends)
    return found


def test_the_last_values_of_each_key_are_compared(cluster: FakeCluster) -> None:
    write(cluster, OLD, {"a": 1.0, "b": 1.0, "gone": 1.0, "cc": 3.0})
    write(cluster, OLD, {"a": 2.0, "gone": None})
    write(cluster, NEW, {"b": 5.0, "a": 2.0, "dd": 4.0})
    found = compare(cluster)
    assert (found.equal, found.different, found.changed, found.is_same) == (1, 3, 0, True)
    texts = {
        '{"total": 1.0}, and is {"total": 5.0}',
        '{"total": 3.0}, and is nothing',
        'nothing, and is {"total": 4.0}',
    }
    assert {example.partition(": it was ")[2] for example in found.examples} == texts
    assert Comparison((found,), True).differing == [found]


def test_a_changelog_with_another_number_of_partitions_is_compared(cluster: FakeCluster) -> None:
    cluster.create(OLD, 3)
    write(cluster, OLD, {"a": 1.0, "bb": 1.0})
    write(cluster, NEW, {"a": 1.0, "bb": 1.0})
    assert (compare(cluster).equal, compare(cluster).different) == (2, 0)


def test_a_sum_of_floating_point_numbers_may_differ_in_its_last_digits(cluster: FakeCluster) -> None:
    write(cluster, OLD, {"a": 0.1 + 0.2, "b": 1.0})
    write(cluster, NEW, {"a": 0.3, "b": 1.001})
    assert (compare(cluster).equal, compare(cluster).different) == (1, 1)


def test_a_key_that_has_changed_since_is_left_out(cluster: FakeCluster) -> None:
    write(cluster, OLD, {"a": 1.0, "b": 1.0})
    ends = {OLD: {0: 0, 1: 2}}
    write(cluster, OLD, {"b": 9.0, "c": 1.0})
    write(cluster, NEW, {"a": 1.0, "b": 1.0})
    found = compare(cluster, ends=ends)
    assert (found.equal, found.different, found.changed) == (1, 0, 1)


def test_stores_that_do_not_mean_the_same_are_not_compared(cluster: FakeCluster) -> None:
    write(cluster, OLD, {"a": 1.0})
    assert "it held max(amount), and " in compare(cluster, {"totals": "max(amount)"}).left_out
    del cluster.existing[OLD]
    assert compare(cluster).left_out == "old has no store of this name"


def test_where_no_checkpoint_tells_the_meaning_a_difference_is_shown_and_nothing_more(cluster: FakeCluster) -> None:
    write(cluster, OLD, {"a": 1.0})
    found = compare(cluster, held={})
    assert (found.different, found.is_same) == (1, False)
    assert Comparison((found,), True).differing == []
    assert "Whether the two mean the same is not known" in Comparison((found,), True).text


def test_windows_that_the_brokers_may_have_deleted_are_left_out(cluster: FakeCluster) -> None:
    pipeline, window = declared(windowed=True), bytes(12)
    write(cluster, NEW, {"a": 1.0}, at=NOW_MS - 3 * DAY_MS, suffix=window)
    write(cluster, OLD, {"b": 1.0}, suffix=window)
    write(cluster, NEW, {"b": 1.0}, suffix=window)
    (found,) = compare_stores(pipeline, cluster, content(pipeline), None)
    assert (found.equal, found.different) == (1, 0)


def test_a_store_with_equal_values_needs_nothing_of_input_that_was_deleted() -> None:
    proven, unknown = (
        StoreComparison("totals", is_same=True, equal=3),
        StoreComparison("least", "no store of this name"),
    )
    waiting = StoreComparison("paid-this-join-store", "it has records that wait", has_totals=False)
    gone = ("`orders-0` begins at offset 7, and old began at 0",)
    comparison = Comparison((proven, unknown, waiting), True, missing=gone)
    assert comparison.incomplete == [unknown]
    assert f"Records are missing in `least`, because the input is not whole any more:\n\n- {gone[0]}" in comparison.text
    assert Comparison((proven, unknown, waiting), True).incomplete == []


def test_a_value_that_is_gone_by_its_time_to_live_is_left_out(cluster: FakeCluster) -> None:
    """The old application has searched its store, and the new one has not done so yet."""
    topology = Topology("new")
    stream = topology.stream("orders", value=Json("kind string"))
    stream.process(Counting, store="totals", state="count bigint, due timestamp", timer="due", ttl="1 minute").to("out")
    pipeline = Pipeline("orders", topology, "", {"orders": 2}, upgrade_from="old")
    for topic in (OLD, NEW):
        write(cluster, topic, {"gone": 1.0, "lost": 2.0}, at=NOW_MS - 120_000)
        write(cluster, topic, {"kept": 3.0}, at=NOW_MS - 59_000)
    write(cluster, OLD, {"gone": None, "last": 1.0})
    write(cluster, NEW, {"last": 1.0})
    (found,) = compare_stores(pipeline, cluster, content(pipeline), None)
    assert (found.equal, found.different) == (2, 0)


@pytest.mark.parametrize("compared", [upgrade_comparison._are_equal, last_values._alike])
def test_values_are_compared_alike_whatever_their_depth_and_the_length_of_their_numbers(
    compared: Callable[[bytes, bytes], bool],
) -> None:
    """Neither the caller's stack nor the digits that the process takes are told to the one who compares."""

    def nested(shape: tuple[bytes, bytes], leaf: bytes) -> bytes:
        return b'{"v":' + shape[0] * 490 + leaf + shape[1] * 490 + b"}"

    for shape in ((b"[", b"]"), (b'{"a":', b"}")):
        assert compared(nested(shape, b"0.3"), nested(shape, b"0.30000000000000004"))
        assert not compared(nested(shape, b"0.3"), nested(shape, b"0.31"))
        assert not compared(nested(shape, b"0.3"), nested(shape, shape[0] + b"0.3" + shape[1]))
        assert not compared(b"[" * 100_000, nested(shape, b"0.3"))
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for digits in (400, 640, 641, 5000):
            long = b"7" * digits
            assert compared(b'{"v":%s}' % long, b'{"v": %s}' % long)
            assert not compared(b'{"v":%s}' % long, b'{"v":%s8}' % long)
            assert not compared(b'{"v":%s}' % long, b'{"v":0.5}')
    finally:
        sys.set_int_max_str_digits(before)
