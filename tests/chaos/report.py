"""What came out: a line a round, a table at the end, and both as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass
class RoundResult:
    """``recovered``: seconds from the end of the last fault until all that was there was counted and committed.

    ``settled``   seconds from then until one aggregator and one producer ran, and Airflow said so
    ``verified``  seconds to read and compare what is new
    ``checked``   seconds until all health checks were green
    """

    number: int
    faults: list[str]
    notes: list[str] = field(default_factory=list)
    recovered: float | None = None
    settled: float = 0.0
    verified: float = 0.0
    checked: float = 0.0
    seconds: float = 0.0
    orders: int = 0
    complete: bool = False
    failure: dict[str, str] | None = None


@dataclass
class Report:
    seed: int
    home: Path
    options: dict[str, Any]
    rounds: list[RoundResult] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, str] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """By fault: rounds it was in, records lost and doubled in them, seconds to recover of those."""
        rows = []
        judged = [result for result in self.rounds if result.complete]  # one that was interrupted says nothing
        for name in sorted({name for result in judged for name in result.faults}):
            of = [result for result in judged if name in result.faults]
            seconds = [result.recovered for result in of if result.recovered is not None]
            kinds = [result.failure["kind"] for result in of if result.failure]
            rows.append(
                {
                    "fault": name,
                    "rounds": len(of),
                    "lost": kinds.count("lost"),
                    "doubled": kinds.count("doubled"),
                    "otherwise_failed": len(kinds) - kinds.count("lost") - kinds.count("doubled"),
                    "recovered_median": round(median(seconds), 1) if seconds else None,
                    "recovered_max": round(max(seconds), 1) if seconds else None,
                }
            )
        return rows

    def write(self, file: Path, resources: dict[str, Any]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "seed": self.seed,
            "options": self.options,
            "table": self.rows(),
            "rounds": [asdict(result) for result in self.rounds],
            "final": self.final,
            "failure": self.failure,
            "resources": resources,
        }
        file.write_text(json.dumps(content, indent=1) + "\n")

    def show(self, console: Console) -> None:
        table = Table(
            title=f"Seed {self.seed}, {sum(result.complete for result in self.rounds)} rounds", title_justify="left"
        )
        table.add_column("fault", no_wrap=True)
        for heading in ("rounds", "lost", "doubled", "failed else", "median s", "max s"):
            table.add_column(heading, justify="right")
        for row in self.rows():
            table.add_row(*("-" if value is None else str(value) for value in row.values()))
        console.print(table)
