"""What Airflow's OpenLineage provider gets of the tasks, as it writes it into its events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openlineage.client.serde import Serde
from streamplan.airflow import lineage
from streamplan.airflow.check_operators import CheckOperator
from streamplan.airflow.supervised_job import AggregatorOperator
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.errors import BrokersUnavailable
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.results import write_result
from streamplan.serdes.json import Json
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster

PREFIX = "orders-aggregator-orders-products-quantities"
NAMESPACE = "kafka://kafka-1:9092"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture(autouse=True)
def application(home: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeApplication:
    """Nineteen orders are counted."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    monkeypatch.setattr(lineage, "brokers", lambda pipeline: "kafka-1:9092,kafka-2:9092")
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda servers, *, deadline_seconds: cluster)
    return application


def sent(found: Any) -> dict[str, dict[str, Any]]:
    """The datasets by their direction and name, as JSON."""
    return {
        f"{direction} {dataset['name']}": dataset
        for direction in ("inputs", "outputs")
        for dataset in json.loads(json.dumps([Serde.to_dict(each) for each in getattr(found, direction)]))
    }


def test_an_aggregator_reads_the_source_and_writes_the_others(cluster: FakeCluster) -> None:
    operator = AggregatorOperator(task_id="aggregator", pipeline="orders")
    datasets = sent(operator.get_openlineage_facets_on_start())
    assert set(datasets) == {
        "inputs orders",
        f"outputs {PREFIX}-repartition",
        f"outputs {PREFIX}-changelog",
        "outputs orders-aggregator-dead-letter",
    }
    assert {dataset["namespace"] for dataset in datasets.values()} == {NAMESPACE}
    facets = datasets["inputs orders"]["facets"]
    assert [(each["name"], each["type"]) for each in facets["schema"]["fields"]] == [
        ("Id", "string"),
        ("ProductType", "int"),
    ]
    ends = [partition.end for partition in cluster.existing["orders"].partitions]
    assert facets["version"]["datasetVersion"] == f"0@{ends[0]}, 1@{ends[1]}"
    columns = datasets[f"outputs {PREFIX}-changelog"]["facets"]["columnLineage"]["fields"]
    (origin,) = columns["count"]["inputFields"]
    assert (origin["namespace"], origin["name"], origin["field"]) == (NAMESPACE, "orders", "ProductType")


def test_an_aggregator_is_a_streaming_job() -> None:
    found = AggregatorOperator(task_id="aggregator", pipeline="orders").get_openlineage_facets_on_complete(None)
    assert found.job_facets["jobType"].processingType == "STREAMING"


def test_brokers_that_are_away_leave_the_positions_out(cluster: FakeCluster) -> None:
    def away(method: str) -> None:
        raise BrokersUnavailable("Kafka at kafka-1:9092", observed="no answer")

    cluster.before = away
    datasets = sent(AggregatorOperator(task_id="aggregator", pipeline="orders").get_openlineage_facets_on_start())
    assert "version" not in datasets["inputs orders"]["facets"]
    assert "schema" in datasets["inputs orders"]["facets"]


@pytest.mark.parametrize(("outcome", "success"), [(Outcome.PASSED, True), (Outcome.FAILED, False)])
def test_a_check_says_what_it_found(outcome: Outcome, success: bool) -> None:
    operator = CheckOperator(task_id="names", pipeline="orders", check="names")
    began = datetime.now(UTC)
    result = CheckResult("orders", "names", outcome, "the reason", began.isoformat(), ())
    write_result(Settings.from_environment().reports, result)
    datasets = sent(operator.get_openlineage_facets_on_complete(SimpleNamespace(start_date=began)))
    (assertion,) = datasets["inputs orders"]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"]) == ("names", success)


def test_a_result_of_an_earlier_run_is_not_sent() -> None:
    operator = CheckOperator(task_id="names", pipeline="orders", check="names")
    began = datetime.now(UTC)
    earlier = (began - timedelta(minutes=5)).isoformat()
    write_result(Settings.from_environment().reports, CheckResult("orders", "names", Outcome.PASSED, "", earlier, ()))
    datasets = sent(operator.get_openlineage_facets_on_complete(SimpleNamespace(start_date=began)))
    assert "dataQualityAssertions" not in datasets["inputs orders"].get("inputFacets", {})


def test_the_parts_of_a_column_are_told() -> None:
    topology = Topology("nested")
    value = Json("at timestamp, lines array<struct<sku: string, price: decimal(10,2)>>, rates map<string, double>")
    topology.stream("in", value=value).to("out")
    pipeline = Pipeline("nested", topology, "", {"in": 1, "out": 1}, TestData((), lambda n: ("", b"", b""), "n"))
    dataset = sent(lineage.check_lineage(pipeline, None, None))["inputs in"]

    def told(fields: list[dict[str, Any]]) -> list[Any]:
        return [(each["name"], each["type"], told(each.get("fields", []))) for each in fields]

    line = ("_element", "struct", [("sku", "string", []), ("price", "decimal(10,2)", [])])
    assert told(dataset["facets"]["schema"]["fields"]) == [
        ("at", "timestamp", []),
        ("lines", "array", [line]),
        ("rates", "map", [("key", "string", []), ("value", "double", [])]),
    ]
