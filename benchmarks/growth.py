"""How the cost of a record grows: with the number of orders, partitions, keys, and the size of values.

Run it with ``PYTHONPATH=plugins:benchmarks .venv/bin/python benchmarks/growth.py [--json FILE] [--png FILE]``. It needs
a JDK, some 40 minutes, and 8 GB of disk for 50,000,000 orders. ``--only keys`` measures one of the four, and
``--only minutes`` the latency of Streamplan at 1,000 orders a second in windows of five minutes, for --minutes.

Each case gets new brokers and topics. Streamplan and JVM Kafka Streams (``exactly_once_v2``) catch up with the same
orders one after the other, each once. Their progress is read from the brokers. The measure goes from the first
committed record of the repartition topic to the last committed offset, and what was re-keyed before does not count.
``orders per CPU second`` counts all processes of the system, but not the brokers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from applications import (
    LIBRARY_ID,
    STORE,
    Flow,
    Job,
    compiled_classes,
    library_instance,
    report,
    running_brokers,
    spark_job,
)
from bench import (
    LIBRARY_CONFIGS,
    PARTITIONS,
    PRODUCTS,
    Options,
    await_job,
    await_totals,
    committed,
    ranked,
    removed_afterwards,
    streamplan,
)
from counted_orders import APPLICATION_ID, counted
from meters import Meter, Totals, percentile
from streamplan.errors import BrokersUnavailable, CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.spark.submit import LOCAL_MASTER

DEADLINE_SECONDS = 1200.0
WINDOW_SECONDS = 300
MARKERS = 16
"""Kafka Streams does not commit past transaction markers. So many may follow the last record of a partition."""


@dataclass(frozen=True)
class Case:
    """One measure.

    Attributes:
        orders: How many orders there are.
        partitions: Of each topic.
        keys: How many product types there are.
        note: Bytes of one more field in each value.
        max_offsets: Most records of a micro-batch; None for the default.
    """

    orders: int = 3_000_000
    partitions: int = 2
    keys: int = 2
    note: int = 0
    max_offsets: int | None = None


AXES: Mapping[str, Sequence[Case]] = {
    "orders": [Case(orders=count) for count in (1_000_000, 3_000_000, 10_000_000, 50_000_000)],
    # 32 partitions need more orders, or they would fit into one micro-batch.
    "partitions": [Case(), Case(partitions=8), Case(orders=12_000_000, partitions=32)],
    "keys": [Case(keys=count) for count in (2, 1_000, 100_000, 1_000_000)],
    # Fewer records for each micro-batch, so that there are several.
    "note": [
        Case(note=50),
        Case(orders=1_200_000, note=950, max_offsets=200_000),
        Case(orders=300_000, note=9_950, max_offsets=50_000),
    ],
}
"""The cases, by the field of :class:`Case` that grows."""

TITLES = {"note": "bytes more in each value"}


@dataclass(frozen=True)
class Point:
    """What was measured of one system: orders a second, orders per CPU second, and memory in MB."""

    system: str
    rate: float
    per_cpu_second: float
    memory: float


class NotedOrders(Flow):
    """A flow of orders with notes that compress to a quarter of their size."""

    def __init__(self, bootstrap_servers: str, note: int) -> None:
        super().__init__(bootstrap_servers, 0, compression_type="lz4")
        seeded = random.Random(2026)
        texts = [seeded.randbytes(note // 8).hex().encode() * 4 for _ in range(64 if note else 1)]
        self._notes = [b', "Note": "%s"' % text if note else b"" for text in texts]

    def _record(self, n: int, products: int, extra_field: bytes) -> tuple[str, bytes, bytes]:
        return super()._record(n, products, self._notes[n % len(self._notes)])


def measure(system: str, bootstrap_servers: str, home: Path, case: Case) -> Point:
    """Let one system catch up with the orders of a case."""
    application_id, job = _application(system, bootstrap_servers, home, case)
    cluster = KafkaCluster(Brokers(bootstrap_servers))
    repartition = f"{application_id}-{STORE}-repartition"

    what = f"{system} counts {case.orders:,} orders"

    def rekeyed() -> int:
        return committed(cluster, repartition)

    def so_far() -> str:
        return f"{rekeyed():,} re-keyed"

    def caught_up() -> bool:
        try:
            return all(
                cluster.positions(application_id, topic).get(partition, -1) >= offsets.last_stable - MARKERS
                for topic in ("orders", repartition)
                for partition, offsets in cluster.offsets(topic).items()
            )
        except (BrokersUnavailable, CouldNotLook):
            return False

    with removed_afterwards(bootstrap_servers, application_id, job):
        job.start()
        assert job.process is not None
        with Meter(job.process.pid) as meter:
            await_job(job, system, what, lambda: rekeyed() > 0, so_far, DEADLINE_SECONDS)
            before, since, used = rekeyed(), time.monotonic(), meter.usage()
            await_job(job, system, what, lambda: rekeyed() >= case.orders and caught_up(), so_far, DEADLINE_SECONDS)
            took, done = time.monotonic() - since, meter.usage()
            processed = case.orders - before
            per_cpu_second = processed / (done.cpu_seconds - used.cpu_seconds)
            return Point(system, processed / took, per_cpu_second, meter.peak_bytes / 2**20)


def _application(system: str, bootstrap_servers: str, home: Path, case: Case) -> tuple[str, Job]:
    """Return the application id of a system and its job."""
    if system != "Streamplan":
        classes = compiled_classes(home)
        application_id = f"{LIBRARY_ID}-growth"
        job = library_instance(bootstrap_servers, classes, home / "jvm", application_id, **LIBRARY_CONFIGS)
        return application_id, job
    directory = home / "ours"
    directory.mkdir()
    script = Path(__file__).with_name("counted_orders.py")
    arguments = [bootstrap_servers, str(case.partitions), str(directory / "checkpoints"), str(case.max_offsets or 0)]
    return APPLICATION_ID, spark_job(script, arguments, directory, LOCAL_MASTER)


SYSTEMS = ("Streamplan", "Kafka Streams")


def run_case(case: Case) -> list[Point]:
    """Measure all systems with a case."""
    with (
        tempfile.TemporaryDirectory(prefix="streamplan-growth-") as name,
        running_brokers(Path(name)) as bootstrap_servers,
    ):
        apply_topics(Brokers(bootstrap_servers), counted(case.partitions))
        preload = NotedOrders(bootstrap_servers, case.note)
        report(f"{case}: preloading")
        for begin in range(0, case.orders, 1_000_000):
            preload.produce(min(1_000_000, case.orders - begin), products=case.keys)
            preload.flush()
        points = []
        for system in SYSTEMS:
            points.append(measure(system, bootstrap_servers, Path(os.path.realpath(name)), case))
            report(f"{case}: {points[-1]}")
        return points


def over_time(minutes: int) -> list[tuple[float, float]]:
    """Return p50 and p99 of each window: ms from producing an order to the committed total that includes it."""
    with (
        tempfile.TemporaryDirectory(prefix="streamplan-growth-") as name,
        running_brokers(Path(name)) as bootstrap_servers,
    ):
        options = Options(orders=0, rate=1000, seconds=minutes * 60, note=0, master=LOCAL_MASTER)
        application = streamplan(bootstrap_servers, Path(os.path.realpath(name)), 0, options)
        with (
            removed_afterwards(bootstrap_servers, application.id, application.job),
            Totals(bootstrap_servers, application.changelog, PARTITIONS) as totals,
        ):
            application.job.start()
            flow = Flow(bootstrap_servers, options.rate)
            flow.produce(PRODUCTS)
            flow.flush()
            # No window includes the start.
            await_totals(totals, lambda: totals.total >= PRODUCTS, PRODUCTS, application.job, "Streamplan")
            with flow:
                for number in range(minutes):
                    time.sleep(60)
                    report(
                        f"    {number + 1} of {minutes} minutes: {totals.total:,} of {flow.produced:,} orders counted"
                    )
            await_totals(totals, lambda: totals.total >= flow.produced, flow.produced, application.job, "Streamplan")
            begun = flow.moments[0][1]
            windows = []
            for since in range(0, minutes * 60, WINDOW_SECONDS):
                ends = begun + since, begun + since + WINDOW_SECONDS
                within = {
                    key: [record for record in records if record[0] < ends[1]]
                    for key, records in ranked(PRODUCTS, flow.moments, ends[0]).items()
                }
                latencies = totals.latencies(within)
                windows.append((percentile(latencies, 0.50), percentile(latencies, 0.99)))
                report(f"    from second {since}: p50 {windows[-1][0]:,.0f} ms, p99 {windows[-1][1]:,.0f} ms")
            return windows


def table(axis: str, cases: Sequence[tuple[Case, Sequence[Point]]]) -> str:
    """Return a table in Markdown."""
    title = TITLES.get(axis, axis)
    lines = [f"| {title} | system | orders/s | orders per CPU second | memory, MB |", "|---|---|---|---|---|"]
    for case, points in cases:
        at = getattr(case, axis)
        lines += [
            f"| {at:,} | {point.system} | {point.rate:,.0f} | {point.per_cpu_second:,.0f} | {point.memory:,.0f} |"
            for point in points
        ]
    return "\n".join(lines)


def draw(measured: Mapping[str, Sequence[tuple[Case, Sequence[Point]]]], file: Path) -> None:
    """Draw orders per CPU second over each field that grows."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(measured), figsize=(3.2 * len(measured), 3.2), layout="constrained", squeeze=False
    )
    for axis, (name, cases) in zip(axes[0], measured.items(), strict=True):
        steps = range(len(cases))
        for place, system in enumerate(SYSTEMS):
            axis.plot(steps, [points[place].per_cpu_second for _, points in cases], marker="o", label=system)
        axis.set_xticks(steps, [f"{getattr(case, name):,}" for case, _ in cases], fontsize=8)
        axis.margins(x=0.15)
        axis.set_ylim(bottom=0)
        axis.set_title(TITLES.get(name, name), fontsize=10)
    axes[0][0].set_ylabel("orders per CPU second")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(file, dpi=130)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*AXES, "minutes"], help="may be given again")
    parser.add_argument(
        "--most", type=int, default=50_000_000, help="leave out cases of more orders (default %(default)s)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor for the orders of every case and of its micro-batches (default %(default)s)",
    )
    parser.add_argument("--minutes", type=int, default=30, help="length of --only minutes (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="FILE")
    given = parser.parse_args()
    chosen = given.only or list(AXES)
    known: dict[Case, list[Point]] = {}
    measured: dict[str, list[tuple[Case, list[Point]]]] = {}
    for axis in (name for name in chosen if name in AXES):
        for full_case in AXES[axis]:
            case = replace(
                full_case,
                orders=int(full_case.orders * given.scale),
                max_offsets=full_case.max_offsets and int(full_case.max_offsets * given.scale),
            )
            if case.orders > given.most:
                continue
            if case not in known:
                known[case] = run_case(case)
            measured.setdefault(axis, []).append((case, known[case]))
            if given.json:
                _write(given.json, measured, [])
        sys.stdout.write(f"\n{table(axis, measured[axis])}\n")
        sys.stdout.flush()
    if measured and given.png:
        draw(measured, given.png)
    windows = over_time(given.minutes) if "minutes" in chosen else []
    if given.json:
        _write(given.json, measured, windows)
    for number, (p50, p99) in enumerate(windows):
        sys.stdout.write(f"minutes {number * 5} to {number * 5 + 5}: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms\n")
    return 0


def _write(
    file: Path, measured: Mapping[str, list[tuple[Case, list[Point]]]], windows: Sequence[tuple[float, float]]
) -> None:
    content = {
        "points": {
            axis: [{"case": asdict(case), "points": [asdict(point) for point in points]} for case, points in cases]
            for axis, cases in measured.items()
        },
        "latency_ms_p50_p99_of_5_minutes": windows,
    }
    file.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
