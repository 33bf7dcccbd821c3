"""What the states have in common that keep the records of a whole stream task in one group."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

_PLACE = ("partition_time", "topic", "offset", "order")

_LEAST_SWEEP_MS = 60_000
"""How much time passes at least before the state is searched for what is too old, as for the library's segments
(``Stores.persistentWindowStore``)."""


def record_place() -> Column:
    """Return the place of a record among those that a stream task takes: a struct that :func:`task_order` reads."""
    return F.struct(*(F.col(f"record.{name}") for name in _PLACE))


def task_order(record: Any) -> tuple[Any, ...]:
    """Return what sorts records as a task takes them: by the partition's time, and those of one topic by their offsets.

    Args:
        record: What :func:`record_place` gave, or the whole ``record``.
    """
    return record["partition_time"] or 0, record["topic"] or "", record["offset"], record["order"]


def sweep_is_due(swept: int, newest: int, retention_ms: int) -> bool:
    """Return whether the state is to be searched for what is too old.

    Args:
        swept: The time in ms at which it was searched last.
        newest: The time that the stream task has reached in ms.
        retention_ms: How long the state keeps records.
    """
    return swept + max(retention_ms // 2, _LEAST_SWEEP_MS) < newest
