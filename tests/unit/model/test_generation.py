from __future__ import annotations

import time

import pytest
from streamplan.model.generation import Generation, PositionMetadata, named_checkpoint


@pytest.mark.parametrize(
    "metadata",
    [
        PositionMetadata(Generation(7, "host-1:123:abcd")),
        PositionMetadata(Generation(1763881234567, "host-1:123:abcd"), "3f2a9c1e"),
        PositionMetadata(Generation(1763881234567, "host-1:123:abcd"), "3f2a9c1e", 0),
        PositionMetadata(Generation(1763881234567, "stop/host-1:123:abcd"), "3f2a9c1e", 12),
        PositionMetadata(Generation(1763881234567, "host-1:123:abcd"), "3f2a9c1e", 12, start=1_000_000),
        PositionMetadata(Generation(1763881234567, "host-1:123:abcd"), start=7),
        PositionMetadata(Generation(1763881234567, "host-1:123:abcd"), "3f2a9c1e", 12, time=1763881230000),
        PositionMetadata(Generation(7, "host-1:123:abcd"), time=0),
    ],
)
def test_what_is_committed_is_read_back(metadata: PositionMetadata) -> None:
    assert PositionMetadata.parse(metadata.text) == metadata
    assert PositionMetadata.parse(f"{metadata.text}1") == metadata  # librdkafka reads on behind the end now and then
    assert (metadata.generation.host, metadata.generation.pid) == ("host-1", 123)


def test_the_checkpoint_of_a_sub_topology_is_the_one_that_all_its_positions_name() -> None:
    one, other = (PositionMetadata(Generation(7, "a"), name) for name in ("0a1b2c3d", "4e5f6a7b"))
    assert named_checkpoint([one, one]) == "0a1b2c3d"
    assert named_checkpoint([one, other]) == ""
    assert named_checkpoint([one, PositionMetadata(Generation(7, "a"))]) == ""
    assert named_checkpoint([]) == ""


def test_positions_of_older_versions_name_a_generation_and_no_checkpoint() -> None:
    metadata = PositionMetadata.parse("streamplan-generation 3 host:1:ab")
    assert metadata == PositionMetadata(Generation(3, "host:1:ab"), "", None)
    later = PositionMetadata.parse("streamplan-generation 3 host:1:ab 3f2a9c1e 4")
    assert later == PositionMetadata(Generation(3, "host:1:ab"), "3f2a9c1e", 4)


@pytest.mark.parametrize(
    "text",
    [None, "", "AgAAAY1x", "7 host:1:a", "streamplan-generation x host:1:a", "streamplan-generation 7"],
)
def test_positions_of_others_name_none(text: str | None) -> None:
    """Kafka Streams keeps a partition's time there, and tools leave it empty."""
    assert PositionMetadata.parse(text) is None


@pytest.mark.parametrize(
    ("other", "superseded"),
    [
        (None, False),
        (Generation(7, "a:1:x"), False),
        (Generation(8, "b:1:y"), True),
        (Generation(7, "b:1:y"), True),  # two that began at once: whoever came later has overwritten the other
        (Generation(6, "b:1:y"), True),  # after a reset, under a clock that is behind
    ],
)
def test_whoever_has_committed_the_positions_since_is_newer_whatever_the_clocks_say(
    other: Generation | None, superseded: bool
) -> None:
    assert Generation(7, "a:1:x").is_superseded_by(other) is superseded


def test_a_process_is_told_from_the_next_with_its_pid() -> None:
    assert Generation.of_this_process(None) != Generation.of_this_process(None)


def test_the_number_grows_where_nothing_is_known_any_more() -> None:
    """A reset deletes the positions; an aggregator that slept through it must not win over its successor."""
    sleeping = Generation.of_this_process(None)
    time.sleep(0.002)
    assert sleeping.is_superseded_by(Generation.of_this_process(None))


def test_the_number_grows_where_a_clock_is_behind() -> None:
    ahead = Generation(time.time_ns() // 1_000_000 + 3_600_000, "a:1:x")
    assert Generation.of_this_process(ahead).number == ahead.number + 1


def test_a_stop_is_told_from_a_start() -> None:
    assert Generation.of_this_process(None, stop=True).is_stop
    assert not Generation.of_this_process(None).is_stop


@pytest.mark.parametrize("stop", [False, True])
def test_an_application_that_stands_beside_another_one_is_told(stop: bool) -> None:
    beside = Generation.of_this_process(None, stop=stop, beside=True)
    alone = Generation.of_this_process(None, stop=stop)
    assert (beside.is_beside, beside.is_stop) == (True, stop)
    assert not alone.is_beside
    assert (beside.host, beside.pid) == (alone.host, alone.pid)
    assert PositionMetadata.parse(PositionMetadata(beside).text) == PositionMetadata(beside)
