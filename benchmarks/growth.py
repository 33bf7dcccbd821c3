"""How the cost of a record grows: with the number of orders, partitions, keys, and the size of values.

Run it with ``PYTHONPATH=plugins:benchmarks .venv/bin/python benchmarks/growth.py [--json FILE] [--png FILE]``. It needs
a JDK, some 40 minutes, and 8 GB of disk for 50,000,000 orders. ``--only keys`` measures one of the four, and
``--only minutes`` the latency of Streamplan at 1,000 orders a second in windows of five minutes, for --minutes.

Of each case the brokers and the topics are new. Streamplan and JVM Kafka Streams (``exactly_once_v2``) catch up with
the same orders in turn, each once. How far they are is asked from the brokers; measured is from the first committed
record of the repartition topic to the last committed position, and what was re-keyed before does not count.
``orders per CPU second`` counts all processes of the system, brokers not counted.
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

from applications import LIBRARY_ID, STORE, Flow, Job, brokers, compiled, library_instance, say, spark_job
from bench import (
    LIBRARY_CONFIGS,
    PARTITIONS,
    PRODUCTS,
    Options,
    await_job,
    await_totals,
    committed,
    ours,
    ranked,
    removed_afterwards,
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
"""So many markers of transactions may lie behind the last record of a partition; Kafka Streams does not pass those."""


@dataclass(frozen=True)
class Case:
    """``note``: bytes of one more field of each value; ``max_offsets``: of a micro-batch, None for the default."""

    orders: int = 3_000_000
    partitions: int = 2
    keys: int = 2
    note: int = 0
    max_offsets: int | None = None


AXES: Mapping[str, Sequence[Case]] = {
    "orders": [Case(orders=count) for count in (1_000_000, 3_000_000, 10_000_000, 50_000_000)],
    # More orders for 32 partitions, so that they are several micro-batches.
    "partitions": [Case(), Case(partitions=8), Case(orders=12_000_000, partitions=32)],
    "keys": [Case(keys=count) for count in (2, 1_000, 100_000, 1_000_000)],
    # Micro-batches of fewer records, so that there are several here, too.
    "note": [
        Case(note=50),
        Case(orders=1_200_000, note=950, max_offsets=200_000),
        Case(orders=300_000, note=9_950, max_offsets=50_000),
    ],
}
"""By the field of :class:`Case` that grows."""

TITLES = {"note": "bytes more in each value"}


@dataclass(frozen=True)
class Point:
    """What one system did. ``rate`` in orders a second, ``per_cpu_second`` in orders, ``memory`` in MB."""

    system: str
    rate: float
    per_cpu_second: float
    memory: float


class NotedOrders(Flow):
    """Their notes compress to a quarter, as JSON may."""

    def __init__(self, bootstrap_servers: str, note: int) -> None:
        super().__init__(bootstrap_servers, 0, compression_type="lz4")
        seeded = random.Random(2026)
        texts = [seeded.randbytes(note // 8).hex().encode() * 4 for _ in range(64 if note else 1)]
        self._notes = [b', "Note": "%s"' % text if note else b"" for text in texts]

    def _record(self, n: int, products: int, more: bytes) -> tuple[str, bytes, bytes]:
        return super()._record(n, products, self._notes[n % len(self._notes)])


def measure(system: str, bootstrap_servers: str, home: Path, case: Case) -> Point:
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
                cluster.positions(application_id, topic).get(number, -1) >= found.last_stable - MARKERS
                for topic in ("orders", repartition)
                for number, found in cluster.offsets(topic).items()
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
            rest = case.orders - before
            per_cpu_second = rest / (done.cpu_seconds - used.cpu_seconds)
            return Point(system, rest / took, per_cpu_second, meter.peak_bytes / 2**20)


def _application(system: str, bootstrap_servers: str, home: Path, case: Case) -> tuple[str, Job]:
    """Its id, and what runs it."""
    if system != "Streamplan":
        classes = compiled(home)
        application_id = f"{LIBRARY_ID}-growth"
        job = library_instance(bootstrap_servers, classes, home / "jvm", application_id, **LIBRARY_CONFIGS)
        return application_id, job
    own = home / "ours"
    own.mkdir()
    script = Path(__file__).with_name("counted_orders.py")
    arguments = [bootstrap_servers, str(case.partitions), str(own / "checkpoints"), str(case.max_offsets or 0)]
    return APPLICATION_ID, spark_job(script, arguments, own, LOCAL_MASTER)


SYSTEMS = ("Streamplan", "Kafka Streams")


def run_case(case: Case) -> list[Point]:
    with tempfile.TemporaryDirectory(prefix="streamplan-growth-") as name, brokers(Path(name)) as bootstrap_servers:
        apply_topics(Brokers(bootstrap_servers), counted(case.partitions))
        preload = NotedOrders(bootstrap_servers, case.note)
        say(f"{case}: preloading")
        for begin in range(0, case.orders, 1_000_000):
            preload.produce(min(1_000_000, case.orders - begin), products=case.keys)
            preload.flush()
        points = []
        for system in SYSTEMS:
            points.append(measure(system, bootstrap_servers, Path(os.path.realpath(name)), case))
            say(f"{case}: {points[-1]}")
        return points


def over_time(minutes: int) -> list[tuple[float, float]]:
    """p50 and p99 of each window, in ms, from producing to the committed total that includes the order."""
    with tempfile.TemporaryDirectory(prefix="streamplan-growth-") as name, brokers(Path(name)) as bootstrap_servers:
        options = Options(orders=0, rate=1000, seconds=minutes * 60, note=0, master=LOCAL_MASTER)
        one = ours(bootstrap_servers, Path(os.path.realpath(name)), 0, options)
        with (
            removed_afterwards(bootstrap_servers, one.id, one.job),
            Totals(bootstrap_servers, one.changelog, PARTITIONS) as totals,
        ):
            one.job.start()
            flow = Flow(bootstrap_servers, options.rate)
            flow.produce(PRODUCTS)
            flow.flush()
            # The start is in no window.
            await_totals(totals, lambda: totals.total >= PRODUCTS, PRODUCTS, one.job, "Streamplan")
            with flow:
                for number in range(minutes):
                    time.sleep(60)
                    say(f"    {number + 1} of {minutes} minutes: {totals.total:,} of {flow.produced:,} orders counted")
            await_totals(totals, lambda: totals.total >= flow.produced, flow.produced, one.job, "Streamplan")
            begun = flow.moments[0][1]
            windows = []
            for since in range(0, minutes * 60, WINDOW_SECONDS):
                ends = begun + since, begun + since + WINDOW_SECONDS
                within = {
                    key: [one for one in of_key if one[0] < ends[1]]
                    for key, of_key in ranked(PRODUCTS, flow.moments, ends[0]).items()
                }
                latencies = totals.latencies(within)
                windows.append((percentile(latencies, 0.50), percentile(latencies, 0.99)))
                say(f"    from second {since}: p50 {windows[-1][0]:,.0f} ms, p99 {windows[-1][1]:,.0f} ms")
            return windows


def table(axis: str, cases: Sequence[tuple[Case, Sequence[Point]]]) -> str:
    title = TITLES.get(axis, axis)
    lines = [f"| {title} | system | orders/s | orders per CPU second | memory, MB |", "|---|---|---|---|---|"]
    for case, points in cases:
        at = getattr(case, axis)
        lines += [
            f"| {at:,} | {one.system} | {one.rate:,.0f} | {one.per_cpu_second:,.0f} | {one.memory:,.0f} |"
            for one in points
        ]
    return "\n".join(lines)


def draw(measured: Mapping[str, Sequence[tuple[Case, Sequence[Point]]]], file: Path) -> None:
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*AXES, "minutes"], help="may be given again")
    parser.add_argument(
        "--most", type=int, default=50_000_000, help="leave out cases of more orders (default %(default)s)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="of the orders of every case, and of its micro-batches (default %(default)s)",
    )
    parser.add_argument("--minutes", type=int, default=30, help="of --only minutes (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="FILE")
    given = parser.parse_args()
    wanted = given.only or list(AXES)
    known: dict[Case, list[Point]] = {}
    measured: dict[str, list[tuple[Case, list[Point]]]] = {}
    for axis in (one for one in wanted if one in AXES):
        for whole in AXES[axis]:
            case = replace(
                whole,
                orders=int(whole.orders * given.scale),
                max_offsets=whole.max_offsets and int(whole.max_offsets * given.scale),
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
    windows = over_time(given.minutes) if "minutes" in wanted else []
    if given.json:
        _write(given.json, measured, windows)
    for number, (p50, p99) in enumerate(windows):
        sys.stdout.write(f"minutes {number * 5} to {number * 5 + 5}: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms\n")
    return 0


def _write(
    file: Path, measured: Mapping[str, list[tuple[Case, list[Point]]]], windows: Sequence[tuple[float, float]]
) -> None:
    whole = {
        "points": {
            axis: [{"case": asdict(case), "points": [asdict(one) for one in points]} for case, points in cases]
            for axis, cases in measured.items()
        },
        "latency_ms_p50_p99_of_5_minutes": windows,
    }
    file.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
