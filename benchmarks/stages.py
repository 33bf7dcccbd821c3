"""What each kind of state costs: records of a source topic that are processed in a CPU second.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/stages.py [--records 200000] [--rounds 3] [--only KIND]
[--json FILE]``. ``stage_pipelines.py`` declares the kinds. ``--records 2000`` shows in a few minutes whether all
of them work.

Each kind has an application of its own, on the same brokers, one after the other. It processes --warm-up records first,
which starts the workers and compiles the plans. Then --records records are produced at once, and the application is
measured from there until its committed positions have passed all of them, those of its internal topics included. CPU
and memory are those of all processes of the application, without the brokers.

    records/CPU s  records for each CPU second
    records/s      records for each second of time, with what it takes to produce them
    memory         the most that all processes held at a time, shared pages counted once (PSS)
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from applications import Job, aggregator, report, running_brokers, wait_until
from confluent_kafka import Producer
from meters import Meter
from stage_pipelines import KEYS, KINDS, PIPELINES, Kind, name_of
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.model.pipeline import Pipeline
from streamplan.settings import PROJECT
from streamplan.spark.submit import LOCAL_MASTER

DEADLINE_SECONDS = 900.0
STEP_MS = 10
"""The time between two records, as their timestamps tell it."""


@dataclass(frozen=True)
class Measured:
    """What was measured of a kind in one round; the units are those of the table."""

    per_cpu_second: float
    per_second: float
    memory: float


class Records:
    """Produces the records of a kind.

    Attributes:
        produced: How many were produced, apart from the rows of a table.
    """

    def __init__(self, bootstrap_servers: str, kind: str, first_ms: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": LIBRDKAFKA_PARTITIONER,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
            }
        )
        self._kind, self._name, self._first_ms = KINDS[kind], name_of(kind), first_ms
        self.produced = 0

    def rows(self) -> None:
        """Produce one row of each key to the table that the kind has, older than all records."""
        for n in range(KEYS if self._kind.rows else 0):
            self._produce(self._kind.rows, n, n, self._first_ms - 1)
        self._flush()

    def more(self, count: int) -> None:
        """Produce some more records."""
        for n in range(self.produced, self.produced + count):
            self._produce(self._topic(self._kind, n), n // 4 % KEYS, n, self._first_ms + n * STEP_MS)
            if n % 10_000 == 0:
                self._producer.poll(0)
        self.produced += count
        self._flush()

    @staticmethod
    def _topic(kind: Kind, n: int) -> str:
        return kind.topics[n % len(kind.topics)]

    def _produce(self, topic: str, key: int, n: int, at: int) -> None:
        value = b'{"n": %d, "of": "k%d"}' % (n, n * 7 % KEYS)
        self._producer.produce(f"{self._name}-{topic}", value, b"k%d" % key, timestamp=at)

    def _flush(self) -> None:
        if left := self._producer.flush(120):
            raise StreamplanError(self._name, expected="all records delivered within 120 s", observed=f"{left} left")


def lag(cluster: KafkaCluster, pipeline: Pipeline) -> int:
    """Return how many offsets are left to process; a very large number without an answer from the brokers."""
    topology = pipeline.topology
    topics = {topology.decorate(source.topic) for part in topology.subtopologies for source in part.sources}
    try:
        return sum(
            offsets.last_stable - cluster.positions(topology.application_id, topic).get(partition, 0)
            for topic in topics
            for partition, offsets in cluster.offsets(topic).items()
        )
    except (BrokersUnavailable, CouldNotLook):
        return 10**9


def await_all(job: Job, cluster: KafkaCluster, pipeline: Pipeline) -> None:
    """Wait until an application has processed everything, three times in a row: one topic is filled from another."""
    times = 0

    def is_done() -> bool:
        nonlocal times
        if job.process is not None and job.process.poll() is not None:
            raise StreamplanError(pipeline.name, observed=f"the process ended; see {job.log.read_text()[-3000:]}")
        times = times + 1 if lag(cluster, pipeline) == 0 else 0
        return times >= 3

    wait_until(f"{pipeline.name} has processed all records", is_done, DEADLINE_SECONDS)


def measure(kind: str, bootstrap_servers: str, home: Path, records: int, warm_up: int, master: str) -> Measured:
    """Measure one kind on new brokers."""
    pipeline = next(each for each in PIPELINES if each.name == name_of(kind))
    apply_topics(Brokers(bootstrap_servers), pipeline)
    source = Records(bootstrap_servers, kind, int(time.time() * 1000) - (records + warm_up) * STEP_MS)
    source.rows()
    source.more(warm_up)
    directory = home / pipeline.name
    directory.mkdir()
    job = aggregator(bootstrap_servers, directory, master, pipeline=pipeline.name)
    cluster = KafkaCluster(Brokers(bootstrap_servers))
    job.start()
    try:
        assert job.process is not None
        with Meter(job.process.pid) as meter:
            await_all(job, cluster, pipeline)
            before, begun = meter.usage(), time.monotonic()
            source.more(records)
            await_all(job, cluster, pipeline)
            took, after = time.monotonic() - begun, meter.usage()
        return Measured(
            per_cpu_second=records / (after.cpu_seconds - before.cpu_seconds),
            per_second=records / took,
            memory=meter.peak_bytes / 2**20,
        )
    finally:
        job.signal(signal.SIGTERM)


COLUMNS: Mapping[str, str] = {
    "per_cpu_second": "records/CPU s",
    "per_second": "records/s",
    "memory": "memory, MB",
}


def table(rounds: Mapping[str, Sequence[Measured]]) -> str:
    """Return a table with medians and ranges."""
    rows = [["", *COLUMNS.values()]]
    for kind, measured in rounds.items():
        cells = [kind]
        for column in COLUMNS:
            values = [getattr(each, column) for each in measured]
            cells.append(f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000, help="records that are measured (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=20_000, help="records before them (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (default %(default)s)")
    parser.add_argument("--master", default=LOCAL_MASTER, help="master of Spark (default %(default)s)")
    parser.add_argument("--only", action="append", choices=[*KINDS], metavar="KIND", help="may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    kinds = given.only or [*KINDS]
    # The jobs inherit both. Spark's workers import the classes of the pipelines.
    os.environ["STREAMPLAN_PIPELINES"] = "stage_pipelines"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT / "plugins"), str(Path(__file__).parent.resolve())])
    rounds: dict[str, list[Measured]] = {kind: [] for kind in kinds}
    for number in range(given.rounds):
        with (
            tempfile.TemporaryDirectory(prefix="streamplan-stages-") as name,
            running_brokers(Path(name)) as bootstrap_servers,
        ):
            home = Path(os.path.realpath(name))
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                measured = measure(kind, bootstrap_servers, home, given.records, given.warm_up, given.master)
                rounds[kind].append(measured)
                report(
                    f"round {number + 1} of {given.rounds}, {kind}: {measured.per_cpu_second:,.0f} records/CPU s, "
                    f"{measured.per_second:,.0f} records/s"
                )
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}"
    sys.stdout.write(
        f"{given.records:,} records, {machine}\nmedian (range) of {given.rounds} rounds\n\n{table(rounds)}\n"
    )
    if given.json:
        content = {
            "records": given.records,
            "warm-up": given.warm_up,
            "machine": machine,
            "rounds": {kind: [asdict(each) for each in measured] for kind, measured in rounds.items()},
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
