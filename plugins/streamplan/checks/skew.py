"""Skew: does one partition, and so one stream task, have most of the work? And which keys give it that?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, Observation, existing
from streamplan.checks.framework.cluster import Cluster, Offsets
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.model.topics import TopicRole, TopicSpec

LOOKED_AT = 100_000
"""So many of a topic's last offsets, spread over its partitions by their share."""

ENOUGH = 1_000
"""Fewer records say nothing about a share."""

ENOUGH_WITHOUT_KEYS = 100_000
"""Producers put records without a key into one partition for a batch at a time, and then into another."""

NAMED_KEYS = 3

_ENOUGH_OF_PARTITION = 100
"""So many of its records tell how many of its offsets are records, and how large they are."""


@dataclass
class _Sample:
    """What was looked at of a partition. Keys with their records, and with their bytes."""

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
    """Of one topic, by partition. ``sizes``, in bytes, is empty where too few records are left to tell.

    ``total``    records that the shares are of; ``exact``: each of them was looked at
    ``basis``    what else there is to say of that
    ``keyless``  whether most have no key
    """

    records: Mapping[int, float]
    sizes: Mapping[int, float]
    total: int
    exact: bool
    basis: str
    keyless: bool
    samples: Mapping[int, _Sample]


class SkewCheck(Check):
    """Compares the shares of the partitions of every topic that the application reads."""

    name = "skew"
    title = "Skew"
    healthy = (
        "No partition of a topic that is read has more of its records, or of their bytes, than the declared share"
        " (80% unless declared otherwise): else one stream task has most of the work."
    )

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the share of each partition; see :class:`Check`."""
        specs = {spec.name: spec for spec in application.topics}
        topics = list(dict.fromkeys(topic for tasks in application.tasks for topic in tasks.sources))
        existing(cluster, topics)
        rows: list[Observation] = []
        written = 0
        for topic in topics:
            found = attempt(partial(_read_shares, cluster, specs[topic]))
            written += found.total
            rows += _rows(application, specs[topic], found)
        if not written:
            raise CouldNotLook(
                f"the shares of the partitions of {application.application_id}",
                expected="at least 1 record",
                observed="none",
            )
        return rows


def _read_shares(cluster: Cluster, spec: TopicSpec) -> _Shares:
    offsets = cluster.offsets(spec.name)
    return _shares(spec, offsets, _sample(cluster, spec.name, offsets))


def _sample(cluster: Cluster, topic: str, offsets: Mapping[int, Offsets]) -> Mapping[int, _Sample]:
    samples = {number: _Sample() for number in offsets}
    if len(offsets) < 2:
        return samples
    total = sum(found.last_stable - found.log_start for found in offsets.values())
    share = min(LOOKED_AT / total, 1.0) if total else 0.0
    ranges = {}
    for number, found in offsets.items():
        samples[number].offsets = math.ceil((found.last_stable - found.log_start) * share)
        ranges[number] = (found.last_stable - samples[number].offsets, found.last_stable)
    for batch in cluster.read(topic, ranges):
        samples[batch.partition].add(batch.keys, batch.values)
    return samples


def _shares(spec: TopicSpec, offsets: Mapping[int, Offsets], samples: Mapping[int, _Sample]) -> _Shares:
    """From how many offsets a partition has, and what the sample tells of them.

    What is left of a purged topic tells when each task last committed and not where records go: its shares are those
    of all offsets there ever were.
    """
    left = {number: found.last_stable - found.log_start for number, found in offsets.items()}
    ever = {number: found.last_stable for number, found in offsets.items()}
    purged = spec.role is TopicRole.REPARTITION and any(found.log_start for found in offsets.values())
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
        basis=", by the ends of the partitions, for records were deleted" if deleted else "",
        keyless=sum(sample.keys[None] for sample in samples.values()) > looked_at / 2,
        samples=samples,
    )


def _estimate(held: Mapping[int, int], samples: Mapping[int, _Sample]) -> tuple[dict[int, float], dict[int, float]]:
    """Records and bytes of partitions that hold so many offsets.

    How many of its offsets are records, and how large they are: a partition of which too little was looked at is taken
    to be like the others.
    """
    known = {number: sample for number, sample in samples.items() if sample.records >= _ENOUGH_OF_PARTITION}
    every = _Sample(
        sum(sample.offsets for sample in known.values()) or 1,
        sum(sample.records for sample in known.values()) or 1,
        sum(sample.size for sample in known.values()) or 1,
    )
    like = {number: known.get(number, every) for number in held}
    found = {number: count * like[number].records / like[number].offsets for number, count in held.items()}
    return found, {number: count * like[number].size / like[number].records for number, count in found.items()}


def _parts(amounts: Mapping[int, float]) -> dict[int, float]:
    total = sum(amounts.values())
    return {number: amount / total for number, amount in amounts.items()} if total else {}


def _rows(application: Application, spec: TopicSpec, found: _Shares) -> Iterable[Observation]:
    most = application.limits.partition_share
    allowed = f"at most {_percent(most)}"
    if len(found.samples) < 2:
        yield Observation(f"{spec.name}: one partition has all", allowed, allowed)
        return
    enough = ENOUGH_WITHOUT_KEYS if found.keyless else ENOUGH
    if found.total < enough:
        few = f"{found.total:,} record{'' if found.total == 1 else 's'}{' without a key' if found.keyless else ''}"
        yield Observation(f"{spec.name}: {few}, fewer than {enough:,} say nothing about a share", allowed, allowed)
        return
    of = f"{'' if found.exact else 'about '}{found.total:,} records{found.basis}"
    for number, share in sorted(found.records.items()):
        size = found.sizes.get(number)
        shown = f"{_percent(share)} of {of}" + (f", {_percent(size)} of their bytes" if size is not None else "")
        wrong = []
        sample = found.samples[number]
        if share > most + 1e-9:
            wrong.append(f"{_percent(share)} of the records{_keys(spec, sample.keys, share, most)}")
        if size is not None and size > most + 1e-9:
            wrong.append(f"{_percent(size)} of the bytes{_keys(spec, sample.key_bytes, size, most)}")
        yield Observation(f"{spec.name}-{number}: {shown}", allowed, " and ".join(wrong) or allowed)


def _keys(spec: TopicSpec, keys: Counter[bytes | None], share: float, most: float) -> str:
    """The greatest keys of a partition that has ``share`` of a topic, with their own shares of the topic.

    It comes from many keys when the greatest could go and the partition would still have more than ``most``.
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
