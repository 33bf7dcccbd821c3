"""The driver tells Spark the state variables of a query, in place of a Python process for each state."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import transform_with_state_driver_worker
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String
from streamplan.testing import TopologyTestDriver


def test_each_state_is_asked_for_in_this_process_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, main = list[str](), transform_with_state_driver_worker.main

    def counted(*files: Any) -> None:
        asked.append("a state")
        main(*files)

    monkeypatch.setattr(transform_with_state_driver_worker, "main", counted)
    topology = Topology("asked")
    words = topology.stream("words", value=Json("n bigint"))
    counts = words.group_by_key().count(store="counts")
    stores = {"seen": KeyValueStore(String(), Long())}
    counts.to_stream().map_values({"n": "count"}).process(_Doubled, stores=stores, schema="n bigint").to("out")
    with TopologyTestDriver(_pipeline(topology), spark=spark) as driver:
        for _ in range(2):
            driver.pipe("words", {"n": 1}, key="a")
        assert [record.value["n"] for record in driver.output("out")] == [2, 4]
    assert len(asked) == 3  # the count for its changelog, the count for the processor, and the processor


class _Doubled(Processor):
    def process(self, record: Record) -> list[dict[str, Any]]:
        return [{"n": 2 * record.value.n}]


def test_a_class_that_is_sent_by_value_stays_as_it_is(spark: SparkSession) -> None:
    """cloudpickle would take the class that this process has sent, and give it methods that close over copies."""
    numbers: list[int] = []

    class Noted(Processor):
        def process(self, record: Record) -> list[dict[str, Any]]:
            numbers.append(record.value.n)
            return [{"n": len(numbers)}]

    method, topology = Noted.process, Topology("noted")
    words = topology.stream("words", value=Json("n bigint"))
    words.process(Noted, stores={"seen": KeyValueStore(String(), Long())}, schema="n bigint").to("out")
    with TopologyTestDriver(_pipeline(topology), spark=spark) as driver:
        driver.pipe("words", {"n": 1}, key="a")
        assert [record.value["n"] for record in driver.output("out")] == [1]
    assert Noted.process is method


def _pipeline(topology: Topology) -> Pipeline:
    partitions = {"words": 1, "out": 1}
    return Pipeline(name="asked", topology=topology, description="Counts words.", topic_partitions=partitions)
