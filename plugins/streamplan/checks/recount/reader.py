"""Reads the totals of one aggregation at cuts of its topics, beginning with the last verified cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from streamplan.checks.framework.application import Aggregation
from streamplan.checks.framework.check import Observation, existing
from streamplan.checks.framework.consistent_cut import Deadline, attempt, await_consistent_cut
from streamplan.checks.framework.verified import (
    KeyTotals,
    NoVerifiedStore,
    StateStoreTotals,
    VerifiedCut,
    VerifiedStore,
)
from streamplan.checks.recount.counting import (
    ChangelogUpdates,
    count_between,
    count_redriven,
    count_rekeyed,
    count_source,
    read_changelog,
    read_dead_letters,
)
from streamplan.checks.recount.totals import NAMED_KEYS, RekeyedTotals, Totals
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import OffsetByPartition
from streamplan.model.topics import words


class _Reading(NamedTuple):
    """The totals, the verified cut that they begin with, and the cut to store when they agree (None: none)."""

    totals: Totals
    previous: VerifiedCut | None
    reached: VerifiedCut | None


@dataclass(frozen=True)
class TotalsReader:
    """Reads the totals of one aggregation.

    Attributes:
        aggregation: What is counted.
        cluster: Where its topics are.
        verified: The store of the last verified cut.
        deadline: How long to wait for a consistent cut.
        store: What Spark's state store held, to compare with it as well.
    """

    aggregation: Aggregation
    cluster: Cluster
    verified: VerifiedStore = field(default_factory=NoVerifiedStore)
    deadline: Deadline = field(default_factory=Deadline)
    store: StateStoreTotals | None = None

    def observe(self, *, full: bool = False) -> Sequence[Observation]:
        """Compare, and store the cut if everything agrees.

        Args:
            full: Count from the beginning, not from the last verified cut, if the beginning is still there.

        Raises:
            CouldNotLook: There is nothing to compare, or records that are needed were deleted.
        """
        totals, previous, reached = attempt(
            partial(self._read, full=full),
            is_final=lambda reading: reading.totals.agree,
            pause=lambda: self.deadline.sleep(self.deadline.interval),
        )
        rows = list(totals.rows())
        wrong = [row for row in rows if not row.agrees]
        if not wrong and reached is not None:
            changed = {key: KeyTotals(totals.verified(key), totals.changelog.get(key, {})) for key in totals.all_keys}
            self.verified.advance(reached, changed, previous=previous)
        if totals.dead_letters_deleted_below and wrong and all(row in totals.dead_letter_rows for row in wrong):
            raise CouldNotLook(
                f"{self.aggregation.source}: the totals agree, but not every dead-lettered record can be found",
                expected=f"all records of {self.aggregation.dead_letters} that came since the last verified cut",
                observed=", ".join(
                    f"partition {number} begins at offset {start}"
                    for number, start in totals.dead_letters_deleted_below.items()
                ),
                remedy="Dead letters were deleted. So nobody can prove any more that each rejected record has one.",
            )
        if totals.deleted and previous is None and not wrong:
            is_stored = reached is not None and not isinstance(self.verified, NoVerifiedStore)
            raise self._unproven(totals, is_stored=is_stored)
        return rows

    def _unproven(self, totals: Totals, *, is_stored: bool) -> CouldNotLook:
        """Return the error of a first look at a source whose beginning was deleted."""
        source = self.aggregation.source
        begun = any(totals.starts.values())
        stored = "The totals of the changelog are accepted as they are now. The next run verifies all later records."
        return CouldNotLook(
            f"the totals of {source} cannot be recounted",
            expected="every record since the start of the application" if begun else "every record since offset 0",
            observed=", ".join(
                f"{source}-{number} begins at offset {last}" for number, (_, last) in sorted(totals.deleted.items())
            ),
            remedy="Nobody can prove any more whether the deleted records were counted correctly."
            + (f" {stored}" if is_stored else ""),
        )

    def totals(self) -> Totals:
        """Read everything since the last verified cut once, whether it agrees or not.

        Raises:
            CouldNotLook: There is nothing to compare, or records that are needed were deleted.
        """
        return self._read(full=False).totals

    def _read(self, *, full: bool) -> _Reading:
        """Read once, at two cuts of its own."""
        topic_ids = self._require_topics()
        previous = self.verified.cut()
        repartition = self.aggregation.repartition
        recreated = previous is not None and previous.topic_ids.get(repartition) != topic_ids[repartition]
        if previous is not None and previous.topic_ids != topic_ids:
            previous = None  # the topics were deleted and created again under the same names
        if full and not self._deleted(self._starts(), None):
            previous = None
        transactional = self.aggregation.exactly_once
        if transactional is None:
            transactional = self._writes_transactions()
        read = self._read_at_cut if transactional else self._read_between
        if previous is not None and (reading := read(previous, topic_ids)):
            return reading
        reading = read(None, topic_ids)  # no cut is stored, or it is of the application before it was reset
        assert reading is not None
        return reading._replace(totals=replace(reading.totals, recreated=recreated))

    def _read_at_cut(self, previous: VerifiedCut | None, topic_ids: Mapping[str, str]) -> _Reading | None:
        """Read at moments at which positions and outputs hold still.

        Returns:
            None where an offset is behind that of ``previous``: the application was reset meanwhile.
        """
        aggregation, cluster = self.aggregation, self.cluster
        group, repartition, source = aggregation.application_id, aggregation.repartition, aggregation.source
        # The changelog comes first and is read at once, so that compaction has no time. Then what is in flight, from
        # where the changelog ends to where the source's cut ends. The long recount of the source comes last.
        counted = await_consistent_cut(cluster, group, [repartition], [aggregation.changelog], self.deadline)
        ends = counted.ends[aggregation.changelog]
        if previous is not None and _is_behind(ends, previous.changelog):
            return None
        updates = read_changelog(cluster, aggregation.changelog, previous.changelog if previous else {}, ends)
        outputs = [repartition, *([aggregation.dead_letters] if aggregation.dead_letters else [])]
        rekeyed = await_consistent_cut(cluster, group, [source], outputs, self.deadline)
        until = rekeyed.positions[source]
        if previous is not None and _is_behind(until, previous.source):
            return None
        in_flight = count_between(cluster, repartition, counted.positions[repartition], rekeyed.ends[repartition])
        dead_letter_ends = rekeyed.ends[aggregation.dead_letters] if aggregation.dead_letters else {}
        totals = self._compare(previous, updates, in_flight, until, dead_letter_ends, rekeyed.ends[repartition])
        positions = counted.positions[repartition]
        reached = _cut_of(topic_ids, totals, ends, dead_letter_ends, positions, rekeyed.ends[repartition])
        return _Reading(totals, previous, reached)

    def _read_between(self, previous: VerifiedCut | None, topic_ids: Mapping[str, str]) -> _Reading | None:
        """Read from an application without transactions: it commits positions later than it writes.

        So each total has two bounds. What was committed before the outputs were looked at must be in them. What came
        into the source later cannot be.

        Returns:
            None where an offset is behind that of ``previous``: the application was reset meanwhile.
        """
        aggregation, cluster, group = self.aggregation, self.cluster, self.aggregation.application_id
        until = cluster.positions(group, aggregation.source)
        counted = cluster.positions(group, aggregation.repartition)
        changelog = self._ends(aggregation.changelog)
        if previous is not None and (_is_behind(changelog, previous.changelog) or _is_behind(until, previous.source)):
            return None
        updates = read_changelog(cluster, aggregation.changelog, previous.changelog if previous else {}, changelog)
        repartition = self._ends(aggregation.repartition)
        positions = {number: counted.get(number, 0) for number in repartition}
        in_flight = count_between(cluster, aggregation.repartition, positions, repartition)
        latest = self._ends(aggregation.source)
        totals = self._compare(previous, updates, in_flight, until, {}, repartition)
        later = count_source(cluster, aggregation, {number: until.get(number, 0) for number in latest}, latest)
        if (rekeyed := totals.rekeyed) is not None:
            rekeyed = replace(rekeyed, at_most=Counter(rekeyed.counted) + later.by_key)
        totals = replace(totals, at_most=Counter(totals.counted) + later.by_key, rekeyed=rekeyed)
        is_idle = not _is_behind(until, latest) and not _is_behind(counted, repartition)
        reached = _cut_of(topic_ids, totals, changelog, {}, counted, repartition) if is_idle else None
        return _Reading(totals, previous, reached)

    def _ends(self, topic: str) -> dict[int, int]:
        return {number: offsets.last_stable for number, offsets in self.cluster.offsets(topic).items()}

    def _compare(
        self,
        previous: VerifiedCut | None,
        updates: ChangelogUpdates,
        in_flight: Mapping[bytes, int],
        until: OffsetByPartition,
        dead_letter_ends: OffsetByPartition,
        repartition_ends: OffsetByPartition,
    ) -> Totals:
        """Count the source up to ``until`` and put it beside what was read of the outputs."""
        aggregation, cluster, store = self.aggregation, self.cluster, self.store
        starts = self._starts()
        since = previous.source if previous else starts
        deleted = self._deleted(since, until)
        first = {number: deleted[number][1] if number in deleted else since.get(number, 0) for number in until}
        dead_letters = read_dead_letters(
            cluster, aggregation, previous.dead_letters if previous else {}, dead_letter_ends
        )
        recounted = count_source(cluster, aggregation, first, until)
        # A record without a key is rejected. It stands in the dead-letter topic; without such a topic, nowhere.
        dead_lettered = len(recounted.rejected) if aggregation.dead_letters is not None else 0
        without_key = recounted.records - recounted.by_key.total() - dead_lettered
        # Re-driven records before the verified cut were verified as rejected ones. What was made of them is new.
        again = {at: place for at, place in dead_letters.redriven.items() if at[1] < since.get(at[0], 0)}
        redriven, no_longer_rejected = count_redriven(cluster, aggregation, again if previous else {})
        recounted.by_key.update(redriven)
        without_record = 0
        if self._is_compacted():
            without_record = sum(end - first[number] for number, end in until.items()) - recounted.records
        gone = sum(last - begin for begin, last in deleted.values()) + without_record
        changed = {key for _, key in updates.values} | in_flight.keys() | recounted.by_key.keys()
        changed |= previous.in_flight if previous else set()
        all_keys = store is not None or self.verified.key_count() <= NAMED_KEYS
        before = self.verified.key_totals(None if all_keys else changed) if previous else {}
        counted = Counter({key: totals.counted for key, totals in before.items()})
        verified_here = sum(counted.values())
        counted.update(recounted.by_key)
        changelog = {key: dict(totals.changelog) for key, totals in before.items()}
        for (partition, key), value in updates.values.items():
            changelog.setdefault(key, {})[partition] = value
        store_in_flight = (
            count_between(cluster, aggregation.repartition, store.positions, repartition_ends) if store else {}
        )
        ends = self._ends(aggregation.source)
        rekeyed = None
        repartition_since = previous.repartition_ends if previous else {}
        if repartition_since is not None:
            found = count_rekeyed(cluster, aggregation.repartition, repartition_since, repartition_ends)
            rekeyed = RekeyedTotals(recounted.by_key, found, gone=gone)
        return Totals(
            aggregation=aggregation,
            since=first,
            until=until,
            counted=dict(counted),
            at_most=None,
            changelog=changelog,
            in_flight=in_flight,
            rejected=frozenset(recounted.rejected),
            dead_letters={
                (partition, offset): times
                for (partition, offset), times in dead_letters.origins.items()
                if offset >= first.get(partition, 0)
            },
            dead_letters_deleted_below=dead_letters.deleted_below,
            unprocessed=sum(max(end - until.get(number, 0), 0) for number, end in ends.items()),
            verified_elsewhere=previous.records - verified_here - no_longer_rejected if previous else 0,
            keys=(self.verified.key_count() if previous else 0) + len({*counted, *changelog} - before.keys()),
            changelog_offsets=updates.offsets,
            not_counts=updates.not_counts,
            store=store.totals if store else None,
            store_in_flight=store_in_flight,
            rekeyed=rekeyed,
            starts=starts,
            deleted=deleted,
            without_record=without_record,
            deleted_before=previous.not_compared if previous else 0,
            without_key=without_key + (previous.without_key if previous else 0),
        )

    def _starts(self) -> OffsetByPartition:
        """Return the offsets of the source at which the application began to count."""
        return self.cluster.starts(self.aggregation.application_id, self.aggregation.source)

    def _deleted(self, since: OffsetByPartition, until: OffsetByPartition | None) -> dict[int, tuple[int, int]]:
        """Return the ranges of offsets of the source from ``since`` to ``until`` that were deleted, by partition."""
        begins = {number: at.log_start for number, at in self.cluster.offsets(self.aggregation.source).items()}
        last = begins if until is None else {number: min(begins[number], end) for number, end in until.items()}
        return {number: (since.get(number, 0), end) for number, end in last.items() if end > since.get(number, 0)}

    def _is_compacted(self) -> bool:
        source = self.aggregation.source
        return "compact" in words(self.cluster.topics([source])[source].configs.get("cleanup.policy", ""))

    def _require_topics(self) -> dict[str, str]:
        """Return the ids of the topics, which must have records and positions that can be right."""
        aggregation, cluster = self.aggregation, self.cluster
        group, source, repartition = aggregation.application_id, aggregation.source, aggregation.repartition
        topics = [topic for topic in (source, repartition, aggregation.changelog, aggregation.dead_letters) if topic]
        existing(cluster, topics)
        if all(offsets.high_watermark == 0 for offsets in cluster.offsets(source).values()):
            raise CouldNotLook(f"the totals of {source}", expected="at least 1 record", observed="none")
        for topic in (source, repartition):
            _require_positions(cluster, group, topic)
        if not any(cluster.positions(group, source).values()):
            raise CouldNotLook(f"the totals of {source}", expected="at least 1 record processed", observed="none")
        return dict(cluster.topic_ids(topics))

    def _writes_transactions(self) -> bool:
        """Whether the outputs end with a transaction's marker and not with a record."""
        plain = False
        for topic in (self.aggregation.repartition, self.aggregation.changelog):
            for number, offsets in self.cluster.offsets(topic).items():
                if offsets.last_stable < offsets.high_watermark:
                    return True
                if offsets.log_start < offsets.high_watermark:
                    last = self.cluster.read(topic, {number: (offsets.high_watermark - 1, offsets.high_watermark)})
                    if not any(len(batch) for batch in last):
                        return True
                    plain = True
        return not plain


def _cut_of(
    topic_ids: Mapping[str, str],
    totals: Totals,
    changelog: OffsetByPartition,
    dead_letters: OffsetByPartition,
    repartition: OffsetByPartition,
    repartition_ends: OffsetByPartition,
) -> VerifiedCut:
    return VerifiedCut(
        topic_ids=topic_ids,
        source=totals.until,
        changelog=changelog,
        dead_letters=dead_letters,
        records=totals.verified_elsewhere + sum(map(totals.verified, totals.all_keys)) + len(totals.rejected),
        in_flight=frozenset(key for key, count in totals.in_flight.items() if count),
        repartition=repartition,
        repartition_ends=repartition_ends,
        not_compared=totals.deleted_before + sum(last - first for first, last in totals.deleted.values()),
        without_key=totals.without_key,
    )


def _is_behind(positions: OffsetByPartition, others: OffsetByPartition) -> bool:
    """Whether a position is before the other one of its partition."""
    return any(positions.get(number, 0) < other for number, other in others.items())


def _require_positions(cluster: Cluster, group: str, topic: str) -> None:
    """Require a position in each partition that has records, and none beyond the end."""
    positions = cluster.positions(group, topic)
    for number, offsets in cluster.offsets(topic).items():
        position = positions.get(number, 0 if offsets.high_watermark == 0 else -1)
        if not 0 <= position <= offsets.high_watermark:
            raise CouldNotLook(
                f"position of group {group} in {topic}-{number}",
                expected=f"committed, at most {offsets.high_watermark}, the end of the partition",
                observed=str(position) if position >= 0 else "none",
                remedy="Look at the result of the check `lag`: it has a row for each stream task.",
            )
