"""Real runs of the DAGs in this process, with Kafka and Great Expectations replaced at the seams."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from streamplan.airflow import triggers
from streamplan.airflow.check_operators import log_lines, skip_before_deployment, skip_when_passed_lately
from streamplan.airflow.dags import producer_dag
from streamplan.airflow.deploy_operators import require_unpaused
from streamplan.checks import CHECKS, check_named, copartitioning, lag
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Check, CheckResult, Observation, Outcome
from streamplan.errors import BrokersUnavailable, Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.maintenance.evolution_plan import EvolutionPlan
from streamplan.maintenance.purge import Purged
from streamplan.model.pipeline import Pipeline
from streamplan.registry import pipeline_named
from streamplan.reports.results import write_result
from streamplan.reports.run_page import RunPage
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.dagrun import DagRun

pytestmark = pytest.mark.usefixtures("home", "database")

CHECK_NAMES = [check.name for check in CHECKS]


class FakeClusterAt(FakeCluster):
    """A cluster in memory that knows which brokers it stands for."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__()
        self.servers = str(brokers)


class Answers:
    """Stands in for ``run_check``: an outcome for each look at a check, the last one for all that follow.

    It keeps the results that would be on the page, too, and the rows of a failed check are ``rows``.
    """

    def __init__(self, **outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.looks: list[str] = []
        self.rows: tuple[Observation, ...] = ()
        self.wait = ""
        """What the check `lag` waits for."""
        self.pages: list[tuple[str, list[CheckResult]]] = []

    def write_data_docs(self, reports: Path, page: RunPage, results: list[CheckResult]) -> None:
        self.pages.append((page.path, results))

    def run_check(self, application: Application, check: Check, cluster: FakeClusterAt) -> CheckResult:
        assert cluster.servers == "127.0.0.1:1"
        outcomes = self.outcomes.get(check.name.replace("-", "_"), [Outcome.PASSED])
        outcome = outcomes[min(self.looks.count(check.name), len(outcomes) - 1)]
        self.looks.append(check.name)
        if isinstance(check, lag.LagCheck) and self.wait:
            check.deadline.report(self.wait)
            check.deadline.report("")
        return CheckResult(
            application.name, check.name, outcome, f"the reason of {check.name}", "2026-01-01", self.rows
        )


@pytest.fixture
def health(dagbag: DagBag, monkeypatch: pytest.MonkeyPatch) -> DAG:
    dag = dagbag.dags["orders_health"]
    monkeypatch.setattr(
        "streamplan.maintenance.purge.purge",
        lambda pipeline, servers, settings: Purged({"a-repartition": {0: 5, 1: 7}}),
    )
    for task in dag.tasks:
        monkeypatch.setattr(task, "retry_delay", timedelta(0))
    return dag


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    def answer(**outcomes: list[Outcome]) -> Answers:
        answers = Answers(**outcomes)
        # Not imported for real: Great Expectations takes seconds, and other tests ask it.
        monkeypatch.setitem(
            sys.modules,
            "streamplan.reports.great_expectations",
            SimpleNamespace(write_data_docs=answers.write_data_docs),
        )
        monkeypatch.setattr("streamplan.airflow.check_operators.run_check", answers.run_check)
        monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", FakeClusterAt)
        return answers

    return answer


def states(run: DagRun) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def result(run: DagRun, task_id: str, key: str = "return_value") -> Any:
    """What the task left in XCom."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    query = XComModel.get_many(run_id=run.run_id, key=key, task_ids=task_id, dag_ids=run.dag_id)
    with create_session() as session:
        (row,) = session.execute(query).scalars()
        return XComModel.deserialize_value(row)


def tries(run: DagRun, task_id: str) -> int:
    return run.get_task_instance(task_id).try_number


def test_health_is_green_when_every_check_passed(health: DAG, answer: Callable[..., Answers]) -> None:
    answers = answer()
    run = health.test()
    assert run.state == "success"
    assert sorted(answers.looks) == sorted(CHECK_NAMES)
    for name in CHECK_NAMES:
        assert result(run, name)["outcome"] == "passed"
    assert result(run, "purge") == {"a-repartition": {"0": 5, "1": 7}}
    ((page, results),) = answers.pages
    assert [found.check for found in results] == CHECK_NAMES
    assert {found.data_docs for found in results} == {page} == {result(run, "data_docs")}


def test_what_is_not_to_be_purged_is_skipped_with_the_reason(
    health: DAG,
    answer: Callable[..., Answers],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answer()
    monkeypatch.setattr("streamplan.maintenance.purge.purge", lambda *_: Purged({}, "no cut is verified"))
    run = health.test()
    assert run.state == "success"
    assert states(run)["purge"] == "skipped"
    assert "nothing to purge: no cut is verified" in "".join(capfd.readouterr())


@pytest.mark.parametrize("red", CHECK_NAMES)
def test_a_failed_check_is_red_at_once_and_says_why(
    health: DAG, answer: Callable[..., Answers], red: str, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = answer(**{red.replace("-", "_"): [Outcome.FAILED, Outcome.PASSED]})
    run = health.test()
    assert run.state == "failed"
    expected = {name: "failed" if name == red else "success" for name in [*CHECK_NAMES, "data_docs"]}
    assert states(run) == expected | {"purge": "upstream_failed" if red == "totals" else "success"}
    ((page, results),) = answers.pages  # it is written, and the run is red all the same
    assert [found.check for found in results] == CHECK_NAMES
    assert answers.looks.count(red) == 1
    assert tries(run, red) == 1
    assert result(run, red, "result") == {
        "outcome": "failed",
        "reason": f"the reason of {red}",
        "at": "2026-01-01",
        "data_docs": page,
    }
    told = "".join(capfd.readouterr())
    assert f"failed: the reason of {red}" in told
    assert "Traceback" not in told


def test_could_not_look_is_looked_at_again(health: DAG, answer: Callable[..., Answers]) -> None:
    answers = answer(totals=[Outcome.COULD_NOT_LOOK, Outcome.PASSED])
    run = health.test()
    assert run.state == "success"
    assert answers.looks.count("totals") == 2


def test_could_not_look_twice_is_red_and_told_apart(health: DAG, answer: Callable[..., Answers]) -> None:
    answers = answer(totals=[Outcome.COULD_NOT_LOOK])
    run = health.test()
    assert run.state == "failed"
    assert states(run)["totals"] == "failed"
    assert answers.looks.count("totals") == 2
    assert result(run, "totals", "result")["outcome"] == "could not look"
    assert states(run)["data_docs"] == "success"
    ((_, results),) = answers.pages
    assert {found.check: str(found.outcome) for found in results}["totals"] == "could not look"


def test_the_log_of_a_failed_check_begins_with_the_reason_and_shows_the_wrong_rows(
    health: DAG, answer: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while the check waits, the log says for what."""
    answers = answer(lag=[Outcome.FAILED])
    answers.wait = "waits up to 90 s until positions move"
    topic = "a-topic-with-a-name-that-is-long-and-takes-more-than-a-line-of-the-table-in-the-window-of-airflow"
    answers.rows = (Observation(topic, 1, 1), Observation(f"{topic} [late]", 100, 7, "behind offset 12"))
    lines: list[str] = []
    waits: list[str] = []
    task = health.get_task("lag")
    monkeypatch.setattr(task.log, "info", lambda message, *values: waits.append(message % values))
    monkeypatch.setattr(task.log, "error", lambda message, *values: lines.append(message % values))
    run = health.test()
    assert states(run)["lag"] == "failed"
    assert "lag waits up to 90 s until positions move" in waits
    assert lines[0] == "failed: the reason of lag"
    assert lines[1].split() == ["Subject", "Expected", "Observed"]
    assert lines[3].split()[1:] == ["100", "7"]
    column = lines[1].index("Expected")
    shown = "".join("".join(line[:column] for line in lines[3:]).split())
    assert shown.startswith(f"{topic}[late](behind".replace(" ", ""))
    assert max(map(len, lines)) <= 84


def test_a_long_reason_is_wrapped() -> None:
    reason = "3 of 9 wrong: " + "a reason of several words, " * 20
    result = CheckResult("orders", "lag", Outcome.FAILED, reason.strip(), "2026-01-01", ())
    lines = [*log_lines(result)]
    assert lines[0].startswith("failed: 3 of 9 wrong: a reason")
    assert max(map(len, lines)) <= 84
    assert " ".join(" ".join(lines).split()) == f"failed: {reason.strip()}"


def test_a_run_without_a_result_has_no_page(health: DAG, answer: Callable[..., Answers], home: Path) -> None:
    """The checks of a run on a schedule may all be skipped."""
    from airflow.sdk.exceptions import AirflowSkipException

    answers = answer()
    run: Any = SimpleNamespace(dag_id="orders_health", run_after=datetime.now(UTC))
    ti = SimpleNamespace(get_task_states=lambda **asked: {})
    with pytest.raises(AirflowSkipException, match="No check of this run has a result"):
        health.get_task("data_docs").execute({"dag_run": run, "run_id": "r", "ti": ti})
    assert answers.pages == []


@pytest.fixture
def producer(home: Path, monkeypatch: pytest.MonkeyPatch) -> DAG:
    """orders_producer on a topic of 100 records, with a job that tells its arguments and writes 10 a try.

    An endless one is refused (status 78) instead, for it has no other end.
    """
    from streamplan.airflow import supervised_job as supervisor

    script = "import sys; print(*sys.argv[1:]); sys.exit(78 if '--endless' in sys.argv else 0)"
    monkeypatch.setattr(triggers, "SETTLE_SECONDS", 0.0)

    def next_number(pipeline: Pipeline, servers: str) -> int:
        log = home / "logs" / "orders-producer.log"
        return 100 + 10 * len(log.read_text().splitlines() if log.exists() else [])

    monkeypatch.setattr("streamplan.kafka.test_data.next_number", next_number)
    monkeypatch.setattr(supervisor, "job_file", lambda name: "-c")
    command = supervisor.ProducerOperator.command
    monkeypatch.setattr(
        supervisor.ProducerOperator,
        "command",
        lambda self, *arguments: [(call := command(self, *arguments))[0], "-c", script, *call[2:]],
    )
    # A DAG of its own: dag.test() leaves the Params of a run in the DAG.
    dag = producer_dag(pipeline_named("orders"))
    monkeypatch.setattr(dag.get_task("produce"), "retry_delay", timedelta(0))
    return dag


@pytest.mark.parametrize(
    ("conf", "plan", "extent", "state"),
    [
        ({"records": 10}, {"first": 100, "until": 110, "rate": 0}, "--until 110", "success"),
        ({"records": 0, "rate": 7}, {"first": 100, "until": 100, "rate": 7}, "--until 100 --rate 7", "success"),
        ({"records": None}, {"first": 100, "until": None, "rate": 0}, "--endless", "failed"),
        ({}, {"first": 100, "until": None, "rate": 0}, "--endless", "failed"),
    ],
)
def test_a_producer_run(
    producer: DAG, home: Path, conf: dict[str, Any], plan: dict[str, Any], extent: str, state: str
) -> None:
    run = producer.test(run_conf=conf)
    assert states(run) == {"plan": "success", "produce": state}
    assert result(run, "plan") == plan
    (told,) = (home / "logs" / "orders-producer.log").read_text().splitlines()
    assert told.endswith(f"--bootstrap-servers 127.0.0.1:1 {extent}")


def test_a_producer_that_stopped_early_goes_on_to_the_planned_end(producer: DAG, home: Path) -> None:
    """A signal ends it with status 0, and with fewer records than were asked for."""
    run = producer.test(run_conf={"records": 30})
    assert states(run) == {"plan": "success", "produce": "success"}
    assert tries(run, "produce") == 3
    told = (home / "logs" / "orders-producer.log").read_text().splitlines()
    assert [line.rpartition("--until ")[2] for line in told] == ["130", "130", "130"]


@pytest.mark.parametrize(("name", "value"), [("records", -1), ("records", "many"), ("rate", -1), ("rate", 0.5)])
def test_wrong_params_make_no_run(producer: DAG, home: Path, name: str, value: Any) -> None:
    """As a call of the API may bring them; the form refuses them, too."""
    with pytest.raises(ParamValidationError, match=f"Invalid input for param {name}: {value!r} is"):
        producer.test(run_conf={name: value})
    assert not (home / "logs" / "orders-producer.log").exists()


def test_topics_that_disagree_stop_a_deployment(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def refuse(brokers: Brokers, pipeline: Pipeline, **_: Any) -> None:
        asked.append((str(brokers), pipeline.name))
        raise Refused("Topic orders", expected="2 partitions", observed="3 partitions", remedy="Do this.")

    def plan(pipeline: Pipeline, cluster: object, checkpoints: str) -> EvolutionPlan:
        assert asked == []  # before anything is created
        return EvolutionPlan(pipeline.name, pipeline.topology.application_id, (), warnings=("a store has no name",))

    monkeypatch.setattr("streamplan.kafka.topics.apply_topics", refuse)
    monkeypatch.setattr("streamplan.maintenance.evolution.observe_evolution", plan)
    run = dagbag.dags["orders_deploy"].test(run_conf={"records": 1})
    assert run.state == "failed"
    assert asked == [("127.0.0.1:1", "orders")]
    assert states(run).pop("verify.data_docs") == "skipped"  # no check has looked
    others = {name: state for name, state in states(run).items() if name != "verify.data_docs"}
    assert set(others.values()) == {"failed", "upstream_failed"}
    assert [name for name, state in others.items() if state == "failed"] == ["topics"]
    told = "".join(capfd.readouterr())
    assert "Topic orders: expected 2 partitions, observed 3 partitions. Do this." in told
    assert "Warning: a store has no name." in told


def test_brokers_out_of_reach_are_named(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def unavailable(*_: object) -> None:
        raise BrokersUnavailable("Kafka", observed="no answer to the plan")

    monkeypatch.setattr("streamplan.maintenance.evolution.observe_evolution", unavailable)
    assert apply_topics.__kwdefaults__ is not None
    monkeypatch.setitem(apply_topics.__kwdefaults__, "deadline_seconds", 1.0)
    run = dagbag.dags["orders_deploy"].test(run_conf={"records": 1})
    assert states(run)["topics"] == "failed"
    told = "".join(capfd.readouterr())
    assert "It cannot be told what this deployment changes: Kafka: observed no answer to the plan" in told
    assert "127.0.0.1:1" in told


def test_an_address_that_is_missing_is_asked_for(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka"}')
    run = dagbag.dags["orders_deploy"].test(run_conf={"records": 1})
    assert states(run)["topics"] == "failed"
    told = "".join(capfd.readouterr())
    assert "connection kafka_default: expected bootstrap.servers, as host:port,host:port, observed none" in told


@pytest.mark.parametrize(
    ("run_type", "conf", "age", "outcome", "skipped"),
    [
        ("scheduled", {}, 10, Outcome.PASSED, True),
        ("scheduled", {}, 70, Outcome.PASSED, False),
        ("scheduled", {}, 10, Outcome.FAILED, False),
        ("scheduled", {}, 10, Outcome.COULD_NOT_LOOK, False),
        ("asset_triggered", {}, 10, Outcome.PASSED, False),
        ("manual", {}, 10, Outcome.PASSED, False),
        ("manual", {"full": True}, 10, Outcome.PASSED, False),
    ],
)
def test_what_reads_much_is_skipped_on_a_schedule_while_its_pass_is_young(
    home: Path, run_type: str, conf: dict[str, Any], age: int, outcome: Outcome, skipped: bool
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException
    from airflow.utils.types import DagRunType

    at = datetime.now(UTC) - timedelta(minutes=age)
    result = CheckResult("orders", "copartitioning", outcome, "", at.isoformat(), ())
    write_result(Settings.from_environment().reports, result)
    context: Any = {"dag_run": SimpleNamespace(run_type=DagRunType(run_type), conf=conf)}
    with pytest.raises(AirflowSkipException, match="copartitioning passed at") if skipped else nullcontext():
        skip_when_passed_lately(context, check_named("copartitioning"), "orders")
    skip_when_passed_lately(context, check_named("topics"), "orders")  # reads little: never


@pytest.mark.parametrize("large", [True, False])
def test_all_of_a_large_topic_is_read_by_spark(
    dagbag: DagBag, home: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    from streamplan.airflow import check_operators as operators
    from streamplan.reports.observations import RecordedObservations

    task = dagbag.dags["orders_health"].get_task("copartitioning")
    jobs: list[tuple[str, ...]] = []

    def run(name: str, output: Path, *arguments: str) -> None:
        jobs.append((name, *arguments))
        RecordedObservations((Observation("a row of Spark's", 1, 2),)).write(output)

    monkeypatch.setattr(operators, "_is_large", lambda application, brokers: large)
    monkeypatch.setattr(type(task), "_run", lambda self, *arguments: run(*arguments))
    context: Any = {"params": {"full": True}, "dag_run": SimpleNamespace(run_type="manual", conf={"full": True})}
    application = application_of(pipeline_named("orders"))
    check = task._configured_check(context, application, Settings.from_environment())
    if large:
        assert list(check.observe(application, FakeCluster())) == [Observation("a row of Spark's", 1, 2)]
        assert [(job[0], job[job.index("--check") + 1]) for job in jobs] == [("check", "copartitioning")]
    else:
        asked = []
        monkeypatch.setattr(copartitioning, "_ranges", lambda offsets, most: asked.append(most) or ())
        cluster = FakeCluster()
        FakeApplication(cluster, pipeline_named("orders")).order(0)
        cluster.produce("orders-aggregator-orders-products-quantities-changelog", b"0", b"")
        list(check.observe(application, cluster))
        assert set(asked) == {sys.maxsize}
        assert jobs == []


@pytest.mark.parametrize(
    ("run_type", "has_looked", "deployments", "skipped"),
    [
        ("scheduled", False, 0, True),
        ("asset_triggered", False, 0, True),  # the producer of the first deployment has ended
        ("manual", False, 0, False),  # who asks gets an answer
        ("scheduled", True, 0, False),
        ("scheduled", False, 1, False),  # the reports were lost: that alarms
    ],
)
def test_runs_that_nobody_asked_for_look_at_nothing_before_the_first_deployment(
    home: Path, run_type: str, has_looked: bool, deployments: int, skipped: bool
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException
    from airflow.utils.types import DagRunType

    if has_looked:
        at = datetime.now(UTC).isoformat()
        write_result(Settings.from_environment().reports, CheckResult("orders", "lag", Outcome.FAILED, "", at, ()))
    asked: list[tuple[str, list[str]]] = []

    def count(dag_id: str, states: list[str]) -> int:
        asked.append((dag_id, states))
        return deployments

    context: Any = {
        "dag_run": SimpleNamespace(run_type=DagRunType(run_type)),
        "ti": SimpleNamespace(get_dr_count=count),
    }
    expected = pytest.raises(AirflowSkipException, match=r"never deployed\. Trigger orders_deploy")
    with expected if skipped else nullcontext():
        skip_before_deployment(context, "orders")
    assert set(map(str, asked)) <= {"('orders_deploy', ['success'])"}


@pytest.mark.parametrize("paused", [(), ("orders_health",), ("orders_aggregator", "orders_health")])
def test_a_paused_dag_that_a_deployment_needs_is_named(paused: tuple[str, ...]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    context: Any = {"ti": SimpleNamespace(get_dag=lambda dag_id: SimpleNamespace(is_paused=dag_id in paused))}
    commands = " and ".join(f"`airflow dags unpause {each}`" for each in paused)
    expected = pytest.raises(AirflowFailException, match=commands)
    with expected if paused else nullcontext():
        require_unpaused(context, ["orders_aggregator", "orders_producer", "orders_health"])


@pytest.mark.parametrize("runs", [0, 1])
def test_a_deployment_triggers_its_producer_once_also_when_the_task_begins_anew(dagbag: DagBag, runs: int) -> None:
    """Airflow resets a task that waits to be continued when its scheduler was away: the task begins anew."""
    from airflow.sdk.exceptions import DagRunTriggerException, TaskDeferred

    producer: Any = copy(dagbag.dags["orders_deploy"].task_dict["producer"])
    producer.conf = {"records": 19, "rate": 0}
    asked: list[tuple[str, list[str]]] = []

    def count(dag_id: str, run_ids: list[str]) -> int:
        asked.append((dag_id, run_ids))
        return runs

    paused = SimpleNamespace(is_paused=False)
    ti = SimpleNamespace(
        dag_id="orders_deploy", run_id="manual__1", get_dr_count=count, get_dag=lambda _: paused, xcom_push=print
    )
    with pytest.raises(TaskDeferred if runs else DagRunTriggerException) as raised:
        producer.execute({"ti": ti})
    told: Any = raised.value
    assert (told.trigger.run_ids if runs else [told.dag_run_id]) == ["orders_deploy__manual__1"]
    assert asked == [("orders_producer", ["orders_deploy__manual__1"])]


def test_a_result_that_cannot_be_kept_is_told_all_the_same(
    health: DAG, answer: Callable[..., Answers], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk: here a directory is where the result should be."""
    (Settings.from_environment().reports / "orders" / "totals.json").mkdir(parents=True)
    answer(totals=[Outcome.FAILED])
    run = health.test()
    assert states(run)["totals"] == "failed"
    assert tries(run, "totals") == 1
    told = "".join(capfd.readouterr())
    assert "failed: the reason of totals" in told
    assert "This result cannot be kept" in told
