"""What waits for a match in a left or outer join, when an application takes over from another one.

A record is passed without a match when time has gone on, and when exactly depends on where micro-batches end. So at the
same positions two applications with the same declaration may have passed different ones. Those that the old one has
passed are in the outputs. The others are passed by the new one: the records that wait in the old one, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.copying import PlacedRecord, all_records, last_values
from streamplan.model.operations import OuterJoinSide, StoreForJoin
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import TopicSpec
from streamplan.model.windows import TIME_AND_SIDE_BYTES, parse_stored_window

_TIME_BYTES = 8


@dataclass(frozen=True)
class Waiting:
    """What the shared store of a join gets, so that the same records wait in it as in that of the old application.

    Attributes:
        store: The name of the store.
        changelog: Its changelog.
        rows: The records that the changelog gets: those that wait in the old one alone, and null values for the others.
        left_out: How many keys have records that wait in the old one, and that the new one does not have at all.
    """

    store: str
    changelog: str
    rows: Sequence[PlacedRecord]
    left_out: int


def plan_waiting(pipeline: Pipeline, cluster: KafkaCluster) -> Iterator[Waiting]:
    """Compare what waits in the left and outer joins of both applications, which have the same positions.

    Args:
        pipeline: The declaration, with ``upgrade_from``.
    """
    specs = {spec.name: spec for spec in pipeline.internal_topics()}
    for group, node in pipeline.stores:
        if not isinstance(node.operation, OuterJoinSide):
            continue
        spec = specs[pipeline.topology.changelog_topic(str(node.store))]
        old = replace(spec, name=f"{pipeline.upgrade_from}-{node.store}-changelog")
        if old.name not in cluster.topics([old.name]):
            continue
        sides = [side.store for side in group.processors if isinstance(side.operation, StoreForJoin)]
        stored = [specs[pipeline.topology.changelog_topic(str(side))] for side in sides]
        yield _plan(str(node.store), cluster, old, spec, stored)


def _plan(store: str, cluster: KafkaCluster, old: TopicSpec, spec: TopicSpec, stored: Sequence[TopicSpec]) -> Waiting:
    before, after = ({row.record.key: row for row in last_values(cluster, each)} for each in (old, spec))
    rows = [
        PlacedRecord(row.partition, row.record._replace(value=None)) for key, row in after.items() if key not in before
    ]
    missing = [row for key, row in before.items() if key not in after]
    known = _stored_records(cluster, stored) if missing else set()
    taken = [row for row in missing if _records_at(row) <= known]
    return Waiting(store, spec.name, [*rows, *taken], len(missing) - len(taken))


def _stored_records(cluster: KafkaCluster, stored: Sequence[TopicSpec]) -> set[tuple[bytes, int, bytes]]:
    """Key, time and value of each record that the join can still meet."""
    found = set()
    for spec in stored:
        for record in all_records(cluster, spec.name):
            place = None if record.key is None else parse_stored_window(record.key)
            if place is not None and record.value is not None:
                found.add((place.key, place.start_ms, record.value))
    return found


def _records_at(row: PlacedRecord) -> set[tuple[bytes, int, bytes]]:
    """Key, time and value of each record that waits at one place."""
    from streamplan.spark.planning.outer_join_state import parse_stored_list  # imports PySpark

    place, value = row.record.key or b"", row.record.value or b""
    at, key = int.from_bytes(place[:_TIME_BYTES], "big"), place[TIME_AND_SIDE_BYTES:]
    return {(key, at, each[1:]) for each in parse_stored_list(value)}  # the first byte says the side
