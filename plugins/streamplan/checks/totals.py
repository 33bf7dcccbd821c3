"""Totals: is every record of the source counted once, or dead-lettered once, or still on its way?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamplan.checks.cuts import Patience, take_cut
from streamplan.checks.observation import Check, CouldNotLook, Observation, RecordsGone
from streamplan.checks.port import Cluster, Record
from streamplan.operations import Count, KeySelect, NullKeyFilter
from streamplan.pipeline import Pipeline
from streamplan.processor_topology import Source
from streamplan.serdes import KEY_TYPES, Json, Rejected, key_of

LOOKS = 3
"""Compaction and purging may take records away between a cut and reading up to it; a real fault is there each time."""

_SHOWN = 5


@dataclass(frozen=True)
class Aggregation:
    """A count as declared, from the topic it begins with to its changelog. Names are those in Kafka.

    ``field``  of the value, by which it is counted; None for the record's key
    """

    application_id: str
    subtopology: int
    source: str
    serde: Json
    field: str | None
    repartition: str
    store: str
    changelog: str
    dead_letters: str

    def label(self, key: bytes) -> str:
        """``orders-products-quantities[0] Jackets``."""
        text = key.decode("utf-8", "backslashreplace")
        labels = {str(value): label for value, label in self.serde.allowed.get(self.field or "", {}).items()}
        return f"{self.store}[{text}] {labels.get(text, '')}".rstrip()

    def key_of(self, record: Record) -> bytes:
        """The key that a record of the source is counted by, or :class:`Rejected`."""
        if self.field is not None:
            return key_of(self.serde, self.field, record.value)
        self.serde.read(record.value)
        if record.key is None:
            raise Rejected("the key is null")
        return record.key


@dataclass(frozen=True)
class StoreTotals:
    """What a state store held once it had read the repartition topic up to ``positions``."""

    positions: Mapping[int, int]
    totals: Mapping[bytes, int]


@dataclass
class Recount:
    """The source counted anew, up to ``positions``. Grows with the positions; nothing is read twice."""

    aggregation: Aggregation
    positions: dict[int, int] = field(default_factory=dict)
    records: int = 0
    counts: Counter[bytes] = field(default_factory=Counter)
    rejected: set[tuple[int, int]] = field(default_factory=set)

    def advance(self, cluster: Cluster, positions: Mapping[int, int]) -> None:
        key_of = self.aggregation.key_of
        ranges = {partition: (self.positions.get(partition, 0), last) for partition, last in positions.items()}
        for chunk in cluster.records(self.aggregation.source, ranges):
            self.records += len(chunk)
            keys = []
            for record in chunk:
                try:
                    keys.append(key_of(record))
                except Rejected:
                    self.rejected.add((record.partition, record.offset))
            self.counts.update(keys)
        self.positions.update(positions)


@dataclass(frozen=True)
class Totals:
    """All there is to compare, as of one pair of cuts.

    ``changelog``  the last value of each key; ``waiting``: records in the repartition topic that it does not hold yet
                   (below 0 where the changelog was looked at later than the source)
    ``letters``    how often each (partition, offset) of the source stands in the dead-letter topic
    ``unread``     offsets of the source that are not read yet
    """

    aggregation: Aggregation
    records: int
    counted: Mapping[bytes, int]
    rejected: frozenset[tuple[int, int]]
    letters: Mapping[tuple[int, int], int]
    letters_since: Mapping[int, int]
    changelog: Mapping[bytes, int]
    not_counts: int
    waiting: Mapping[bytes, int]
    unread: int
    store: Mapping[bytes, int] | None = None
    store_waiting: Mapping[bytes, int] = field(default_factory=dict)

    def rows(self) -> Iterable[Observation]:
        of = self.aggregation
        keys = self.counted.keys() | self.changelog.keys() | self.waiting.keys() | (self.store or {}).keys()
        for key in sorted(keys):
            counted = self.counted.get(key, 0)
            yield Observation(of.label(key), counted, self.changelog.get(key, 0) + self.waiting.get(key, 0))
            if self.store is not None:
                held = self.store.get(key, 0) + self.store_waiting.get(key, 0)
                yield Observation(f"{of.label(key)}, in the state store", counted, held)
        if self.not_counts:
            yield Observation(f"{of.changelog}: values that are not a count of 8 bytes", 0, self.not_counts)
        yield from self.rows_with_letters

    @property
    def rows_with_letters(self) -> tuple[Observation, ...]:
        """The rows that need the whole dead-letter topic."""
        of, found = self.aggregation, self.letters.keys()
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
                f" ({self.unread} not yet processed)",
                self.records,
                sum(self.changelog.values()) + sum(self.waiting.values()) + len(self.letters),
            )
        )
        return tuple(rows)


def aggregations(pipeline: Pipeline) -> tuple[Aggregation, ...]:
    """The one count of a pipeline that does nothing but count records by a field, or by their key.

    It can be recounted without an engine. Empty for every other pipeline: those are recounted by Spark.
    """
    topology = pipeline.topology
    match topology.subtopologies:
        case (upstream, downstream):
            pass
        case _:
            return ()
    match upstream.sources, upstream.operations, downstream.operations:
        case (Source(value=Json() as serde),), (NullKeyFilter(),), (Count(store=store, window=None),):
            name = None
        case (
            (Source(value=Json() as serde),),
            (KeySelect(key=key), NullKeyFilter()),
            (Count(store=store, window=None),),
        ):
            if serde.fields.get(key) not in KEY_TYPES:
                return ()
            name = key
        case _:
            return ()
    if len(upstream.sinks) != 1 or upstream.sink_topics != downstream.source_topics or downstream.sinks:
        return ()
    return (
        Aggregation(
            application_id=topology.application_id,
            subtopology=upstream.id,
            source=topology.decorate(upstream.source_topics[0]),
            serde=serde,
            field=name,
            repartition=topology.decorate(downstream.source_topics[0]),
            store=store,
            changelog=topology.changelog_topic(store),
            dead_letters=topology.dead_letter_topic,
        ),
    )


def observe(
    pipeline: Pipeline, cluster: Cluster, *, store: StoreTotals | None = None, patience: Patience | None = None
) -> Iterable[Observation]:
    """Recount every aggregation and compare; exact, also while the stream runs."""
    found = aggregations(pipeline)
    if not found:
        raise CouldNotLook(
            f"the totals of {pipeline.name}",
            expected="a count of records by a field or by their key",
            observed="a topology that only Spark can compute anew",
            remedy="Run jobs/recount.py, as the task totals does.",
        )
    for aggregation in found:
        yield from _observe(aggregation, cluster, store, patience or Patience())


def check_of(rows: Callable[[], Iterable[Observation]]) -> Check:
    """The same check of rows that Spark has made."""
    return replace(CHECK, observe=lambda pipeline, cluster: rows())


def check_with(store: StoreTotals) -> Check:
    """The same check with a third opinion: what the state store holds."""
    return replace(CHECK, observe=lambda pipeline, cluster: observe(pipeline, cluster, store=store))


def _observe(
    aggregation: Aggregation, cluster: Cluster, store: StoreTotals | None, patience: Patience
) -> Iterable[Observation]:
    absent = list(_nothing_to_look_at(aggregation, cluster))
    if absent:
        return absent
    recount = Recount(aggregation)
    for look in range(1, LOOKS + 1):
        try:
            totals = look_at_totals(aggregation, cluster, recount, store=store, patience=patience)
        except RecordsGone:
            if look == LOOKS:
                raise
            continue
        rows = list(totals.rows())
        if all(row.agrees for row in rows):
            break
        patience.sleep(patience.interval)
    deleted = {number: start for number, start in totals.letters_since.items() if start > 0}
    wrong = [row for row in rows if not row.agrees]
    if deleted and wrong and all(row in totals.rows_with_letters for row in wrong):
        raise CouldNotLook(
            f"{aggregation.source}: the totals agree, but not every dead-lettered record can be found",
            expected=f"all records of {aggregation.dead_letters} since offset 0",
            observed=", ".join(f"partition {number} begins at offset {start}" for number, start in deleted.items()),
            remedy="They were deleted: that each rejected record was dead-lettered can no longer be proven.",
        )
    return rows


def look_at_totals(
    aggregation: Aggregation,
    cluster: Cluster,
    recount: Recount,
    *,
    store: StoreTotals | None = None,
    patience: Patience | None = None,
) -> Totals:
    """One look, with two cuts of its own. ``recount`` is advanced to the first sub-topology's positions."""
    of, patience = aggregation, patience or Patience()
    group = of.application_id
    # The changelog first and read at once, so that compaction has no time; then what is on the way, from where the
    # changelog ends to where the source's cut ends; the long recount last.
    counted = take_cut(cluster, group, [of.repartition], [of.changelog], patience)
    changelog, not_counts = _last_values(cluster, of.changelog, counted.ends[of.changelog])
    read = take_cut(cluster, group, [of.source], [of.repartition, of.dead_letters], patience)
    ends, read_positions = read.ends[of.repartition], read.positions[of.source]
    waiting = _count_between(cluster, of.repartition, counted.positions[of.repartition], ends)
    store_waiting = _count_between(cluster, of.repartition, store.positions, ends) if store else Counter()
    letters, letters_since = _letters(cluster, of, read.ends[of.dead_letters], read_positions)
    recount.advance(cluster, read_positions)
    offsets = cluster.offsets(of.source)
    return Totals(
        aggregation=of,
        records=recount.records,
        counted=dict(recount.counts),
        rejected=frozenset(recount.rejected),
        letters=letters,
        letters_since=letters_since,
        changelog=changelog,
        not_counts=not_counts,
        waiting=waiting,
        unread=sum(max(found.stable - read_positions[number], 0) for number, found in offsets.items()),
        store=store.totals if store else None,
        store_waiting=store_waiting,
    )


def _nothing_to_look_at(of: Aggregation, cluster: Cluster) -> Iterable[Observation]:
    """Rows that say why there is nothing to compare; none when there is. Raises :class:`CouldNotLook`."""
    topics = (of.source, of.repartition, of.changelog, of.dead_letters)
    existing = cluster.topics(topics)
    missing = [Observation(f"topic {topic}", "exists", "missing") for topic in topics if topic not in existing]
    if missing:
        yield from missing
        return
    offsets = cluster.offsets(of.source)
    deleted = {number: found.start for number, found in offsets.items() if found.start > 0}
    if deleted:
        raise CouldNotLook(
            f"the totals of {of.source} cannot be recounted",
            expected="every record since offset 0",
            observed=", ".join(f"{of.source}-{number} begins at offset {start}" for number, start in deleted.items()),
            remedy="What was deleted may have been counted rightly or not: it can no longer be proven.",
        )
    if all(found.end == 0 for found in offsets.values()):
        yield Observation(f"{of.source}: records", "at least 1", "none")
        return
    for topic in (of.source, of.repartition):
        positions = cluster.positions(of.application_id, topic)
        for number, found in cluster.offsets(topic).items():
            if number not in positions:
                yield Observation(f"position of group {of.application_id} in {topic}-{number}", "committed", "none")
            elif positions[number] > found.end:
                yield Observation(
                    f"position of group {of.application_id} in {topic}-{number}",
                    f"at most {found.end}, the end of the partition",
                    positions[number],
                )
    if not any(cluster.positions(of.application_id, of.source).values()):
        yield Observation(f"{of.source}: records processed", "at least 1", "none")


def _last_values(cluster: Cluster, topic: str, ends: Mapping[int, int]) -> tuple[dict[bytes, int], int]:
    """The total of each key, and how many keys have a value that is none."""
    last: dict[tuple[int, bytes | None], bytes | None] = {}
    starts = cluster.offsets(topic)
    for chunk in cluster.records(topic, {number: (starts[number].start, end) for number, end in ends.items()}):
        for record in chunk:
            last[record.partition, record.key] = record.value
    totals: Counter[bytes] = Counter()
    not_counts = 0
    for (_, key), value in last.items():
        if value is None:
            continue  # a tombstone: the key is gone
        if key is None or len(value) != 8:
            not_counts += 1
        else:  # a key in two partitions is for the co-partitioning check to find
            totals[key] += int.from_bytes(value, "big", signed=True)
    return dict(totals), not_counts


def _count_between(cluster: Cluster, topic: str, first: Mapping[int, int], last: Mapping[int, int]) -> dict[bytes, int]:
    """Records by key from ``first`` to ``last``; counted below 0 where ``last`` comes before ``first``."""
    counts: Counter[bytes] = Counter()
    ranges = {number: (min(first[number], last[number]), max(first[number], last[number])) for number in first}
    for chunk in cluster.records(topic, ranges):
        for record in chunk:
            if record.key is not None:  # a count ignores records without a key
                counts[record.key] += 1 if first[record.partition] < last[record.partition] else -1
    return dict(counts)


def _letters(
    cluster: Cluster, of: Aggregation, ends: Mapping[int, int], positions: Mapping[int, int]
) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
    """How often each (partition, offset) of the source below ``positions`` was dead-lettered; the topic's starts."""
    starts = {number: found.start for number, found in cluster.offsets(of.dead_letters).items()}
    letters: Counter[tuple[int, int]] = Counter()
    for chunk in cluster.records(of.dead_letters, {number: (starts[number], end) for number, end in ends.items()}):
        for record in chunk:
            origin = _origin(record, of)
            if origin is not None and origin[1] < positions.get(origin[0], 0):
                letters[origin] += 1
    return dict(letters), starts


def _origin(record: Record, of: Aggregation) -> tuple[int, int] | None:
    headers = dict(record.headers)  # the last of a name: ours are appended to the record's own
    task = (headers.get("streamplan.task") or b"").partition(b"_")[0]
    if headers.get("streamplan.source.topic") != of.source.encode() or task != b"%d" % of.subtopology:
        return None
    partition, offset = (headers.get(f"streamplan.source.{name}") or b"" for name in ("partition", "offset"))
    return (int(partition), int(offset)) if partition.isdigit() and offset.isdigit() else None


def _named(source: str, origins: Iterable[tuple[int, int]]) -> str:
    """``": orders-0 offset 7, ..."``; empty for none."""
    ordered = sorted(origins)
    listed = [f"{source}-{partition} offset {offset}" for partition, offset in ordered[:_SHOWN]]
    listed += [f"and {len(ordered) - _SHOWN} more"] if len(ordered) > _SHOWN else []
    return f" (see {', '.join(listed)})" if listed else ""


CHECK = Check(
    name="totals",
    title="Totals",
    healthy="Every record that was processed has its effect exactly once in what the pipeline holds and writes, or"
    " stands in the dead-letter topic. Recounted from the input up to the committed positions.",
    observe=observe,
)
