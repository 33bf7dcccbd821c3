"""The system that is broken: the stack of one machine and its jobs, as the kernel and Airflow's API show them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from streamplan.errors import StreamplanError
from streamplan.local.airflow import DEFAULT_PORTS as AIRFLOW_PORTS
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.brokers import DEFAULT_PORTS as KAFKA_PORTS
from streamplan.local.brokers import NODES
from streamplan.local.stack import Stack
from streamplan.settings import PROJECT, Settings

from tests.chaos.disk import mount, unmount
from tests.chaos.jobs import AGGREGATOR_JOB, PRODUCER_JOB, PYTHON_DAEMON, Jobs, command
from tests.chaos.murmur2 import partition_of
from tests.chaos.proxy import Proxy
from tests.chaos.readers import COMMANDS, Readers
from tests.chaos.truth import BAD, PARTITIONS
from tests.chaos.waiting import wait_for

DEPLOY, PRODUCER, AGGREGATOR, HEALTH = (f"orders_{name}" for name in ("deploy", "producer", "aggregator", "health"))
DEPLOYED = ("topics", "producer", "aggregator")
DEPLOY_SECONDS = 900.0
UP_SECONDS = 600.0
"""The stack's own deadlines are for a machine that does nothing else."""

BACK_SECONDS = 900.0
CHECK_SECONDS = 300.0
HEALTHY_SECONDS = 300.0
HEALTH_SECONDS = 900.0

PROPERTIES = {
    # Time-outs of transactions are looked at once in 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}

_NOT_ORDERS = (b"no json", b'{"Id": "x", "ProductType": "many"}', b'{"Id": "x"', b"[1, 2]")

_TIMESTAMPS = (1, int(time.time() * 1000), 1_000_000_000_000, int(time.time() * 1000) + 3_000_000)
"""In ms. Clocks are wrong: the first ms of 1970, 2001, and as far ahead as the brokers allow."""


@dataclass(frozen=True)
class Options:
    """``rate``: orders a second. ``master``: of Spark; empty for the local one.

    ``transaction_seconds``  after which the brokers abort a transaction of the aggregator
    ``own_disk``             the checkpoints lie on a small file system of their own
    """

    home: Path
    rate: int
    master: str = ""
    aggregator_options: str = ""
    transaction_seconds: float = 60.0
    own_disk: bool = False


class Broken(Exception):
    """The system did not even start: there is nothing to break."""


class System:
    """The whole stack in ``options.home``, its clients behind proxies. :meth:`stop` ends all that was started."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.options = options
        self.home = options.home
        self._say = say
        self.home.mkdir(parents=True, exist_ok=True)
        ports = self._choose_ports()
        advertised = {node: ports[f"proxy-{node}"] for node in NODES}
        self.proxies = {node: Proxy(advertised[node], ports[f"kafka-{node}"]) for node in NODES}
        environment = {**os.environ, "STREAMPLAN_AGGREGATOR_OPTIONS": options.aggregator_options}
        if options.master:
            connection = {"conn_type": "spark", "host": options.master}
            environment["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(connection)
        self.settings = Settings.from_environment({"STREAMPLAN_HOME": str(self.home)})
        self.stack = Stack(
            self.settings, environment=environment, report=say, advertised=advertised, properties=PROPERTIES
        )
        self.servers = self.stack.kafka.bootstrap_servers
        self.jobs = Jobs(self.settings)
        own = {name: ports[name] for name in COMMANDS}
        self.readers = Readers(own, self.stack.airflow.environment, self.servers, self.settings.logs)
        self.bad_sent = 0
        self._rest: AirflowRest | None = None

    def _choose_ports(self) -> dict[str, int]:
        file = self.home / "stack.json"
        names = [*KAFKA_PORTS, *AIRFLOW_PORTS, *(f"proxy-{node}" for node in NODES), *COMMANDS]
        # Below the range from which the kernel takes the ports of clients.
        base = random.SystemRandom().randrange(15_000, 30_000, 20)
        chosen: dict[str, int] = {name: base + offset for offset, name in enumerate(sorted(names))}
        if file.exists():
            chosen |= json.loads(file.read_text())
        file.write_text(json.dumps(chosen))
        return chosen

    @property
    def rest(self) -> AirflowRest:
        if self._rest is None:
            self._rest = self.stack.airflow.rest()
        return self._rest

    def start(self) -> None:
        """Everything up, the pipeline deployed by its DAG, orders flowing without end."""
        if self.options.own_disk:
            mount(Path(self.settings.checkpoints))
        for proxy in self.proxies.values():
            proxy.start()
        self.up()
        for dag in (DEPLOY, PRODUCER, AGGREGATOR, HEALTH):
            self.rest.wait_for_dag(dag, deadline_seconds=120)
        run = self.rest.trigger(DEPLOY, {"records": 1000})
        self._say(f"Deploying: {self.rest.run_url(DEPLOY, run)}")
        wait_for("orders_deploy", lambda: self._undone(run), DEPLOY_SECONDS, interval=1)
        # What follows waits for and looks at the outcome, with deadlines of its own; here the suite looks.
        self.rest.set_run_state(DEPLOY, run, "failed")
        # A scheduled run purges the repartition topic, of which the suite has not read each record yet.
        self.rest.pause(HEALTH)
        self.rest.trigger(PRODUCER, {"records": None, "rate": self.options.rate})
        wait_for("the producer", lambda: "" if self.jobs.producer() else "no process", BACK_SECONDS)
        self.readers.start()

    def _undone(self, run: str) -> str:
        states = self.rest.task_states(DEPLOY, run)
        if any(state == "failed" for state in states.values()):
            raise Broken(f"{DEPLOY}: {states}")
        return "" if all(states.get(task) == "success" for task in DEPLOYED) else str(states)

    def stop(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()
        try:
            self.jobs.resume_all()
            self.readers.stop()
            self.stack.down()
        finally:
            if self._rest is not None:
                self._rest.close()
            for proxy in self.proxies.values():
                proxy.stop()
            unmount(Path(self.settings.checkpoints))

    def up(self) -> None:
        """What a service manager does: start what is not running. Jobs are Airflow's to bring back."""

        def lacking() -> str:
            self.stack.up()
            return ""

        wait_for("brokers and Airflow", lacking, UP_SECONDS, interval=1)

    def send_bad(self, count: int) -> None:
        """Put records among the orders that nobody can aggregate, and wait until the brokers have them."""
        faults: list[object] = []
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 2})
        for _ in range(count):
            key = BAD + b"%d" % self.bad_sent
            value = _NOT_ORDERS[self.bad_sent % len(_NOT_ORDERS)]
            producer.produce(
                "orders",
                value,
                key,
                partition_of(key, PARTITIONS),
                on_delivery=lambda error, _: faults.append(error),
                timestamp=_TIMESTAMPS[self.bad_sent % len(_TIMESTAMPS)],
            )
            self.bad_sent += 1
        if producer.flush(60) or any(faults):
            raise StreamplanError("bad records", expected="delivered", observed=str(faults))

    # What must be true when all has settled

    def one_aggregator(self) -> str:
        """Nothing is lacking when exactly one aggregator lives, Airflow knows it, and nothing of another is left."""
        runs = [run for run in self.rest.runs(AGGREGATOR) if run["state"] == "running"]
        if len(runs) != 1:
            return f"{len(runs)} running runs of {AGGREGATOR}"
        state = self.rest.task_states(AGGREGATOR, runs[0]["dag_run_id"]).get("aggregate")
        if state != "deferred":
            return f"task aggregate is {state}"
        family = self.jobs.family(AGGREGATOR_JOB)
        drivers = self.jobs.driver_python()
        if len(drivers) != 1:
            return f"{len(drivers)} driver processes below the pid in run/"
        known = {process.pid for process in family}
        others = [
            f"{process.pid} {command(process)[:120]}"
            for process in self.jobs.of_home()
            if process.pid not in known and any(w in command(process) for w in ("aggregator.py", PYTHON_DAEMON))
        ]
        return f"processes of another aggregator: {others}" if others else ""

    def one_producer(self) -> str:
        found = self.jobs.producer()
        return "" if len(found) == 1 else f"{len(found)} producer processes"

    def check(self) -> None:
        """The health checks by their command, as a person would; StreamplanError unless all are green."""
        done = self._console("check", "orders", "--bootstrap-servers", self.servers, "--json")
        if done.returncode:
            raise StreamplanError("health checks", expected="all passed", observed=_reasons(done.stdout) or done.stderr)

    def await_healthy(self) -> None:
        """Until all checks are green, without a hand: a check could not look while a deadline of its own passed."""

        def lacking() -> str:
            self.check()
            return ""

        wait_for("all health checks green", lacking, HEALTHY_SECONDS)

    def state_store(self) -> dict[str, int]:
        """What Spark's state store holds, read by a Spark of its own."""
        output = self.home / "state-store.json"
        arguments = ["--pipeline", "orders", "--checkpoints", self.settings.checkpoints, "--output", str(output)]
        arguments += ["--bootstrap-servers", self.servers]
        log_file = self.settings.logs / "chaos-state-store.log"
        with log_file.open("ab") as log:
            subprocess.run(
                ["spark-submit", "--master", "local[1]", str(PROJECT / "jobs" / "state_store.py"), *arguments],
                env=self.stack.airflow.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=CHECK_SECONDS,
                check=True,
            )
        return {str(key): int(count) for key, count in json.loads(output.read_text())["totals"].items()}

    def check_by_airflow(self) -> None:
        """A run of the health DAG, triggered as a person would."""
        self.rest.unpause(HEALTH)
        run = self.rest.trigger(HEALTH)
        state = self.rest.wait(HEALTH, run, deadline_seconds=HEALTH_SECONDS)
        if state != "success":
            raise StreamplanError(HEALTH, expected="success", observed=str(self.rest.task_states(HEALTH, run)))

    def stop_producer(self) -> None:
        """As a person stops it: the run is marked, and the process ends after its last transaction."""
        for run in self.rest.runs(PRODUCER):
            if run["state"] in ("running", "queued"):
                self.rest.set_run_state(PRODUCER, run["dag_run_id"], "success")
        wait_for("the producer is gone", lambda: str(self.jobs.family(PRODUCER_JOB) or ""), BACK_SECONDS)

    def _console(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streamplan", *arguments],
            env=self.stack.airflow.environment(),
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )


def _reasons(output: str) -> str:
    try:
        report: Mapping[str, object] = json.loads(output)
    except ValueError:
        return output[-2000:]
    checks = report.get("checks")
    assert isinstance(checks, list)
    listed = [f"{check['check']}: {check['reason']}" for check in checks if check["outcome"] != "passed"]
    return "; ".join([*listed, str(report.get("reason") or "")])
