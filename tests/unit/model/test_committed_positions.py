from __future__ import annotations

from collections.abc import Mapping

import pytest
from streamplan.errors import Refused
from streamplan.kafka_types import TopicPartition
from streamplan.model.committed_positions import (
    CommittedPosition,
    Extent,
    SubtopologyInput,
    latest_generation,
    resolve_positions,
)
from streamplan.model.generation import Generation, PositionMetadata, named_checkpoint

OLD = PositionMetadata(Generation(1000, "a:1:x"), "3f2a9c1e", 7)
NEW = Generation(2000, "b:2:y")
KAFKA_STREAMS = "AgAAAZ9LcdUM"
"""What kafka-streams 4.3.1 commits with a position: ``TopicPartitionMetadata.encode``."""


def committed(**offsets: int) -> dict[TopicPartition, CommittedPosition]:
    """``orders_0=5``: the position of an earlier aggregator in partition 0 of ``orders``."""
    return {
        (topic, int(number)): CommittedPosition(offset, OLD.text)
        for name, offset in offsets.items()
        for topic, number in [name.split("_")]
    }


def subtopology(
    id: int = 0, topic: str = "orders", *, log_start: int = 0, end: int = 10, written: int = 0, checkpoint: bool = False
) -> SubtopologyInput:
    extents = {(topic, partition): Extent(log_start, end) for partition in (0, 1)}
    return SubtopologyInput(id, extents, written, checkpoint)


def offsets_of(*subtopologies: SubtopologyInput, positions: Mapping[TopicPartition, CommittedPosition]) -> object:
    resolved = resolve_positions("app", subtopologies, positions)
    return {id: dict(value.offsets) for id, value in resolved.items()}


def test_a_new_application_begins_at_the_start_of_its_topics() -> None:
    assert offsets_of(subtopology(log_start=3), positions={}) == {0: {("orders", 0): 3, ("orders", 1): 3}}


def test_positions_are_taken_where_they_are() -> None:
    positions = committed(orders_0=5, orders_1=0)
    assert offsets_of(subtopology(), positions=positions) == {0: {("orders", 0): 5, ("orders", 1): 0}}


@pytest.mark.parametrize(
    ("positions", "faulty", "message"),
    [
        ({}, subtopology(checkpoint=True), "has no position for orders-0, orders-1"),
        ({}, subtopology(written=1), "has no position for orders-0, orders-1"),
        (committed(orders_0=5), subtopology(), "has no position for orders-1"),
        (committed(orders_0=5, orders_1=11), subtopology(), "beyond the end .* orders-1 at 10 at most, .* at 11"),
        (
            {**committed(orders_0=5), ("orders", 1): CommittedPosition(5, "")},
            subtopology(),
            "orders-1 at 5, with the metadata ''",
        ),
        (
            {("orders", 0): CommittedPosition(5, "AgAAAY1x"), ("orders", 1): CommittedPosition(5, "AgAAAY1x")},
            subtopology(),
            "an aggregator of this application committed",
        ),
        ({("orders", 0): CommittedPosition(5, KAFKA_STREAMS)}, subtopology(), "no position for orders-1.* stop it"),
        (
            {("orders", 0): CommittedPosition(5, KAFKA_STREAMS), ("orders", 1): CommittedPosition(5, "")},
            subtopology(),
            "orders-1 at 5, with the metadata ''",
        ),
    ],
)
def test_positions_that_an_aggregator_did_not_leave_are_refused(
    positions: Mapping[TopicPartition, CommittedPosition], faulty: SubtopologyInput, message: str
) -> None:
    with pytest.raises(Refused, match=message):
        resolve_positions("app", [faulty], positions)


def test_input_is_not_read_again_where_the_next_sub_topology_has_processed_it() -> None:
    """Somebody deleted the positions of one topic: what was made of it is in the repartition topic already."""
    with pytest.raises(Refused, match="has no position for orders-0, orders-1"):
        offsets_of(
            subtopology(0, "orders", written=10),
            subtopology(1, "repartition"),
            positions=committed(repartition_0=5, repartition_1=5),
        )


def test_a_sub_topology_that_was_added_begins_at_the_start_of_its_topics() -> None:
    resolved = offsets_of(
        subtopology(0, "orders"), subtopology(1, "customers"), positions=committed(orders_0=5, orders_1=5)
    )
    assert resolved == {
        0: {("orders", 0): 5, ("orders", 1): 5},
        1: {("customers", 0): 0, ("customers", 1): 0},
    }


def test_a_claim_keeps_the_checkpoint_that_the_positions_name() -> None:
    resolved = resolve_positions("app", [subtopology()], committed(orders_0=5, orders_1=5))[0]
    assert set(resolved.claimed(NEW).values()) == {PositionMetadata(NEW, "3f2a9c1e", 7)}


def test_a_claim_of_a_new_application_names_no_checkpoint() -> None:
    resolved = resolve_positions("app", [subtopology()], {})[0]
    assert set(resolved.claimed(NEW).values()) == {PositionMetadata(NEW)}


def test_the_newest_generation_is_found_beside_positions_of_others() -> None:
    positions = [CommittedPosition(1, ""), CommittedPosition(1, OLD.text), CommittedPosition(1, "AgAAAY1x")]
    assert latest_generation(positions) == OLD.generation
    assert latest_generation([]) is None


def test_a_new_application_begins_at_its_start_and_says_so_from_then_on() -> None:
    extents = {("orders", 0): Extent(5, 90), ("orders", 1): Extent(0, 40), ("names", 0): Extent(0, 8)}
    new = SubtopologyInput(0, extents, starts={("orders", 0): 70, ("orders", 1): 40})
    resolved = resolve_positions("app", [new], {})[0]
    assert resolved.offsets == {("orders", 0): 70, ("orders", 1): 40, ("names", 0): 0}
    metadata = resolved.claimed(NEW)
    assert {place: found.start for place, found in metadata.items()} == resolved.offsets
    committed = {place: CommittedPosition(found.start + 5, found.text) for place, found in metadata.items()}
    later = Generation(NEW.number + 1, "c:3:z")
    again = resolve_positions("app", [SubtopologyInput(0, {**extents, ("orders", 1): Extent(0, 99)})], committed)[0]
    assert {place: found.start for place, found in again.claimed(later).items()} == resolved.offsets


def test_positions_of_kafka_streams_are_taken_over() -> None:
    """It commits no position in a partition of which it has read no record."""
    extents = {("orders", 0): Extent(0, 10), ("orders", 1): Extent(7, 7)}
    taken = {("orders", 0): CommittedPosition(5, KAFKA_STREAMS)}
    resolved = resolve_positions("app", [SubtopologyInput(0, extents, written=5)], taken)[0]
    assert resolved.offsets == {("orders", 0): 5, ("orders", 1): 7}
    assert resolved.claimed(NEW) == {
        ("orders", 0): PositionMetadata(NEW),  # it names no checkpoint, and the application read from the beginning
        ("orders", 1): PositionMetadata(NEW, start=7),
    }


def test_a_checkpoint_is_of_no_use_once_kafka_streams_has_gone_on() -> None:
    mixed = committed(orders_0=5, orders_1=5) | {("orders", 1): CommittedPosition(8, KAFKA_STREAMS)}
    resolved = resolve_positions("app", [subtopology()], mixed)[0]
    assert named_checkpoint(resolved.metadata.values()) == ""


def test_what_stands_behind_the_metadata_of_kafka_streams_does_not_matter() -> None:
    """Metadata of processors may follow the partition time."""
    assert CommittedPosition(5, f"{KAFKA_STREAMS}AAAAAQ==").is_of_kafka_streams
    assert not CommittedPosition(5, KAFKA_STREAMS[:-1]).is_of_kafka_streams
    assert not CommittedPosition(5, "streamplan-g").is_of_kafka_streams
