"""What the states have in common that keep the records of a whole stream task in one group."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from streamplan.serdes.primitive import KeySerde, String
from streamplan.spark.planning.keys import read_key
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.sink.spec import TASK_ORDER

NEVER = (1 << 63) - 1
"""A time in ms that is later than that of any record."""

_LEAST_SWEEP_MS = 60_000
"""How much time passes at least before the state is searched for what is too old, as for the library's segments
(``Stores.persistentWindowStore``)."""


def record_place() -> Column:
    """Return the place of a record among those that a stream task takes: a struct that :func:`task_order` reads."""
    return F.struct(*(F.col(f"record.{name}") for name in TASK_ORDER))


def record_in_state(frame: RecordFrame) -> Column:
    """Return ``record`` for a state: without its timestamp, and with a key of another serde than ``String()`` in bytes.

    Python's workers are given a timestamp in their local time, so a column of its own has it in ms.

    Args:
        frame: The records.
    """
    record = F.col("record").dropFields("timestamp")
    return record if isinstance(frame.key_serde, String) else record.withField("key", frame.key)


def record_of_state(key_serde: KeySerde) -> Column:
    """Return ``record`` as it was before :func:`record_in_state`, with the time in the column ``at``.

    Args:
        key_serde: The serde of the keys.
    """
    record = F.col("record").withField("timestamp", F.timestamp_millis("at"))
    is_text = isinstance(key_serde, String)
    return record if is_text else record.withField("key", read_key(key_serde, F.col("record.key")))


def task_order(record: Any) -> tuple[Any, ...]:
    """Return what sorts records as a task takes them: by the partition's time, and those of one topic by their offsets.

    The updates of a store belong to no record that was read. They come last, as the library flushes its record cache
    behind the records of a commit.

    Args:
        record: What :func:`record_place` gave, or the whole ``record``.
    """
    is_update = record["topic"] is None
    return is_update, record["partition_time"] or 0, record["topic"] or "", record["offset"], record["order"]


def named_tuples(rows: Iterable[Row]) -> Iterator[Any]:
    """Return rows of a micro-batch as named tuples: a ``Row`` searches for the name of a field each time it is read.

    Args:
        rows: All with the same fields.
    """
    for row in rows:
        yield _named_tuple(tuple(row.__fields__))._make(row)


@cache
def _named_tuple(fields: tuple[str, ...]) -> Any:
    return namedtuple("_Taken", fields)


def sweep_is_due(swept: int, newest: int, retention_ms: int) -> bool:
    """Return whether the state is to be searched for what is too old.

    Args:
        swept: The time in ms at which it was searched last.
        newest: The time that the stream task has reached in ms.
        retention_ms: How long the state keeps records.
    """
    return swept + max(retention_ms // 2, _LEAST_SWEEP_MS) < newest
