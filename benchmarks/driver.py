"""How long a test with the TopologyTestDriver takes: the first one of a process, and further ones.

    PYTHONPATH=plugins .venv/bin/python benchmarks/driver.py [stateless count process ...]

Each test pipes three records. The seconds are those of the wall, and the CPU seconds are those of this process, of
Spark's JVM and of all Python workers, also of those that have ended.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, OnWindowClose, TimeWindows
from streamplan.serdes.json import Json
from streamplan.testing import TopologyTestDriver
from streamplan.testing.local_spark import local_spark

_TESTS = 5
_VALUE = Json("n bigint, s string")
_TICKS = os.sysconf("SC_CLK_TCK")


class Sums(Processor):
    """Adds the numbers of a key."""

    def process(self, record: Record, store: KeyValueStore) -> list[dict[str, Any]]:
        """See :class:`Processor`."""
        seen = store.get()
        total = (0 if seen is None else seen.n) + record.value.n
        store.put({"n": total, "s": record.value.s})
        return [{"n": total, "s": record.value.s}]


def _stateless(topology: Topology) -> None:
    topology.stream("a", value=_VALUE).filter("n > 1").map_values({"n": "2 * n", "s": "s"}).to("out")


def _count(topology: Topology) -> None:
    topology.stream("a", value=_VALUE).group_by("s").count(store="counts").to_stream().to("out")


def _process(topology: Topology) -> None:
    records = topology.stream("a", value=_VALUE)
    records.process(Sums, store="sums", state=_VALUE.schema, schema=_VALUE.schema).to("out")


def _stream_join(topology: Topology) -> None:
    other = topology.stream("b", value=_VALUE)
    within = JoinWindows("1 minute", grace="1 minute")
    topology.stream("a", value=_VALUE).join(other, {"n": "n + other.n", "s": "s"}, within=within, name="j").to("out")


def _five_stages(topology: Topology) -> None:
    """A join with a table, an aggregate, a class, a reducer and windows with final results."""
    table = topology.table("t", value=_VALUE, store="rows")
    joined = topology.stream("a", value=_VALUE).join(table, {"n": "n", "s": "table.s"}, name="looked-up")
    summed = joined.group_by("s", name="by-text").aggregate({"n": "sum(n)", "s": "max(s)"}, store="summed").to_stream()
    regrouped = summed.repartition(name="regrouped")
    processed = regrouped.process(Sums, store="sums", state=_VALUE.schema, schema=_VALUE.schema)
    reduced = processed.group_by("s", name="again").reduce(max_by="n", store="greatest").to_stream()
    windows = reduced.group_by("s", name="last").windowed_by(TimeWindows("1 minute", grace="0 seconds"))
    windows.emit_strategy(OnWindowClose()).count(store="closed").to_stream().map("record.key", {"n": "count"}).to("out")


_SHAPES: dict[str, Callable[[Topology], None]] = {
    "stateless": _stateless,
    "count": _count,
    "process": _process,
    "stream_join": _stream_join,
    "five_stages": _five_stages,
}


def _pipeline(name: str) -> Pipeline:
    topology = Topology(f"{name.replace('_', '-')}-measured")
    _SHAPES[name](topology)
    return Pipeline(name, topology, "", dict.fromkeys((*topology.source_topics, *topology.sink_topics), 2))


@dataclass
class _Measured:
    """Of each test the seconds of the wall and of the CPU."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @contextmanager
    def test(self) -> Iterator[None]:
        began, cpu_began = time.perf_counter(), _cpu_seconds()
        yield
        self.seconds.append(time.perf_counter() - began)
        self.cpu_seconds.append(_cpu_seconds() - cpu_began)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, and of their children that have ended."""
    parents: dict[int, list[tuple[int, int]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents.setdefault(int(fields[1]), []).append((int(file.parent.name), sum(map(int, fields[11:15]))))
    found = os.times()
    seconds, waiting = found.user + found.system + found.children_user + found.children_system, [os.getpid()]
    while waiting:
        for process, ticks in parents.get(waiting.pop(), []):
            seconds += ticks / _TICKS
            waiting.append(process)
    return seconds


def _run(pipeline: Pipeline) -> None:
    with TopologyTestDriver(pipeline) as driver:
        for topic in sorted(pipeline.topology.source_topics, reverse=True):
            for number in range(3 if topic == "a" else 1):
                driver.pipe(topic, {"n": number + 2, "s": "x"}, key="k", at=f"12:0{number}")
        driver.output("out")


def main(names: list[str]) -> None:
    """Print a line for the start of Spark, and one for each shape."""
    start = _Measured()
    with start.test():
        local_spark()
    sys.stdout.write(f"Spark: {start.seconds[0]:.1f} s, {start.cpu_seconds[0]:.1f} CPU s\n")
    for name in names or _SHAPES:
        pipeline, measured = _pipeline(name), _Measured()
        for _ in range(1 + _TESTS):
            with measured.test():
                _run(pipeline)
        seconds, cpu_seconds = (statistics.median(each[1:]) for each in (measured.seconds, measured.cpu_seconds))
        first = f"first {measured.seconds[0]:.1f} s, {measured.cpu_seconds[0]:.1f} CPU s"
        sys.stdout.write(f"{name}: {first}; further {seconds:.2f} s, {cpu_seconds:.2f} CPU s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
