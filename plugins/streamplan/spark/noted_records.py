"""Which records a Python worker is at, for the error message when the process dies: a crash has no traceback.

Spark gives each worker a file for Python's faulthandler. When the process is gone, Spark's JVM puts the content of the
file into the error. So the note about the records stands at the beginning of this file, and the traceback of the
faulthandler, which a kill does not write, behind it.

A note names what the worker was given at once. The driver then starts the query again and says so to its workers, by
:data:`NARROWED`: they process the noted records one by one, so that the next note names the one record.
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

NARROWED = "streamplan.narrowed"
"""The local property of Spark jobs with the text of :class:`NotedRecords` that workers process one by one."""

_ANY_TOPIC = "*"
"""Stands for the topics of a batch that has records of several ones. A topic cannot have this name."""

_NOTE = re.compile(r"streamplan: at (\S+)-(\d+) offsets (\d+) to (\d+)")


class NotedRecords(NamedTuple):
    """The records that a worker was at: those of a partition from ``first`` to ``last``."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def is_one(self) -> bool:
        """Whether this is one record."""
        return self.first == self.last and self.topic != _ANY_TOPIC

    def __str__(self) -> str:
        return f"streamplan: at {self.topic}-{self.partition} offsets {self.first} to {self.last}"

    def overlaps(self, other: NotedRecords) -> bool:
        """Return whether a record may be in both."""
        same_topic = self.topic == other.topic or _ANY_TOPIC in (self.topic, other.topic)
        return (
            same_topic and self.partition == other.partition and self.first <= other.last and other.first <= self.last
        )


def noted(batches: Iterator[pa.RecordBatch], topic: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches, and note before each which records it has. The records of :data:`NARROWED` come one by one.

    Args:
        batches: With the columns ``topic``, ``partition`` and ``offset``, or with a struct ``record`` that has them.
        topic: That of all records, where there is no such column.
    """
    context = TaskContext.get()
    narrowed = noted_in((context and context.getLocalProperty(NARROWED)) or "")
    for whole in batches:
        given = _records_of(whole, topic)
        single = narrowed is not None and given is not None and narrowed.overlaps(given)
        for batch in [whole.slice(row, 1) for row in range(whole.num_rows)] if single else [whole]:
            _note(_records_of(batch, topic) if single else given)
            yield batch
    _note(None)


def note(topic: str | None, partition: int | None, offset: int | None) -> None:
    """Note which record is processed next. What was aggregated has no topic and no offset: then there is no note."""
    if topic and partition is not None and offset is not None:
        _note(NotedRecords(topic, partition, offset, offset))
    else:
        _note(None)


def noted_in(error: str) -> NotedRecords | None:
    """Return the records that a worker was at when it died, from Spark's error; None where the error has no note."""
    found: Sequence[tuple[str, ...]] = _NOTE.findall(error)
    return NotedRecords(found[-1][0], *map(int, found[-1][1:])) if found else None


def _note(records: NotedRecords | None) -> None:
    file: Any = util._faulthandler_helper._log_file
    if file is None:
        return
    os.pwrite(file.fileno(), f"{'' if records is None else str(records):{_WIDTH - 1}}\n".encode(), 0)
    if os.lseek(file.fileno(), 0, os.SEEK_CUR) < _WIDTH:
        os.lseek(file.fileno(), _WIDTH, os.SEEK_SET)  # the faulthandler writes behind the note


def _records_of(batch: pa.RecordBatch, topic: str | None) -> NotedRecords | None:
    if not batch.num_rows:
        return None
    if "record" in batch.schema.names:
        records = batch["record"]
        columns = {name: pc.struct_field(records, name) for name in ("topic", "partition", "offset")}
    else:
        columns = {name: batch[name] for name in ("topic", "partition", "offset") if name in batch.schema.names}
    topics = [topic] if topic is not None else pc.unique(columns["topic"]).to_pylist()
    partition, offsets = columns["partition"][0].as_py(), pc.min_max(columns["offset"])
    first, last = offsets["min"].as_py(), offsets["max"].as_py()
    if partition is None or first is None or topics == [None]:
        return None
    return NotedRecords(topics[0] if len(topics) == 1 else _ANY_TOPIC, partition, first, last)
