"""The names of checkpoints, without files."""

from __future__ import annotations

from streamplan.spark.state.checkpoint_name import CheckpointName, left_over, newest_first

USED = CheckpointName(1, "0a1b2c3d", 200)
DIRECTORY = ["0-0a1b2c3d-900", "1", "1.replaced", "1-0a1b2c3d-90", "1-0a1b2c3d-200", "1-4e5f6a7b-100", "1-x-7", "10"]


def test_a_name_says_what_it_was_made_from() -> None:
    assert CheckpointName.parse(str(USED)) == USED
    assert CheckpointName.parse("1") == CheckpointName(1)  # as before there were ids
    assert CheckpointName.parse("1.replaced") is None
    assert CheckpointName.parse("1-x-7") is None


def test_every_new_checkpoint_has_an_id_of_its_own() -> None:
    first, second = CheckpointName.new(1, 200), CheckpointName.new(1, 200)
    assert first != second
    assert CheckpointName.parse(str(first)) == first


def test_the_checkpoint_that_was_used_last_comes_first() -> None:
    assert [str(name) for name in newest_first(DIRECTORY, 1)] == [
        "1-0a1b2c3d-200",
        "1-4e5f6a7b-100",
        "1-0a1b2c3d-90",
        "1",
    ]
    assert [name.generation for name in newest_first(DIRECTORY, 1, "0a1b2c3d")] == [200, 90]
    assert newest_first(DIRECTORY, 1, "99999999") == []


def test_those_of_older_generations_are_left_over() -> None:
    assert [str(name) for name in left_over(DIRECTORY, USED)] == ["1-4e5f6a7b-100", "1-0a1b2c3d-90", "1"]


def test_what_a_newer_aggregator_uses_is_never_left_over() -> None:
    """An older one that wakes up must not delete it."""
    assert left_over(["1-0a1b2c3d-200", "1-4e5f6a7b-300", "1-4e5f6a7b-400"], USED) == []
