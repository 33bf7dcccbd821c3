"""The stack of one machine: two brokers, Airflow, and a stand-in for a Schema Registry where a pipeline needs one.

The commands ``up``, ``down`` and ``status`` use it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.local import airflow, brokers, schema_registry
from streamplan.local.airflow import LocalAirflow
from streamplan.local.brokers import NODES, LocalKafka
from streamplan.local.jars import BROKERS, SPARK, fetch_missing
from streamplan.local.ports import Ports
from streamplan.local.schema_registry import LocalSchemaRegistry
from streamplan.settings import Settings


@dataclass(frozen=True)
class ProcessState:
    """One process of the stack.

    Attributes:
        name: The name of its entry in ``run/``.
        pid: Its process id; 0 when it was never started.
        alive: Whether it runs.
        address: The address on which it serves; empty when it serves nothing.
        fault: What is wrong with it; empty when nothing is.
    """

    name: str
    pid: int
    alive: bool
    address: str
    fault: str


class Stack:
    """The deployment on this machine that ``settings`` describe."""

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Mapping[str, str] | None = None,
        report: Callable[[str], None] = lambda line: None,
        advertised: Mapping[int, int] | None = None,
        properties: Mapping[str, str] | None = None,
        secure: bool = False,
        with_registry: bool = False,
    ) -> None:
        """Describe the stack; nothing is started.

        Args:
            environment: The environment of all processes; by default that of this process.
            report: Gets one plain line for each step.
            advertised: For a node behind a proxy, the proxy's port, at which clients find the node.
            properties: Server properties of the brokers, added to the default ones or in their place.
            secure: Whether new brokers are secured. Those that were secured once stay so.
            with_registry: Whether a deployment without a Schema Registry gets one.
        """
        self.settings = settings
        self._environment = os.environ if environment is None else environment
        self._report = report
        defaults = {**brokers.DEFAULT_PORTS, **airflow.DEFAULT_PORTS, **schema_registry.DEFAULT_PORTS}
        self._ports_file = settings.home / "stack.json"
        ports = Ports(self._ports_file, defaults)
        self.kafka = LocalKafka(
            settings,
            ports,
            environment=environment,
            report=report,
            advertised=advertised,
            properties=properties,
            secure=secure,
        )
        self.registry = LocalSchemaRegistry(settings, ports, environment=environment, wanted=with_registry)
        self.airflow = LocalAirflow(settings, ports, environment=environment, report=report)

    @property
    def was_started(self) -> bool:
        """Whether it was ever started here. Jobs run without it, too: in a container, or on a worker of Airflow."""
        return self._ports_file.exists()

    def up(self) -> None:
        """Start what is not running, and wait until all is healthy."""
        self.airflow.require_startable()
        wanted = [BROKERS] if self.settings.jars else [BROKERS, SPARK]
        fetch_missing(wanted, self._environment, self.settings.logs, self._report)
        with self._exclusively():
            self._start_brokers()
            # Airflow needs only the connection, so its database is prepared while the brokers start.
            if len(self.airflow.running()) < len(airflow.PROCESSES):
                self._report("Starting Airflow: api-server, scheduler, dag-processor, triggerer.")
            self.airflow.start(self.kafka.brokers)
            self._await_brokers()
            self.airflow.wait_until_ready()
            self._report(f"Airflow is ready at {self.airflow.url}.")

    @contextmanager
    def brokers_up(self) -> Iterator[None]:
        """Run Kafka and the Schema Registry without Airflow while the block runs. Those that ran before go on."""
        fetch_missing([BROKERS], self._environment, self.settings.logs, self._report)
        ran = any(self.kafka.process(node) is not None for node in NODES)
        try:
            with self._exclusively():
                self._start_brokers()
                self._await_brokers()
            yield
        finally:
            if not ran:
                with self._exclusively():
                    self._report("Stopping Kafka.")
                    self.registry.down()
                    self.kafka.down()

    def _start_brokers(self) -> None:
        if any(self.kafka.process(node) is None for node in NODES):
            self._report(f"Starting Kafka: two brokers{', secured' if self.kafka.security else ''}.")
        self.kafka.start_missing()
        if self.registry.is_used and self.registry.process() is None:
            self._report("Starting a stand-in for a Schema Registry.")
            self.registry.start(self._report)

    def _await_brokers(self) -> None:
        self.kafka.wait_until_ready()
        self._report(f"Kafka is ready at {self.kafka.bootstrap_servers}.")
        if self.registry.is_used:
            self.registry.wait_until_ready()
            self._report(f"The Schema Registry's stand-in is ready at {self.registry.address}.")

    def down(self) -> list[str]:
        """Stop every process that is registered in ``run/`` and that this process can see.

        Airflow is stopped first, or it would restart the jobs. The brokers are stopped last, so that jobs can finish
        their transactions. Until the jobs have ended they may ask the Schema Registry.

        Returns:
            The names of the processes that were alive, in the order in which they were stopped.
        """
        with self._exclusively():
            if self.airflow.running():
                self._report("Stopping Airflow.")
            stopped = self.airflow.down()
            of_stack = {*airflow.PROCESSES, *brokers.DEFAULT_PORTS, schema_registry.PROCESS}
            for ref in processes.registered(self.settings.run):
                if ref.is_elsewhere:
                    self._report(
                        f"{ref.name} was started in another PID namespace ({ref.namespace}). It is left alone."
                    )
                elif ref.name not in of_stack:
                    alive = processes.is_alive(ref)
                    if alive:
                        self._report(f"Stopping {ref.name}.")
                    processes.stop(ref)
                    stopped += [ref.name] if alive else []
            stopped += self.registry.down()
            if any(self.kafka.process(node) for node in NODES):
                self._report("Stopping Kafka.")
            stopped += self.kafka.down()
            for ref in processes.registered(self.settings.run):
                if not ref.is_elsewhere:
                    processes.stop(ref)  # removes the entries of dead processes, and stops what these left running
        return stopped

    def states(self) -> list[ProcessState]:
        """Return every process that should run here, and every job that runs, with what is wrong with it now.

        Where the stack was never started, no process of it should run.
        """
        faults = dict(self.airflow.faults())
        addresses = {airflow.API_SERVER: self.airflow.url}
        for node in NODES:
            name = f"kafka-{node}"
            addresses[name] = self.kafka.address(node)
            if self.kafka.process(node) is not None and (fault := self.kafka.probe(node)) is not None:
                faults[name] = fault
        if self.registry.is_used:
            addresses[schema_registry.PROCESS] = self.registry.address
            if self.registry.process() is not None and (fault := self.registry.probe()) is not None:
                faults[schema_registry.PROCESS] = fault
        known = {ref.name: ref for ref in processes.registered(self.settings.run)}
        # A job that has ended is not listed: it may be done, and Airflow knows.
        jobs = [name for name, ref in known.items() if processes.is_alive(ref)]
        registry = [schema_registry.PROCESS] if self.registry.is_used else []
        stack = [*(f"kafka-{node}" for node in NODES), *registry, *airflow.PROCESSES] if self.was_started else []
        names = dict.fromkeys([*stack, *jobs])
        states = []
        for name in names:
            ref = known.get(name)
            alive = ref is not None and processes.is_alive(ref)
            fault = faults.get(name, "") if alive else "not running"
            states.append(ProcessState(name, ref.pid if ref else 0, alive, addresses.get(name, ""), fault))
        return states

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Hold the deployment's lock. Two commands at once would stop half of what the other one starts."""
        self.settings.home.mkdir(parents=True, exist_ok=True)
        file = self.settings.home / "stack.lock"
        with file.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                raise StreamplanError(
                    f"Stack in {self.settings.home}",
                    expected="no other command that starts or stops it",
                    observed=f"process {lock.read()} starts or stops it now",
                    remedy="Wait until it is done.",
                ) from error
            lock.truncate(0)
            lock.write(json.dumps(os.getpid()))
            lock.flush()
            yield
