"""Co-partitioning: do partition counts agree, and does every record lie where its key says?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from zlib import crc32

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import (
    Check,
    CheckContext,
    NotApplicable,
    Observation,
    existing,
    not_judged,
)
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster, RecordBatch
from streamplan.kafka_types import OffsetRanges, Offsets
from streamplan.model.topics import ObservedTopic, TopicRole, TopicSpec, explain_changed_counts

NAMED_KEYS = 20
"""At most this many misplaced keys of a topic get a row each. The others are counted."""

ENOUGH_KEYS = 5
"""At least this many misplaced keys show that their producers place keys by CRC32."""

SAMPLED_RANGES = 20
"""The number of ranges that are read of each partition, where a topic has more records than are looked at."""

_CACHED_KEYS = 1_000_000
"""At most this many keys of a partition are remembered as being in place. Then they are computed again."""


@dataclass
class _Misplaced:
    """A key that lies in a partition where it does not belong."""

    partition: int
    belongs: int
    first_offset: int
    records: int = 0


@dataclass
class _Placement:
    """Where the records of a topic lie.

    Attributes:
        records: The number of records that were looked at.
        sampled: The number of offsets of which they are a sample; 0 when every record was looked at.
        all_crc32: Whether all keys, also those in place, lie where CRC32 puts them.
        keys: The misplaced keys, by key and partition.
        keyless: The number of records without a key.
        first_keyless: The partitions and offsets of the first of them.
    """

    records: int = 0
    sampled: int = 0
    all_crc32: bool = True
    keys: dict[tuple[bytes, int], _Misplaced] = field(default_factory=dict)
    keyless: int = 0
    first_keyless: list[tuple[int, int]] = field(default_factory=list)

    def add(self, part: _Placement) -> None:
        self.records += part.records
        self.all_crc32 &= part.all_crc32
        self.keyless += part.keyless
        self.first_keyless = sorted({*self.first_keyless, *part.first_keyless})[:NAMED_KEYS]
        for at, misplaced in part.keys.items():
            before = self.keys.setdefault(at, misplaced)
            if before is not misplaced:
                before.records += misplaced.records
                before.first_offset = min(before.first_offset, misplaced.first_offset)

    @property
    def wrong(self) -> int:
        return sum(misplaced.records for misplaced in self.keys.values())


@dataclass(frozen=True)
class CopartitioningCheck(Check):
    """Compares the partition counts of topics that belong together, then looks at the partition of every record."""

    name = "copartitioning"
    title = "Co-partitioning"
    healthy = (
        "Topics that are read together, and the changelogs of their stores, have the declared number of partitions, and"
        " every record of a repartition topic or changelog is in the partition that murmur2 gives its key."
    )
    advice = Advice.COPARTITIONING
    every_minutes = 60
    distributed = True

    full: bool = False

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Require a topic whose partitions must agree with those of another."""
        return None if application.keyed else NotApplicable("there is no repartition topic, changelog or join")

    def configure(self, context: CheckContext) -> Check:
        """Take whether to look at every record."""
        return replace(self, full=context.full)

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe partition counts and the placement of records; see :class:`Check`."""
        observed = existing(cluster, [spec.name for spec in application.keyed])
        if not observed:
            raise CouldNotLook(
                f"{application.application_id} has nothing that could be co-partitioned",
                expected="a repartition topic, a changelog or a join",
                observed="none",
            )
        if self.full:
            application = application.without_bounds()
        yield from _counts(application, observed)
        written = 0
        for spec in application.keyed:
            offsets = cluster.offsets(spec.name)
            written += sum(partition.last_stable for partition in offsets.values())
            yield from _placement(application, cluster, spec, observed[spec.name].partitions, offsets)
        if not written:
            subject = f"the placement of records of {application.application_id}"
            raise CouldNotLook(subject, expected="at least 1 record", observed="none")


def _counts(application: Application, observed: Mapping[str, ObservedTopic]) -> Iterable[Observation]:
    specs = {spec.name: spec for spec in application.keyed}
    others = [spec for spec in application.topics if not spec.owned]
    for subtopology in application.subtopologies:
        for topic in (*subtopology.sources, *subtopology.changelogs):
            if topic in specs and (expected := specs[topic].partitions):
                found = observed[topic].partitions
                remedy = explain_changed_counts(application.name, others) if others and found != expected else ""
                yield Observation(
                    f"{topic}: partitions ({subtopology.name})",
                    expected,
                    found,
                    remedy,
                    advice=Advice.PARTITION_COUNTS,
                )
    for group in application.groups:
        counts = {topic: observed[topic].partitions for topic in sorted(group)}
        listed = ", ".join(f"{topic}={count}" for topic, count in counts.items())
        alike = len(set(counts.values())) == 1
        expected_words = f"co-partitioned: [{{{listed}}}]"
        yield Observation(
            "topics that are joined",
            expected_words,
            expected_words if alike else f"Topics not {expected_words}",
            advice=Advice.PARTITION_COUNTS,
        )


def _placement(
    application: Application, cluster: Cluster, spec: TopicSpec, partitions: int, offsets: Mapping[int, Offsets]
) -> Iterable[Observation]:
    topic = spec.name
    if reason := application.unjudged.get(topic):
        yield not_judged(f"{topic}: records in the partition of their key", reason, topic=topic)
        return
    placement = attempt(lambda: _scan(application, cluster, spec, partitions, cluster.offsets(topic)))
    is_purged = not placement.records and any(partition.high_watermark for partition in offsets.values())
    purged = " (consumed and purged)" if is_purged else ""
    sample = (
        f" (a sample out of {placement.sampled:,} offsets: with 95% confidence at most 1 record in"
        f" {max(placement.records // 3, 1):,} is elsewhere, if such records are spread evenly)"
        if placement.sampled
        else ""
    )
    is_store = spec.role is TopicRole.CHANGELOG and not application.declared
    advice = Advice.OWN_KEYS if is_store else Advice.COPARTITIONING
    yield Observation(
        f"{topic}: records in the partition of their key{purged}{sample}",
        placement.records,
        placement.records - placement.wrong,
        advice=advice,
    )
    for (key, _), misplaced in list(placement.keys.items())[:NAMED_KEYS]:
        yield Observation(
            f"{topic}: key {spec.key_text(key)}",
            f"partition {misplaced.belongs}",
            f"partition {misplaced.partition} ({misplaced.records} records, first at offset {misplaced.first_offset})",
            f"in {topic}-{misplaced.partition}",
            advice=advice,
        )
    if len(placement.keys) > NAMED_KEYS:
        yield Observation(f"{topic}: further misplaced keys", 0, len(placement.keys) - NAMED_KEYS, advice=advice)
    yield from _keyless(application, spec, placement)
    # A few keys may lie where CRC32 puts them by chance.
    several = len(placement.keys) >= ENOUGH_KEYS
    if placement.keys and _is_crc32(spec, placement.keys, partitions) and (several or placement.all_crc32):
        yield Observation(
            f"{topic}: the partitioner of its producers",
            "murmur2, in librdkafka partitioner=murmur2_random",
            "CRC32, librdkafka's default partitioner",
            advice=Advice.CRC32,
        )


def _keyless(application: Application, spec: TopicSpec, placement: _Placement) -> Iterable[Observation]:
    """Yield a row where an internal topic has records without a key that the application cannot have written."""
    if spec.role not in (TopicRole.REPARTITION, TopicRole.CHANGELOG) or not placement.keyless:
        return
    subject = f"{spec.name}: records without a key"
    listed = ", ".join(f"{spec.name}-{partition} offset {offset}" for partition, offset in placement.first_keyless[:5])
    if spec.name not in application.null_keys:
        yield Observation(subject, 0, placement.keyless, f"first at {listed}", advice=Advice.NULL_KEY)
    elif reason := application.null_keys[spec.name]:
        yield not_judged(f"{spec.name}: {placement.keyless:,} records without a key", reason, topic=spec.name)


def _is_crc32(spec: TopicSpec, keys: Iterable[tuple[bytes, int]], partitions: int) -> bool:
    return all(crc32(spec.application_key(key)) % partitions == partition for key, partition in keys)


def _scan(
    application: Application, cluster: Cluster, spec: TopicSpec, partitions: int, offsets: Mapping[int, Offsets]
) -> _Placement:
    """Look at all committed records of a topic or at a sample."""
    total = sum(partition.last_stable - partition.log_start for partition in offsets.values())
    placement = _Placement(sampled=total if total > application.limits.scanned_records else 0)
    place = partial(_place, application, spec, partitions)
    for ranges in _ranges(offsets, application.limits.scanned_records):
        for part in cluster.map_batches(spec.name, ranges, place):
            placement.add(part)
    return placement


def _place(application: Application, spec: TopicSpec, partitions: int, batches: Iterator[RecordBatch]) -> _Placement:
    placement = _Placement()
    right: dict[int, set[bytes | None]] = {}
    for batch in batches:
        keys = batch.keys
        placement.records += len(keys)
        if None in keys:
            nulls = [(batch.partition, at) for at, key in zip(batch.offsets, keys, strict=True) if key is None]
            placement.keyless += len(nulls)
            placement.first_keyless = [*placement.first_keyless, *nulls][:NAMED_KEYS]
        known = right.setdefault(batch.partition, {None})
        wrong = {}
        for key in set(keys) - known:
            assert key is not None  # every set of known keys has None
            belongs = application.partition_of(spec, key, partitions)
            if belongs == batch.partition:
                known.add(key)
            else:
                wrong[key] = belongs
        if wrong:
            _note(placement, batch.partition, batch.offsets, keys, wrong)
        if len(known) > _CACHED_KEYS:
            del right[batch.partition]
    placed = ((key, partition) for partition, keys in right.items() for key in keys if key is not None)
    placement.all_crc32 = partitions > 1 and _is_crc32(spec, placed, partitions)
    return placement


def _note(
    placement: _Placement,
    partition: int,
    offsets: Sequence[int],
    keys: Sequence[bytes | None],
    wrong: Mapping[bytes, int],
) -> None:
    for offset, key in zip(offsets, keys, strict=True):
        if key is not None and key in wrong:
            misplaced = placement.keys.setdefault((key, partition), _Misplaced(partition, wrong[key], offset))
            misplaced.records += 1


def _ranges(offsets: Mapping[int, Offsets], most: int) -> Iterable[OffsetRanges]:
    """Yield what is read: everything, or random ranges of each partition that hold about ``most`` records in all."""
    total = sum(partition.last_stable - partition.log_start for partition in offsets.values())
    if total <= most:
        yield {number: (partition.log_start, partition.last_stable) for number, partition in offsets.items()}
        return
    random = Random(total)
    for step in range(SAMPLED_RANGES):
        ranges = {}
        for number, partition in offsets.items():
            stretch = (partition.last_stable - partition.log_start) / SAMPLED_RANGES
            length = stretch * most / total
            first = partition.log_start + step * stretch + random.random() * (stretch - length)
            ranges[number] = (int(first), min(int(first + length) + 1, partition.last_stable))
        yield ranges


CHECK = CopartitioningCheck()
