"""Operations of the JVM library that the language does not have, by the names of their nodes."""

from __future__ import annotations

_STORED = (
    "Where the application gave it a store, write it with store=. Nothing is joined with it: put to_stream() before it."
)
_WITHOUT_STATE = "If it keeps no state, use map_values(), map() or flat_map() instead."
_TWO_TABLES = "Write one table to a topic, read the other one as a stream, and join the stream with the table."
_A_TABLE = "Write its records to a compacted topic with to(), and read that with Topology.table()."
_TWO_STREAMS = "a join of two streams in this form"
_OTHER_TABLE = "a join with a table that the language does not have"

_OPERATIONS = {
    "KSTREAM-TRANSFORM": ("a transformer", _WITHOUT_STATE),
    "KSTREAM-FLATTRANSFORM": ("a transformer", _WITHOUT_STATE),
    "KSTREAM-PROCESS": (
        "a processor of the Processor API in this form",
        "process() calls a class with the state of each key in one store. If it keeps no state, use map_values(), "
        "map() or flat_map() instead.",
    ),
    "KSTREAM-TOTABLE-": ("toTable() in this form", _A_TABLE),
    "KSTREAM-WINDOWED-": (_TWO_STREAMS, "Where the last record of one of them is enough, read that one as a table."),
    "KSTREAM-JOINTHIS-": (_TWO_STREAMS, ""),
    "KSTREAM-JOINOTHER-": (_TWO_STREAMS, ""),
    "KSTREAM-OUTER": (_TWO_STREAMS, ""),
    "KSTREAM-JOIN-": (_OTHER_TABLE, _A_TABLE),
    "KSTREAM-LEFTJOIN-": (_OTHER_TABLE, _A_TABLE),
    "KTABLE-FILTER-": ("filter() of a table in this form", _STORED),
    "KTABLE-MAPVALUES-": ("mapValues() of a table in this form", _STORED),
    "KTABLE-TRANSFORMVALUES-": ("transformValues() of a table", _WITHOUT_STATE),
    "KTABLE-TOSTREAM-": ("the operations of the table before it", ""),
    "KTABLE-SUPPRESS-": (
        "suppress() in this form",
        "suppress(UntilWindowCloses()) is one of an aggregate of windows.",
    ),
    "KTABLE-SELECT-": ("groupBy() of a table in this form", "group_by() of a table is followed by one topic."),
    "KTABLE-AGGREGATE-": ("the aggregate of a table in this form", ""),
    "KTABLE-REDUCE-": ("the aggregate of a table in this form", ""),
    "KTABLE-FK-JOIN-": ("a join of tables by a foreign key", _TWO_TABLES),
    "KTABLE-": ("an operation of tables in this form", _TWO_TABLES),
    "COGROUPKSTREAM-": ("cogroup() in this form", "merge() the streams and aggregate them."),
}
"""By the beginning of a node's name: the operation, and what one can do instead."""


def reason_of(name: str) -> str:
    """Which operation a node has that the language does not have, and what one can do instead."""
    found = (pair for prefix, pair in _OPERATIONS.items() if name.startswith(prefix))
    operation, advice = next(found, ("this operation", _WITHOUT_STATE))
    return f"The language does not have {operation}. {advice}".strip()
