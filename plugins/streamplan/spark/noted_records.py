"""Which records a Python worker is at, for the error message when the process dies: a crash has no traceback.

Spark gives each worker a file for Python's faulthandler. When the process is gone, Spark's JVM puts the content of the
file into the error. So the note about the records stands at the beginning of this file, and the traceback of the
faulthandler, which a kill does not write, behind it.

Spark tries a task again whose worker has died. From the second try on the records are processed one by one, so that the
last note names the one record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, util

_WIDTH = 400
"""The bytes of a note: the name of a topic has 249 characters at most."""

_NOTE = re.compile(r"streamplan: at (\S+)-(\d+) offsets (\d+) to (\d+)")


class NotedRecords(NamedTuple):
    """The records that a worker was at: those of a partition from ``first`` to ``last``."""

    topic: str
    partition: int
    first: int
    last: int


def noted(batches: Iterator[pa.RecordBatch], topic: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches, and note before each which records it has. In a task that is tried again, each has one record.

    Args:
        batches: With the columns ``topic``, ``partition`` and ``offset``, or with a struct ``record`` that has them.
        topic: That of all records, where there is no such column.
    """
    context = TaskContext.get()
    one_by_one = context is not None and context.attemptNumber() > 0
    for whole in batches:
        single = one_by_one and whole.num_rows > 1
        for batch in [whole.slice(row, 1) for row in range(whole.num_rows)] if single else [whole]:
            _note_batch(batch, topic)
            yield batch
    note("", 0, 0, 0)


def note(topic: str | None, partition: int | None, first: int | None, last: int | None) -> None:
    """Note which records are processed next. What was aggregated has no topic and no offset: then there is no note."""
    file: Any = util._faulthandler_helper._log_file
    if file is None:
        return
    text = "" if not topic or first is None else f"streamplan: at {topic}-{partition} offsets {first} to {last}"
    os.pwrite(file.fileno(), f"{text:{_WIDTH - 1}}\n".encode(), 0)
    if os.lseek(file.fileno(), 0, os.SEEK_CUR) < _WIDTH:
        os.lseek(file.fileno(), _WIDTH, os.SEEK_SET)  # the faulthandler writes behind the note


def noted_in(error: str) -> NotedRecords | None:
    """Return the records that a worker was at when it died, from Spark's error; None where the error has no note."""
    found: Sequence[tuple[str, ...]] = _NOTE.findall(error)
    return NotedRecords(found[-1][0], *map(int, found[-1][1:])) if found else None


def _note_batch(batch: pa.RecordBatch, topic: str | None) -> None:
    if not batch.num_rows or util._faulthandler_helper._log_file is None:
        return
    if "record" in batch.schema.names:
        records = batch["record"]
        columns = {name: pc.struct_field(records, name) for name in ("topic", "partition", "offset")}
    else:
        columns = {name: batch[name] for name in ("topic", "partition", "offset") if name in batch.schema.names}
    topics = [topic] if topic is not None else pc.unique(columns["topic"]).to_pylist()
    offsets = pc.min_max(columns["offset"])
    note(
        topics[0] if len(topics) == 1 else None,  # of several topics the next try names the one
        columns["partition"][0].as_py(),
        offsets["min"].as_py(),
        offsets["max"].as_py(),
    )
