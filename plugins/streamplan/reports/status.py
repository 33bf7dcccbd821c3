"""Files in which an aggregator reports about itself. They are read without Spark and without Airflow's database.

``reports/<pipeline>/aggregator.json`` holds its last status (:attr:`streamplan.files.ReportPaths.aggregator_status`).
``tasks.jsonl`` beside it (and ``tasks.1.jsonl``, with older lines) holds one line for each stream task that went from
one instance to another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from streamplan.files import append_bounded, older_file, write_atomically
from streamplan.model.status import (
    AggregatorState,
    AggregatorStatus,
    MicroBatch,
    MicroBatchMeasures,
    Restoration,
    TaskMigration,
    TaskPlacement,
)

MIGRATIONS_BYTES = 4 * 1024 * 1024
"""Bound of each of the two files with migrations of stream tasks: some 30,000 migrations."""


def write_status(path: Path, status: AggregatorStatus) -> None:
    """Replace the status in ``path`` atomically: a reader finds this status or the previous one.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(path, json.dumps(asdict(status), indent=1))


def read_status(path: Path) -> AggregatorStatus | None:
    """Return what the aggregator last reported; None when none has ever run."""
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return AggregatorStatus(
        state=AggregatorState(content["state"]),
        pid=content["pid"],
        host=content["host"],
        at=content["at"],
        batches={int(subtopology): MicroBatch(**batch) for subtopology, batch in content["batches"].items()},
        tasks={task: TaskPlacement(**placement) for task, placement in content.get("tasks", {}).items()},
        started=content.get("started", ""),
        measures={int(number): MicroBatchMeasures(**each) for number, each in content.get("measures", {}).items()},
        restorations={int(number): Restoration(**each) for number, each in content.get("restorations", {}).items()},
        held=tuple(content.get("held", ())),
    )


def migrations_file(status: Path) -> Path:
    """Return the file of the migrations of stream tasks, which lies beside the status file."""
    return status.with_name("tasks.jsonl")


def append_migrations(status: Path, migrations: Sequence[TaskMigration], *, limit: int = MIGRATIONS_BYTES) -> None:
    """Add migrations to the file beside the status file ``status``.

    A file beyond ``limit`` bytes becomes ``tasks.1.jsonl``, which replaces an older one, and a new file begins.

    Raises:
        OSError: The file cannot be written.
    """
    path = migrations_file(status)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_bounded(path, "".join(json.dumps(asdict(migration)) + "\n" for migration in migrations), limit)


def read_migrations(status: Path, *, last: int) -> list[TaskMigration]:
    """Return the last migrations beside the status file ``status``, oldest first.

    A line that a crash cut short is left out.
    """
    path = migrations_file(status)
    lines: list[str] = []
    for file in (path, older_file(path)):
        if file.exists() and len(lines) < last:
            lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")] + lines
    return [TaskMigration(**json.loads(line)) for line in lines[-last:]] if last > 0 else []
