"""Totals: is every record of the source counted once, or dead-lettered once, or still on its way?

Where everything agreed, the cut is kept: the next look reads what has come since, and no more. So its cost follows the
news, and input that was verified may be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from streamplan.checks.framework.application import Aggregation, Application
from streamplan.checks.framework.check import (
    Check,
    CheckContext,
    NotApplicable,
    Observation,
    SparkJob,
    existing,
)
from streamplan.checks.framework.cluster import Cluster, Record, RecordBatch, records_of
from streamplan.checks.framework.consistent_cut import Deadline, attempt, await_consistent_cut
from streamplan.checks.framework.verified import (
    KeyTotals,
    NoVerifiedStore,
    Positions,
    StateStoreTotals,
    VerifiedCut,
    VerifiedStore,
)
from streamplan.errors import CouldNotLook
from streamplan.model.dead_letters import parse_origin, parse_subtopology

NAMED_KEYS = 100
"""So many keys get a row each, the wrong ones first; the others are counted."""

_SHOWN = 5


@dataclass(frozen=True)
class Counts:
    """Records of the source by the key they are counted by, and the rows of those that have none."""

    by_key: Mapping[bytes, int]
    rejected: Sequence[int]


def count_records(aggregation: Aggregation, batch: RecordBatch) -> Counts:
    """The records of a batch of the source by the key that :meth:`Aggregation.key_of` gives each."""
    serde, field = aggregation.serde, aggregation.field
    if serde is not None and field is not None:
        column = serde.key_column(field, batch.values)
        return Counts(column.counts(), sorted(column.rejected))
    rejected = set(serde.decode_column(batch.values).rejected) if serde is not None else set()
    keys = batch.keys
    rejected |= {row for row, key in enumerate(keys) if key is None} if None in keys else set()
    counted = keys if not rejected else [key for row, key in enumerate(keys) if row not in rejected]
    return Counts(Counter(key for key in counted if key is not None), sorted(rejected))


@dataclass(frozen=True)
class Totals:
    """All there is to compare, as of one pair of cuts, for the keys that have news (for all where they are few).

    ``since``      positions in the source at which everything agreed before
    ``counted``    records of the source by key; ``at_most``: if the moment is not known, up to its end
    ``changelog``  the last values of each key, by partition
    ``waiting``    records in the repartition topic that the changelog does not hold yet (below 0 where it was looked
                   at later than the source)
    ``letters``    how often each (partition, offset) of the source stands in the dead-letter topic, since then
    ``unread``     offsets of the source that are not read yet
    ``elsewhere``  records that were verified before and have no part in the rest
    ``keys``       how many there are, all told
    """

    aggregation: Aggregation
    since: Positions
    until: Positions
    counted: Mapping[bytes, int]
    at_most: Mapping[bytes, int] | None
    changelog: Mapping[bytes, Mapping[int, int]]
    waiting: Mapping[bytes, int]
    rejected: frozenset[tuple[int, int]]
    letters: Mapping[tuple[int, int], int]
    letters_gone: Positions
    unread: int
    elsewhere: int
    keys: int
    not_counts: int = 0
    store: Mapping[bytes, int] | None = None
    store_waiting: Mapping[bytes, int] = field(default_factory=dict)

    def total(self, key: bytes) -> int:
        """What the changelog has for a key, and what is on its way there."""
        return sum(self.changelog.get(key, {}).values()) + self.waiting.get(key, 0)

    def rows(self) -> Iterable[Observation]:
        rows = [row for key in sorted(self.all_keys) for row in self._rows_of(key)]
        wrong = [row for row in rows if not row.agrees]
        if len(rows) <= NAMED_KEYS and self.keys <= NAMED_KEYS:
            yield from rows
        else:
            yield Observation(f"{self.aggregation.store}: keys with their total", self.keys, self.keys - len(wrong))
            yield from wrong[:NAMED_KEYS]
        if self.not_counts:
            yield Observation(
                f"{self.aggregation.changelog}: values that are not a count of 8 bytes", 0, self.not_counts
            )
        yield from self.rows_of_letters

    @property
    def all_keys(self) -> set[bytes]:
        at_most = self.at_most or {}
        return {*self.counted, *self.changelog, *self.waiting, *(self.store or {}), *at_most}

    def _rows_of(self, key: bytes) -> Iterable[Observation]:
        of = self.aggregation
        counted, total = self.counted.get(key, 0), self.total(key)
        if self.at_most is None or (most := self.at_most.get(key, 0)) == counted or total < counted:
            yield Observation(of.label(key), counted, total, self._where)
        else:
            held = total - self.waiting.get(key, 0)
            yield Observation(of.label(key), min(held, most), held, self._where)
        if self.store is not None:
            held = self.store.get(key, 0) + self.store_waiting.get(key, 0)
            yield Observation(f"{of.label(key)}, in the state store", counted, held)

    @property
    def _where(self) -> str:
        """The offsets of the source in which it happened."""
        ranges = [
            f"{self.aggregation.source}-{number} offsets {self.since.get(number, 0):,} to {last - 1:,}"
            for number, last in sorted(self.until.items())
            if last > self.since.get(number, 0)
        ]
        return f"in {', '.join(ranges)}" if ranges else "in the changelog alone: the source has no news"

    @property
    def rows_of_letters(self) -> tuple[Observation, ...]:
        """The rows that need the dead-letter topic; none where the application has none."""
        of, found = self.aggregation, self.letters.keys()
        if of.dead_letters is None:
            return ()
        missing, unexpected = self.rejected - found, found - self.rejected
        twice = {origin for origin, times in self.letters.items() if times > 1}
        rows = [
            Observation(
                f"{of.source}: records that cannot be aggregated, in {of.dead_letters}{_named(of.source, missing)}",
                len(self.rejected),
                len(self.rejected) - len(missing),
            )
        ]
        rows += [
            Observation(f"{of.dead_letters}: records {what}{_named(of.source, wrong)}", 0, len(wrong))
            for what, wrong in (("that could be aggregated", unexpected), ("more than once", twice))
            if wrong
        ]
        rows.append(
            Observation(
                f"{of.source}: records processed = aggregated + dead-lettered + waiting in the repartition topic"
                f" ({self.unread:,} not yet processed)",
                self.elsewhere + sum(self.counted.values()) + len(self.rejected),
                self.elsewhere + sum(map(self.total, self.all_keys)) + len(self.letters),
            )
        )
        return tuple(rows)


@dataclass(frozen=True)
class TotalsCheck(Check):
    """Recounts what has come since the last verified cut and compares; exact, also while the stream runs.

    Where only Spark can compute a topology anew, its rows are those of ``jobs/recount.py``.
    """

    name = "totals"
    title = "Totals"
    healthy = (
        "Every record that was processed has its effect exactly once in what the pipeline holds and writes, or"
        " stands in the dead-letter topic. Recounted from the input up to the committed positions."
    )
    distributed = True
    stores_verified_cut = True

    full: bool = False
    verified: VerifiedStore = field(default_factory=NoVerifiedStore)
    state_store: StateStoreTotals | None = None
    recounted: Callable[[], Iterable[Observation]] | None = None
    deadline: Deadline = field(default_factory=Deadline)

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Require a count that can be recounted here, or the rows of a recount by Spark."""
        if application.aggregations or self.recounted is not None:
            return None
        remedy = "" if application.declared else "--count tells of one"
        return NotApplicable("there is no count that can be recounted without an engine", remedy)

    def spark_jobs(self, application: Application) -> frozenset[SparkJob]:
        """Return the job that reads the state store, as a third opinion on a count; else the recount."""
        return frozenset({SparkJob.STATE_STORE if application.aggregations else SparkJob.RECOUNT})

    def configure(self, context: CheckContext) -> Check:
        """Take the verified cut and every other opinion on the totals."""
        return replace(
            self,
            full=context.full,
            verified=context.verified,
            state_store=context.state_store,
            recounted=context.recounted,
        )

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the total of each key; see :class:`Check`."""
        if not application.aggregations and self.recounted is not None:
            yield from self.recounted()
            return
        if not application.aggregations:
            raise CouldNotLook(
                f"the totals of {application.name}",
                expected="a count of records by a field or by their key",
                observed="a topology that only Spark can compute anew",
                remedy="Run jobs/recount.py, as the task totals does.",
            )
        for aggregation in application.aggregations:
            look = Look(aggregation, cluster, self.verified, self.deadline, self.state_store)
            yield from look.rows(full=self.full)


@dataclass(frozen=True)
class Look:
    """The means of looking at the totals of one aggregation."""

    aggregation: Aggregation
    cluster: Cluster
    kept: VerifiedStore = field(default_factory=NoVerifiedStore)
    deadline: Deadline = field(default_factory=Deadline)
    store: StateStoreTotals | None = None

    def rows(self, *, full: bool = False) -> Sequence[Observation]:
        """Those of the check. A cut at which everything agrees is kept."""
        totals, before, verified = attempt(
            partial(self._look, full=full),
            is_final=lambda found: all(row.agrees for row in found[0].rows()),
            pause=lambda: self.deadline.sleep(self.deadline.interval),
        )
        rows = list(totals.rows())
        wrong = [row for row in rows if not row.agrees]
        if not wrong and verified is not None:
            changed = {
                key: KeyTotals(totals.counted.get(key, 0), totals.changelog.get(key, {})) for key in totals.all_keys
            }
            self.kept.keep(verified, changed, after=before)
        if totals.letters_gone and wrong and all(row in totals.rows_of_letters for row in wrong):
            of = self.aggregation
            raise CouldNotLook(
                f"{of.source}: the totals agree, but not every dead-lettered record can be found",
                expected=f"all records of {of.dead_letters} that came since the last verified cut",
                observed=", ".join(
                    f"partition {number} begins at offset {at}" for number, at in totals.letters_gone.items()
                ),
                remedy="They were deleted: that each rejected record was dead-lettered can no longer be proven.",
            )
        return rows

    def totals(self) -> Totals:
        """One look, whatever comes of it, at everything since the last verified cut."""
        return self._look(full=False)[0]

    def _look(self, *, full: bool) -> _Found:
        """One look, with two cuts of its own.

        Raises :class:`CouldNotLook` where there is nothing to compare, or no ground to compare it on.
        """
        ids = self._require_topics()
        before = None if full else self.kept.verified()
        if before is not None and before.topics != ids:
            before = None  # others of the same name
        transactional = self.aggregation.exactly_once
        if transactional is None:
            transactional = self._writes_transactions()
        look = self._exactly if transactional else self._between
        if before is not None:
            self._require_source(before.source)
            if found := look(before, ids):
                return found
        self._require_source({})  # nothing is kept, or it is of the application before it was reset
        found = look(None, ids)
        assert found is not None
        return found

    def _exactly(self, before: VerifiedCut | None, ids: Mapping[str, str]) -> _Found | None:
        """At moments at which positions and outputs hold still. None where ``before`` is of another life."""
        of, cluster = self.aggregation, self.cluster
        # The changelog first and read at once, so that compaction has no time; then what is on the way, from where the
        # changelog ends to where the source's cut ends; the long recount last.
        counted = await_consistent_cut(cluster, of.application_id, [of.repartition], [of.changelog], self.deadline)
        ends = counted.ends[of.changelog]
        if before is not None and _behind(ends, before.changelog):
            return None
        updates, not_counts = _updates(cluster, of.changelog, before.changelog if before else {}, ends)
        letters_topic = [of.dead_letters] if of.dead_letters else []
        read = await_consistent_cut(
            cluster, of.application_id, [of.source], [of.repartition, *letters_topic], self.deadline
        )
        until = read.positions[of.source]
        if before is not None and _behind(until, before.source):
            return None
        waiting = _count_between(cluster, of.repartition, counted.positions[of.repartition], read.ends[of.repartition])
        letters_ends = read.ends[of.dead_letters] if of.dead_letters else {}
        totals = self._compare(before, updates, waiting, until, letters_ends, read.ends[of.repartition])
        totals = replace(totals, not_counts=not_counts)
        return totals, before, _cut(ids, totals, ends, letters_ends, counted.positions[of.repartition])

    def _between(self, before: VerifiedCut | None, ids: Mapping[str, str]) -> _Found | None:
        """Of an application without transactions: its positions follow what it writes, so each total has two bounds.

        What was committed before the outputs were looked at must be in them; what came into the source later cannot be.
        """
        of, cluster, group = self.aggregation, self.cluster, self.aggregation.application_id
        until = cluster.positions(group, of.source)
        rekeyed = cluster.positions(group, of.repartition)
        changelog = {number: found.last_stable for number, found in cluster.offsets(of.changelog).items()}
        if before is not None and (_behind(changelog, before.changelog) or _behind(until, before.source)):
            return None
        updates, not_counts = _updates(cluster, of.changelog, before.changelog if before else {}, changelog)
        repartition = {number: found.last_stable for number, found in cluster.offsets(of.repartition).items()}
        waiting = _count_between(cluster, of.repartition, {n: rekeyed.get(n, 0) for n in repartition}, repartition)
        latest = {number: found.last_stable for number, found in cluster.offsets(of.source).items()}
        totals = self._compare(before, updates, waiting, until, {}, repartition)
        later, _ = self._recount({number: until.get(number, 0) for number in latest}, latest)
        at_most = Counter(totals.counted) + Counter(later.by_key)
        bounded = replace(totals, at_most=at_most, not_counts=not_counts)
        still = not _behind(until, latest) and not _behind(rekeyed, repartition)
        return bounded, before, _cut(ids, bounded, changelog, {}, rekeyed) if still else None

    def _compare(
        self,
        before: VerifiedCut | None,
        updates: Mapping[tuple[int, bytes], int],
        waiting: Mapping[bytes, int],
        until: Positions,
        letters_ends: Positions,
        repartition_ends: Positions,
    ) -> Totals:
        of, cluster = self.aggregation, self.cluster
        since = before.source if before else {}
        letters, gone = _letters(cluster, of, before.letters if before else {}, letters_ends)
        recounted, rejected = self._recount({number: since.get(number, 0) for number in until}, until)
        news = {key for _, key in updates} | waiting.keys() | recounted.by_key.keys()
        news |= before.waiting if before else set()
        few = self.store is not None or self.kept.keys() <= NAMED_KEYS
        held = self.kept.held(None if few else news) if before else {}
        counted = Counter({key: one.counted for key, one in held.items()})
        verified_of_these = sum(counted.values())
        counted.update(recounted.by_key)
        changelog = {key: dict(one.values) for key, one in held.items()}
        for (partition, key), value in updates.items():
            changelog.setdefault(key, {})[partition] = value
        store_waiting = (
            _count_between(cluster, of.repartition, self.store.positions, repartition_ends) if self.store else {}
        )
        offsets = cluster.offsets(of.source)
        return Totals(
            aggregation=of,
            since=since,
            until=until,
            counted=dict(counted),
            at_most=None,
            changelog=changelog,
            waiting=waiting,
            rejected=frozenset(rejected),
            letters=letters,
            letters_gone=gone,
            unread=sum(max(found.last_stable - until.get(number, 0), 0) for number, found in offsets.items()),
            elsewhere=before.records - verified_of_these if before else 0,
            keys=(self.kept.keys() if before else 0) + len({*counted, *changelog} - held.keys()),
            store=self.store.totals if self.store else None,
            store_waiting=store_waiting,
        )

    def _recount(self, since: Positions, until: Positions) -> tuple[Counts, set[tuple[int, int]]]:
        counts: Counter[bytes] = Counter()
        rejected: set[tuple[int, int]] = set()
        ranges = {number: (since.get(number, 0), last) for number, last in until.items()}
        for by_key, those in self.cluster.map_batches(
            self.aggregation.source, ranges, partial(_count_all, self.aggregation)
        ):
            counts.update(by_key)
            rejected |= those
        return Counts(counts, ()), rejected

    def _require_topics(self) -> dict[str, str]:
        """The ids of the topics, which must have records and sensible positions."""
        of, cluster = self.aggregation, self.cluster
        topics = [topic for topic in (of.source, of.repartition, of.changelog, of.dead_letters) if topic]
        existing(cluster, topics)
        offsets = cluster.offsets(of.source)
        if all(found.high_watermark == 0 for found in offsets.values()):
            raise CouldNotLook(f"the totals of {of.source}", expected="at least 1 record", observed="none")
        for topic in (of.source, of.repartition):
            _require_positions(cluster, of.application_id, topic)
        if not any(cluster.positions(of.application_id, of.source).values()):
            raise CouldNotLook(f"the totals of {of.source}", expected="at least 1 record processed", observed="none")
        return dict(cluster.topic_ids(topics))

    def _require_source(self, since: Positions) -> None:
        """All of it that was not verified before."""
        source = self.aggregation.source
        gone = {
            number: found.log_start
            for number, found in self.cluster.offsets(source).items()
            if found.log_start > since.get(number, 0)
        }
        if gone:
            raise CouldNotLook(
                f"the totals of {source} cannot be recounted",
                expected="every record since the last verified cut" if since else "every record since offset 0",
                observed=", ".join(
                    f"{source}-{number} begins at offset {start}"
                    + (f", verified up to {since.get(number, 0)}" if since else "")
                    for number, start in gone.items()
                ),
                remedy="What was deleted may have been counted rightly or not: it can no longer be proven.",
            )

    def _writes_transactions(self) -> bool:
        """Whether the outputs end with a transaction's marker and not with a record."""
        plain = False
        for topic in (self.aggregation.repartition, self.aggregation.changelog):
            for number, found in self.cluster.offsets(topic).items():
                if found.last_stable < found.high_watermark:
                    return True
                if found.log_start < found.high_watermark:
                    if not any(
                        len(batch)
                        for batch in self.cluster.read(
                            topic, {number: (found.high_watermark - 1, found.high_watermark)}
                        )
                    ):
                        return True
                    plain = True
        return not plain


def _count_all(aggregation: Aggregation, batches: Iterator[RecordBatch]) -> tuple[Counter[bytes], set[tuple[int, int]]]:
    counts: Counter[bytes] = Counter()
    rejected: set[tuple[int, int]] = set()
    for batch in batches:
        found = count_records(aggregation, batch)
        counts.update(found.by_key)
        if found.rejected:
            offsets = batch.offsets
            rejected |= {(batch.partition, offsets[row]) for row in found.rejected}
    return counts, rejected


_Found = tuple[Totals, VerifiedCut | None, VerifiedCut | None]
"""What there is to compare, the cut it goes out from, and the cut to keep when all agrees (None: of no one moment)."""


def _cut(
    ids: Mapping[str, str], totals: Totals, changelog: Positions, letters: Positions, repartition: Positions
) -> VerifiedCut:
    return VerifiedCut(
        topics=ids,
        source=totals.until,
        changelog=changelog,
        letters=letters,
        records=totals.elsewhere + sum(totals.counted.values()) + len(totals.rejected),
        waiting=frozenset(key for key, count in totals.waiting.items() if count),
        repartition=repartition,
    )


def _behind(positions: Positions, others: Positions) -> bool:
    return any(positions.get(number, 0) < other for number, other in others.items())


def _require_positions(cluster: Cluster, group: str, topic: str) -> None:
    positions = cluster.positions(group, topic)
    for number, found in cluster.offsets(topic).items():
        position = positions.get(number, 0 if found.high_watermark == 0 else -1)
        if not 0 <= position <= found.high_watermark:
            raise CouldNotLook(
                f"position of group {group} in {topic}-{number}",
                expected=f"committed, at most {found.high_watermark}, the end of the partition",
                observed=str(position) if position >= 0 else "none",
                remedy="The check `lag` is about that.",
            )


def _updates(
    cluster: Cluster, topic: str, since: Positions, ends: Positions
) -> tuple[dict[tuple[int, bytes], int], int]:
    """The last value of each key in each partition, 0 for one that is deleted, and how many values are no counts."""
    last: dict[tuple[int, bytes], bytes | None] = {}
    without_key = 0
    starts = cluster.offsets(topic)
    ranges = {number: (max(since.get(number, 0), starts[number].log_start), end) for number, end in ends.items()}
    for batch in cluster.read(topic, ranges):
        for key, value in zip(batch.keys, batch.values, strict=True):
            if key is None:
                without_key += 1
            else:
                last[batch.partition, key] = value
    broken = without_key + sum(value is not None and len(value) != 8 for value in last.values())
    return {
        at: int.from_bytes(value, "big", signed=True) if value is not None and len(value) == 8 else 0
        for at, value in last.items()
    }, broken


def _count_between(cluster: Cluster, topic: str, first: Positions, last: Positions) -> dict[bytes, int]:
    """Records by key from ``first`` to ``last``; counted below 0 where ``last`` comes before ``first``."""
    counts: Counter[bytes] = Counter()
    borders = {number: (first.get(number, 0), last.get(number, 0)) for number in first.keys() | last.keys()}
    for batch in cluster.read(topic, {number: (min(border), max(border)) for number, border in borders.items()}):
        sign = 1 if borders[batch.partition][0] < borders[batch.partition][1] else -1
        for key in batch.keys:
            if key is not None:  # a count ignores records without a key
                counts[key] += sign
    return dict(counts)


def _letters(
    cluster: Cluster, of: Aggregation, since: Positions, ends: Positions
) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
    """How often each (partition, offset) of the source was dead-lettered; where the topic lacks what came since."""
    letters: Counter[tuple[int, int]] = Counter()
    if of.dead_letters is None:
        return {}, {}
    starts = {number: found.log_start for number, found in cluster.offsets(of.dead_letters).items()}
    gone = {number: start for number, start in starts.items() if start > since.get(number, 0)}
    ranges = {number: (max(starts[number], since.get(number, 0)), end) for number, end in ends.items()}
    for batch in cluster.read(of.dead_letters, ranges):
        for record in records_of(batch):
            origin = _origin(record, of)
            if origin is not None:
                letters[origin] += 1
    return dict(letters), gone


def _origin(record: Record, of: Aggregation) -> tuple[int, int] | None:
    origin = parse_origin(record.headers)
    if origin is None or origin.topic != of.source or parse_subtopology(record.headers) != b"%d" % of.subtopology:
        return None
    return origin.partition, origin.offset


def _named(source: str, origins: Iterable[tuple[int, int]]) -> str:
    """``": orders-0 offset 7, ..."``; empty for none."""
    ordered = sorted(origins)
    listed = [f"{source}-{partition} offset {offset}" for partition, offset in ordered[:_SHOWN]]
    listed += [f"and {len(ordered) - _SHOWN} more"] if len(ordered) > _SHOWN else []
    return f" (see {', '.join(listed)})" if listed else ""


CHECK = TotalsCheck()
