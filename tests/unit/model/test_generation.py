from __future__ import annotations

import pytest
from streamplan.model.generation import Generation


def test_what_is_committed_comes_back() -> None:
    own = Generation(7, "host-1:123:abcd")
    assert Generation.parse(own.metadata) == own
    assert (own.host, own.pid) == ("host-1", 123)


@pytest.mark.parametrize("metadata", [None, "", "AgAAAY1x", "7 host:1:a", "streamplan-generation x host:1:a"])
def test_positions_of_others_name_none(metadata: str | None) -> None:
    """Kafka Streams keeps a partition's time there, and tools leave it empty."""
    assert Generation.parse(metadata) is None


@pytest.mark.parametrize(
    ("other", "yields"),
    [
        (None, False),
        (Generation(7, "a:1:x"), False),
        (Generation(6, "b:1:y"), False),
        (Generation(8, "b:1:y"), True),
        (Generation(7, "b:1:y"), True),  # two that began at once: whoever came later has overwritten the other
    ],
)
def test_the_newest_stays(other: Generation | None, yields: bool) -> None:
    assert Generation(7, "a:1:x").is_superseded_by(other) is yields


def test_a_process_is_told_from_the_next_with_its_pid() -> None:
    assert Generation.of_this_process(1) != Generation.of_this_process(1)
