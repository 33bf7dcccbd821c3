"""Compares what the stores of two applications hold, by their changelogs.

The values are compared in bytes. JSON that differs is compared again with a tolerance for floating-point numbers: a sum
of them depends on the order of its parts, and so on where micro-batches end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamplan.kafka_port import Cluster, RecordsGone
from streamplan.maintenance.evolution_plan import in_words
from streamplan.maintenance.upgrade_plan import StoreComparison
from streamplan.model.checkpoint_identity import store_content
from streamplan.model.operations import BufferRecords, OuterJoinSide, Process, StoreForJoin
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.observability.lookup import as_text
from streamplan.serdes.json_documents import parse_plain
from streamplan.serdes.serde import Undecodable

Ends = Mapping[str, Mapping[int, int]]
"""By changelog and partition an offset."""

_EXAMPLES = 5
_TOLERANCE = 1e-9
_ATTEMPTS = 3


def old_changelogs(pipeline: Pipeline, cluster: Cluster) -> Mapping[str, str]:
    """Return the changelogs of the old application that belong to stores of the declaration, by the store's name."""
    names = {
        str(node.store): f"{pipeline.upgrade_from}-{node.store}-changelog"
        for _, node in pipeline.stores
        if not isinstance(node.operation, StoreForJoin | OuterJoinSide)
    }
    existing = cluster.topics([*names.values()])
    return {store: topic for store, topic in names.items() if topic in existing}


def compare_stores(
    pipeline: Pipeline, cluster: Cluster, held: Mapping[str, str], ends: Ends | None
) -> tuple[StoreComparison, ...]:
    """Compare the stores of an application with those of the one that it takes over from.

    Args:
        pipeline: The declaration, with ``upgrade_from``.
        held: By store what the old application's holds, as far as it is known.
        ends: The ends of the old changelogs at the moment up to which the new stores were built; None for their present
            ends. A key that has changed behind them is left out.
    """
    changelogs = old_changelogs(pipeline, cluster)
    specs = {spec.name: spec for spec in pipeline.internal_topics() if spec.role is TopicRole.CHANGELOG}
    return tuple(
        _compare(pipeline, cluster, group, node, specs, changelogs, held, ends) for group, node in pipeline.stores
    )


def _compare(
    pipeline: Pipeline,
    cluster: Cluster,
    group: Subtopology,
    node: Processor,
    specs: Mapping[str, TopicSpec],
    changelogs: Mapping[str, str],
    held: Mapping[str, str],
    ends: Ends | None,
) -> StoreComparison:
    store = str(node.store)
    if isinstance(node.operation, StoreForJoin | OuterJoinSide | BufferRecords):
        return StoreComparison(store, "it has records that wait for others, and no totals", has_totals=False)
    if store not in changelogs:
        return StoreComparison(store, f"{pipeline.upgrade_from} has no store of this name")
    declared = store_content(group, node)
    if held.get(store, declared) != declared:
        return StoreComparison(store, f"it held {in_words(held[store])}, and {in_words(declared)} is declared")
    spec = specs[pipeline.topology.changelog_topic(store)]
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            found = _compare_changelogs(cluster, changelogs[store], spec, ends, _ttl_ms(node))
            break
        except RecordsGone:
            if attempt == _ATTEMPTS:
                raise
    return StoreComparison(store, "", store in held, *found)


def _ttl_ms(node: Processor) -> float:
    ttl_ms = node.operation.ttl_ms if isinstance(node.operation, Process) else None
    return math.inf if ttl_ms is None else ttl_ms


def _compare_changelogs(
    cluster: Cluster, old: str, spec: TopicSpec, ends: Ends | None, ttl_ms: float
) -> tuple[int, int, int, tuple[str, ...]]:
    """Return how many keys are equal, have changed since, and differ; and some of the last."""
    equal = changed = different = 0
    examples: list[str] = []
    expired = time.time() * 1000 - int(spec.configs["retention.ms"]) if "retention.ms" in spec.configs else 0
    old_partitions, partitions = [*cluster.offsets(old)], [*cluster.offsets(spec.name)]
    shares: Sequence[tuple[Sequence[int], Sequence[int]]] = [(old_partitions, partitions)]
    if len(old_partitions) == len(partitions):  # a part at a time takes less memory
        shares = [([number], [number]) for number in partitions]
    for old_share, share in shares:
        before = _last_values(cluster, old, old_share, expired, None if ends is None else ends.get(old, {}))
        after = _last_values(cluster, spec.name, share, expired, None)
        # When the tombstone of a value comes that is gone by its time to live depends on when the store is searched.
        gone = max(before.newest, after.newest) - ttl_ms
        held, holds = before.later_than(gone), after.later_than(gone)
        for key in held.keys() | holds.keys():
            if key in before.since:
                changed += 1
            elif _are_equal(held.get(key), holds.get(key)):
                equal += 1
            else:
                different += 1
                if len(examples) < _EXAMPLES:
                    values = (as_text(held.get(key)), as_text(holds.get(key)))
                    texts = ["nothing" if value is None else value for value in values]
                    examples.append(f"{spec.key_text(key)}: it was {texts[0]}, and is {texts[1]}")
    return equal, changed, different, tuple(examples)


@dataclass
class _LastValues:
    """What partitions of a changelog hold.

    Attributes:
        values: By key the last value, and its time in ms.
        since: The keys that have changed since the moment that is compared.
        newest: The newest time of a record before it, in ms.
    """

    values: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    since: set[bytes] = field(default_factory=set)
    newest: float = -math.inf

    def later_than(self, at: float) -> dict[bytes, bytes]:
        return {key: value for key, (value, put_at) in self.values.items() if put_at > at}


def _last_values(
    cluster: Cluster, topic: str, partitions: Sequence[int], expired: float, ends: Mapping[int, int] | None
) -> _LastValues:
    """Return the last value of each key, and the keys that have changed behind ``ends``.

    What the brokers may have deleted already, for it is older than the topic's retention, is left out.
    """
    offsets = cluster.offsets(topic)
    ranges = {number: (offsets[number].log_start, offsets[number].last_stable) for number in partitions}
    found = _LastValues()
    for batch in cluster.read(topic, ranges):
        end = math.inf if ends is None else ends.get(batch.partition, 0)
        for key, value, offset, timestamp in zip(
            batch.keys, batch.values, batch.offsets, batch.timestamps, strict=True
        ):
            if key is None:
                continue
            if offset >= end:
                found.since.add(key)
                continue
            found.newest = max(found.newest, timestamp)
            if value is None or timestamp < expired:
                found.values.pop(key, None)
            else:
                found.values[key] = value, timestamp
    return found


def _are_equal(one: bytes | None, other: bytes | None) -> bool:
    if one == other or one is None or other is None:
        return one == other
    try:
        return _are_close(parse_plain(one), parse_plain(other))
    except Undecodable:
        return False


def _are_close(one: Any, other: Any) -> bool:
    pairs = [(one, other)]
    while pairs:  # The stack of the caller does not limit how deep they nest.
        match pairs.pop():
            case dict(left), dict(right):
                if left.keys() != right.keys():
                    return False
                pairs += ((left[name], right[name]) for name in left)
            case list(left), list(right):
                if len(left) != len(right):
                    return False
                pairs += zip(left, right, strict=True)
            case float(left), float(right):
                if not math.isclose(left, right, rel_tol=_TOLERANCE):
                    return False
            case left, right:
                if type(left) is not type(right) or left != right:
                    return False
    return True
