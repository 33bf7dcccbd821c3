"""When a scheduled health run starts Spark to recount, and when the rows of the last time hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from streamplan.airflow.check_operators import RecountOperator
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Observation
from streamplan.files import ReportPaths
from streamplan.registry import pipeline_named
from streamplan.reports.observations import RecordedObservations, offsets_fingerprint
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster

pytestmark = pytest.mark.usefixtures("home", "database")

ORDERS = pipeline_named("orders")
ROWS = (Observation("rows of the last time", 1, 1),)


class Deployed:
    """Orders that were counted, and recounted ten minutes ago."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cluster = FakeCluster()
        self.application = FakeApplication(self.cluster, ORDERS)
        self.application.order(0)
        self.application.order(1)
        self.application.drain()
        self.recount()

    def recount(self, age: timedelta = timedelta(minutes=10), could_not_look: str | None = None) -> None:
        at = (datetime.now(UTC) - age).isoformat()
        found = offsets_fingerprint(application_of(ORDERS), self.cluster)
        RecordedObservations(ROWS, could_not_look, at, found).write(self.path)

    def come(self) -> None:
        self.application.order(2)

    def process(self) -> None:
        self.come()
        self.recount()
        self.application.drain()

    def go(self) -> None:
        (topic,) = (name for name in self.cluster.existing if name.endswith("-repartition"))
        self.cluster.purge(topic, 0, 1)

    def replace(self) -> None:
        old = self.cluster.existing["orders"]
        self.cluster.create("orders", 2)
        self.cluster.existing["orders"].partitions = old.partitions

    def grow_old(self) -> None:
        self.recount(timedelta(hours=25))

    def fail_to_look(self) -> None:
        self.recount(could_not_look="brokers away")

    def forget(self) -> None:
        self.path.unlink()

    def of_an_older_version(self) -> None:
        RecordedObservations(ROWS).write(self.path)

    def stay(self) -> None:
        pass


@pytest.mark.parametrize(
    ("run_type", "conf", "happened", "starts"),
    [
        ("scheduled", {}, Deployed.stay, False),
        ("scheduled", {"full": True}, Deployed.stay, True),
        ("manual", {}, Deployed.stay, True),
        ("asset_triggered", {}, Deployed.stay, True),
        ("scheduled", {}, Deployed.come, True),
        ("scheduled", {}, Deployed.process, True),
        ("scheduled", {}, Deployed.go, True),
        ("scheduled", {}, Deployed.replace, True),
        ("scheduled", {}, Deployed.grow_old, True),
        ("scheduled", {}, Deployed.fail_to_look, True),
        ("scheduled", {}, Deployed.forget, True),
        ("scheduled", {}, Deployed.of_an_older_version, True),
    ],
)
def test_spark_is_started_when_something_is_new_or_somebody_asks(
    monkeypatch: pytest.MonkeyPatch,
    run_type: str,
    conf: dict[str, Any],
    happened: Callable[[Deployed], None],
    starts: bool,
) -> None:
    task = RecountOperator(task_id="recount", pipeline="orders", dag=DAG("a_dag"))
    deployed = Deployed(ReportPaths(Settings.from_environment().reports, "orders").recount("a_dag"))
    happened(deployed)
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda servers: deployed.cluster)
    started: list[Path] = []
    monkeypatch.setattr(task, "_run", lambda name, output, *arguments: started.append(output))
    is_deployed = SimpleNamespace(get_dr_count=lambda **_: 1)
    context: Any = {"dag_run": SimpleNamespace(run_type=run_type, conf=conf), "ti": is_deployed}
    task.execute(context)
    assert started == ([deployed.path] if starts else [])
    if not starts:
        assert RecordedObservations.read(deployed.path).observe() == ROWS
