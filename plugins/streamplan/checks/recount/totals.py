"""The totals of one aggregation, counted and observed, and the rows that say whether they agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Aggregation
from streamplan.checks.framework.check import FOR_INFORMATION, Observation, not_judged
from streamplan.checks.recount.counting import RekeyedCounts
from streamplan.kafka_types import OffsetByPartition, OffsetRanges, PartitionOffset

NAMED_KEYS = 100
"""At most this many keys get a row each, the wrong ones first. The others are counted."""

_NAMED_OFFSETS = 5
"""At most this many offsets are named in one row."""

PROCESS_AGAIN = "the declaration in force accepts them: a re-drive processes them again, and so does a reset"
"""What to do with dead letters that are open and need not be."""


@dataclass(frozen=True)
class RekeyedTotals:
    """The records of the source since the last verified cut, and those of the repartition topic that they became.

    Attributes:
        counted: The number of records of the source, by key.
        found: The records of the repartition topic.
        at_most: An upper bound of ``counted``, where the application does not write in transactions.
        gone: The number of records of any key that may have been in the source besides.
    """

    counted: Mapping[bytes, int]
    found: RekeyedCounts
    at_most: Mapping[bytes, int] | None = None
    gone: int = 0

    @property
    def keys(self) -> set[bytes]:
        """Every key that was found in the source or in the repartition topic."""
        return {*self.counted, *self.found.by_key}

    @property
    def deleted(self) -> int:
        """How many records were deleted, as far as the source says."""
        return max(sum(self.counted.values()) - self.found.by_key.total(), 0) if self.found.deleted_below else 0

    @property
    def is_shorter(self) -> bool:
        """Whether the topic has fewer offsets than the source has records, and deleted none: it was created again."""
        return not self.found.deleted_below and sum(self.found.until.values()) < sum(self.counted.values())

    def expected(self, key: bytes, *, recreated: bool = False) -> int:
        """Return the number of records that a key must have. It is the observed number where that can be right."""
        least = 0 if self.found.deleted_below or recreated else self.counted.get(key, 0)
        most = (self.at_most or self.counted).get(key, 0) + self.gone
        observed = self.found.by_key[key]
        if least <= observed <= most:
            return observed
        return most if observed > most else least


@dataclass(frozen=True)
class Totals:
    """What there is to compare, as of one pair of cuts.

    The keys are those that have news since the last verified cut; all keys where these are few.

    Attributes:
        aggregation: What was counted.
        since: Positions in the source at the last verified cut.
        until: Positions in the source at this cut.
        counted: The number of records of the source, by key.
        at_most: An upper bound of ``counted``, where the application does not write in transactions.
        changelog: The last value of each key in the changelog, by partition.
        in_flight: The number of records in the repartition topic that the changelog does not hold yet, by key. It is
            below 0 where the changelog was read later than the source.
        rejected: The records of the source that cannot be counted.
        dead_letters: How often each record of the source stands in the dead-letter topic and was not re-driven, since
            the verified cut.
        dead_letters_deleted_below: The partitions of the dead-letter topic that lost records since then.
        unprocessed: The number of offsets of the source behind ``until``.
        verified_elsewhere: The number of records that were verified before and are not in ``counted``.
        keys: The number of keys, also of those without news.
        changelog_offsets: The offset of the last record of each partition and key of the changelog, of those that were
            written since the verified cut.
        not_counts: The partition and the offset of each record of the changelog whose value is no count.
        store: The totals of Spark's state store, where they were read.
        store_in_flight: Like ``in_flight``, for the state store.
        rekeyed: What the repartition topic is compared with. None where nothing says which of its records are new.
        starts: The offsets of the source at which the application began to count.
        deleted: The ranges of offsets of the source that were deleted before they were compared, by partition.
        without_record: The number of the other offsets without a record, where the source is compacted.
        deleted_before: The number of offsets that were deleted before an earlier run could compare them.
        recreated: Whether the repartition topic is another one than that of the last verified cut.
        without_key: The number of records of the source that are in no total and no dead letter, since the application
            began: those without a key to be counted under, or without a value, or that cannot be read.
    """

    aggregation: Aggregation
    since: OffsetByPartition
    until: OffsetByPartition
    counted: Mapping[bytes, int]
    at_most: Mapping[bytes, int] | None
    changelog: Mapping[bytes, Mapping[int, int]]
    in_flight: Mapping[bytes, int]
    rejected: frozenset[PartitionOffset]
    dead_letters: Mapping[PartitionOffset, int]
    dead_letters_deleted_below: OffsetByPartition
    unprocessed: int
    verified_elsewhere: int
    keys: int
    changelog_offsets: Mapping[tuple[int, bytes], int] = field(default_factory=dict)
    not_counts: frozenset[PartitionOffset] = frozenset()
    store: Mapping[bytes, int] | None = None
    store_in_flight: Mapping[bytes, int] = field(default_factory=dict)
    rekeyed: RekeyedTotals | None = None
    starts: OffsetByPartition = field(default_factory=dict)
    deleted: OffsetRanges = field(default_factory=dict)
    without_record: int = 0
    deleted_before: int = 0
    recreated: bool = False
    without_key: int = 0

    @property
    def gone(self) -> int:
        """The number of records that may have been in the source and are not in ``counted``."""
        return sum(last - first for first, last in self.deleted.values()) + self.without_record

    def verified(self, key: bytes) -> int:
        """Return the number of records of a key that the next run begins with.

        Where records are gone that were not compared, it is what the changelog has: nothing else tells it any more.
        """
        return self.total(key) if self.gone else self.counted.get(key, 0)

    def _within(self, least: int, observed: int) -> int:
        """Return what is expected: the observed number where the records that are gone can explain it."""
        return min(max(least, observed), least + self.gone)

    def total(self, key: bytes) -> int:
        """Return what the changelog has for a key, and what is on its way there."""
        return sum(self.changelog.get(key, {}).values()) + self.in_flight.get(key, 0)

    @property
    def all_keys(self) -> set[bytes]:
        """Every key that was found anywhere."""
        at_most = self.at_most or {}
        return {*self.counted, *self.changelog, *self.in_flight, *(self.store or {}), *at_most}

    @property
    def agree(self) -> bool:
        """Whether every row is as expected."""
        return all(row.agrees for row in self.rows())

    def rows(self) -> Iterable[Observation]:
        """Return a row for each key, or for each wrong key where there are many, and those of the dead letters."""
        rows = [row for key in sorted(self.all_keys) for row in self._rows_of(key)]
        wrong = [row for row in rows if not row.agrees]
        if len(rows) <= NAMED_KEYS and self.keys <= NAMED_KEYS:
            yield from rows
        else:
            yield Observation(f"{self.aggregation.store}: keys with their total", self.keys, self.keys - len(wrong))
            yield from wrong[:NAMED_KEYS]
        if self.not_counts:
            topic = self.aggregation.changelog
            subject = f"{topic}: values that are not a count of 8 bytes{_listed(topic, self.not_counts)}"
            yield Observation(subject, 0, len(self.not_counts), topic=topic)
        yield from self._repartition_rows()
        yield from self.dead_letter_rows
        yield from self._not_compared()
        if self.without_key:
            records = f"{self.without_key:,} record{'s' if self.without_key > 1 else ''}"
            remark = f"{self.aggregation.source}: {records} in no total, without a key to be counted under or a value"
            figures = {"records_without_key": float(self.without_key)}
            yield Observation(remark, FOR_INFORMATION, FOR_INFORMATION, figures=figures)

    def _not_compared(self) -> Iterable[Observation]:
        """Yield from where it is counted, and what is not compared."""
        source = self.aggregation.source
        if starts := [f"{source}-{number} offset {start:,}" for number, start in sorted(self.starts.items()) if start]:
            remark = f"{source}: counted from the start of the application at {', '.join(starts)}"
            yield Observation(remark, FOR_INFORMATION, FOR_INFORMATION)
        if self.deleted:
            first = {number: begin for number, (begin, _) in self.deleted.items()}
            last = {number: end for number, (_, end) in self.deleted.items()}
            offsets = _ranges(source, first, last)
            yield not_judged(f"totals of the records of {offsets}", "they were deleted before they were compared")
        if self.without_record:
            reason = "the compacted topic has no record there"
            yield not_judged(f"{self.without_record:,} offsets of {source}", reason)
        if self.deleted_before:
            reason = "they were deleted before an earlier run could compare them"
            yield not_judged(f"{self.deleted_before:,} offsets of {source}", reason)

    def _rows_of(self, key: bytes) -> Iterable[Observation]:
        label = self.aggregation.label(key)
        counted, total = self.counted.get(key, 0), self.total(key)
        if self.at_most is None or (most := self.at_most.get(key, 0)) == counted or total < counted:
            expected, observed = self._within(counted, total), total
        else:
            observed = total - self.in_flight.get(key, 0)
            expected = min(observed, most + self.gone)
        topic = self.aggregation.changelog if self._records_of(key) else self.aggregation.repartition
        yield Observation(label, expected, observed, self._where(key), topic=topic)
        if self.store is not None:
            held = self.store.get(key, 0) + self.store_in_flight.get(key, 0)
            yield Observation(f"{label}, in the state store", self.verified(key), held)

    def _repartition_rows(self) -> Iterable[Observation]:
        """Compare the repartition topic with the source, key by key, as far as its records are there."""
        source, topic, rekeyed = self.aggregation.source, self.aggregation.repartition, self.rekeyed
        subject = f"{topic}: keys with as many records as in {source}"
        if rekeyed is None:
            yield not_judged(f"{topic}, beside {source}", "an earlier version stored the verified cut")
            return
        found = rekeyed.found
        recreated = (self.recreated or rekeyed.is_shorter) and self._counts_agree
        expected = {key: rekeyed.expected(key, recreated=recreated) for key in rekeyed.keys}
        wrong = [key for key in sorted(rekeyed.keys) if expected[key] != found.by_key[key]]
        if recreated:
            subject += " (the topic was created again: earlier records, which the changelog has, are not compared)"
        if rekeyed.deleted:
            subject += (
                f" ({rekeyed.deleted:,} of {sum(rekeyed.counted.values()):,} records were deleted after they were"
                " consumed and are not compared)"
            )
        yield Observation(subject, len(rekeyed.keys), len(rekeyed.keys) - len(wrong), topic=topic)
        where = _ranges(topic, {**found.since, **found.deleted_below}, found.until)
        for key in wrong[:NAMED_KEYS]:
            label = f"{topic}: records of {self.aggregation.label(key)}"
            yield Observation(label, expected[key], found.by_key[key], f"in {where}", topic=topic)

    def _where(self, key: bytes) -> str:
        """The offsets of the source in which a wrong record lies, and the records of the changelog with the total."""
        ranges, topic = _ranges(self.aggregation.source, self.since, self.until), self.aggregation.changelog
        counted = f"in {ranges}" if ranges else "only in the changelog: the source has no new records"
        held = [f"{topic}-{partition} offset {offset:,}" for partition, offset in self._records_of(key).items()]
        return f"{counted}; the total is that of {' and '.join(held)}" if held else counted

    def _records_of(self, key: bytes) -> Mapping[int, int]:
        """The offset of the last record of a key since the verified cut, by partition of the changelog."""
        at, partitions = self.changelog_offsets, sorted(self.changelog.get(key, {}))
        return {partition: at[partition, key] for partition in partitions if (partition, key) in at}

    @property
    def _counts_agree(self) -> bool:
        """Whether the changelog has the total of each key: every record has passed the repartition topic then."""
        return all(row.agrees for key in self.all_keys for row in self._rows_of(key))

    @property
    def dead_letter_rows(self) -> tuple[Observation, ...]:
        """The rows that need the dead-letter topic; none where the application has none."""
        source, topic, origins = self.aggregation.source, self.aggregation.dead_letters, self.dead_letters.keys()
        if topic is None:
            return ()
        missing = self.rejected - origins
        unexpected = set() if self.without_record else origins - self.rejected
        aggregated = sum(map(self.total, self.all_keys))
        processed = self.verified_elsewhere + aggregated + len(self.dead_letters)
        repeated = {origin for origin, times in self.dead_letters.items() if times > 1}
        rows = [
            Observation(
                f"{source}: records that cannot be aggregated, in {topic}{_listed(source, missing)}",
                len(self.rejected),
                len(self.rejected) - len(missing),
                topic=topic,
                advice=Advice.DEAD_LETTERS,
            )
        ]
        rows += [
            Observation(
                f"{topic}: records {fault}{_listed(source, wrong)}",
                0,
                len(wrong),
                remedy,
                topic=topic,
                advice=Advice.DEAD_LETTERS,
            )
            for fault, wrong, remedy in (
                ("that could be aggregated", unexpected, PROCESS_AGAIN),
                ("more than once", repeated, ""),
            )
            if wrong
        ]
        rows.append(
            Observation(
                f"{source}: records processed = aggregated + dead-lettered + waiting in the repartition topic"
                f" ({self.unprocessed:,} not yet processed)",
                self._within(self.verified_elsewhere + sum(self.counted.values()) + len(self.rejected), processed),
                processed,
                topic=topic if aggregated == sum(self.counted.values()) else self.aggregation.changelog,
            )
        )
        return tuple(rows)


def _ranges(topic: str, since: OffsetByPartition, until: OffsetByPartition) -> str:
    """Return ``"orders-0 offsets 7 to 9, ..."``; empty where nothing lies between the positions."""
    return ", ".join(
        f"{topic}-{number} offsets {since.get(number, 0):,} to {last - 1:,}"
        for number, last in sorted(until.items())
        if last > since.get(number, 0)
    )


def _listed(source: str, origins: Iterable[PartitionOffset]) -> str:
    """Return ``" (see orders-0 offset 7, ...)"``; empty for no record."""
    ordered = sorted(origins)
    names = [f"{source}-{partition} offset {offset}" for partition, offset in ordered[:_NAMED_OFFSETS]]
    names += [f"and {len(ordered) - _NAMED_OFFSETS} more"] if len(ordered) > _NAMED_OFFSETS else []
    return f" (see {', '.join(names)})" if names else ""
