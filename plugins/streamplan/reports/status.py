"""Files in which an aggregator reports about itself. They are read without Spark and without Airflow's database.

``reports/<pipeline>/aggregator.json`` holds its last status (:attr:`streamplan.files.ReportPaths.aggregator_status`).
``tasks.jsonl`` beside it (and ``tasks.1.jsonl``, with older lines) holds one line for each stream task that went from
one instance to another.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamplan.files import NOT_AS_WRITTEN, append_bounded, older_file, read_json, write_atomically
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


_log = logging.getLogger(__name__)


def write_status(path: Path, status: AggregatorStatus) -> None:
    """Replace the status in ``path`` atomically: a reader finds this status or the previous one.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(path, json.dumps(asdict(status), indent=1))


def read_status(path: Path) -> AggregatorStatus | None:
    """Return what the aggregator last reported; None when none has ever run.

    Raises:
        CouldNotLook: The file cannot be read.
    """
    remedy = "A running aggregator writes it every few seconds. Look whether the disk is full."
    return read_json(path, _decode, remedy=remedy)


def _decode(content: Any) -> AggregatorStatus:
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

    A line that cannot be read is passed over, and so is a file. The log says so.
    """
    path = migrations_file(status)
    found: list[TaskMigration] = []
    for file in (path, older_file(path)):
        if len(found) < last:
            found = _migrations_in(file) + found
    return found[-last:] if last > 0 else []


def _migrations_in(file: Path) -> list[TaskMigration]:
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        _log.warning("the migrations of stream tasks cannot be read: %s", error)
        return []
    found, unreadable = [], 0
    for line in filter(None, lines):
        try:
            found.append(TaskMigration(**json.loads(line)))
        except NOT_AS_WRITTEN:
            unreadable += 1
    if unreadable:
        _log.warning("%s: lines that cannot be read and are passed over: %d", file, unreadable)
    return found
