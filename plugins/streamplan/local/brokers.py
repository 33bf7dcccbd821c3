"""Two Kafka brokers on this machine (KRaft): node 1 is broker and controller, node 2 is a broker.

Only node 1 votes, because with two voters the quorum would be lost whenever either is stopped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from streamplan import processes
from streamplan.errors import Refused, StreamplanError
from streamplan.files import write_atomically
from streamplan.java import require_java
from streamplan.kafka.brokers import Brokers
from streamplan.local import schema_registry
from streamplan.local.jars import BROKERS, require
from streamplan.local.ports import LOOPBACK, Ports
from streamplan.local.schema_registry import LocalSchemaRegistry
from streamplan.local.security import CERTIFICATES, CLIENTS, LocalSecurity
from streamplan.settings import Settings

NODES = (1, 2)
CONTROLLER = "kafka-controller"
DEFAULT_PORTS = {
    "kafka-1": 9092,
    CONTROLLER: 9093,
    "kafka-1-internal": 9094,
    "kafka-1-ssl": 9095,
    "kafka-2": 9192,
    "kafka-2-internal": 9194,
    "kafka-2-ssl": 9195,
}
READY_SECONDS = 180.0
"""On a quiet machine it takes some seconds. One with much else to do was seen to need more than a minute."""

GRACE_SECONDS = 20.0
HEAP = ("-Xms256m", "-Xmx512m")

SERVER_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    # Internal topics are on both brokers, and can be written while one of them is down.
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    # Kafka's default waits three seconds for more members of a group. Here nobody else joins.
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "true",
    # The default takes 128 MB of the heap. This buffer holds over a million keys for each pass of the cleaner.
    "log.cleaner.dedupe.buffer.size": "33554432",
    "log.cleaner.backoff.ms": "5000",
}

LOG4J = """\
status = WARN
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
logger.state.name = state.change.logger
logger.state.level = WARN
logger.request.name = kafka.request.logger
logger.request.level = WARN
"""


class LocalKafka:
    """The two brokers of the deployment that ``settings`` describe. Their data survive ``down`` and ``up``."""

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        *,
        environment: Mapping[str, str] | None = None,
        report: Callable[[str], None] = lambda line: None,
        advertised: Mapping[int, int] | None = None,
        properties: Mapping[str, str] | None = None,
        secure: bool = False,
    ) -> None:
        """Describe the brokers; nothing is started.

        Args:
            environment: The environment of the brokers' processes; by default that of this process.
            report: Gets one plain line for each step.
            advertised: For a node behind a proxy, the proxy's port, at which clients find the node. The brokers then
                talk to each other on listeners of their own.
            properties: Server properties that are added to :data:`SERVER_PROPERTIES` or replace them.
            secure: Whether a new deployment is secured. One that was secured once stays so.
        """
        self._settings = settings
        self._ports = ports
        self._environment = os.environ if environment is None else environment
        self._report = report
        self._advertised = advertised or {}
        self._properties_added = properties or {}
        security = LocalSecurity(settings.home / "security")
        self.security = security if secure or security.exists else None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses at which clients find the brokers."""
        return ",".join(self._advertised_address(node) for node in NODES)

    @property
    def brokers(self) -> Brokers:
        """The brokers and the Schema Registry beside them, as clients on this machine connect to them."""
        registry = LocalSchemaRegistry(self._settings, self._ports)
        return Brokers(self.bootstrap_servers, self._client_properties, registry.properties)

    @property
    def brokers_by_certificate(self) -> Brokers:
        """The same brokers at their listener for clients with a certificate.

        Raises:
            Refused: The deployment is not secured.
        """
        if self.security is None:
            raise Refused("Kafka on this machine", expected="secured", observed="not secured")
        servers = ",".join(f"{LOOPBACK}:{self._ports[_ssl(node)]}" for node in NODES)
        return Brokers(servers, self.security.certificate_properties())

    @property
    def _client_properties(self) -> dict[str, str]:
        return {} if self.security is None else self.security.scram_properties()

    def address(self, node: int) -> str:
        """Return the address on which the node listens."""
        return f"{LOOPBACK}:{self._ports[_name(node)]}"

    def _advertised_address(self, node: int) -> str:
        return f"{LOOPBACK}:{self._advertised[node]}" if node in self._advertised else self.address(node)

    def log_file(self, node: int) -> Path:
        """Return the log of the node."""
        return self._settings.logs / f"{_name(node)}.log"

    def process(self, node: int) -> processes.ProcessRef | None:
        """Return the running process of the node, or None."""
        ref = processes.find(self._settings.run, _name(node))
        return ref if ref is not None and processes.is_alive(ref) else None

    def up(self, *, deadline_seconds: float = READY_SECONDS) -> str:
        """Start what is not running, wait until both brokers serve, and return the bootstrap servers."""
        self.start_missing()
        self.wait_until_ready(deadline_seconds=deadline_seconds)
        return self.bootstrap_servers

    def start_missing(self) -> None:
        """Start the nodes that are not running, without waiting until they serve (:meth:`wait_until_ready`)."""
        missing = [node for node in NODES if self.process(node) is None]
        if self.security is not None and not self.security.exists:
            self._require_new()
            self.security.make()
        # All ports are chosen before a node starts, because node 2 is told where the controller is.
        if 1 in missing:
            before = self._ports[CONTROLLER]
            if self._ports.choose(CONTROLLER, self._report) != before and self.stop(2):
                missing = [*NODES]
        for node in missing:
            self._ports.choose(_name(node), self._report)
            if self._advertised:
                self._ports.choose(_internal(node), self._report)
            if self.security is not None:
                self._ports.choose(_ssl(node), self._report)
        for node in missing:
            self.start(node)

    def start(self, node: int) -> processes.ProcessRef:
        """Start one node, without waiting until it serves. The first time, its storage is formatted."""
        java = require_java(self._environment) / "bin" / "java"
        class_path = f"{require(BROKERS, self._environment)}/*"
        home = self._settings.home / _name(node)
        home.mkdir(parents=True, exist_ok=True)
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in self._properties(node).items()))
        log4j = home / "log4j2.properties"
        log4j.write_text(LOG4J)
        # A URI, because log4j does not accept a path with a space.
        options = [*HEAP, f"-Dlog4j2.configurationFile={log4j.as_uri()}", "-Djava.awt.headless=true"]
        self._format(node, [str(java), *options, "-cp", class_path], properties)
        return processes.start(
            _name(node),
            [str(java), *options, "-cp", class_path, "kafka.Kafka", str(properties)],
            env=self._environment,
            log_file=self.log_file(node),
            cwd=home,
            run_dir=self._settings.run,
        )

    def stop(self, node: int) -> bool:
        """Stop one node with SIGTERM and return whether it was running."""
        ref = self.process(node)
        if ref is not None:
            processes.stop(ref, grace_seconds=GRACE_SECONDS)
        return ref is not None

    def down(self) -> list[str]:
        """Stop both nodes and return the names of those that ran.

        Node 2 is stopped first: a broker that shuts down in order needs the controller, which is node 1.
        """
        return [_name(node) for node in reversed(NODES) if self.stop(node)]

    def wait_until_ready(self, *, deadline_seconds: float = READY_SECONDS) -> None:
        """Wait until each broker reports both of them, and the controller answers a request.

        Raises:
            StreamplanError: The deadline has passed, or a node's process has ended. It names the node's address, the
                seconds waited and the log.
        """
        begun = time.monotonic()
        for node in NODES:
            while (fault := self.probe(node)) is not None:
                waited = time.monotonic() - begun
                # When one node has ended, the other one complains, too. The error names the cause.
                ended = [other for other in NODES if self.process(other) is None]
                if ended or waited > deadline_seconds:
                    culprit = ended[0] if ended else node
                    raise StreamplanError(
                        f"Kafka node {culprit} at {self.address(culprit)}",
                        expected="both brokers and the controller serve",
                        observed=f"{'its process ended' if ended else fault} after {waited:.1f} s",
                        remedy=f"See {self.log_file(culprit)}.",
                    )
                time.sleep(0.1)

    def probe(self, node: int, *, timeout_seconds: float = 5.0) -> str | None:
        """Ask one broker, and through it the controller, whether they serve.

        Returns:
            None when they do, else what is wrong.
        """
        admin = AdminClient({"bootstrap.servers": self.address(node), "log_level": 0, **self._client_properties})
        try:
            metadata = admin.list_topics(timeout=timeout_seconds)
            if metadata.cluster_id != self._cluster_id():
                return f"another cluster ({metadata.cluster_id}) has taken the port"
            ids = sorted(metadata.brokers)
            if ids != list(NODES):
                return f"brokers {ids} of {list(NODES)}"
            # A broker answers with cached metadata. Only the controller can say whether a topic could be created.
            probe = NewTopic(f"probe-{uuid.uuid4().hex}", num_partitions=1, replication_factor=len(NODES))
            for answer in admin.create_topics(
                [probe], validate_only=True, operation_timeout=timeout_seconds, request_timeout=timeout_seconds
            ).values():
                answer.result(timeout=2 * timeout_seconds)
        except (KafkaException, TimeoutError) as error:
            return str(error)
        return None

    def _properties(self, node: int) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self._ports[CONTROLLER]}"
        clients = "PLAINTEXT" if self.security is None else CLIENTS
        listeners = [f"{clients}://{self.address(node)}"] + ([f"CONTROLLER://{controller}"] if node == 1 else [])
        advertised = [f"{clients}://{self._advertised_address(node)}"]
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        between: dict[str, str] = {}
        if self.security is not None:
            certificates = f"{CERTIFICATES}://{LOOPBACK}:{self._ports[_ssl(node)]}"
            listeners.append(certificates)
            advertised.append(certificates)
            protocols = f"CONTROLLER:SSL,{CLIENTS}:SASL_SSL,{CERTIFICATES}:SSL"
            between = self.security.server_properties()
        elif self._advertised:
            internal = f"INTERNAL://{LOOPBACK}:{self._ports[_internal(node)]}"
            listeners.append(internal)
            advertised.append(internal)
            protocols += ",INTERNAL:PLAINTEXT"
            between = {"inter.broker.listener.name": "INTERNAL"}
        return {
            "process.roles": "broker,controller" if node == 1 else "broker",
            "node.id": str(node),
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": protocols,
            "log.dirs": str(self._settings.home / _name(node) / "data"),
            **between,
            **SERVER_PROPERTIES,
            **self._properties_added,
        }

    def _format(self, node: int, java: list[str], properties: Path) -> None:
        data = self._settings.home / _name(node) / "data"
        if (data / "meta.properties").exists():
            return
        # meta.properties is written last. Without it, an earlier formatting was interrupted.
        shutil.rmtree(data, ignore_errors=True)
        argv = [*java, "kafka.tools.StorageTool", "format", "--config", str(properties)]
        argv.append(f"--cluster-id={self._cluster_id()}")  # with "=", because one id in 64 begins with a dash
        users = properties.with_name("users")
        if self.security is not None:
            write_atomically(users, self.security.format_arguments(), mode=0o600)
            argv.append(f"@{users}")  # passwords do not stand on a command line
        log_file = self.log_file(node)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log_file.open("ab") as log:
                # Its standard output has what the brokers store of the users' passwords.
                subprocess.run(
                    argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, timeout=60
                )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise StreamplanError(
                f"Storage of Kafka node {node}", expected="formatted", observed=str(error), remedy=f"See {log_file}."
            ) from error
        finally:
            users.unlink(missing_ok=True)

    def _require_new(self) -> None:
        """Refuse to secure brokers that have run without security: they know no users."""
        if any((self._settings.home / _name(node) / "data" / "meta.properties").exists() for node in NODES):
            raise Refused(
                f"Kafka in {self._settings.home}",
                expected="a new deployment, because brokers are secured when their storage is formatted",
                observed="brokers without security",
                remedy="Stop it with `python -m streamplan down` and delete that directory, or name another one with "
                "STREAMPLAN_HOME.",
            )

    def _cluster_id(self) -> str:
        file = self._settings.home / "cluster-id"
        if not file.exists() or not file.read_text():
            # The form in which Kafka prints its Uuid: 16 bytes, URL-safe base64, no padding.
            write_atomically(file, urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return file.read_text()


def local_brokers(settings: Settings) -> Brokers:
    """Return the brokers of this machine's deployment, running or not."""
    ports = Ports(settings.home / "stack.json", {**DEFAULT_PORTS, **schema_registry.DEFAULT_PORTS})
    return LocalKafka(settings, ports).brokers


def _name(node: int) -> str:
    return f"kafka-{node}"


def _ssl(node: int) -> str:
    return f"{_name(node)}-ssl"


def _internal(node: int) -> str:
    return f"{_name(node)}-internal"


def _escaped(value: str) -> str:
    """Escape backslashes, which begin an escape in a properties file. Blanks within a value need no escape."""
    return value.replace("\\", "\\\\")
