from __future__ import annotations

from pathlib import Path

import pytest
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.reports.sink_offsets import (
    SinkOffsets,
    read_sink_offsets,
    record_moved_sources,
    record_reset,
    record_switch,
)
from streamplan.serdes.json import Json

from tests.support.fake_cluster import FakeCluster


@pytest.fixture
def pipeline() -> Pipeline:
    topology = Topology("app")
    stream = topology.stream("in", value=Json("n int"))
    stream.to("out")
    stream.group_by("n").count(store="counts")
    return Pipeline("app", topology, "", {"in": 1, "out": 2}, TestData(("in",), lambda n: ("in", b"", b""), "n"))


@pytest.fixture
def cluster(pipeline: Pipeline) -> FakeCluster:
    cluster = FakeCluster()
    for spec in pipeline.topics():
        cluster.create(spec.name, spec.partitions)
        cluster.produce(spec.name, b"k", b"v", partition=0)
    return cluster


def test_a_reset_records_where_the_sinks_end(pipeline: Pipeline, cluster: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "sinks.json"
    assert read_sink_offsets(path, cluster) == SinkOffsets()
    assert record_reset(path, pipeline, cluster) == {"out": {0: 1, 1: 0}}
    assert read_sink_offsets(path, cluster) == SinkOffsets({"out": {0: 1, 1: 0}}, {"out": {}})


def test_sources_that_moved_change_the_order_and_not_the_beginning(
    pipeline: Pipeline, cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "sinks.json"
    record_reset(path, pipeline, cluster)
    cluster.produce("out", b"k", b"v", partition=1)
    record_moved_sources(path, pipeline, cluster)
    assert read_sink_offsets(path, cluster) == SinkOffsets({"out": {0: 1, 1: 0}}, {"out": {0: 1, 1: 1}})


def test_a_topic_that_was_made_anew_begins_at_its_first_offset(
    pipeline: Pipeline, cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "sinks.json"
    record_reset(path, pipeline, cluster)
    cluster.create("out", 2)
    assert read_sink_offsets(path, cluster) == SinkOffsets()


def upgraded(application_id: str, upgrade_from: str) -> Pipeline:
    topology = Topology(application_id)
    topology.stream("in", value=Json("n int")).to("out")
    return Pipeline("app", topology, "", {"in": 1, "out": 2}, upgrade_from=upgrade_from)


def test_a_switch_records_what_was_staged_and_an_application_that_writes_for_the_second_time(
    pipeline: Pipeline, cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "sinks.json"
    for _ in range(2):  # a switch that died is repeated
        record_switch(path, upgraded("app-2", "app"), cluster)
        staged = SinkOffsets({"out": {0: 1, 1: 0}}, {"out": {}}, {"out": "app-2-staging-out"})
        assert read_sink_offsets(path, cluster) == staged
    record_moved_sources(path, pipeline, cluster)
    assert read_sink_offsets(path, cluster).staging == staged.staging

    cluster.produce("out", b"k", b"v", partition=1)
    for _ in range(2):
        record_switch(path, upgraded("app", "app-2"), cluster)
        in_turn = SinkOffsets({"out": {0: 1, 1: 1}}, {"out": {}}, {}, frozenset({"out"}))
        assert read_sink_offsets(path, cluster) == in_turn
    record_reset(path, pipeline, cluster)
    assert read_sink_offsets(path, cluster) == SinkOffsets({"out": {0: 1, 1: 1}}, {"out": {}})
