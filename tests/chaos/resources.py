"""What the processes of the system hold after each round: memory, threads and open files. None may grow without end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from tests.chaos.jobs import PYTHON_DAEMON, Jobs, command

KINDS = (
    ("broker", "kafka.Kafka"),
    ("driver: JVM", "org.apache.spark.deploy.SparkSubmit"),
    ("executor", "CoarseGrainedExecutorBackend"),
    ("Python workers", PYTHON_DAEMON),
    ("driver: Python", "aggregator.py"),
    ("producer", "producer.py"),
    ("exporter", "streamplan exporter"),
    ("service of queries", "streamplan serve"),
    ("Airflow api-server", "api-server"),
    ("Airflow api-server", "api_server"),
    ("Airflow scheduler", "scheduler"),
    ("Airflow triggerer", "triggerer"),
    ("Airflow dag-processor", "dag-processor"),
)
"""What a process is, and words of its command. The first that fits counts."""

MB = 1 << 20


@dataclass(frozen=True)
class Held:
    """What the processes of a kind hold together.

    Attributes:
        round: The round after which it was measured.
        kind: What they are.
        since: When the oldest of them was started, in seconds since 1970.
        processes: Their number.
        memory_mb: Their memory. Shared pages count once (PSS).
        threads: Their threads.
        files: Their open files and connections.
    """

    round: int
    kind: str
    since: float
    processes: int
    memory_mb: float
    threads: int
    files: int


class Resources:
    """Measures the processes and the files of a system.

    Attributes:
        held: What was measured.
        disk_mb: After each round, what lies in the files of the home, without those of Kafka.
    """

    def __init__(self, jobs: Jobs, home: Path) -> None:
        self._jobs, self._home = jobs, home
        self.held: list[Held] = []
        self.disk_mb: list[float] = []

    def measure(self, number: int) -> None:
        """Measure now, after a round."""
        found: dict[str, list[tuple[float, float, int, int]]] = {}
        for process in self._jobs.of_home():
            line = command(process)
            kind = next((kind for kind, words in KINDS if words in line), None)
            if kind is None:
                continue
            try:
                with process.oneshot():
                    memory = process.memory_full_info().pss / MB
                    of_process = process.create_time(), memory, process.num_threads(), process.num_fds()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            found.setdefault(kind, []).append(of_process)
        for kind, each in found.items():
            since, *_ = min(each)
            memory, threads, files = (sum(values) for values in list(zip(*each, strict=True))[1:])
            self.held.append(Held(number, kind, since, len(each), round(memory, 1), int(threads), int(files)))
        self.disk_mb.append(round(self._bytes_of_files() / MB, 1))

    def _bytes_of_files(self) -> int:
        total = 0
        for file in self._home.rglob("*"):
            try:
                if file.is_file() and not file.relative_to(self._home).parts[0].startswith("kafka-"):
                    total += file.stat().st_size
            except OSError:
                continue
        return total

    def rows(self) -> list[dict[str, Any]]:
        """Return by kind what its oldest process and those beside it held, from its first round to its last one.

        A kind whose processes were killed in a round begins anew: the row is that of the longest life.
        """
        rows = []
        for kind in dict.fromkeys(each.kind for each in self.held):
            lives: dict[float, list[Held]] = {}
            for each in self.held:
                if each.kind == kind:
                    lives.setdefault(round(each.since, 1), []).append(each)
            longest = max(lives.values(), key=len)
            rows.append(
                {
                    "kind": kind,
                    "rounds": f"{longest[0].round} to {longest[-1].round}",
                    "memory, MB": _course([each.memory_mb for each in longest]),
                    "threads": _course([each.threads for each in longest]),
                    "files": _course([each.files for each in longest]),
                }
            )
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return all that was measured."""
        return {"held": [asdict(each) for each in self.held], "disk_mb": self.disk_mb}

    def show(self, console: Console) -> None:
        """Print a table: what was held first, at the half, and last."""
        table = Table(title="Held after the first round, after half of them, and at last", title_justify="left")
        for heading in ("processes", "rounds", "memory, MB", "threads", "files"):
            table.add_column(heading, justify="left" if heading == "processes" else "right")
        for row in self.rows():
            table.add_row(*row.values())
        console.print(table)
        if self.disk_mb:
            console.print(f"Files of the home without Kafka's: {_course(self.disk_mb)} MB")


def _course(values: Sequence[float]) -> str:
    """The first value, the one at the half, and the last."""
    return " → ".join(f"{value:,.0f}" for value in (values[0], values[len(values) // 2], values[-1]))
