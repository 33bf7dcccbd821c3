"""What the full check of co-partitioning, a full recount and a recount of new records cost, on brokers of its own.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/checks.py [--records 1000000 10000000] [--keys 2]``.

The topics are filled as an application leaves them that has processed everything: N orders, N records in the
repartition topic, the last count of each key in the changelog, and committed offsets at the ends. CPU is that of this
process with all its threads.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan.checks.copartitioning import CopartitioningCheck
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Check, Observation
from streamplan.checks.totals import TotalsCheck
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.local.brokers import DEFAULT_PORTS, LocalKafka
from streamplan.local.ports import Ports
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.reports.verified_sqlite import SqliteVerifiedStore
from streamplan.serdes.json import Json

ROUNDS = 3
NEW_RECORDS = 10_000


def declare(records: int) -> Pipeline:
    """Declare a pipeline with a count."""
    name = f"bench-{records}"
    topology = Topology(name)
    topology.stream(f"{name}-orders", value=Json("Id string, ProductType bigint")).group_by(
        "ProductType", name="quantities"
    ).count(store="totals")
    data = TestData((f"{name}-orders",), lambda n: (f"{name}-orders", b"", b""), "Id")
    return Pipeline(name, topology, "", {f"{name}-orders": 2}, data)


class Filled:
    """The topics of an application that has processed everything."""

    def __init__(self, bootstrap_servers: str, pipeline: Pipeline, keys: int) -> None:
        self.application = application_of(pipeline)
        (self.aggregation,) = self.application.aggregations
        self.keys = keys
        self.counts: Counter[int] = Counter()
        self.written = 0
        apply_topics(Brokers(bootstrap_servers), pipeline)
        self.cluster = KafkaCluster(Brokers(bootstrap_servers))
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": LIBRDKAFKA_PARTITIONER,
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._group = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": self.aggregation.application_id})

    def process(self, records: int) -> None:
        """Write so many more orders, and what the application would make from them."""
        touched = set()
        for n in range(self.written, self.written + records):
            product = n % self.keys
            value = b'{"Id": "order_%d", "ProductType": %d}' % (n, product)
            self._write(self.aggregation.source, b"order_%d" % n, value)
            self._write(self.aggregation.repartition, b"%d" % product, value)
            self.counts[product] += 1
            touched.add(product)
            if n % 50_000 == 0:
                sys.stderr.write(f"\r{n:,} records written")
        for product in touched:
            self._write(self.aggregation.changelog, b"%d" % product, self.counts[product].to_bytes(8, "big"))
        assert self._producer.flush(60) == 0
        self.written += records
        ends = [
            TopicPartition(topic, partition, offsets.high_watermark)
            for topic in (self.aggregation.source, self.aggregation.repartition)
            for partition, offsets in self.cluster.offsets(topic).items()
        ]
        self._group.commit(offsets=ends, asynchronous=False)
        sys.stderr.write("\r" + 40 * " " + "\r")

    def _write(self, topic: str, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def close(self) -> None:
        """Leave the group."""
        self._group.close()


def timed(observe: Callable[[], Iterable[Observation]]) -> tuple[float, float]:
    """Return wall clock and CPU seconds of a check, which must pass."""
    begun, cpu = time.perf_counter(), time.process_time()
    rows = list(observe())
    taken = time.perf_counter() - begun, time.process_time() - cpu
    wrong = [row for row in rows if not row.agrees]
    assert rows
    assert not wrong, wrong[:3]
    return taken


def print_rounds(what: str, records: int, rounds: list[tuple[float, float]]) -> None:
    """Print medians of several rounds."""
    walls, cpus = zip(*rounds, strict=True)
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    sys.stdout.write(
        f"{what:<34} {records:>11,} records  {wall:6.2f} s ({min(walls):.2f} to {max(walls):.2f})"
        f"  {records / wall:>10,.0f}/s  {cpu:6.2f} s CPU\n"
    )
    sys.stdout.flush()


def measure(filled: Filled, directory: Path) -> None:
    """Measure all checks on filled topics."""
    records = filled.written
    verified = SqliteVerifiedStore(directory / f"{records}.sqlite")

    def observe(check: Check) -> tuple[float, float]:
        return timed(lambda: check.observe(filled.application, filled.cluster))

    placement = CopartitioningCheck(full=True)
    recount = TotalsCheck(full=True, verified=verified)
    new_records = TotalsCheck(verified=verified)

    print_rounds(
        "co-partitioning, all records",
        records,
        [observe(placement) for _ in range(ROUNDS)],
    )
    print_rounds("totals, full recount", records, [observe(recount) for _ in range(ROUNDS)])
    rounds = []
    for _ in range(ROUNDS):
        filled.process(NEW_RECORDS)
        rounds.append(observe(new_records))
    print_rounds(f"totals, new records after {records:,}", NEW_RECORDS, rounds)
    print_rounds(f"totals, no new records after {records:,}", 0, [observe(new_records) for _ in range(ROUNDS)])


def delete(bootstrap_servers: str, application: Application) -> None:
    """Delete the topics of an application."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([spec.name for spec in application.topics]).values():
        future.result(30)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--keys", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamplan-bench-") as home:
        from streamplan.settings import Settings

        base = random.randrange(15_000, 30_000, 10)
        ports = {name: base + offset for offset, name in enumerate(sorted(DEFAULT_PORTS))}
        settings = Settings.from_environment({"STREAMPLAN_HOME": home})
        kafka = LocalKafka(settings, Ports(Path(home) / "stack.json", ports))
        try:
            kafka.up()
            for records in options.records:
                filled = Filled(kafka.bootstrap_servers, declare(records), options.keys)
                filled.process(records)
                measure(filled, Path(home))
                filled.close()
                delete(kafka.bootstrap_servers, filled.application)
        finally:
            kafka.down()


if __name__ == "__main__":
    main()
