"""What the benchmarks of faults share: brokers, orders that flow, the aggregator on a cluster, and the JVM library.

Both applications are processes that can be killed; how far each is, is asked from the brokers alone.
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
from streamplan.local.brokers import DEFAULT_PORTS, EmbeddedKafka
from streamplan.local.jars import KAFKA_STREAMS, SPARK, require
from streamplan.local.ports import Ports
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.pipelines import pipeline_named
from streamplan.settings import PROJECT, Settings
from streamplan.spark.submit import spark_submit_configs, submit_environment

ORDERS = pipeline_named("orders")
STORE = "orders-products-quantities"
POLL_SECONDS = 0.05
LIBRARY_ID = "orders-on-the-jvm"


def random_ports(file: Path, names: Sequence[str]) -> Ports:
    """Below the range from which the kernel takes the ports of clients. They stand in ``file`` afterwards."""
    base = random.randrange(15_000, 30_000, 10)
    ports = {name: base + offset for offset, name in enumerate(sorted(names))}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(ports))
    return Ports(file, ports)


@contextmanager
def brokers(home: Path) -> Iterator[str]:
    """Two, in ``home``: their bootstrap servers. From here on SIGTERM ends the benchmark as Ctrl-C does: tidily."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
    kafka = EmbeddedKafka(settings, random_ports(home / "stack.json", [*DEFAULT_PORTS]))
    try:
        yield kafka.up()
    finally:
        kafka.down()


def wait_until(what: str, condition: Callable[[], bool], seconds: float) -> float:
    """The seconds that it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise StreamplanError(what, expected=f"within {seconds:g} s", observed="not yet")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - begun


class Flow:
    """Orders at a steady rate, from a thread.

    ``moments``  for each handful that was produced so: the first number behind it, and when (``time.monotonic``)
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
                "log_level": 2,  # brokers that are stopped behind it are no news; what is not delivered, flush tells
            }
        )
        self._rate = rate
        self.produced = 0
        self.moments: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def produce(self, count: int, *, products: int = 2, note: bytes = b"") -> None:
        """``note`` is one more field of the value, to make it larger."""
        more = b', "Note": "%s"' % note if note else b""
        for n in range(self.produced, self.produced + count):
            self._producer.produce(*self._record(n, products, more))
            if n % 10_000 == 0:
                self._producer.poll(0)
        self.produced += count
        self._producer.poll(0)

    def _record(self, n: int, products: int, more: bytes) -> tuple[str, bytes, bytes]:
        """Topic, value, key."""
        return "orders", b'{"Id": "order_%d", "ProductType": %d%s}' % (n, n % products, more), b"order_%d" % n

    def flush(self) -> None:
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
    """How far an application of the orders topology is, by its group's committed positions."""

    def __init__(self, bootstrap_servers: str, application_id: str) -> None:
        self._cluster = KafkaCluster(Brokers(bootstrap_servers))
        self._group = application_id
        self._topics = ("orders", f"{application_id}-{STORE}-repartition")

    def ends(self) -> Mapping[tuple[str, int], int]:
        return {
            (topic, number): found.high_watermark
            for topic in self._topics
            for number, found in self._cluster.offsets(topic).items()
        }

    def passed(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether every position is at or past these. A brokers' answer that does not come is a no."""
        try:
            at = {topic: self._cluster.positions(self._group, topic) for topic in self._topics}
        except (BrokersUnavailable, CouldNotLook):
            return False
        return all(at[topic].get(number, -1) >= end for (topic, number), end in ends.items())

    def lag(self) -> int:
        try:
            return sum(
                found.last_stable - self._cluster.positions(self._group, topic).get(number, 0)
                for topic in self._topics
                for number, found in self._cluster.offsets(topic).items()
            )
        except (BrokersUnavailable, CouldNotLook):
            return 10**9

    def wait_until_steady(self, lag: int, seconds: float = 600) -> None:
        """Ten looks in a row with at most so much to process."""
        calm = 0

        def looks_calm() -> bool:
            nonlocal calm
            calm = calm + 1 if self.lag() <= lag else 0
            return calm >= 10

        wait_until(f"{self._group} keeps up (lag at most {lag:,})", looks_calm, seconds)


class Job:
    """A process in a group of its own."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._argv, self._environment, self.log = [*argv], dict(environment), log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
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
        """To the group; waits until the process is gone."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait(seconds)


def spark_job(script: Path, arguments: Sequence[str], home: Path, master: str, *options: str) -> Job:
    """A script under spark-submit, with our package and Spark's Kafka connector."""
    package = shutil.make_archive(str(home / "streamplan"), "zip", PROJECT / "plugins", "streamplan")
    jars = sorted(require(SPARK, os.environ).glob("*.jar"))
    configs = [f"{name}={value}" for name, value in spark_submit_configs(master).items()]
    argv = [
        *(str(Path(sys.executable).with_name("spark-submit")), "--master", master, "--driver-memory", "1g"),
        *("--conf", "spark.ui.enabled=false", "--py-files", package, "--jars", ",".join(map(str, jars))),
        *(part for config in configs for part in ("--conf", config)),
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
    """``jobs/aggregator.py`` with its checkpoints in ``home``. ``options`` are for spark-submit."""
    own = ["--pipeline", pipeline, "--bootstrap-servers", bootstrap_servers]
    own += ["--checkpoints", str(home / "checkpoints"), *arguments]
    return spark_job(PROJECT / "jobs" / "aggregator.py", own, home, master, *options)


@cache
def compiled(home: Path) -> Path:
    """The directory of the library's application, compiled. Needs a JDK, where all else needs a JRE."""
    classes = home / "classes"
    compiler = shutil.which("javac") or str(require_java(os.environ) / "bin" / "javac")
    if not Path(compiler).exists():
        raise StreamplanError("javac", expected="on PATH", observed="none", remedy="Install a JDK 17 or 21.")
    sources = [str(source) for source in sorted(Path(__file__).parent.glob("*.java"))]
    jars = f"{require(KAFKA_STREAMS, os.environ)}/*"
    subprocess.run([compiler, "--release", "17", "-cp", jars, "-d", str(classes), *sources], check=True, timeout=120)
    return classes


def java_job(classes: Path, name: str, arguments: Sequence[str], log: Path) -> Job:
    """A class of ours on the JVM."""
    java = str(require_java(os.environ) / "bin" / "java")
    class_path = f"{classes}{os.pathsep}{require(KAFKA_STREAMS, os.environ)}/*"
    return Job([java, "-Xmx512m", "-cp", class_path, name, *arguments], os.environ, log)


def library_instance(
    bootstrap_servers: str, classes: Path, state: Path, application_id: str = LIBRARY_ID, **configs: str
) -> Job:
    """One instance with ``exactly_once_v2`` and the library's defaults but for ``configs``, dots as underscores."""
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
    wait_until(
        f"an instance whose log is {instance.log}",
        lambda: instance.log.exists() and instance.log.read_text().rstrip().endswith(" RUNNING"),
        seconds,
    )


@dataclass(frozen=True)
class Measured:
    """Seconds of several rounds of one case."""

    case: str
    seconds: tuple[float, ...]

    def line(self) -> str:
        if not self.seconds:
            return f"{self.case:<66} not measured"
        low, high = min(self.seconds), max(self.seconds)
        median = statistics.median(self.seconds)
        return f"{self.case:<66} {median:7.1f} s ({low:.1f} to {high:.1f}, {len(self.seconds)} rounds)"


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def finish(measured: Sequence[Measured], file: Path | None) -> None:
    """The table, and the same as JSON."""
    load = os.getloadavg()
    for one in measured:
        sys.stdout.write(one.line() + "\n")
    sys.stdout.write(
        f"{os.cpu_count()} cores; load of the machine at the end: {load[0]:.1f} {load[1]:.1f} {load[2]:.1f}\n"
    )
    whole = {"cores": os.cpu_count(), "load": load, "seconds": {one.case: one.seconds for one in measured}}
    if file is None:
        sys.stdout.write(json.dumps(whole) + "\n")
    else:
        file.write_text(json.dumps(whole, indent=1) + "\n")
