"""Checkpoints as Spark leaves them, in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamplan.errors import StreamplanError
from streamplan.model.start_point import CheckpointState
from streamplan.spark.state import checkpoint_files as checkpoints

USED = "1-0a1b2c3d-200"


def batch(root: Path, number: int, ends: dict[str, dict[str, int]], *, finished: bool = True) -> None:
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True, exist_ok=True)
    about = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "2"}})
    sources = [json.dumps({topic: found}) for topic, found in ends.items()]
    (root / "streamplan.json").write_text("{}")
    (root / "offsets" / str(number)).write_text("\n".join(["v1", about, *sources]))
    if finished:
        (root / "commits" / str(number)).write_text("v1\n{}")


def test_what_spark_has_finished_is_that_of_its_commit_log(tmp_path: Path) -> None:
    batch(tmp_path / "app" / USED, 9, {"a": {"0": 5, "1": 6}, "b": {"0": 7}})
    batch(tmp_path / "app" / USED, 10, {"a": {"0": 8, "1": 9}, "b": {"0": 7}})
    batch(tmp_path / "app" / USED, 11, {"a": {"0": 50, "1": 60}, "b": {"0": 70}}, finished=False)
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1) == {"a": {0: 8, 1: 9}, "b": {0: 7}}
    assert checkpoints.committed_offsets(tmp_path.as_uri(), "app", 1) == {"a": {0: 8, 1: 9}, "b": {0: 7}}
    assert checkpoints.committed_offsets(f"file:{tmp_path}", "app", 1) == {"a": {0: 8, 1: 9}, "b": {0: 7}}


def test_before_the_first_micro_batch_is_finished_everything_may_be_read_again(tmp_path: Path) -> None:
    batch(tmp_path / "app" / USED, 0, {"a": {"0": 5}}, finished=False)
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1) == {"a": {0: 0}}


def test_a_checkpoint_is_found_by_the_id_that_kafka_names(tmp_path: Path) -> None:
    batch(tmp_path / "app" / "1-0a1b2c3d-200", 3, {"a": {"0": 5}})
    batch(tmp_path / "app" / "1-4e5f6a7b-300", 3, {"a": {"0": 6}})
    batch(tmp_path / "app" / "0-0a1b2c3d-400", 3, {"a": {"0": 7}})
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1, "0a1b2c3d") == {"a": {0: 5}}
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1, "99999999") is None


def test_without_an_id_it_is_the_complete_one_that_was_used_last(tmp_path: Path) -> None:
    for number, generation in enumerate((90, 200, 1000)):  # as numbers, not as text
        batch(tmp_path / "app" / f"1-0a1b2c3d-{generation}", 3, {"a": {"0": number}})
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1) == {"a": {0: 2}}
    (tmp_path / "app" / "1-0a1b2c3d-1000" / "streamplan.json").unlink()
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1) == {"a": {0: 1}}


def test_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.committed_offsets(str(tmp_path), "app", 1) is None
    assert not checkpoints.exists(str(tmp_path), "app")
    checkpoints.delete(str(tmp_path), "app")


def test_only_those_of_the_application_are_deleted(tmp_path: Path) -> None:
    for application in ("my-app", "my-app-v1"):
        batch(tmp_path / application / "0", 0, {"a": {"0": 5}})
    checkpoints.delete(str(tmp_path), "my-app")
    checkpoints.delete(str(tmp_path), "my-app")
    assert [path.name for path in tmp_path.iterdir()] == ["my-app-v1"]
    assert checkpoints.exists(str(tmp_path), "my-app-v1")


def test_a_place_that_cannot_be_reached_is_refused_with_what_to_do() -> None:
    with pytest.raises(StreamplanError, match=r"nowhere://host/checkpoints/app.*hadoop fs -rm"):
        checkpoints.delete("nowhere://host/checkpoints", "app")


def test_every_complete_checkpoint_is_read_with_what_it_says(tmp_path: Path) -> None:
    batch(tmp_path / "app" / "0-0a1b2c3d-200", 3, {"a": {"0": 5}})
    batch(tmp_path / "app" / "0-0a1b2c3d-200", 4, {"a": {"0": 8}}, finished=False)
    batch(tmp_path / "app" / "1-4e5f6a7b-300", 0, {"b": {"0": 6}}, finished=False)
    (tmp_path / "app" / "1-4e5f6a7b-300" / "sources" / "0").mkdir(parents=True)
    (tmp_path / "app" / "1-4e5f6a7b-300" / "sources" / "0" / "0").write_text('\0v1\n{"b": {"0": 2}}')
    (tmp_path / "app" / "1-4e5f6a7b-300" / "streamplan.json").write_text('{"store s": "Count()"}')
    batch(tmp_path / "app" / "2-4e5f6a7b-100", 0, {"c": {"0": 6}})
    (tmp_path / "app" / "2-4e5f6a7b-100" / "streamplan.json").unlink()  # not complete
    first, second = checkpoints.read_checkpoints(str(tmp_path), "app")
    assert [str(each.name) for each in (first, second)] == ["1-4e5f6a7b-300", "0-0a1b2c3d-200"]
    assert first.state == CheckpointState({"store s": "Count()"}, {("b", 0): 2}, {("b", 0): 6}, 0)
    assert second.state == CheckpointState({}, {("a", 0): 5}, {("a", 0): 8}, 4)
    assert second.has_read(["a", "b"])
    assert not second.has_read(["b"])
    assert checkpoints.read_checkpoints(str(tmp_path), "another") == []


def test_a_checkpoint_that_is_cut_off_says_so_and_may_have_read_anything(tmp_path: Path) -> None:
    batch(tmp_path / "app" / USED, 3, {"a": {"0": 5}})
    (tmp_path / "app" / USED / "offsets" / "3").write_text('v1\n{"a": {"0": ')
    (found,) = checkpoints.read_checkpoints(str(tmp_path), "app")
    assert "is cut off" in found.state.corruption
    assert found.has_read(["b"])
