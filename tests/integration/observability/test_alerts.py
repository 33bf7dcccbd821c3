"""A real Prometheus with the alert rules of ``monitoring/`` reads the exporter's metrics while things break.

The application lies in memory. Durations of the rules are divided, so that a test need not wait for hours.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.cli.exporter import measurements
from streamplan.errors import BrokersUnavailable, StreamplanError
from streamplan.model.group_member import Member
from streamplan.observability.metrics import measure
from streamplan.observability.prometheus import PrometheusCollector, serve
from streamplan.observability.sampler import Sampler
from streamplan.pipelines.orders import PIPELINE
from streamplan.registry import BrokenPipeline
from streamplan.reports.results import write_result

from tests.support.fake_cluster import FakeApplication, FakeCluster
from tests.support.waiting import eventually

PROMETHEUS = shutil.which("prometheus")
MONITORING = Path(__file__).parents[3] / "monitoring"
FASTER = 120
"""Durations of the rules are divided by this number."""
FIRING_SECONDS = 120.0

SECONDS = {"s": 1, "m": 60, "h": 3600}


def faster(rules: str) -> str:
    """The same rules with shorter durations, as in ``for: 2m`` and ``[10m]``."""
    return re.sub(r"\b(\d+)([smh])\b", lambda found: f"{int(found[1]) * SECONDS[found[2]] // FASTER}s", rules)


class Watched:
    """The orders application, healthy at first, an exporter of its metrics, and a Prometheus that reads them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cluster = FakeCluster()
        self.application = FakeApplication(self.cluster, PIPELINE)
        for n in range(100):
            self.application.order(n)
        self.application.drain()
        self.cluster.group_members[self.application.group] = (Member("streamplan:7@host", "/10.0.0.1", "id"),)
        sampler = Sampler(lambda: application_of(PIPELINE), "orders", self.cluster, home / "reports")
        self.broken: list[BrokenPipeline] = []
        collector = PrometheusCollector(lambda: [*measurements([], self.broken), *measure(sampler.sample())])
        self.port, self.stop_exporter = serve(collector, "127.0.0.1", 0)

    def check(self, name: str, outcome: Outcome, age: timedelta = timedelta(0)) -> None:
        at = (datetime.now(UTC) - age).isoformat()
        write_result(self.home / "reports", CheckResult("orders", name, outcome, "the reason", at, ()))

    def firing(self, prometheus: str) -> set[str]:
        found = httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.stop_exporter()


@pytest.fixture
def prometheus(watched: Watched, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that evaluates the rules every half second."""
    (tmp_path / "alerts.yml").write_text(faster((MONITORING / "alerts.yml").read_text()))
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
        "rule_files: [alerts.yml]\n"
        f"scrape_configs: [{{job_name: streamplan, static_configs: [{{targets: ['127.0.0.1:{watched.port}']}}]}}]\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        PROMETHEUS or "",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(lambda: is_ready(address), "Prometheus is ready", FIRING_SECONDS)
            yield f"http://{address}"
        finally:
            process.terminate()


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def leave_all(watched: Watched) -> None:
    watched.cluster.group_members.clear()


def let_orders_wait(watched: Watched) -> None:
    long_ago = int((time.time() - 3600) * 1000)
    for _ in range(20):
        watched.cluster.produce("orders", b"key", b"{}", partition=1, timestamp=long_ago)


def dead_letter_one(watched: Watched) -> None:
    watched.application.dead_letter(watched.cluster.existing["orders"].partitions[0].records[0])


def break_a_pipeline(watched: Watched) -> None:
    watched.broken.append(BrokenPipeline("typo_module", StreamplanError("a module", observed="a mistake")))


def take_the_brokers_away(watched: Watched) -> None:
    def away(method: str) -> None:
        raise BrokersUnavailable("Kafka at 127.0.0.1:9092", observed="no answer")

    watched.cluster.before = away


OUTAGES: dict[str, Callable[[Watched], None]] = {
    "StreamplanNobodyRuns": leave_all,
    "StreamplanTaskLags": let_orders_wait,
    "StreamplanPartitionDoesNotMove": let_orders_wait,
    "StreamplanCheckFailed": lambda watched: watched.check("names", Outcome.FAILED),
    "StreamplanCheckCouldNotLook": lambda watched: watched.check("skew", Outcome.COULD_NOT_LOOK),
    "StreamplanTotalsNotVerified": lambda watched: watched.check("totals", Outcome.PASSED, timedelta(days=2)),
    "StreamplanDeadLetters": dead_letter_one,
    "StreamplanPipelineBroken": break_a_pipeline,
    "StreamplanBrokersDoNotAnswer": take_the_brokers_away,
    "StreamplanExporterDown": lambda watched: watched.stop_exporter(),
}
"""What breaks for each alert. The last two hide what the others show, so they come last."""


@pytest.mark.soak
@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus is installed (Debian's package prometheus)")
def test_an_outage_fires_each_alert(watched: Watched, prometheus: str) -> None:
    rules = httpx.get(f"{prometheus}/api/v1/rules").json()["data"]["groups"]
    assert {rule["name"] for group in rules for rule in group["rules"]} == OUTAGES.keys()
    for name in ("names", "skew", "totals"):
        watched.check(name, Outcome.PASSED)

    def targets() -> list[str]:
        found = httpx.get(f"{prometheus}/api/v1/targets").json()["data"]["activeTargets"]
        return [target["health"] for target in found]

    eventually(lambda: targets() == ["up"], "the metrics are read", FIRING_SECONDS)
    time.sleep(5)  # what is healthy must stay silent
    assert watched.firing(prometheus) == set()
    for alert, outage in OUTAGES.items():
        if alert not in watched.firing(prometheus):
            outage(watched)
        eventually(lambda alert=alert: alert in watched.firing(prometheus), alert, FIRING_SECONDS)  # type: ignore[misc]
