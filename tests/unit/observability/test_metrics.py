"""What Prometheus reads of the orders application, and whether the alert rules find it."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.request import urlopen

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.cli.exporter import send_by_otlp
from streamplan.errors import BrokersUnavailable, Refused
from streamplan.files import ReportPaths
from streamplan.model.group_member import Member
from streamplan.model.status import AggregatorState, AggregatorStatus, MicroBatchMeasures
from streamplan.observability.metrics import AGGREGATOR_METRICS, measure, measure_aggregator
from streamplan.observability.prometheus import PrometheusCollector, serve
from streamplan.observability.sampler import Sampler
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.results import write_result
from streamplan.reports.status import write_status

from tests.support.fake_cluster import FakeApplication, FakeCluster

MONITORING = Path(__file__).parents[3] / "monitoring"

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """Nineteen orders are processed, and a twentieth waits."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    cluster.produce("orders", b"order", b'{"Id": "order", "ProductType": 1}', partition=1)
    cluster.group_members[application.group] = (Member("streamplan:7@host", "/10.0.0.1", "id"),)
    return application


def scrape(sampler: Sampler) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PrometheusCollector(lambda: measure(sampler.sample())))
    return generate_latest(registry).decode()


def values(text: str) -> Values:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def named(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_what_prometheus_reads(cluster: FakeCluster, application: FakeApplication, tmp_path: Path) -> None:
    write_result(tmp_path, CheckResult("orders", "totals", Outcome.FAILED, "wrong", "1970-01-02T00:00:00+00:00", ()))
    found = values(scrape(Sampler(lambda: application_of(PIPELINE), "orders", cluster, tmp_path)))
    group, pipeline = {"group": "orders-aggregator"}, {"pipeline": "orders"}
    assert found[named("streamplan_brokers_answering", **pipeline)] == 1
    assert found[named("kafka_consumer_group_members", **group)] == 1
    assert found[named("kafka_consumer_group_lag", **group, topic="orders", partition="1")] == 1
    assert found[named("kafka_consumer_group_lag", **group, topic="orders", partition="0")] == 0
    assert found[named("streamplan_task_lag_time_seconds", **pipeline, task="0_0")] == 0
    assert found[named("streamplan_topic_end", **pipeline, topic="orders", role="source")] == 20
    assert found[named("streamplan_check_outcome", **pipeline, check="totals", outcome="failed")] == 1
    assert found[named("streamplan_check_outcome", **pipeline, check="totals", outcome="passed")] == 0
    assert found[named("streamplan_check_time_seconds", **pipeline, check="totals")] == 86_400


STATUS = AggregatorStatus(
    AggregatorState.RUNNING,
    7,
    "host",
    "1970-01-02T00:00:00+00:00",
    started="1970-01-01T00:00:10+00:00",
    measures={1: MicroBatchMeasures(42, 7, 0.5, 0.25, 2, 1024, 9, 3)},
)
OF_AGGREGATOR = {
    named("streamplan_aggregator_state", pipeline="orders", state="running"): 1,
    named("streamplan_aggregator_state", pipeline="orders", state="failed"): 0,
    named("streamplan_aggregator_start_time_seconds", pipeline="orders"): 10,
    named("streamplan_aggregator_heartbeat_time_seconds", pipeline="orders"): 86_400,
    named("streamplan_micro_batch_duration_seconds", pipeline="orders", subtopology="1"): 0.5,
    named("streamplan_micro_batch_write_duration_seconds", pipeline="orders", subtopology="1"): 0.25,
    named("streamplan_micro_batch_records", pipeline="orders", subtopology="1"): 7,
    named("streamplan_state_rows", pipeline="orders", subtopology="1"): 2,
    named("streamplan_state_memory_bytes", pipeline="orders", subtopology="1"): 1024,
    named("streamplan_records_written", pipeline="orders", subtopology="1"): 9,
    named("streamplan_records_dead_lettered", pipeline="orders", subtopology="1"): 3,
    named("streamplan_partitions_held", pipeline="orders"): 0,
}


def test_what_the_aggregator_said_of_itself(cluster: FakeCluster, tmp_path: Path) -> None:
    write_status(ReportPaths(tmp_path, "orders").aggregator_status, STATUS)
    FakeApplication(cluster, PIPELINE)
    found = values(scrape(Sampler(lambda: application_of(PIPELINE), "orders", cluster, tmp_path)))
    assert found.items() >= OF_AGGREGATOR.items()


def test_an_aggregator_serves_its_own_metrics() -> None:
    collector = PrometheusCollector(lambda: measure_aggregator("orders", STATUS), AGGREGATOR_METRICS)
    port, stop = serve(collector, "127.0.0.1", 0)
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found = values(answer.read().decode())
        assert found.items() >= OF_AGGREGATOR.items()
        with pytest.raises(Refused):
            serve(collector, "127.0.0.1", port)
    finally:
        stop()


def test_brokers_that_do_not_answer_are_a_value_and_no_lag_is_made_up(cluster: FakeCluster, tmp_path: Path) -> None:
    def unreachable() -> Application:
        raise BrokersUnavailable("no broker answers")

    found = values(scrape(Sampler(unreachable, "orders", cluster, tmp_path)))
    assert found == {named("streamplan_brokers_answering", pipeline="orders"): 0}


def test_every_metric_of_the_rules_and_of_the_dashboard_is_exported(
    cluster: FakeCluster, application: FakeApplication, tmp_path: Path
) -> None:
    text = scrape(Sampler(lambda: application_of(PIPELINE), "orders", cluster, tmp_path))
    exported = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    for file in ("alerts.yml", "dashboard.json"):
        used = set(re.findall(r"\b(?:streamplan|kafka)_[a-z_]+", (MONITORING / file).read_text()))
        assert used
        assert used <= exported, file


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is not installed")
def test_each_alert_is_fired_by_its_outage_and_by_nothing_else(tmp_path: Path) -> None:
    shutil.copytree(MONITORING, tmp_path / "monitoring")
    command = ["promtool", "test", "rules", "alerts_test.yml"]
    judged = subprocess.run(command, cwd=tmp_path / "monitoring", capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout
    rules = tmp_path / "monitoring" / "alerts.yml"
    rules.write_text(rules.read_text().replace("members == 0", "members == 5"))
    assert subprocess.run(command, cwd=tmp_path / "monitoring", capture_output=True).returncode == 1


def test_a_collector_of_opentelemetry_receives_the_same(
    cluster: FakeCluster, application: FakeApplication, tmp_path: Path
) -> None:
    received: list[bytes] = []
    arrived = Event()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()
            arrived.set()

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        sampler = Sampler(lambda: application_of(PIPELINE), "orders", cluster, tmp_path)
        stop = send_by_otlp([sampler], f"http://127.0.0.1:{server.server_port}/v1/metrics", 0.2)
        try:
            assert arrived.wait(120)
        finally:
            stop()
            server.shutdown()
    request = ExportMetricsServiceRequest.FromString(received[0])
    (resource,) = request.resource_metrics
    found = {
        named(metric.name, **{each.key: each.value.string_value for each in point.attributes}): point.as_int
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    }
    assert found[named("kafka.consumer_group.lag", group="orders-aggregator", topic="orders", partition="1")] == 1
    assert found[named("kafka.consumer_group.members", group="orders-aggregator")] == 1
