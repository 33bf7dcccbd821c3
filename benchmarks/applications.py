"""What the benchmarks share: brokers, a flow of orders, our aggregator and the JVM library as processes.

Both applications can be killed. Their progress is read from the brokers alone, in the same way.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from confluent_kafka import Producer
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.java import require_java
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.local.brokers import DEFAULT_PORTS, LocalKafka
from streamplan.local.jars import KAFKA_STREAMS, SPARK, require
from streamplan.local.ports import Ports
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.registry import pipeline_named
from streamplan.settings import PROJECT, Settings
from streamplan.spark.submit import spark_submit_configs, submit_environment

# The jobs that a benchmark starts inherit it.
os.environ.setdefault("STREAMPLAN_PIPELINES", "streamplan.pipelines")

ORDERS = pipeline_named("orders")
STORE = "orders-products-quantities"
POLL_SECONDS = 0.05
FULL_SECONDS = 600.0
"""How long a queue of orders that were not sent yet may stay full."""

LIBRARY_ID = "orders-on-the-jvm"


def random_ports(file: Path, names: Sequence[str]) -> Ports:
    """Choose ports below the range from which the kernel takes the ports of clients, and write them to ``file``."""
    base = random.randrange(15_000, 30_000, 10)
    ports = {name: base + offset for offset, name in enumerate(sorted(names))}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(ports))
    return Ports(file, ports)


@contextmanager
def running_brokers(home: Path) -> Iterator[str]:
    """Run two brokers with their data in ``home``, and give their bootstrap servers.

    From here on SIGTERM stops the benchmark as Ctrl-C does, so that the brokers are stopped, too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
    kafka = LocalKafka(settings, random_ports(home / "stack.json", [*DEFAULT_PORTS]))
    try:
        yield kafka.up()
    finally:
        kafka.down()


def wait_until(what: str, condition: Callable[[], bool], seconds: float) -> float:
    """Wait for a condition and return the seconds that it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise StreamplanError(what, expected=f"within {seconds:g} s", observed="not yet")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - begun


class Flow:
    """Produces orders at a steady rate from a thread.

    Attributes:
        produced: How many orders were produced.
        moments: For each group of orders that the thread produced at once: the number of the next order, and the time
            (``time.monotonic``).
    """

    def __init__(self, bootstrap_servers: str, rate: int, *, compression_type: str = "none") -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": LIBRDKAFKA_PARTITIONER,
                "linger.ms": 5,
                "compression.type": compression_type,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
                "log_level": 2,  # no lines about brokers that are stopped; flush finds what was not delivered
            }
        )
        self._rate = rate
        self.produced = 0
        self.moments: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def produce(self, count: int, *, products: int = 2, note: bytes = b"") -> None:
        """Produce orders at once. ``note`` is one more field of each value, to make it larger."""
        extra_field = b', "Note": "%s"' % note if note else b""
        deadline = time.monotonic() + FULL_SECONDS
        for n in range(self.produced, self.produced + count):
            order = self._record(n, products, extra_field)
            while True:
                try:
                    self._producer.produce(*order)
                    break
                except BufferError:  # large orders come sooner than the brokers take them
                    if time.monotonic() > deadline:
                        raise
                    self._producer.poll(0.1)
            if n % 10_000 == 0:
                self._producer.poll(0)
        self.produced += count
        self._producer.poll(0)

    def _record(self, n: int, products: int, extra_field: bytes) -> tuple[str, bytes, bytes]:
        """Return topic, value and key of order ``n``."""
        return "orders", b'{"Id": "order_%d", "ProductType": %d%s}' % (n, n % products, extra_field), b"order_%d" % n

    def flush(self) -> None:
        """Wait until everything is delivered."""
        left = self._producer.flush(120)
        if left:
            raise StreamplanError("orders", expected="all delivered within 120 s", observed=f"{left} left")

    def _run(self) -> None:
        begun = time.monotonic()
        done = 0
        while not self._stop.wait(0.01):
            due = int((time.monotonic() - begun) * self._rate) - done
            if due:
                now = time.monotonic()
                self.produce(due)
                self.moments.append((self.produced, now))
                done += due

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        self.flush()


class Positions:
    """The progress of an application of the orders topology: the committed offsets of its group."""

    def __init__(self, bootstrap_servers: str, application_id: str) -> None:
        self._cluster = KafkaCluster(Brokers(bootstrap_servers))
        self._group = application_id
        self._topics = ("orders", f"{application_id}-{STORE}-repartition")

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the end offset of each topic and partition that the application reads."""
        return {
            (topic, partition): offsets.high_watermark
            for topic in self._topics
            for partition, offsets in self._cluster.offsets(topic).items()
        }

    def passed(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Return whether every committed offset has reached these. No answer from the brokers counts as no."""
        try:
            at = {topic: self._cluster.positions(self._group, topic) for topic in self._topics}
        except (BrokersUnavailable, CouldNotLook):
            return False
        return all(at[topic].get(partition, -1) >= end for (topic, partition), end in ends.items())

    def lag(self) -> int:
        """Return how many offsets are left to process; a very large number without an answer from the brokers."""
        try:
            return sum(
                offsets.last_stable - self._cluster.positions(self._group, topic).get(partition, 0)
                for topic in self._topics
                for partition, offsets in self._cluster.offsets(topic).items()
            )
        except (BrokersUnavailable, CouldNotLook):
            return 10**9

    def wait_until_steady(self, lag: int, seconds: float = 600) -> None:
        """Wait until the lag was at most ``lag`` ten times in a row."""
        times = 0

        def is_steady() -> bool:
            nonlocal times
            times = times + 1 if self.lag() <= lag else 0
            return times >= 10

        wait_until(f"{self._group} keeps up (lag at most {lag:,})", is_steady, seconds)


class Job:
    """A program that is started, and signalled, as a process group of its own."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._argv, self._environment, self.log = [*argv], dict(environment), log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it, with more arguments."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._argv, *more],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals, seconds: float = 60) -> None:
        """Send a signal to the group and wait until the process has ended."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait(seconds)

    def kill_and_start(self) -> None:
        """Kill it, and start it again at once."""
        self.signal(signal.SIGKILL)
        self.start()


def spark_job(script: Path, arguments: Sequence[str], home: Path, master: str, *options: str) -> Job:
    """Return a job that runs a script by spark-submit, with our package and Spark's Kafka connector."""
    package = shutil.make_archive(str(home / "streamplan"), "zip", PROJECT / "plugins", "streamplan")
    jars = sorted(require(SPARK, os.environ).glob("*.jar"))
    configs = [f"{name}={value}" for name, value in spark_submit_configs(master).items()]
    argv = [
        *(str(Path(sys.executable).with_name("spark-submit")), "--master", master, "--driver-memory", "1g"),
        *("--conf", "spark.ui.enabled=false", "--py-files", package, "--jars", ",".join(map(str, jars))),
        *(word for config in configs for word in ("--conf", config)),
        *options,
        *(str(script), *arguments),
    ]
    return Job(argv, submit_environment(os.environ, local=True), home / f"{script.stem}.log")


def aggregator(
    bootstrap_servers: str,
    home: Path,
    master: str,
    *options: str,
    pipeline: str = "orders",
    arguments: Sequence[str] = (),
) -> Job:
    """Return a job that runs ``jobs/aggregator.py`` with its checkpoints in ``home``.

    ``options`` are those of spark-submit, ``arguments`` those of the script.
    """
    words = ["--pipeline", pipeline, "--bootstrap-servers", bootstrap_servers]
    words += ["--checkpoints", str(home / "checkpoints"), *arguments]
    return spark_job(PROJECT / "jobs" / "aggregator.py", words, home, master, *options)


@cache
def compiled_classes(home: Path) -> Path:
    """Compile the library's applications and return the directory of their classes. This needs a JDK."""
    classes = home / "classes"
    compiler = shutil.which("javac") or str(require_java(os.environ) / "bin" / "javac")
    if not Path(compiler).exists():
        raise StreamplanError("javac", expected="on PATH", observed="none", remedy="Install a JDK 17 or 21.")
    sources = [str(source) for source in sorted(Path(__file__).parent.glob("*.java"))]
    jars = f"{require(KAFKA_STREAMS, os.environ)}/*"
    subprocess.run([compiler, "--release", "17", "-cp", jars, "-d", str(classes), *sources], check=True, timeout=120)
    return classes


def java_job(classes: Path, name: str, arguments: Sequence[str], log: Path) -> Job:
    """Return a job that runs one of these classes on the JVM."""
    java = str(require_java(os.environ) / "bin" / "java")
    class_path = f"{classes}{os.pathsep}{require(KAFKA_STREAMS, os.environ)}/*"
    return Job([java, "-Xmx512m", "-cp", class_path, name, *arguments], os.environ, log)


def library_instance(
    bootstrap_servers: str, classes: Path, state: Path, application_id: str = LIBRARY_ID, **configs: str
) -> Job:
    """Return one instance of the JVM library's application, with ``exactly_once_v2``.

    ``configs`` replace the library's defaults. Their names have underscores instead of dots.
    """
    config = {
        "application.id": application_id,
        "bootstrap.servers": bootstrap_servers,
        "state.dir": str(state),
        "processing.guarantee": "exactly_once_v2",
        "replication.factor": "2",
        **{name.replace("_", "."): value for name, value in configs.items()},
    }
    arguments = [f"{name}={value}" for name, value in config.items()]
    return java_job(classes, "OrdersApplication", arguments, state.with_suffix(".log"))


def wait_until_running(instance: Job, seconds: float = 120) -> None:
    """Wait until an instance of the JVM library has written ``RUNNING`` to its log."""
    wait_until(
        f"an instance whose log is {instance.log}",
        lambda: instance.log.exists() and instance.log.read_text().rstrip().endswith(" RUNNING"),
        seconds,
    )


@dataclass(frozen=True)
class Measured:
    """The seconds of several rounds of one case."""

    case: str
    seconds: tuple[float, ...]

    def line(self) -> str:
        """Return median and range as one line."""
        if not self.seconds:
            return f"{self.case:<66} not measured"
        low, high = min(self.seconds), max(self.seconds)
        median = statistics.median(self.seconds)
        return f"{self.case:<66} {median:7.1f} s ({low:.1f} to {high:.1f}, {len(self.seconds)} rounds)"


def report(line: str) -> None:
    """Print one line with the time to stderr; results go to stdout."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def finish(measured: Sequence[Measured], file: Path | None) -> None:
    """Print the table, and write the same as JSON to a file or, without one, to stdout."""
    load = os.getloadavg()
    for case in measured:
        sys.stdout.write(case.line() + "\n")
    sys.stdout.write(
        f"{os.cpu_count()} cores; load of the machine at the end: {load[0]:.1f} {load[1]:.1f} {load[2]:.1f}\n"
    )
    content = {"cores": os.cpu_count(), "load": load, "seconds": {case.case: case.seconds for case in measured}}
    if file is None:
        sys.stdout.write(json.dumps(content) + "\n")
    else:
        file.write_text(json.dumps(content, indent=1) + "\n")
