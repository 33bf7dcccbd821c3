"""Streamplan and JVM Kafka Streams (exactly_once_v2) do the same work on the same brokers, one after the other.

Run it with ``make bench``, or ``PYTHONPATH=plugins .venv/bin/python benchmarks/bench.py [--orders 6000000]
[--rounds 5] [--json FILE] [--png FILE]``. It needs a JDK.

Orders are produced first. A round starts one system after the other. Each system catches up with all orders through
both sub-topologies, and then gets --seconds of orders at --rate. One observer reads the committed totals from the
changelog topic, for all systems in the same way. CPU and memory are those of all processes of a system. Two of the
systems, and the loops, have no state: they write each order under its product. The committed positions show their end.

    orders/s       catch-up, from the first committed record of the repartition topic to the last committed total; what
                   was re-keyed before does not count, or a system that re-keys everything before it counts would win.
                   Flink SQL and Quix Streams: from the first committed total
    start          seconds from the start of the process to the first committed total
    in all         seconds from the start of the process to the last committed total
    CPU            CPU seconds per million orders, measured over the same time as orders/s
    with the start the same, from the start of the process to the last committed total
    memory         the most that all processes held at a time, shared pages counted once (PSS)
    p50, p99       milliseconds from producing an order to the committed total that includes it
    CPU at rate    cores in use while orders come at --rate
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import peers
import rekeyed_orders
from applications import (
    LIBRARY_ID,
    ORDERS,
    STORE,
    Flow,
    Job,
    aggregator,
    compiled_classes,
    java_job,
    library_instance,
    report,
    running_brokers,
    spark_job,
    wait_until,
)
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from meters import Meter, Totals, percentile
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.settings import PROJECT
from streamplan.spark.submit import LOCAL_MASTER

DEADLINE_SECONDS = 900.0
SETTLE_SECONDS = 5.0
PRODUCTS = 2
"""The pipeline ``orders`` knows two product types."""

PARTITIONS = ORDERS.partition_counts["orders"]

LIBRARY_CONFIGS = {
    "num_stream_threads": "2",
    "commit_interval_ms": "100",
    "producer_compression_type": "lz4",
    "producer_batch_size": "262144",
}
"""Chosen for two cores and low latency, with lz4 and the batch size that our sink has."""


@dataclass(frozen=True)
class Options:
    """The options of the command line; see their help."""

    orders: int
    rate: int
    seconds: int
    note: int
    master: str
    aggregator: Sequence[str] = ()


@dataclass(frozen=True)
class Round:
    """What was measured of one system in one round; the units are those of the table."""

    start: float | None
    rate: float | None
    whole: float
    cpu: float | None
    memory: float
    whole_cpu: float
    p50: float | None = None
    p99: float | None = None
    cores: float | None = None


@dataclass
class System:
    """A name, and its rounds so far."""

    name: str
    rounds: list[Round] = field(default_factory=list)


@dataclass(frozen=True)
class Application:
    """A job that is not started, the topic of its totals, and its repartition topic if that is known."""

    id: str
    job: Job
    changelog: str
    repartition: str | None


def streamplan(bootstrap_servers: str, home: Path, number: int, options: Options) -> Application:
    """Return our aggregator of the pipeline ``orders``."""
    apply_topics(Brokers(bootstrap_servers), ORDERS)
    directory = home / f"ours-{number}"
    directory.mkdir()
    job = aggregator(bootstrap_servers, directory, options.master, arguments=options.aggregator)
    application_id = ORDERS.topology.application_id
    return Application(
        application_id, job, ORDERS.topology.changelog_topic(STORE), f"{application_id}-{STORE}-repartition"
    )


def kafka_streams(bootstrap_servers: str, home: Path, number: int, options: Options) -> Application:
    """Return the same topology on the JVM library."""
    application_id = f"{LIBRARY_ID}-{number}"
    classes, state = compiled_classes(home), home / f"jvm-{number}"
    job = library_instance(bootstrap_servers, classes, state, application_id=application_id, **LIBRARY_CONFIGS)
    topics = [f"{application_id}-{STORE}-{suffix}" for suffix in ("changelog", "repartition")]
    return Application(application_id, job, *topics)


def spark_sink(bootstrap_servers: str, home: Path, number: int, options: Options) -> Application:
    """Return the same topology with Spark's own Kafka sink."""
    application_id = f"spark-sink-{number}"
    topics = [f"{application_id}-{STORE}-{suffix}" for suffix in ("repartition", "changelog")]
    create_topics(bootstrap_servers, *topics)
    directory = home / application_id
    directory.mkdir()
    arguments = [bootstrap_servers, *topics, str(directory)]
    job = spark_job(Path(__file__).with_name("spark_sink.py"), arguments, directory, options.master)
    return Application(application_id, job, topics[1], topics[0])


def peer(job: Callable[[str, Path, str, str], Job]) -> Callable[[str, Path, int, Options], Application]:
    """Return a system that reads orders and writes totals, with topics of its own between."""

    def started(bootstrap_servers: str, home: Path, number: int, options: Options) -> Application:
        application_id = f"{job.__name__}-{number}"
        totals = f"{application_id}-totals"
        create_topics(bootstrap_servers, totals)
        directory = home / application_id
        directory.mkdir()
        return Application(application_id, job(bootstrap_servers, directory, application_id, totals), totals, None)

    return started


SYSTEMS = {
    "Streamplan": streamplan,
    "Kafka Streams": kafka_streams,
    "Flink SQL": peer(peers.flink),
    "Quix Streams": peer(peers.quix),
    "Spark's own sink": spark_sink,
}


def rekeying_streamplan(bootstrap_servers: str, home: Path, number: int, options: Options) -> Application:
    """Return our application that re-keys and has no state."""
    directory = home / f"ours-rekeying-{number}"
    directory.mkdir()
    pipeline = rekeyed_orders.PIPELINE.name
    job = aggregator(bootstrap_servers, directory, options.master, pipeline=pipeline, arguments=options.aggregator)
    return Application(rekeyed_orders.APPLICATION_ID, job, rekeyed_orders.OUTPUT, None)


def rekeying_kafka_streams(bootstrap_servers: str, home: Path, number: int, options: Options) -> Application:
    """Return the same on the JVM library."""
    application_id, state = f"rekeying-{LIBRARY_ID}-{number}", home / f"jvm-rekeying-{number}"
    configs = {**LIBRARY_CONFIGS, "output": rekeyed_orders.OUTPUT}
    job = library_instance(bootstrap_servers, compiled_classes(home), state, application_id=application_id, **configs)
    return Application(application_id, job, rekeyed_orders.OUTPUT, None)


REKEYING = {
    "re-keying in Streamplan": rekeying_streamplan,
    "re-keying in Kafka Streams": rekeying_kafka_streams,
}
"""Applications without state."""


@contextmanager
def removed_afterwards(bootstrap_servers: str, application_id: str, job: Job) -> Iterator[None]:
    """Stop the job afterwards, and delete what it left in Kafka."""
    try:
        yield
    finally:
        job.signal(signal.SIGTERM)
        delete_application(bootstrap_servers, application_id)


def java_loop(bootstrap_servers: str, home: Path, group: str, output: str) -> Job:
    """Return a job that re-keys orders in a loop of Java."""
    arguments = [bootstrap_servers, group, output, str(PARTITIONS)]
    return java_job(compiled_classes(home), "ConsumeProduce", arguments, home / f"{group}.log")


def python_loop(bootstrap_servers: str, home: Path, group: str, output: str) -> Job:
    """Return a job that re-keys orders in a loop of Python."""
    script = Path(__file__).with_name("consume_produce.py")
    argv = [sys.executable, str(script), bootstrap_servers, group, output, str(PARTITIONS)]
    return Job(argv, {**os.environ, "PYTHONPATH": str(PROJECT / "plugins")}, home / f"{group}.log")


LOOPS = {"loop in Java": java_loop, "loop in Python": python_loop}
"""They re-key only. No framework can be faster."""


def create_topics(bootstrap_servers: str, *topics: str) -> None:
    """Create topics with as many partitions as ``orders`` has."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new_topics = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=2) for topic in topics]
    for future in admin.create_topics(new_topics).values():
        future.result(60)


def measure_loop(name: str, bootstrap_servers: str, home: Path, number: int, orders: int) -> Round:
    """Measure one of the loops, the start of its processes included."""
    group = f"{name.replace(' ', '-')}-{number}"
    create_topics(bootstrap_servers, f"{group}-output")
    job = LOOPS[name](bootstrap_servers, home, group, f"{group}-output")
    with removed_afterwards(bootstrap_servers, group, job):
        begun = time.monotonic()
        job.start()
        assert job.process is not None
        with Meter(job.process.pid) as meter:
            status = job.process.wait(DEADLINE_SECONDS)
            took = time.monotonic() - begun
        if status:
            raise StreamplanError(name, observed=f"exit status {status}; {job.log.read_text()[-3000:]}")
        cpu = meter.seen_cpu_seconds / orders * 1e6
        return Round(
            start=None, rate=orders / took, whole=took, cpu=cpu, memory=meter.peak_bytes / 2**20, whole_cpu=cpu
        )


def delete_application(bootstrap_servers: str, application_id: str) -> None:
    """Delete the internal topics and the group of an application."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(f"{application_id}-")]
    for future in admin.delete_topics(topics, operation_timeout=30).values() if topics else ():
        future.result(60)
    wait_until(
        f"the topics of {application_id} are gone",
        lambda: not set(topics) & set(admin.list_topics(timeout=30).topics),
        60,
    )

    def is_gone() -> bool:
        """A member that was stopped while it joined is in the group until its session ends."""
        try:
            admin.delete_consumer_groups([application_id])[application_id].result(60)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        return True

    wait_until(f"the group {application_id} is gone", is_gone, 120)


def measure(name: str, bootstrap_servers: str, home: Path, number: int, orders: int, options: Options) -> Round:
    """Measure one system. The topic has ``orders`` orders, and more are produced meanwhile."""
    application = SYSTEMS[name](bootstrap_servers, home, number, options)
    job = application.job
    with (
        removed_afterwards(bootstrap_servers, application.id, job),
        Totals(bootstrap_servers, application.changelog, PARTITIONS) as totals,
    ):
        begun = time.monotonic()
        job.start()
        assert job.process is not None
        with Meter(job.process.pid) as meter:
            cluster = KafkaCluster(Brokers(bootstrap_servers))

            def passed() -> int:
                return committed(cluster, application.repartition) if application.repartition else totals.total

            await_totals(totals, lambda: passed() > 0, orders, job, name)
            rekeyed, since, used = passed(), time.monotonic(), meter.usage()
            await_totals(totals, lambda: totals.total >= orders, orders, job, name)
            last, done = totals.steps[-1], meter.usage()
            counted = orders - rekeyed
            says = counted > orders / 2  # a catch-up that is nearly over when it is first seen has no rate
            caught_up = Round(
                start=totals.steps[0][0] - begun,
                rate=counted / (last[0] - since) if says else None,
                whole=last[0] - begun,
                cpu=(done.cpu_seconds - used.cpu_seconds) / counted * 1e6 if says else None,
                memory=meter.peak_bytes / 2**20,
                whole_cpu=done.cpu_seconds / orders * 1e6,
            )
            if not options.seconds:
                return caught_up
            time.sleep(SETTLE_SECONDS)
            before, at = meter.usage(), time.monotonic()
            flow = Flow(bootstrap_servers, options.rate)
            flow.produced = orders
            with flow:
                time.sleep(options.seconds)
            await_totals(totals, lambda: totals.total >= flow.produced, flow.produced, job, name)
            cores = (meter.usage().cpu_seconds - before.cpu_seconds) / (time.monotonic() - at)
        latencies = totals.latencies(ranked(orders, flow.moments, at + options.seconds / 10))
        return replace(
            caught_up,
            memory=meter.peak_bytes / 2**20,
            p50=percentile(latencies, 0.50),
            p99=percentile(latencies, 0.99),
            cores=cores,
        )


def measure_rekeying(
    name: str, bootstrap_servers: str, home: Path, number: int, orders: int, options: Options
) -> Round:
    """Measure a system without state: from the first committed order of its output to the last position."""
    apply_topics(Brokers(bootstrap_servers), rekeyed_orders.PIPELINE)
    application = REKEYING[name](bootstrap_servers, home, number, options)
    job, cluster = application.job, KafkaCluster(Brokers(bootstrap_servers))
    with removed_afterwards(bootstrap_servers, application.id, job):
        first = committed(cluster, application.changelog)
        begun = time.monotonic()
        job.start()
        assert job.process is not None
        with Meter(job.process.pid) as meter:

            def passed() -> int:
                try:
                    return sum(cluster.positions(application.id, "orders").values())
                except (BrokersUnavailable, CouldNotLook):
                    return 0

            def await_positions(count: int) -> None:
                what = f"{name} passes {count:,} orders"
                await_job(job, name, what, lambda: passed() >= count, lambda: f"{passed():,} passed", DEADLINE_SECONDS)

            await_positions(1)
            done, since, used = passed(), time.monotonic(), meter.usage()
            await_positions(orders)
            now, after = time.monotonic(), meter.usage()
        written = committed(cluster, application.changelog) - first
        if written < orders:
            raise StreamplanError(name, expected=f"{orders:,} orders in the output", observed=f"{written:,} offsets")
        return Round(
            start=since - begun,
            rate=(orders - done) / (now - since),
            whole=now - begun,
            cpu=(after.cpu_seconds - used.cpu_seconds) / (orders - done) * 1e6,
            memory=meter.peak_bytes / 2**20,
            whole_cpu=after.cpu_seconds / orders * 1e6,
        )


def committed(cluster: KafkaCluster, topic: str) -> int:
    """Return how many offsets of a new topic are in finished transactions; 0 while it does not exist.

    Purged records count, too: Kafka Streams deletes the records of a repartition topic that it has read.
    """
    try:
        return sum(offsets.last_stable for offsets in cluster.offsets(topic).values())
    except (BrokersUnavailable, CouldNotLook):
        return 0


def ranked(first: int, moments: Sequence[tuple[int, float]], since: float) -> dict[bytes, list[tuple[float, int]]]:
    """Return for each key when its orders were produced, and their ranks. Orders before ``since`` are left out."""
    produced: dict[bytes, list[tuple[float, int]]] = {}
    for until, moment in moments:
        for number in range(first, until) if moment >= since else ():
            produced.setdefault(b"%d" % (number % PRODUCTS), []).append((moment, number // PRODUCTS + 1))
        first = until
    return produced


def await_totals(totals: Totals, seen: Callable[[], bool], count: int, job: Job, name: str) -> None:
    """Wait until ``seen``. There are ``count`` orders: a system that counts more is wrong."""

    def seen_and_right() -> bool:
        if totals.total > count:
            raise StreamplanError(name, expected=f"at most {count:,} orders counted", observed=f"{totals.total:,}")
        return seen()

    what = f"{name} counts {count:,} orders"
    await_job(job, name, what, seen_and_right, lambda: f"{totals.total:,} counted", DEADLINE_SECONDS)


def await_job(
    job: Job, name: str, what: str, seen: Callable[[], bool], so_far: Callable[[], str], seconds: float
) -> None:
    """Wait until ``seen``, and report the progress every ten seconds. A job that ends before has failed."""
    last_report = time.monotonic()

    def reached() -> bool:
        nonlocal last_report
        if seen():
            return True
        if job.process is not None and job.process.poll() is not None:
            raise StreamplanError(name, observed=f"the process ended; see {job.log.read_text()[-3000:]}")
        if time.monotonic() - last_report > 10:
            last_report = time.monotonic()
            report(f"    {what}: {so_far()}")
        return False

    wait_until(what, reached, seconds)


COLUMNS: Mapping[str, tuple[str, str]] = {
    "rate": ("orders/s", ",.0f"),
    "start": ("start, s", ".1f"),
    "whole": ("in all, s", ".1f"),
    "cpu": ("CPU s per 1M", ".2f"),
    "whole_cpu": ("with the start", ".2f"),
    "memory": ("memory, MB", ",.0f"),
    "p50": ("p50, ms", ",.0f"),
    "p99": ("p99, ms", ",.0f"),
    "cores": ("cores at rate", ".2f"),
}


def values_of(system: System, column: str) -> list[float]:
    """Return the values of a column from the rounds in which it was measured."""
    return [value for measured in system.rounds if (value := getattr(measured, column)) is not None]


def table(systems: Sequence[System]) -> str:
    """Return a table with medians and ranges."""
    rows = [["", *(title for title, _ in COLUMNS.values())]]
    for system in systems:
        cells = [system.name]
        for column, (_, style) in COLUMNS.items():
            values = values_of(system, column)
            if not values:
                cells.append("-")
            else:
                middle, low, high = statistics.median(values), min(values), max(values)
                cells.append(f"{middle:{style}} ({low:{style}} to {high:{style}})")
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def draw(systems: Sequence[System], file: Path) -> None:
    """Draw one bar chart for each column."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [column for column in COLUMNS if any(values_of(system, column) for system in systems)]
    figure, axes = plt.subplots(1, len(shown), figsize=(2.6 * len(shown), 3.2), layout="constrained")
    for axis, column in zip(axes, shown, strict=True):
        for place, system in enumerate(systems):
            values = values_of(system, column)
            if not values:  # a loop has no latency
                continue
            middle = statistics.median(values)
            axis.bar(place, middle, color=f"C{place}", label=system.name)
            axis.errorbar(place, middle, [[middle - min(values)], [max(values) - middle]], color="black", capsize=4)
        axis.set_title(COLUMNS[column][0], fontsize=10)
        axis.set_xticks([])
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(systems), frameon=False)
    figure.savefig(file, dpi=130)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=6_000_000, help="orders to catch up with (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each system (default %(default)s)")
    parser.add_argument("--rate", type=int, default=1000, help="orders a second afterwards (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="for so long; 0 for not at all (default %(default)s)")
    parser.add_argument("--note", type=int, default=0, help="bytes of one more field in each order (default none)")
    parser.add_argument("--master", default=LOCAL_MASTER, help="master of Spark (default %(default)s)")
    parser.add_argument("--only", action="append", choices=[*SYSTEMS, *REKEYING, *LOOPS], help="may be given again")
    parser.add_argument("--aggregator", default="", help="more options of jobs/aggregator.py, in one word")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="FILE")
    given = parser.parse_args()
    # The jobs inherit both.
    os.environ["STREAMPLAN_PIPELINES"] = f"streamplan.pipelines,{rekeyed_orders.__name__}"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT / "plugins"), str(Path(__file__).parent.resolve())])
    options = Options(given.orders, given.rate, given.seconds, given.note, given.master, given.aggregator.split())
    systems = [System(name) for name in (given.only or [*SYSTEMS, *REKEYING, *LOOPS])]
    with (
        tempfile.TemporaryDirectory(prefix="streamplan-bench-") as name,
        running_brokers(Path(name)) as bootstrap_servers,
    ):
        apply_topics(Brokers(bootstrap_servers), ORDERS)
        preload = Flow(bootstrap_servers, 0)
        report(f"Preloading {options.orders:,} orders.")
        preload.produce(options.orders, products=PRODUCTS, note=b"x" * options.note)
        preload.flush()
        produced = options.orders
        home = Path(os.path.realpath(name))
        for number in range(given.rounds):
            for system in systems if number % 2 == 0 else reversed(systems):
                if system.name in LOOPS:
                    measured = measure_loop(system.name, bootstrap_servers, home, number, produced)
                elif system.name in REKEYING:
                    measured = measure_rekeying(system.name, bootstrap_servers, home, number, produced, options)
                else:
                    measured = measure(system.name, bootstrap_servers, home, number, produced, options)
                system.rounds.append(measured)
                produced = observed_orders(bootstrap_servers)
                report(f"round {number + 1} of {given.rounds}, {system.name}: {line(measured)}")
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}"
    sys.stdout.write(
        f"{options.orders:,} orders, {machine}\nmedian (range) of {given.rounds} rounds\n\n{table(systems)}\n"
    )
    if given.json:
        content = {
            "options": asdict(options),
            "machine": machine,
            "library": LIBRARY_CONFIGS,
            "rounds": {system.name: [asdict(measured) for measured in system.rounds] for system in systems},
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    if given.png:
        draw(systems, given.png)
    return 0


def line(measured: Round) -> str:
    """Return a round as one line."""
    return ", ".join(
        f"{title} {value:{style}}"
        for column, (title, style) in COLUMNS.items()
        if (value := getattr(measured, column)) is not None
    )


def observed_orders(bootstrap_servers: str) -> int:
    """Return how many orders are in the topic. They are produced without transactions, so offsets have no gaps."""
    return sum(
        offsets.high_watermark - offsets.log_start
        for offsets in KafkaCluster(Brokers(bootstrap_servers)).offsets("orders").values()
    )


if __name__ == "__main__":
    sys.exit(main())
