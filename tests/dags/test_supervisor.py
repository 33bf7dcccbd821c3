"""The supervisor with scripts in place of jobs: real processes, real triggers, no service of Airflow's."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.triggers.base import TriggerEvent
from streamplan import processes
from streamplan.airflow import orphan_listener, triggers
from streamplan.airflow.connections import brokers
from streamplan.airflow.supervised_job import (
    AggregatorOperator,
    ProducerOperator,
    SupervisedJobOperator,
    _zipped_package,
    job_environment,
    seconds_for,
)
from streamplan.airflow.triggers import ProcessTrigger
from streamplan.doctor.airflow import ask_airflow, brokers_of, judge_airflow
from streamplan.doctor.finding import Finding, State
from streamplan.errors import BrokersUnavailable, Refused
from streamplan.kafka import task_ownership
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.remote_job import RemoteAggregator
from streamplan.kafka_types import Offsets
from streamplan.processes import Owner, PidNamespace, ProcessRef
from streamplan.settings import PACKAGE, Settings

from tests.support.airflow_home import VARIABLES
from tests.support.examples import PIPELINES

JOB = "orders-job"
SLEEPER = "import time; time.sleep(600)"
FAMILY = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])\n"
    "print('child', child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


class Script(SupervisedJobOperator):
    """Runs Python code."""

    def __init__(self, *, code: str, pipeline: str = "orders", **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, kind="job", poll_seconds=0.02, **kwargs)
        self.code = code

    def command(self, context: Any, settings: Settings) -> list[str]:
        return [sys.executable, "-c", self.code]


def script(code: str) -> Script:
    return Script(task_id="script", code=code)


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests call ``execute`` themselves, and nothing is deferred through a worker."""
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    monkeypatch.setattr(triggers, "SETTLE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _newest_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a start finds in the positions of the application."""
    monkeypatch.setattr(task_ownership, "newest_instance", lambda pipeline, brokers: "stop/a-host:1:x")


@pytest.fixture
def settings(home: Path) -> Iterator[Settings]:
    found = Settings.from_environment()
    yield found
    for ref in processes.registered(found.run):
        processes.stop(ref, grace_seconds=0.1)


class Run:
    """One dag run of an operator."""

    def __init__(self, run_id: str = "manual__1", *, xcom: Any = None, began: datetime | None = None) -> None:
        self.stored: dict[str, Any] = {}
        ti = SimpleNamespace(dag_id="a_dag", run_id=run_id, xcom_pull=lambda task_ids: xcom)
        store = SimpleNamespace(set=lambda key, value, retention: self.stored.update({key: value}))
        dag_run = SimpleNamespace(start_date=began or datetime.now(UTC))
        self.context: Any = {"ti": ti, "dag_run": dag_run, "task_state_store": store}

    def defer(self, operator: SupervisedJobOperator) -> ProcessTrigger:
        """The trigger the task defers to, as the triggerer gets it: through its serialization."""
        with pytest.raises(TaskDeferred) as deferred:
            operator.execute(self.context)
        assert deferred.value.method_name == "resume"
        path, arguments = deferred.value.trigger.serialize()
        assert path == "streamplan.airflow.triggers.ProcessTrigger"
        return ProcessTrigger(**json.loads(json.dumps(arguments)))

    def resume(self, operator: SupervisedJobOperator, trigger: ProcessTrigger) -> None:
        operator.resume(self.context, event(trigger))


def event(trigger: ProcessTrigger | triggers.ProcessedTrigger) -> dict[str, Any]:
    async def first() -> TriggerEvent:
        return await asyncio.wait_for(anext(trigger.run()), 300)

    return dict(asyncio.run(first()).payload)


def ended(settings: Settings, job: str, status: int | None) -> dict[str, Any]:
    """The event of a job whose process has ended with this status; None for a process that was killed."""
    trigger = ProcessTrigger(job, 2**22 + 1, 1.0, str(settings.run), str(settings.run / f"{job}.status"), 0.1)
    if status is not None:
        settings.run.mkdir(parents=True, exist_ok=True)
        Path(trigger.status_file).write_text(f"{status}")
    return trigger.event


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within 300 s"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def child_of(settings: Settings) -> int:
    """The pid that a FAMILY prints."""

    def printed() -> str:
        log = settings.logs / f"{JOB}.log"
        return log.read_text().rpartition("child ")[2] if log.exists() else ""

    return int(wait_for(lambda: printed().strip(), "the child's pid"))


def test_status_0_is_success(settings: Settings) -> None:
    run, operator = Run(), script("print('all is well')")
    trigger = run.defer(operator)
    run.resume(operator, trigger)
    assert (settings.logs / f"{JOB}.log").read_text() == "all is well\n"
    assert run.stored["process"] == {"pid": trigger.pid, "started": trigger.started}
    assert processes.registered(settings.run) == []


def test_status_78_is_not_retried(settings: Settings) -> None:
    operator = script("print('why'); raise SystemExit(78)")
    run = Run()
    with pytest.raises(AirflowFailException, match=r"orders-job ended with exit status 78.*\nwhy"):
        run.resume(operator, run.defer(operator))


def test_a_crash_is_retried_and_tells_the_end_of_the_log(settings: Settings) -> None:
    operator = script("for n in range(100): print('line', n)\nraise ValueError('the last word')")
    run = Run()
    with pytest.raises(AirflowException, match="exit status 1") as failure:
        run.resume(operator, run.defer(operator))
    assert not isinstance(failure.value, AirflowFailException)
    told = str(failure.value)
    assert "ValueError: the last word" in told
    assert str(settings.logs / f"{JOB}.log") in told
    assert "line 99" in told
    assert "line 50\n" not in told


def test_status_0_of_what_has_no_end_is_retried(settings: Settings) -> None:
    """The job ends so when a signal stops it; somebody may have sent one."""
    for operator, plan in (
        (AggregatorOperator(task_id="aggregate", pipeline="orders"), None),
        (producer(), {"first": 0, "until": None, "rate": 0}),
    ):
        with pytest.raises(
            AirflowException, match="exit status 0, but it must run until its DAG run is stopped"
        ) as failure:
            operator.resume(Run(xcom=plan).context, ended(settings, operator.job, 0))
        assert not isinstance(failure.value, AirflowFailException)


def producer() -> ProducerOperator:
    return ProducerOperator(task_id="produce", pipeline="orders", plan_task_id="plan")


@pytest.mark.parametrize(("number", "done"), [(119, True), (120, True), (118, False), (0, False)])
def test_a_producer_is_done_when_the_topic_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, number: int, done: bool
) -> None:
    monkeypatch.setattr("streamplan.kafka.test_data.next_number", lambda pipeline, servers: number)
    context = Run(xcom={"first": 100, "until": 119, "rate": 0}).context
    if done:
        producer().resume(context, ended(settings, "orders-producer", 0))
    else:
        told = f"exit status 0, but the topic ends before record {number} and was to end before 119"
        with pytest.raises(AirflowException, match=told) as failure:
            producer().resume(context, ended(settings, "orders-producer", 0))
        assert not isinstance(failure.value, AirflowFailException)


@pytest.mark.parametrize(
    ("until", "rate", "seconds_ago", "retried"),
    [
        (10_000, 0, 300, True),
        (10_000, 0, 303, False),
        (10_000, 10, 1_000, True),  # a slow one was asked for
        (10_000, 10, 1_301, False),
        (10_000, 1_000_000, 303, False),  # asking for a fast one makes none
        (None, 0, 10**6, True),
    ],
)
@pytest.mark.parametrize("status", [1, None])
def test_a_producer_that_a_deployment_waits_for_is_not_retried_for_ever(
    settings: Settings, until: int | None, rate: int, seconds_ago: int, retried: bool, status: int | None
) -> None:
    run = Run(xcom={"first": 0, "until": until, "rate": rate}, began=datetime.now(UTC) - timedelta(seconds=seconds_ago))
    with pytest.raises(AirflowException) as failure:
        producer().resume(run.context, ended(settings, "orders-producer", status))
    assert isinstance(failure.value, AirflowFailException) is not retried
    assert ("clear this task" in str(failure.value)) is not retried
    assert str(settings.logs / "orders-producer.log") in str(failure.value)


def test_the_deadline_grows_with_the_records_and_shrinks_with_no_rate() -> None:
    assert seconds_for(0) == 300
    assert seconds_for(5_000_000) == 1_300
    assert seconds_for(5_000_000, rate=1_000) == 5_300
    assert seconds_for(5_000_000, rate=9_000_000) == seconds_for(5_000_000)


@pytest.mark.parametrize("missing", ["KAFKA", "SPARK"])
def test_a_connection_that_is_missing_is_not_retried(
    settings: Settings, database: None, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Spark's hook would go to yarn instead."""
    monkeypatch.delenv(f"AIRFLOW_CONN_{missing}_DEFAULT")
    with pytest.raises(
        AirflowFailException, match=f"connection {missing.lower()}_default: expected a connection with this id"
    ):
        AggregatorOperator(task_id="aggregate", pipeline="orders").execute(Run().context)
    assert processes.registered(settings.run) == []


def test_a_killed_job_is_retried(settings: Settings) -> None:
    run, operator = Run(), script(SLEEPER)
    trigger = run.defer(operator)
    os.killpg(trigger.pid, signal.SIGKILL)
    with pytest.raises(AirflowException, match="orders-job was killed") as failure:
        operator.resume(run.context, event(trigger))
    assert not isinstance(failure.value, AirflowFailException)


def test_a_status_is_the_one_of_this_try(settings: Settings) -> None:
    run = Run()
    trigger = run.defer(script("raise SystemExit(78)"))
    event(trigger)
    assert trigger.status() == 78
    trigger = run.defer(script(SLEEPER))
    os.killpg(trigger.pid, signal.SIGKILL)
    event(trigger)
    assert trigger.status() is None


def test_the_same_run_goes_on_with_a_living_process(settings: Settings) -> None:
    run, operator = Run(), script(SLEEPER)
    first = run.defer(operator)
    again = run.defer(operator)
    assert (again.pid, again.started) == (first.pid, first.started)
    assert len(processes.registered(settings.run)) == 1


def test_another_run_starts_its_own_and_stops_what_was_left(settings: Settings) -> None:
    """A producer that an ended run left behind writes other records than this run is to write."""
    left = Run("manual__1").defer(script(FAMILY))
    child = child_of(settings)
    mine = Run("manual__2").defer(script(SLEEPER))
    assert mine.pid != left.pid
    assert is_gone(left.pid)
    assert is_gone(child)
    assert [ref.pid for ref in processes.registered(settings.run)] == [mine.pid]


def test_what_a_dead_leader_left_ends_before_the_next_start(settings: Settings) -> None:
    run, operator = Run(), script(FAMILY)
    first = run.defer(operator)
    child = child_of(settings)
    os.kill(first.pid, signal.SIGKILL)  # the leader alone, and no trigger looks
    wait_for(lambda: is_gone(first.pid), "the leader is gone")
    assert not is_gone(child)
    second = run.defer(operator)
    assert second.pid != first.pid
    assert is_gone(child)


def test_what_a_dead_leader_left_ends_before_the_task_fails(settings: Settings) -> None:
    """A run that is stopped between two tries has no trigger that would stop anything."""
    trigger = Run().defer(script(FAMILY))
    child = child_of(settings)
    os.kill(trigger.pid, signal.SIGKILL)
    event(trigger)
    assert trigger.status() is None
    assert is_gone(child)


def test_on_kill_of_the_trigger_ends_the_family(settings: Settings) -> None:
    trigger = Run().defer(script(FAMILY))
    child = child_of(settings)
    asyncio.run(trigger.on_kill())
    assert is_gone(trigger.pid)
    assert is_gone(child)
    assert processes.registered(settings.run) == []


def test_on_kill_of_the_operator_ends_the_family(settings: Settings) -> None:
    operator = script(FAMILY)
    trigger = Run().defer(operator)
    child = child_of(settings)
    operator.on_kill()
    assert is_gone(trigger.pid)
    assert is_gone(child)


def test_a_cancelled_trigger_leaves_the_process_alone(settings: Settings) -> None:
    """So a triggerer ends: its successor goes on watching."""
    trigger = Run().defer(script(SLEEPER))

    async def watch_and_cancel() -> None:
        watching = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.2)
        assert not watching.done()
        watching.cancel("EOF - shutting down")
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(watch_and_cancel())
    assert processes.is_alive(trigger.process)


@pytest.mark.parametrize("hook", [orphan_listener.on_dag_run_failed, orphan_listener.on_dag_run_success])
def test_the_end_of_its_run_ends_the_family(settings: Settings, hook: Callable[..., None]) -> None:
    trigger = Run("manual__1").defer(script(FAMILY))
    child = child_of(settings)
    for other in (Owner("a_dag", "manual__2"), Owner("another_dag", "manual__1")):
        hook(SimpleNamespace(dag_id=other.dag_id, run_id=other.run_id), "")
    assert orphan_listener.stop_processes_of(Owner("another_dag", "manual__1")) == []
    assert processes.is_alive(trigger.process)
    hook(SimpleNamespace(dag_id="a_dag", run_id="manual__1"), "")
    wait_for(lambda: is_gone(trigger.pid) and is_gone(child), "the family is gone")


def test_processes_of_nobody_are_let_be(settings: Settings) -> None:
    """Brokers and Airflow's own processes are registered in the same place."""
    ref = processes.start(
        "kafka-1", [sys.executable, "-c", SLEEPER], env=os.environ, log_file=settings.logs / "x", run_dir=settings.run
    )
    assert orphan_listener.stop_processes_of(Owner("a_dag", "manual__1")) == []
    assert processes.is_alive(ref)


ELSEWHERE = {"boot_id": "another boot", "inode": "pid:[1]", "host": "worker-2"}


class Remote:
    """A job elsewhere: what Kafka shows of it, look by look, and the last for ever. Each look takes a second."""

    patience_seconds = 2.5

    def __init__(self, *looks: bool | Exception) -> None:
        self.looks = iter(looks)
        self.seconds = 0
        self.last: bool | Exception = False
        self.has_begun = False
        self.stopped = False

    def shows_life(self) -> bool:
        self.seconds += 1
        self.last = next(self.looks, self.last)
        if isinstance(self.last, Exception):
            raise self.last
        self.has_begun |= self.last
        return self.last

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def from_afar(monkeypatch: pytest.MonkeyPatch) -> Callable[[ProcessTrigger, Remote], ProcessTrigger]:
    """Makes a trigger that runs in another PID namespace than its process."""
    monkeypatch.setattr(triggers, "LOOK_SECONDS", 0.0)

    def move(trigger: ProcessTrigger, job: Remote) -> ProcessTrigger:
        async def remote_job(self: ProcessTrigger) -> Remote:
            return job

        monkeypatch.setattr(ProcessTrigger, "_remote_job", remote_job)
        monkeypatch.setattr(triggers, "time", SimpleNamespace(monotonic=lambda: job.seconds, time=time.time))
        return ProcessTrigger(**trigger.serialize()[1] | {"namespace": ELSEWHERE})

    return move


def test_a_job_elsewhere_has_ended_when_kafka_shows_no_life(settings: Settings, from_afar: Any) -> None:
    """Brokers that do not answer say nothing about it, and its process id means another process here."""
    job = Remote(False, True, True, BrokersUnavailable("the brokers"), False, True, False)
    trigger = from_afar(Run().defer(script(SLEEPER)), job)
    event(trigger)
    assert list(job.looks) == []
    assert not job.stopped
    assert processes.is_alive(ProcessRef(trigger.name, trigger.pid, trigger.started))


def test_a_job_elsewhere_may_take_long_to_start(
    settings: Settings, from_afar: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the silence after which one that has begun counts as ended."""
    job = Remote(*[False] * 10, True, False)
    event(from_afar(Run().defer(script(SLEEPER)), job))
    assert list(job.looks) == []
    monkeypatch.setattr(triggers, "START_SECONDS", 0.0)
    job = Remote(*[False] * 1000, True)
    event(from_afar(Run().defer(script(SLEEPER)), job))
    assert not job.has_begun


def test_a_job_on_this_machine_that_was_started_long_ago_has_no_time_to_start(
    settings: Settings, from_afar: Any
) -> None:
    """The end of its PID namespace has ended it, and another triggerer watches: what Kafka shows is all that it had."""
    job = Remote(*[False] * 1000, True)
    trigger = from_afar(Run().defer(script(SLEEPER)), job)
    trigger.namespace = ELSEWHERE | {"boot_id": processes.PidNamespace.of_this_process().boot_id}
    trigger.started = time.time() - triggers.START_SECONDS
    event(trigger)
    assert job.seconds < 10


def test_an_exit_status_that_can_be_read_ends_the_watch(settings: Settings, from_afar: Any) -> None:
    trigger = from_afar(Run().defer(script(SLEEPER)), Remote(True))
    Path(trigger.status_file).write_text(f"78 {trigger.pid} {ELSEWHERE['inode']}")
    operator = script(SLEEPER)
    with pytest.raises(AirflowFailException, match="exit status 78"):
        operator.resume(Run().context, event(trigger))


def test_the_exit_status_of_an_earlier_process_elsewhere_is_not_its_own(settings: Settings, from_afar: Any) -> None:
    trigger = from_afar(Run().defer(script(SLEEPER)), Remote(True, False))
    Path(trigger.status_file).write_text(f"78 {trigger.pid} pid:[2]")
    event(trigger)
    assert trigger.status() is None


def test_stopping_a_job_elsewhere_is_asked_of_kafka(settings: Settings, from_afar: Any) -> None:
    job = Remote()
    trigger = from_afar(Run().defer(script(SLEEPER)), job)
    asyncio.run(trigger.on_kill())
    assert job.stopped
    assert processes.is_alive(ProcessRef(trigger.name, trigger.pid, trigger.started))


def test_a_stop_goes_on_although_airflow_cancels_it(
    settings: Settings, from_afar: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer cancels a trigger again every second until it has ended, also while its ``on_kill`` runs."""
    job = Remote()
    trigger = from_afar(Run().defer(script(SLEEPER)), job)

    async def remote_job(self: ProcessTrigger) -> Remote:
        await asyncio.sleep(0.1)  # the answer of Airflow with the connection
        return job

    monkeypatch.setattr(ProcessTrigger, "_remote_job", remote_job)

    async def kill_and_cancel() -> None:
        killing = asyncio.ensure_future(trigger.on_kill())
        await asyncio.sleep(0.01)
        killing.cancel("__airflow_user_action__")
        with pytest.raises(asyncio.CancelledError):
            await killing
        deadline = time.monotonic() + 10
        while not job.stopped and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    asyncio.run(kill_and_cancel())
    assert job.stopped


def test_a_job_that_ended_unseen_is_retried_and_its_host_is_named(settings: Settings, from_afar: Any) -> None:
    trigger = from_afar(ProcessTrigger(**ended(settings, "orders-aggregator", None)["job"]), Remote(True, False))
    with pytest.raises(AirflowException, match="it must run until its DAG run is stopped") as failure:
        AggregatorOperator(task_id="aggregate", pipeline="orders").resume(Run().context, event(trigger))
    assert not isinstance(failure.value, AirflowFailException)
    assert "its exit status unknown here" in str(failure.value)
    assert "pid:[1] on host worker-2" in str(failure.value)
    assert "and ends:" not in str(failure.value)


def test_a_status_that_the_trigger_alone_can_read_counts(settings: Settings) -> None:
    """The worker that resumes the task is on another host than the one that started the process."""
    payload = ended(settings, "orders-aggregator", 78)
    payload["job"] |= {"namespace": ELSEWHERE, "status_file": "/nowhere"}
    with pytest.raises(AirflowFailException, match="exit status 78"):
        AggregatorOperator(task_id="aggregate", pipeline="orders").resume(Run().context, payload)


def test_a_producer_that_ended_unseen_is_done_when_the_topic_says_so(
    settings: Settings, from_afar: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamplan.kafka.test_data.next_number", lambda pipeline, servers: 119)
    trigger = from_afar(ProcessTrigger(**ended(settings, "orders-producer", None)["job"]), Remote(True, False))
    producer().resume(Run(xcom={"first": 100, "until": 119, "rate": 0}).context, event(trigger))


def test_a_worker_that_sees_the_process_ends_what_kafka_has_lost(settings: Settings, from_afar: Any) -> None:
    """The aggregator hangs, for example. The worker shares its PID namespace, and the triggerer does not."""
    run, operator = Run(), script(FAMILY)
    deferred = run.defer(operator)
    child = child_of(settings)
    payload = event(from_afar(deferred, Remote(True, False)))
    payload["job"]["namespace"] = deferred.namespace
    with pytest.raises(AirflowException, match=r"was killed|exit status"):
        operator.resume(run.context, payload)
    assert is_gone(deferred.pid)
    assert is_gone(child)


def test_a_start_leaves_a_process_elsewhere_alone(settings: Settings) -> None:
    """It is fenced by the one that starts. Its pid may mean any process here."""
    stranger = Run("manual__1").defer(script(SLEEPER))
    entry = settings.run / f"{JOB}.json"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"namespace": ELSEWHERE}))
    mine = Run("manual__1").defer(script(SLEEPER))
    assert mine.pid != stranger.pid
    assert mine.namespace is not None
    assert PidNamespace(**mine.namespace) == PidNamespace.of_this_process()
    assert processes.is_alive(stranger.process)
    processes.stop(stranger.process)


def test_the_end_of_its_run_stops_a_process_elsewhere(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    job, asked = Remote(), []
    monkeypatch.setattr("streamplan.kafka.remote_job.remote_job", lambda name, brokers: asked.append(name) or job)
    stranger = Run("manual__1").defer(script(SLEEPER))
    entry = settings.run / f"{JOB}.json"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"namespace": ELSEWHERE}))
    (thread,) = orphan_listener.stop_processes_of(Owner("a_dag", "manual__1"))
    thread.join(300)
    assert asked == [JOB]
    assert job.stopped
    assert processes.registered(settings.run) == []
    assert processes.is_alive(stranger.process)
    processes.stop(stranger.process)


def test_a_task_that_must_not_defer_waits_for_its_process(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under the Kubernetes executor, where a worker ends with its task."""
    monkeypatch.setenv("STREAMPLAN_DEFERRABLE", "false")
    script("print('all is well')").execute(Run().context)
    with pytest.raises(AirflowFailException, match="exit status 78"):
        script("raise SystemExit(78)").execute(Run().context)
    with pytest.raises(AirflowException, match="exit status 1") as failure:
        script("raise SystemExit(1)").execute(Run().context)
    assert not isinstance(failure.value, AirflowFailException)
    assert processes.registered(settings.run) == []
    monkeypatch.setenv("STREAMPLAN_DEFERRABLE", "perhaps")
    with pytest.raises(Refused, match="STREAMPLAN_DEFERRABLE: expected true or false, observed 'perhaps'"):
        Settings.from_environment()


def test_a_job_sees_no_secret_of_airflow(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_OTHER", "_AIRFLOW_PROCESS_CONTEXT"):
        monkeypatch.setenv(name, "a secret")
    monkeypatch.setenv("KEPT", "yes")
    run = Run()
    operator = script("import json, os; print(json.dumps(dict(os.environ)))")
    run.resume(operator, run.defer(operator))
    seen = json.loads((settings.logs / f"{JOB}.log").read_text())
    assert seen["KEPT"] == "yes"
    assert [name for name, value in seen.items() if "AIRFLOW" in name or value == "a secret"] == []


def test_a_job_gets_the_client_properties_in_a_private_file(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "s3cret"}
    secret = {"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL", **login}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": secret}))
    code = (
        "import json, os; from streamplan.kafka.brokers import Brokers; "
        "print(json.dumps([dict(os.environ), dict(Brokers.from_environment('one:1').properties)]))"
    )
    run = Run()
    operator = script(code)
    run.resume(operator, run.defer(operator))
    log = (settings.logs / f"{JOB}.log").read_text()
    environment, properties = json.loads(log)
    assert properties == {"security.protocol": "SASL_SSL", **login}
    assert "s3cret" not in json.dumps(environment)
    assert not [file for file in settings.run.iterdir() if b"s3cret" in file.read_bytes()]


def test_a_token_callback_runs_only_where_the_deployment_permits_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    extra["oauth_cb"] = "os.getenv"
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(Refused, match="STREAMPLAN_TOKEN_CALLBACKS"):
        brokers("orders")
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", "a.b, os.getenv")
    assert brokers("orders").client_configs()["oauth_cb"] is os.getenv
    monkeypatch.delenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST")
    monkeypatch.setenv("STREAMPLAN_TOKEN_CALLBACKS", "a.b, os.getenv")
    assert brokers("orders").client_configs()["oauth_cb"] is os.getenv


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({"extra": '"{\\"bootstrap.servers\\": \\"one:1\\"}"'}, ""),
        ({"extra": {"bootstrap.servers": ["one:1", "two:2"]}}, ""),
        ({"extra": "[1]"}, "JSON object.*observed a list"),
        ({"extra": "bootstrap.servers=one:1"}, "JSON object"),
        ({"extra": {"bootstrap.servers": "['one:1']"}}, "bootstrap.servers .*host:port"),
        ({"extra": {"bootstrap.servers": "one:1", "security_protocol": "SSL"}}, "Did you mean security.protocol"),
        ({"extra": {"extra": {"bootstrap.servers": "one:1"}}}, "first level"),
        ({"extra": {"extra__kafka": '{"bootstrap.servers": "one:1"}'}}, "first level"),
        ({"extra": {}, "host": "one", "port": 1}, "field Host"),
        ({"extra": {"bootstrap.servers": "one:1"}, "login": "me", "password": "s3cret"}, "fields Login and Password"),
    ],
)
def test_nothing_of_a_connection_is_dropped_in_silence(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, object], message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", **connection}))
    if not message:
        assert brokers("orders").servers.startswith("one:1")
        return
    with pytest.raises(Refused, match=message) as refused:
        brokers("orders")
    assert "connection kafka_default" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_connection_may_be_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    query = "bootstrap.servers=one%3A1%2Ctwo%3A2&security.protocol=ssl"
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", f"kafka://?{query}")
    assert brokers("orders") == Brokers("one:1,two:2", {"security.protocol": "SSL"})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://me:s3cret@one:1")
    with pytest.raises(Refused, match=r"field Host.*one:1"):
        brokers("orders")


def test_the_doctor_follows_no_token_callback_that_is_not_permitted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    extra = {"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    extra["oauth_cb"] = "os.getenv"
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    found = ask_airflow(environment, "kafka_default", "spark_default")
    assert not isinstance(found, Finding)
    assert brokers_of(found) is None
    [told] = [
        finding for finding in judge_airflow(found, Brokers("one:1")) if finding.subject.endswith("kafka_default")
    ]
    assert told.state is State.PROBLEM
    assert told.observed == "os.getenv"


def test_a_job_finds_our_python_and_our_package(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    environment = job_environment(Brokers("one:1"), settings.run / "a job.kafka")
    assert environment["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/nowhere"]
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(PACKAGE.parent), "/theirs"]


def call(operator: BaseOperator, settings: Settings, xcom: Any = None) -> list[str]:
    assert isinstance(operator, SupervisedJobOperator)
    return operator.command(Run(xcom=xcom).context, settings)


def options(words: list[str]) -> dict[str, str]:
    return {word: following for word, following in itertools.pairwise(words) if word.startswith("--")}


@pytest.mark.parametrize(
    ("connection", "master", "more"),
    [
        ({"host": "local[2,4]"}, "local[2,4]", {}),
        ({"host": "spark://spark-master", "port": 7077}, "spark://spark-master:7077", {}),
        (
            {"host": "yarn", "extra": {"deploy-mode": "client", "queue": "streams"}},
            "yarn",
            {"--deploy-mode": "client", "--queue": "streams"},
        ),
    ],
)
def test_the_connection_makes_the_spark_submit_call(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    connection: dict[str, Any],
    master: str,
    more: dict[str, str],
) -> None:
    jars = tmp_path / "some jars"
    jars.mkdir()
    for name in ("b.jar", "a.jar", "a.txt"):
        (jars / name).touch()
    monkeypatch.setenv("STREAMPLAN_JARS", str(jars))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **connection}))
    words = call(AggregatorOperator(task_id="aggregate", pipeline="orders"), Settings.from_environment())
    assert Path(words[0]).name == "spark-submit"
    found = options(words)
    assert found["--master"] == master
    assert {name: found.get(name) for name in more} == more
    # Executors elsewhere could not import a daemon of ours.
    assert ("spark.python.daemon.module" in shlex.join(words)) == master.startswith("local[")
    assert "a.txt" not in shlex.join(words)
    assert found["--name"] == "orders-aggregator"
    job = words.index(str(PACKAGE / "jobs" / "aggregator.py"))
    arguments = options(words[job:])
    assert arguments == {
        "--pipeline": "orders",
        "--bootstrap-servers": "127.0.0.1:1",
        "--checkpoints": settings.checkpoints,
        "--heartbeat": str(settings.reports / "orders" / "aggregator.json"),
        "--seen": "stop/a-host:1:x",
    }


def test_a_driver_in_the_cluster_is_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would hand it the brokers' properties, and a stop would end spark-submit alone."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT",
        json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}),
    )
    with pytest.raises(Refused, match=r"deploy-mode of connection spark_default: .* observed cluster with"):
        call(AggregatorOperator(task_id="aggregate", pipeline="orders"), Settings.from_environment())


@pytest.mark.parametrize(
    ("plan", "extent"),
    [
        ({"first": 0, "until": 19, "rate": 0}, ["--until", "19"]),
        ({"first": 19, "until": None, "rate": 500}, ["--endless", "--rate", "500"]),
    ],
)
def test_the_plan_makes_the_call_of_the_producer(settings: Settings, plan: dict[str, Any], extent: list[str]) -> None:
    words = call(ProducerOperator(task_id="produce", pipeline="orders", plan_task_id="plan"), settings, xcom=plan)
    assert words[:2] == [sys.executable, str(PACKAGE / "jobs" / "producer.py")]
    assert words[2:] == ["--pipeline", "orders", "--bootstrap-servers", "127.0.0.1:1", *extent]


@pytest.fixture
def elsewhere(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A pipeline on another Kafka cluster and another Spark. Airflow has no connection with a default name."""
    (tmp_path / "on_another_cluster.py").write_text(
        "from dataclasses import replace\n"
        "from streamplan.pipelines.orders import PIPELINE as orders\n"
        "PIPELINE = replace(orders, name='elsewhere', kafka_conn_id='kafka_two', spark_conn_id='spark_two')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "on_another_cluster")
    for name in ("AIRFLOW_CONN_KAFKA_DEFAULT", "AIRFLOW_CONN_SPARK_DEFAULT"):
        monkeypatch.delenv(name, raising=False)
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "two:9092", "client.id": "of-two"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TWO", json.dumps(kafka))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TWO", json.dumps({"conn_type": "spark", "host": "local[7]"}))
    return "elsewhere"


def test_a_pipeline_on_another_cluster_uses_the_connections_that_it_names(settings: Settings, elsewhere: str) -> None:
    found = options(call(AggregatorOperator(task_id="aggregate", pipeline=elsewhere), settings))
    assert (found["--bootstrap-servers"], found["--master"]) == ("two:9092", "local[7]")
    assert brokers(elsewhere).servers == "two:9092"

    trigger = Run().defer(Script(task_id="script", code="print()", pipeline=elsewhere))
    job = asyncio.run(trigger._remote_job())
    assert isinstance(job, RemoteAggregator)
    assert job._brokers.servers == "two:9092"


def test_instances_are_executors_of_one_core(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "spark://host", "port": 7077})
    )
    words = call(AggregatorOperator(task_id="aggregate", pipeline="orders"), Settings.from_environment())
    assert not {"--total-executor-cores", "--executor-cores"} & {*words}
    monkeypatch.setenv("STREAMPLAN_INSTANCES", "4")
    words = call(AggregatorOperator(task_id="aggregate", pipeline="orders"), Settings.from_environment())
    assert words[words.index("--total-executor-cores") + 1] == "4"
    assert words[words.index("--executor-cores") + 1] == "1"


def test_the_driver_has_the_memory_of_the_deployment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    words = call(AggregatorOperator(task_id="aggregate", pipeline="orders"), Settings.from_environment())
    assert words[words.index("--driver-memory") + 1] == "1g"
    monkeypatch.setenv("STREAMPLAN_DRIVER_MEMORY", "3g")
    words = call(AggregatorOperator(task_id="aggregate", pipeline="orders"), Settings.from_environment())
    assert words[words.index("--driver-memory") + 1] == "3g"


def test_a_job_imports_every_example_from_the_archive_that_spark_is_given(settings: Settings) -> None:
    """With the files that they name."""
    archive = _zipped_package(settings)
    code = "import streamplan as s, streamplan.pipelines as p; print(p.__file__); "
    code += "[print(each.name) for each in s.registered_pipelines()]"
    variables = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120)
    file, *names = done.stdout.splitlines()
    assert file == str(archive / "streamplan" / "pipelines" / "__init__.py"), done.stderr
    assert names == [pipeline.name for pipeline in PIPELINES]


@pytest.mark.parametrize("seconds", [-2 * 86_400, 0, 2 * 86_400])
def test_a_clock_of_another_host_neither_ends_nor_prolongs_the_wait_for_the_records(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The worker defers, and the triggerer waits. What lies in open transactions of the application is waited for."""
    looks = itertools.count()
    cluster = SimpleNamespace(
        offsets=lambda topic: {0: Offsets(0, 3, 5)},
        positions=lambda group, topic: {0: 5 if topic == "source" or next(looks) else 3},
    )

    async def some_brokers(kafka_conn_id: str) -> Brokers:
        return Brokers("127.0.0.1:1")

    monkeypatch.setattr(triggers, "brokers_in_trigger", some_brokers)
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda brokers: cluster)
    monkeypatch.setattr(triggers, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + seconds))
    targets: dict[str, Any] = {"source": {"0": 5}, "repartition": None}
    deferred = triggers.ProcessedTrigger(group="app", targets=targets, seconds=60.0).serialize()[1]
    for arguments in (deferred, {"group": "app", "targets": targets, "deadline": time.time()}):  # by an earlier version
        looks = itertools.count()
        trigger = triggers.ProcessedTrigger(**json.loads(json.dumps(arguments)))
        assert event(trigger) == {"processed": True, "state": "all processed"}
        assert next(looks) == 2
