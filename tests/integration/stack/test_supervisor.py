"""The supervised aggregator under the real Airflow: whoever is killed, exactly one lives as long as its run does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from streamplan import processes
from streamplan.kafka.topics import apply_topics
from streamplan.local.airflow import PROCESSES
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.stack import Stack
from streamplan.processes import ProcessRef
from streamplan.registry import pipeline_named
from streamplan.settings import PROJECT

from tests.support.airflow_rest import patient_rest
from tests.support.pid_namespaces import in_new_pid_namespace
from tests.support.soak import soak

ORDERS = pipeline_named("orders")
DEPLOY, AGGREGATOR = "orders_deploy", "orders_aggregator"
JOB = "orders-aggregator"
TRIGGERER = "airflow-triggerer"


class Supervised:
    """The aggregator as the operating system sees it, and its DAG as Airflow's API shows it."""

    def __init__(self, stack: Stack, rest: AirflowRest) -> None:
        self.stack = stack
        self.rest = rest

    def processes(self) -> set[psutil.Process]:
        """Every living process of the job: those with its script or its checkpoints in their command, or its group."""
        found = set()
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                ours = any(word.endswith("aggregator.py") for word in words) and any(
                    str(self.stack.settings.home) in word for word in words
                )
                if (ours or os.getpgid(process.pid) in self.groups) and process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return found

    @property
    def groups(self) -> set[int]:
        return {ref.pid for ref in self.registered()}

    def registered(self) -> list[ProcessRef]:
        return [ref for ref in processes.registered(self.stack.settings.run) if ref.name == JOB]

    def leaders(self) -> set[int]:
        """The process groups of :meth:`processes`: as many as there are aggregators."""
        groups = set()
        for process in self.processes():
            try:
                groups.add(os.getpgid(process.pid))
            except ProcessLookupError:
                continue
        return groups

    def one(self) -> int:
        """Wait until one aggregator runs, watched by the triggerer; its pid."""
        wait_for(
            lambda: self.state() == "deferred" and len(self.leaders()) == 1, "one supervised aggregator", self.told
        )
        (pid,) = self.leaders()
        assert self.groups == {pid}
        return pid

    def family(self) -> list[psutil.Process]:
        """Every descendant too: Spark's Python workers are in a process group of their own."""
        found = self.processes()
        return [*found, *(child for process in found for child in process.children(recursive=True))]

    def gone(self) -> None:
        wait_for(lambda: not self.processes(), "no process of the aggregator", self.told)

    def run(self) -> str:
        """The id of the one active run."""
        (run,) = [run for run in self.rest.runs(AGGREGATOR) if run["state"] == "running"]
        return str(run["dag_run_id"])

    def state(self) -> str | None:
        running = [run for run in self.rest.runs(AGGREGATOR) if run["state"] == "running"]
        return self.rest.task_states(AGGREGATOR, running[0]["dag_run_id"]).get("aggregate") if running else None

    def told(self) -> str:
        """What a failure shows."""
        log_file = self.stack.settings.logs / f"{JOB}.log"
        tail = log_file.read_text(errors="replace")[-2000:] if log_file.exists() else "(no log)"
        runs = [(run["dag_run_id"], run["state"]) for run in self.rest.runs(AGGREGATOR)]
        return f"{runs}, task {self.state()}, {self.processes()}; {log_file}: {tail}"


def wait_for(condition: Callable[[], bool], what: str, told: Callable[[], str], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s; {told()}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def airflow(stack: Stack) -> Iterator[Supervised]:
    """Nothing of the aggregator runs before and after the module."""
    apply_topics(stack.kafka.brokers, ORDERS)
    rest = patient_rest(stack)
    for dag_id in (DEPLOY, AGGREGATOR):
        rest.wait_for_dag(dag_id, deadline_seconds=420)
        rest.unpause(dag_id)
    supervised = Supervised(stack, rest)
    stop_runs(supervised)
    yield supervised
    stop_runs(supervised)
    rest.close()


def stop_runs(airflow: Supervised) -> None:
    for dag_id in (DEPLOY, AGGREGATOR):
        for run in airflow.rest.runs(dag_id):
            if run["state"] in ("queued", "running"):
                airflow.rest.set_run_state(dag_id, run["dag_run_id"], "failed")
    airflow.gone()


@pytest.fixture
def running(airflow: Supervised) -> Supervised:
    """One run of the aggregator's DAG, and its process. Tests that leave both alive share them."""
    if airflow.state() is None:
        airflow.rest.trigger(AGGREGATOR)
    airflow.one()
    return airflow


@contextmanager
def killed(stack: Stack, *names: str) -> Iterator[None]:
    """Processes of Airflow, killed with all their children; up again afterwards."""
    for name, ref in stack.airflow.running().items():
        if name in names:
            family = [psutil.Process(ref.pid), *psutil.Process(ref.pid).children(recursive=True)]
            for process in family:
                process.kill()
            psutil.wait_procs(family, 300)
    assert not set(stack.airflow.running()) & set(names)
    try:
        yield
    finally:
        stack.up()


@pytest.mark.soak
def test_deploying_twice_leaves_one_aggregator(airflow: Supervised) -> None:
    pids = []
    for _ in range(2):
        run_id = airflow.rest.trigger(DEPLOY, {"records": 1})
        wait_for(
            lambda run_id=run_id: airflow.rest.task_states(DEPLOY, run_id).get("aggregator") == "success",
            "the deployment's aggregator task",
            lambda run_id=run_id: str(airflow.rest.task_states(DEPLOY, run_id)),
        )
        airflow.rest.set_run_state(DEPLOY, run_id, "failed")  # what comes after it is another test's
        pids.append(airflow.one())
    assert pids[0] == pids[1]
    assert [run["state"] for run in airflow.rest.runs(AGGREGATOR)].count("running") == 1
    assert "queued" not in [run["state"] for run in airflow.rest.runs(AGGREGATOR)]


def test_a_second_run_starts_no_second_process(running: Supervised) -> None:
    pid, first = running.one(), running.run()
    second = running.rest.trigger(AGGREGATOR)
    # The scheduler has looked at it when it has looked at a run that came later.
    later = running.rest.trigger(DEPLOY, {"records": 0})
    wait_for(
        lambda: running.rest.run_state(DEPLOY, later) != "queued",
        "a later run is started",
        lambda: str(running.rest.runs(DEPLOY)),
    )
    running.rest.set_run_state(DEPLOY, later, "failed")
    assert running.rest.run_state(AGGREGATOR, second) == "queued"
    assert running.one() == pid
    running.rest.set_run_state(AGGREGATOR, second, "failed")
    assert (running.one(), running.run()) == (pid, first)


@pytest.mark.parametrize("victims", ["leader", *soak(["the whole family"])])
def test_a_killed_aggregator_is_restarted(running: Supervised, victims: str) -> None:
    before, run = running.one(), running.run()
    if victims == "leader":
        os.kill(before, signal.SIGKILL)
    else:
        os.killpg(before, signal.SIGKILL)
    wait_for(lambda: before not in running.leaders(), "the killed one is gone", running.told)
    wait_for(lambda: bool(running.leaders()), "another one runs", running.told)
    assert running.one() != before
    assert running.run() == run


def test_it_is_supervised_across_a_kill_of_the_triggerer(running: Supervised) -> None:
    pid, run = running.one(), running.run()
    with killed(running.stack, TRIGGERER):
        assert running.leaders() == {pid}
    assert (running.one(), running.run()) == (pid, run)
    os.killpg(pid, signal.SIGKILL)
    wait_for(lambda: bool(running.leaders() - {pid}), "the new triggerer noticed", running.told)
    assert running.run() == run


@pytest.mark.soak
def test_it_survives_a_kill_of_all_of_airflow(running: Supervised) -> None:
    pid, run = running.one(), running.run()
    with killed(running.stack, *PROCESSES):
        assert running.leaders() == {pid}
    assert (running.one(), running.run()) == (pid, run)


def test_stopping_the_run_ends_the_whole_family(running: Supervised) -> None:
    run, family = running.run(), running.family()
    running.rest.set_run_state(AGGREGATOR, run, "failed")
    running.gone()
    _, left = psutil.wait_procs(family, 300)
    assert left == []
    # Longer than the retry delay and what the scheduler needs to begin a task.
    until = time.monotonic() + 8
    while time.monotonic() < until:
        assert not running.processes(), running.told()
        time.sleep(0.5)
    assert running.rest.run_state(AGGREGATOR, run) == "failed"


@pytest.mark.soak
def test_a_run_stopped_while_the_triggerer_is_down_leaves_no_process(running: Supervised) -> None:
    run = running.run()
    with killed(running.stack, TRIGGERER):
        running.rest.set_run_state(AGGREGATOR, run, "failed")
        running.gone()
    assert running.rest.run_state(AGGREGATOR, run) == "failed"


@pytest.fixture
def apart(airflow: Supervised) -> Iterator[Supervised]:
    """The triggerer in a PID namespace of its own, as in a container of its own. No aggregator runs."""
    stack, prefix = airflow.stack, in_new_pid_namespace()
    stop_runs(airflow)
    with killed(stack, TRIGGERER):
        triggerer = processes.start(
            TRIGGERER,
            [*prefix, sys.executable, "-m", "airflow", *PROCESSES[TRIGGERER]],
            env=stack.airflow.environment(),
            log_file=stack.airflow.log_file(TRIGGERER),
            cwd=PROJECT,
            run_dir=stack.settings.run,
        )
        try:
            stack.airflow.wait_until_ready(deadline_seconds=600)
            (child,) = psutil.Process(triggerer.pid).children()
            assert os.readlink(f"/proc/{child.pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
            yield airflow
        finally:
            processes.stop(triggerer)


@pytest.mark.soak
def test_a_triggerer_in_another_pid_namespace_watches_and_stops_the_aggregator(apart: Supervised) -> None:
    """It asks Kafka. The brokers themselves say who is a member, and /proc says which processes there are."""
    stack = apart.stack
    group = ORDERS.topology.application_id

    def members() -> list[str] | None:
        """None while the group gets another coordinator. A client that has asked before remembers the old one."""
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers, **stack.kafka.brokers.properties})
        try:
            description = admin.describe_consumer_groups([group], request_timeout=60)[group].result(61)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                return None
            raise
        return [member.client_id for member in description.members]

    def only_member() -> str | None:
        found = members() or []
        return found[0] if len(found) == 1 else None

    apart.rest.trigger(AGGREGATOR)
    pid, run = apart.one(), apart.run()
    wait_for(lambda: only_member() is not None, "the aggregator is a member of its group", apart.told)
    first = only_member()

    os.killpg(pid, signal.SIGKILL)
    wait_for(lambda: pid not in apart.leaders(), "the killed one is gone", apart.told)
    wait_for(lambda: bool(apart.leaders()), "the triggerer saw it leave, and another one runs", apart.told)
    assert apart.one() != pid
    wait_for(lambda: only_member() not in (None, first), "the other one is the only member", apart.told)
    assert apart.run() == run

    family, log_file = apart.family(), stack.settings.logs / f"{JOB}.log"
    # Without this the API server would stop the process, too. So it is where hosts share no directory.
    (stack.settings.run / f"{JOB}.owner").unlink()
    apart.rest.set_run_state(AGGREGATOR, run, "failed")
    wait_for(lambda: members() == [], "the group has no member", apart.told)
    apart.gone()
    _, left = psutil.wait_procs(family, 300)
    assert left == []
    assert f"asked {group} to stop" in log_file.read_text()  # nobody signalled it
    assert (stack.settings.run / f"{JOB}.status").read_text().split()[0] == "0"
    assert apart.rest.run_state(AGGREGATOR, run) == "failed"
