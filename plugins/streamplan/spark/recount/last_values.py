"""Compares an output of which only the last values of keys can be recounted: a changelog, the changes of a total."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from streamplan.checks.framework.check import Observation
from streamplan.model.windows import TimeWindows
from streamplan.serdes.json_documents import parse_plain
from streamplan.serdes.serde import Undecodable
from streamplan.spark.planning.window_bounds import window_bounds
from streamplan.spark.recount.written import NAMED, Findings, WrittenTopic, first_rows, text_of

_LOOKED_AT = 100_000
"""At most this many differing keys are compared one by one, because sums of doubles may differ in their last digits."""


@dataclass(frozen=True)
class Windowing:
    """Which windows are compared: those that no record can have come too late for.

    Attributes:
        windows: The windows.
        newest_ms: The time of the newest record.
    """

    windows: TimeWindows
    newest_ms: int

    def is_open(self, timestamp: Column) -> Column:
        """Return whether every window that a time in ms lies in is open: whether the first of them is."""
        if not self.windows.begin_at_multiples:
            first_end = window_bounds(self.windows, timestamp)[1]
            return first_end > F.lit(self.newest_ms - self.windows.grace_ms)
        size, advance = F.lit(self.windows.size_ms), F.lit(self.windows.advance_ms)
        before = timestamp - size
        first_end = before - F.pmod(before - F.lit(self.windows.offset_ms), advance) + advance + size
        return first_end > F.lit(self.newest_ms - self.windows.grace_ms)


@dataclass(frozen=True)
class TimeToLive:
    """Which values are compared: those that are not gone. When a value that is gone is removed does not matter.

    Attributes:
        ttl_ms: The time to live.
        newest_ms: The time of the newest record.
    """

    ttl_ms: int
    newest_ms: int

    def is_open(self, timestamp: Column) -> Column:
        """Return whether a value that was put at a time in ms is there."""
        return timestamp + F.lit(self.ttl_ms) > F.lit(self.newest_ms)


def compare_store(
    written: WrittenTopic,
    demanded: DataFrame,
    found: Findings,
    *,
    windowing: Windowing | TimeToLive | None = None,
    whole_input: bool = True,
) -> None:
    """Compare the last value of each key and partition of a changelog, and its timestamp.

    Args:
        written: The changelog.
        demanded: The rows that the inputs demand.
        found: Takes the result.
        windowing: Which windows, or values, are compared; None for all.
        whole_input: Whether every record of the input is there. Otherwise a key may be of one that was deleted.
    """
    by = ["partition", "key"]
    is_open = F.lit(True) if windowing is None else windowing.is_open(F.col("timestamp"))
    expected = _last(demanded.withColumn("open", is_open), by, "turn", "offset", "order", also="open")
    expected = written.timed(expected).select(*by, "open", F.struct("value", "timestamp").alias("expected"))
    observed = _last(written.rows.where("key is not null"), by, "offset", also="offset")
    observed = observed.select(*by, F.struct("value", "timestamp").alias("observed"), F.col("offset").alias("at"))
    both = _at_any_time(expected.join(observed, by, "full_outer")).withColumn("open", F.coalesce("open", F.lit(True)))
    both = both.where("expected.value is not null or observed.value is not null")
    is_gone = F.col("observed").isNull() & F.col("partition").isin(*written.incomplete)
    if not whole_input:
        is_gone |= F.col("expected").isNull()
    both = both.withColumn("gone", is_gone).persist()
    try:
        compared = both.where("open and not gone")
        keys = compared.count()
        differ = compared.where(~F.col("expected").eqNullSafe(F.col("observed"))).limit(_LOOKED_AT).collect()
        closed, gone = both.where("not open").count(), both.where("open and gone").count()
    finally:
        both.unpersist()
    wrong = [row for row in differ if not _same(row["expected"], row["observed"])]
    if keys or not (closed or gone):
        found.compared(f"{written.name}: keys whose last value is the recounted one", keys, keys - len(wrong))
    if isinstance(windowing, TimeToLive):
        _not_compared(written.name, closed, gone, found, closed_are="values", why="their time to live is over")
    else:
        _not_compared(written.name, closed, gone, found)
    for row in sorted(wrong, key=lambda row: (bytes(row["key"]), row["partition"]))[:NAMED]:
        found.rows.append(
            _difference(
                f"{written.name}: key {written.key_text(row['key'])}",
                row["expected"],
                row["observed"],
                _place(written.name, row["partition"], row["at"]),
            )
        )


def compare_updates(
    written: WrittenTopic,
    demanded: DataFrame,
    found: Findings,
    *,
    windowings: Sequence[Windowing] = (),
    keyed: bool = True,
    complete: bool = True,
) -> None:
    """Compare an output of which only the last records can be recounted, such as the changes of a total.

    Args:
        written: The output.
        demanded: The rows that the inputs demand.
        found: Takes the result.
        windowings: Which windows are compared, of each aggregation that the rows come from.
        keyed: Whether the last demanded row of a key must be its last record. Otherwise it must be somewhere.
        complete: Whether a key without a demanded row was never written.
    """
    _UpdateComparison(written, demanded, found, keyed, complete).judge(windowings)


@dataclass
class _UpdateComparison:
    """Judges the last values of an output; see :func:`compare_updates`."""

    written: WrittenTopic
    demanded: DataFrame
    found: Findings
    keyed: bool
    complete: bool

    def judge(self, windowings: Sequence[Windowing]) -> None:
        name = self.written.name
        rows = self.demanded
        if self.keyed:  # a key may come from several partitions of the sources
            rows = _last(rows, ["topic", "partition", "key"], "turn", "offset", "order")
        closed = 0
        for windowing in windowings:
            is_open = windowing.is_open(F.col("timestamp"))
            closed += rows.where(~is_open).count()
            rows = rows.where(is_open)
        rows = self.written.timed(rows)
        hexed = F.coalesce(F.hex("key"), F.lit("null")).alias("id")
        placed = self.written.rows.withColumn("place", F.struct("partition", "offset"))
        last = _last(placed, ["key"], "offset", also="place")
        observed = F.struct("value", "timestamp").alias("observed")
        last = last.select(hexed, F.col("key").alias("found key"), observed, "place")
        expected = F.struct("value", "timestamp").alias("expected")
        rows = rows.select(hexed, "key", expected, F.count("*").over(Window.partitionBy("key")).alias("rivals"))
        both = _at_any_time(rows.join(last, "id", "left")).persist()
        try:
            count = both.count()
            differ = both.where(~F.col("expected").eqNullSafe(F.col("observed"))).limit(_LOOKED_AT)
            left, gone = self._judge_differences(differ)
        finally:
            both.unpersist()
        what = "keys whose last value is the recounted one" if self.keyed else "recounted records that were written"
        if count > gone or not (closed or gone):
            self.found.compared(f"{name}: {what}", count - gone, count - gone - len(left))
        _not_compared(name, closed, gone, self.found)
        for subject, expected_row, observed_row, place in left[:NAMED]:
            self.found.rows.append(_difference(subject, expected_row, observed_row, place))
        if self.keyed and self.complete:
            known = self.demanded.select(hexed).distinct()
            self._judge_unknown_keys(last.where("observed.value is not null").join(known, "id", "left_anti"))

    def _judge_differences(self, differ: DataFrame) -> tuple[list[tuple[str, Row, Row | None, str]], int]:
        """Return what is wrong, with subject and place, and the number of rows that cannot be compared any more."""
        rows = [row for row in differ.collect() if not (self._is_last(row) and _same(row["expected"], row["observed"]))]
        if not rows:
            return [], 0
        ids = differ.sparkSession.createDataFrame(sorted({(row["id"],) for row in rows}), "id string")
        hexed = F.coalesce(F.hex("key"), F.lit("null")).alias("id")
        versions: dict[str, list[Row]] = {}
        there = self.written.rows.select(hexed, "value", "timestamp").distinct().join(ids, "id", "left_semi")
        for version in there.collect():
            versions.setdefault(version["id"], []).append(version)
        wrong, gone, doubtful = [], 0, []
        for row in sorted(rows, key=lambda row: row["id"]):
            subject = f"{self.written.name}: key {self.written.key_text(row['key'])}"
            is_there = any(_same(row["expected"], version) for version in versions.get(row["id"], ()))
            may_be_gone = bool(self.written.incomplete) or self.written.compacted
            if is_there and not self._is_last(row):
                continue
            if (
                not is_there
                and (bool(self.written.incomplete) if self.keyed else may_be_gone)
                and (not self.keyed or row["id"] not in versions)
            ):
                gone += 1
            elif not self.written.exclusive and (is_there or (row["id"] in versions and may_be_gone)):
                doubtful.append(self.written.key_text(row["key"]))
            else:
                found = row["observed"] if self.keyed else None
                wrong.append((subject, row["expected"], found, "" if found is None else self._place(row)))
        if doubtful:
            self._doubt(doubtful, "whose last value is another than the recounted one")
        return wrong, gone

    def _place(self, row: Row) -> str:
        return _place(self.written.name, row["place"]["partition"], row["place"]["offset"])

    def _is_last(self, row: Row) -> bool:
        """Whether the demanded row must be the last record of its key."""
        return self.keyed and row["rivals"] == 1

    def _judge_unknown_keys(self, unknown: DataFrame) -> None:
        number = unknown.count()
        if not number:
            return
        some = first_rows(unknown, "id")
        if self.written.exclusive:
            self.found.compared(f"{self.written.name}: keys that the input does not demand", 0, number)
            for row in some:
                subject = f"{self.written.name}: key {self.written.key_text(row['found key'])}"
                self.found.rows.append(
                    Observation(subject, "none", text_of(row["observed"]["value"]), self._place(row))
                )
        else:
            self._doubt(
                [self.written.key_text(row["found key"]) for row in some], "that the input does not demand", number
            )

    def _doubt(self, keys: list[str], which: str, number: int = 0) -> None:
        listed = ", ".join(keys[:NAMED])
        self.found.doubts.append(
            f"{self.written.name}: {number or len(keys):,} keys {which} ({listed}). Whether they are wrong cannot be"
            " told: another producer may write to the topic, or an earlier run has"
        )


def _at_any_time(both: DataFrame) -> DataFrame:
    """Give an expected value without a time that of the observed one: its time depends on the order of two topics."""
    at = F.coalesce("expected.timestamp", "observed.timestamp")
    return both.withColumn(
        "expected", F.when(F.col("expected").isNotNull(), F.struct("expected.value", at.alias("timestamp")))
    )


def _last(rows: DataFrame, by: list[str], *order: str, also: str = "timestamp") -> DataFrame:
    """The last row of each group: its columns ``value``, ``timestamp`` and ``also``."""
    last = F.max_by(F.struct(*dict.fromkeys(["value", "timestamp", also])), F.struct(*order)).alias("last")
    return rows.groupBy(*by).agg(last).select(*by, "last.*")


def _not_compared(
    name: str,
    closed: int,
    gone: int,
    found: Findings,
    *,
    closed_are: str = "windows",
    why: str = "they are closed, and records that came too late may be left out",
) -> None:
    """Say how many windows, or values, and how many keys of a topic are not compared."""
    if closed:
        found.not_compared(f"{closed:,} {closed_are} of {name}", why)
    if gone:
        found.not_compared(f"{gone:,} keys of {name}", "the topic has deleted records")


def _place(topic: str, partition: int, offset: int | None) -> str:
    """Where a record lies, or would lie: ``orders-totals-changelog-0 offset 7``."""
    return f"{topic}-{partition}" if offset is None else f"{topic}-{partition} offset {offset}"


def _difference(subject: str, expected: Row | None, observed: Row | None, where: str) -> Observation:
    """A row for two structs of value and timestamp that differ."""
    texts = [text_of(row["value"]) if row is not None else "none" for row in (expected, observed)]
    if texts[0] == texts[1] and expected is not None and observed is not None:
        return Observation(f"{subject}, timestamp", expected["timestamp"], observed["timestamp"], where)
    return Observation(subject, texts[0], texts[1], where)


def _same(expected: Row | None, observed: Row | None) -> bool:
    """Whether two structs of value and timestamp differ in nothing but the rounding of sums in another order."""
    if expected is None or observed is None:
        return (expected is None or expected["value"] is None) and (observed is None or observed["value"] is None)
    if expected["value"] is None or observed["value"] is None:
        return expected["value"] is None and observed["value"] is None
    return expected["timestamp"] == observed["timestamp"] and _alike(expected["value"], observed["value"])


def _alike(expected: bytes, observed: bytes) -> bool:
    if bytes(expected) == bytes(observed):
        return True
    try:
        return _close(parse_plain(bytes(expected)), parse_plain(bytes(observed)))
    except Undecodable:
        return False


def _are_close(one: float, other: float) -> bool:
    try:
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # No float is so large as this integer.
        return False


def _close(left: Any, right: Any) -> bool:
    pairs = [(left, right)]
    while pairs:  # The stack of the caller does not limit how deep they nest.
        match pairs.pop():
            case (float(one), float() | int() as other) | (int() as other, float(one)):
                if not _are_close(one, other):
                    return False
            case list(one), list(other):
                if len(one) != len(other):
                    return False
                pairs += zip(one, other, strict=True)
            case dict(one), dict(other):
                if one.keys() != other.keys():
                    return False
                pairs += ((value, other[name]) for name, value in one.items())
            case one, other:
                if one != other:
                    return False
    return True
