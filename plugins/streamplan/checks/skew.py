"""Skew: does one partition, and so one stream task, have most of the work? And which keys are the reason?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, Observation, existing
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.checks.framework.task_inputs import TaskInput, read_inputs
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import Offsets
from streamplan.model.topics import TopicRole, TopicSpec

SAMPLED_OFFSETS = 100_000
"""At most this many of a topic's last offsets are read, spread over its partitions by their share."""

ENOUGH = 1_000
"""Fewer records say nothing about a share."""

ENOUGH_WITHOUT_KEYS = 100_000
"""Producers put records without a key into one partition for a whole batch, and then into another one."""

NAMED_KEYS = 3
"""At most this many of the greatest keys of a partition are named."""

_ENOUGH_OF_PARTITION = 100
"""The share of records among the offsets of a partition, and their size, are estimated from this many records."""


@dataclass
class _Sample:
    """What was read of one partition.

    Attributes:
        offsets: The number of offsets that were read.
        records: The number of records.
        size: The bytes of their keys and values.
        keys: The number of records of each key.
        key_bytes: The bytes of the records of each key.
    """

    offsets: int = 0
    records: int = 0
    size: int = 0
    keys: Counter[bytes | None] = field(default_factory=Counter)
    key_bytes: Counter[bytes | None] = field(default_factory=Counter)

    def add(self, keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            size = len(key or b"") + len(value or b"")
            self.records += 1
            self.size += size
            self.keys[key] += 1
            self.key_bytes[key] += size


@dataclass(frozen=True)
class _Shares:
    """The shares of the partitions of one topic, each between 0 and 1.

    Attributes:
        records: The share of the topic's records, by partition.
        sizes: The share of the topic's bytes, by partition; empty where too few records are left to tell.
        total: The number of records that the shares refer to.
        exact: Whether each of these records was read.
        basis: What else there is to say about that number.
        keyless: Whether most records have no key.
        samples: What was read, by partition.
        to_come: The number of offsets that the tasks which write the topic have not processed.
    """

    records: Mapping[int, float]
    sizes: Mapping[int, float]
    total: int
    exact: bool
    basis: str
    keyless: bool
    samples: Mapping[int, _Sample]
    to_come: int = 0


class SkewCheck(Check):
    """Compares the shares of the partitions of every topic that the application reads."""

    name = "skew"
    title = "Skew"
    healthy = (
        "No partition of a topic that is read has more than the declared share (80% by default) of its records or"
        " bytes, so that no stream task has most of the work."
    )
    advice = Advice.SKEW

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the share of each partition; see :class:`Check`."""
        specs = {spec.name: spec for spec in application.topics}
        existing(cluster, application.sources)
        inputs = read_inputs(application, cluster)
        rows: list[Observation] = []
        written = 0
        for topic in application.sources:
            to_come = _to_come(application, inputs, topic)
            shares = replace(attempt(partial(_read_shares, cluster, specs[topic])), to_come=to_come)
            written += shares.total
            rows += _rows(application, specs[topic], shares)
        if not written:
            raise CouldNotLook(
                f"the shares of the partitions of {application.application_id}",
                expected="at least 1 record",
                observed="none",
            )
        return rows


def _to_come(application: Application, inputs: Sequence[TaskInput], topic: str) -> int:
    """Count the offsets that the tasks which write a topic have not processed.

    One of these tasks may be ahead of the others, above all after a start. Then the partitions that it writes are ahead
    of the others, too, and that is no skew.
    """
    sources = {source for each in application.subtopologies if topic in each.outputs for source in each.sources}
    return sum(item.unprocessed_offsets for item in inputs if item.topic in sources)


def _read_shares(cluster: Cluster, spec: TopicSpec) -> _Shares:
    offsets = cluster.offsets(spec.name)
    return _shares(spec, offsets, _sample(cluster, spec.name, offsets))


def _sample(cluster: Cluster, topic: str, offsets: Mapping[int, Offsets]) -> Mapping[int, _Sample]:
    samples = {number: _Sample() for number in offsets}
    if len(offsets) < 2:
        return samples
    total = sum(partition.last_stable - partition.log_start for partition in offsets.values())
    share = min(SAMPLED_OFFSETS / total, 1.0) if total else 0.0
    ranges = {}
    for number, partition in offsets.items():
        samples[number].offsets = math.ceil((partition.last_stable - partition.log_start) * share)
        ranges[number] = (partition.last_stable - samples[number].offsets, partition.last_stable)
    for batch in cluster.read(topic, ranges):
        samples[batch.partition].add(batch.keys, batch.values)
    return samples


def _shares(spec: TopicSpec, offsets: Mapping[int, Offsets], samples: Mapping[int, _Sample]) -> _Shares:
    """Compute the shares from how many offsets a partition has, and from what the sample tells about them.

    What is left of a purged topic tells when each task last committed, and not where records go. So the shares of a
    purged topic are those of all offsets that it ever had.
    """
    left = {number: partition.last_stable - partition.log_start for number, partition in offsets.items()}
    ever = {number: partition.last_stable for number, partition in offsets.items()}
    purged = spec.role is TopicRole.REPARTITION and any(partition.log_start for partition in offsets.values())
    deleted = any(ever.values()) and (purged or not any(left.values()))
    exact = not deleted and all(sample.offsets == left[number] for number, sample in samples.items())
    looked_at = sum(sample.records for sample in samples.values())
    if exact:
        records = {number: float(sample.records) for number, sample in samples.items()}
        sizes = {number: float(sample.size) for number, sample in samples.items()}
    else:
        records, sizes = _estimate(ever if deleted else left, samples)
    return _Shares(
        records=_parts(records),
        sizes=_parts(sizes) if exact or looked_at >= ENOUGH else {},
        total=round(sum(records.values())),
        exact=exact,
        basis=", by the ends of the partitions, because records were deleted" if deleted else "",
        keyless=sum(sample.keys[None] for sample in samples.values()) > looked_at / 2,
        samples=samples,
    )


def _estimate(held: Mapping[int, int], samples: Mapping[int, _Sample]) -> tuple[dict[int, float], dict[int, float]]:
    """Estimate the records and the bytes of partitions from their offsets.

    The sample of a partition tells how many of its offsets are records, and how large they are. Where too little of a
    partition was read, it counts as if it were like the others.
    """
    known = {number: sample for number, sample in samples.items() if sample.records >= _ENOUGH_OF_PARTITION}
    every = _Sample(
        sum(sample.offsets for sample in known.values()) or 1,
        sum(sample.records for sample in known.values()) or 1,
        sum(sample.size for sample in known.values()) or 1,
    )
    like = {number: known.get(number, every) for number in held}
    records = {number: count * like[number].records / like[number].offsets for number, count in held.items()}
    return records, {number: count * like[number].size / like[number].records for number, count in records.items()}


def _parts(amounts: Mapping[int, float]) -> dict[int, float]:
    total = sum(amounts.values())
    return {number: amount / total for number, amount in amounts.items()} if total else {}


def _rows(application: Application, spec: TopicSpec, shares: _Shares) -> Iterable[Observation]:
    most = application.limits.partition_share
    allowed = f"at most {_percent(most)}"
    if len(shares.samples) < 2:
        yield Observation(f"{spec.name}: one partition has all", allowed, allowed)
        return
    enough = ENOUGH_WITHOUT_KEYS if shares.keyless else ENOUGH
    if shares.total < enough:
        few = f"{shares.total:,} record{'' if shares.total == 1 else 's'}{' without a key' if shares.keyless else ''}"
        yield Observation(f"{spec.name}: {few}, fewer than {enough:,} say nothing about a share", allowed, allowed)
        return
    basis = f"{'' if shares.exact else 'about '}{shares.total:,} records{shares.basis}"
    if shares.to_come:
        basis += f", and up to {shares.to_come:,} are to come"
    kept = shares.total / (shares.total + shares.to_come)  # of its share, if all that is to come goes elsewhere
    for number, share in sorted(shares.records.items()):
        size = shares.sizes.get(number)
        shown = f"{_percent(share)} of {basis}" + (f", {_percent(size)} of their bytes" if size is not None else "")
        wrong = []
        sample = shares.samples[number]
        if share * kept > most + 1e-9:
            wrong.append(f"{_percent(share)} of the records{_keys(spec, sample.keys, share, most)}")
        if size is not None and size * kept > most + 1e-9:
            wrong.append(f"{_percent(size)} of the bytes{_keys(spec, sample.key_bytes, size, most)}")
        yield Observation(f"{spec.name}-{number}: {shown}", allowed, " and ".join(wrong) or allowed)


def _keys(spec: TopicSpec, keys: Counter[bytes | None], share: float, most: float) -> str:
    """Name the greatest keys of a partition that has ``share`` of a topic, with their own shares of the topic.

    The share comes from many keys if the partition would have more than ``most`` without the greatest key.
    """
    total = sum(keys.values())
    if not total:
        return ", whose keys are gone"
    greatest = [(key, count / total * share) for key, count in keys.most_common(NAMED_KEYS)]
    named = ", ".join(
        f"{f'key {spec.key_text(key)}' if key is not None else 'no key'} {_percent(part)}" for key, part in greatest
    )
    first = greatest[0][1]
    if len(keys) > 1 and first < 1 and (share - first) / (1 - first) > most + 1e-9:
        return f" (from {len(keys):,} keys and not from one; the greatest: {named})"
    return f" ({named})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


CHECK = SkewCheck()
