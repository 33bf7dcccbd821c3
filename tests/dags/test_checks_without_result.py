"""A task of a check that ends without a result, however it ends: the check could not look, and everybody is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from streamplan.airflow import check_operators
from streamplan.airflow.check_operators import DataDocsOperator, RecountOperator
from streamplan.airflow.dags import health_dag
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckResult, Outcome
from streamplan.files import ReportPaths
from streamplan.programs import refusal_beside
from streamplan.registry import pipeline_named
from streamplan.reports.observations import RecordedObservations
from streamplan.reports.results import read_history, read_latest, write_result
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeCluster

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

pytestmark = pytest.mark.usefixtures("home", "database")

PIPELINE = "sales"
"""Only Spark can count it."""


def passed(check: str, at: datetime, *, task: tuple[str, ...] = ()) -> CheckResult:
    return CheckResult(PIPELINE, check, Outcome.PASSED, "1 of 1 as expected", at.isoformat(), (), task=task)


def states(run: DagRun) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


@pytest.fixture
def reports(home: Path) -> Path:
    return Settings.from_environment().reports


@pytest.fixture
def told() -> list[dict[str, Any]]:
    """What notifiers were given."""
    return []


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[list[CheckResult]]:
    """The results on each page of the Data Docs. Great Expectations, which takes seconds, is not imported."""
    pages: list[list[CheckResult]] = []
    module = SimpleNamespace(write_data_docs=lambda reports, page, results: pages.append(results))
    monkeypatch.setitem(sys.modules, "streamplan.reports.great_expectations", module)
    return pages


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch, told: list[dict[str, Any]], pages: object) -> DAG:
    """The health DAG of a pipeline whose checks pass, and whose recount finds nothing."""

    def run_check(application: Application, check: Check, cluster: FakeCluster) -> CheckResult:
        return passed(check.name, datetime.now(UTC))

    monkeypatch.setattr(check_operators, "run_check", run_check)
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda brokers: FakeCluster())
    let_spark(lambda output: None, monkeypatch)
    dag = health_dag(pipeline_named(PIPELINE), [lambda context: told.append(context["check"])])
    dag.task_dict["purge"].execute = lambda context: None
    for task in dag.tasks:
        task.retries = 0
    return dag


def out_of_memory(output: Path) -> None:
    RecordedObservations((), could_not_look="Spark: java.lang.OutOfMemoryError: Java heap space").write(output)
    raise AirflowException("Cannot execute: ['spark-submit', 'recount.py']. Error code is: 1.")


def killed_with_spark(output: Path) -> None:
    raise AirflowException("Cannot execute: ['spark-submit', 'recount.py']. Error code is: 137.")


def refused(output: Path) -> None:
    refusal_beside(output).parent.mkdir(parents=True, exist_ok=True)
    refusal_beside(output).write_text("a schema: expected another one")
    raise AirflowException("Cannot execute: ['spark-submit', 'recount.py']. Error code is: 1.")


def too_slow(output: Path) -> None:
    raise AirflowTaskTimeout("Timeout, PID: 12")


def let_spark(end: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each Spark job end in this way. It is told where to write."""

    def hook(settings: Settings, pipeline: str, name: str, arguments: list[str]) -> SimpleNamespace:
        output = Path(arguments[arguments.index("--output") + 1])
        return SimpleNamespace(submit=lambda file, env: end(output))

    monkeypatch.setattr(check_operators, "spark_hook", hook)


def test_a_recount_that_fails_is_a_check_that_could_not_look(
    health: DAG,
    reports: Path,
    told: list[dict[str, Any]],
    pages: list[list[CheckResult]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the last result, in the history, on the page of the run, and for the notifiers."""
    write_result(reports, passed("totals", datetime.now(UTC) - timedelta(hours=2)))
    let_spark(out_of_memory, monkeypatch)
    run = health.test()
    assert run.state == "failed"
    assert states(run)["totals"] == "upstream_failed"
    last = read_latest(reports, PIPELINE)["totals"]
    assert last.outcome is Outcome.COULD_NOT_LOOK
    assert last.reason.startswith(
        "task recount: expected a result, observed the task failed: Spark: java.lang.OutOfMemoryError: Java heap space."
    )
    assert last.task == ("sales_health", run.run_id, "recount")
    assert [each.outcome for each in read_history(reports, PIPELINE, check="totals")] == [
        Outcome.PASSED,
        Outcome.COULD_NOT_LOOK,
    ]
    ((on_page,),) = [[result for result in page if result.check == "totals"] for page in pages]
    assert on_page == last
    assert [(each["check"], each["before"], each["outcome"]) for each in told] == [
        ("totals", "passed", "could not look")
    ]


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (killed_with_spark, "spark-submit ended with status 137"),
        (refused, "a schema: expected another one"),
        (too_slow, "it took longer than 0:15:00"),
    ],
)
def test_a_task_that_fails_leaves_the_reason(
    health: DAG, monkeypatch: pytest.MonkeyPatch, ends: Callable[[Path], None], reason: str
) -> None:
    let_spark(ends, monkeypatch)
    left: list[str] = []
    ti = SimpleNamespace(xcom_push=lambda key, value: left.append(value))
    context: Any = {"dag_run": SimpleNamespace(run_type="manual"), "ti": ti}
    task: Any = health.get_task("recount")
    with pytest.raises((AirflowException, AirflowTaskTimeout)):
        task.execute(context)
    assert left == [reason]


def test_a_check_that_is_killed_could_not_look(health: DAG, reports: Path, pages: list[list[CheckResult]]) -> None:
    """What the run found before, in which the task succeeded, does not hide it: somebody has cleared the task."""

    states = {"lag": "failed", "skew": "success", "names": "failed", "recount": "skipped", "totals": "skipped"}
    task = DataDocsOperator(task_id="data_docs", pipeline=PIPELINE, dag=DAG("a_dag"))
    ti = SimpleNamespace(get_task_states=lambda **asked: {"r": states}, xcom_pull=lambda **asked: None)
    now = datetime.now(UTC)
    context: Any = {"ti": ti, "run_id": "r", "dag_run": SimpleNamespace(dag_id="a_dag", run_after=now)}
    page = check_operators.run_page(context, PIPELINE).path
    write_result(reports, CheckResult(PIPELINE, "names", Outcome.FAILED, "a long name", now.isoformat(), (), page))
    write_result(reports, CheckResult(PIPELINE, "lag", Outcome.PASSED, "", now.isoformat(), (), page))
    write_result(reports, CheckResult(PIPELINE, "skew", Outcome.PASSED, "", now.isoformat(), (), page))
    task.execute(context)
    found = {name: result.outcome for name, result in read_latest(reports, PIPELINE).items()}
    assert found == {"lag": Outcome.COULD_NOT_LOOK, "skew": Outcome.PASSED, "names": Outcome.FAILED}
    assert "killed" in read_latest(reports, PIPELINE)["lag"].reason
    assert {result.check: result.outcome for result in pages[0]} == found


def test_a_check_whose_spark_job_fails_could_not_look(
    health: DAG, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the parameter `full`, Spark reads what is large."""
    monkeypatch.setattr(check_operators, "_is_large", lambda application, brokers: True)
    let_spark(killed_with_spark, monkeypatch)
    run = health.test(run_conf={"full": True})
    assert states(run)["copartitioning"] == "failed"
    last = read_latest(reports, PIPELINE)["copartitioning"]
    assert last.outcome is Outcome.COULD_NOT_LOOK
    assert "spark-submit ended with status 137" in last.reason


def test_a_deployment_that_did_not_come_to_its_recount_has_no_result(reports: Path) -> None:
    states = {"topics": "failed", "verify.recount": "upstream_failed", "verify.totals": "upstream_failed"}
    states |= {"verify.topics": "upstream_failed"}
    task = DataDocsOperator(task_id="verify.data_docs", pipeline=PIPELINE, dag=DAG("a_dag"))
    ti = SimpleNamespace(get_task_states=lambda **asked: {"r": states}, xcom_pull=lambda **asked: None)
    run = SimpleNamespace(dag_id="a_dag", run_after=datetime.now(UTC))
    context: Any = {"ti": ti, "run_id": "r", "dag_run": run}
    with pytest.raises(AirflowException, match="No check of this run has a result"):
        task.execute(context)
    assert read_latest(reports, PIPELINE) == {}


@pytest.mark.parametrize(("left", "skipped"), [("rows", True), ("nothing", False), ("could not look", False)])
def test_a_recount_is_skipped_only_where_the_last_one_has_left_rows(
    health: DAG, reports: Path, monkeypatch: pytest.MonkeyPatch, left: str, skipped: bool
) -> None:
    """A run that was ended by hand has no task that would say that its recount left nothing."""
    write_result(reports, passed("totals", datetime.now(UTC) - timedelta(minutes=10), task=("sales_health", "r", "t")))
    output = ReportPaths(reports, PIPELINE).recount("sales_health")
    if left != "nothing":
        RecordedObservations((), could_not_look=None if left == "rows" else "away").write(output)
    started: list[str] = []
    monkeypatch.setattr(RecountOperator, "_run", lambda self, name, *_: started.append(name))
    task: Any = health.get_task("recount")
    run = SimpleNamespace(run_type="scheduled", conf={})
    context: Any = {"dag_run": run, "ti": SimpleNamespace(get_dr_count=lambda **_: 1)}
    if skipped:
        with pytest.raises(AirflowException, match="totals passed at"):
            task.execute(context)
    else:
        task.execute(context)
    assert started == ([] if skipped else ["recount"])
