from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark import TaskContext
from streamplan.spark.noted_records import NARROWED, NotedRecords, noted, noted_in

DYING = """
import os, signal
import pyarrow as pa
from pyspark import util
from streamplan.spark.noted_records import noted

batch = pa.RecordBatch.from_pydict({"topic": ["my-orders"] * 2, "partition": [3, 3], "offset": [17, 19]})
with util.enable_faulthandler():
    for _ in noted(iter([batch])):
        os.kill(os.getpid(), signal.%s)
"""


@pytest.mark.parametrize(("name", "has_traceback"), [("SIGSEGV", True), ("SIGKILL", False)])
def test_what_a_process_has_noted_outlives_it(tmp_path: object, name: str, has_traceback: bool) -> None:
    ended = subprocess.Popen(
        [sys.executable, "-c", DYING % name], env={"PYTHON_FAULTHANDLER_DIR": str(tmp_path), "PYTHONPATH": "plugins"}
    )
    assert ended.wait(120) < 0
    with open(f"{tmp_path}/{ended.pid}") as file:
        text = file.read()
    assert noted_in(f"Python worker exited unexpectedly (crashed): {text}") == NotedRecords("my-orders", 3, 17, 19)
    assert ("most recent call first" in text) is has_traceback


def test_the_error_of_a_worker_without_a_note_names_no_record() -> None:
    assert noted_in("Python worker exited unexpectedly (crashed)") is None


def test_only_the_records_of_which_one_ended_its_worker_are_processed_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that is tried again for another reason is as fast as before, and its functions see the same batches."""

    def batch(topic: str, partition: int, offsets: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {"topic": [topic] * len(offsets), "partition": [partition] * len(offsets), "offset": offsets}
        )

    given = [batch("orders", 3, [1, 2]), batch("orders", 3, [3, 5]), batch("orders", 0, [3, 4]), batch("x", 3, [4, 5])]

    class Context(TaskContext):
        _attemptNumber = 2
        _localProperties: ClassVar[dict[str, str]] = {}

        def __new__(cls) -> Context:
            return object.__new__(cls)

    monkeypatch.setattr(TaskContext, "_taskContext", Context())
    assert [made.num_rows for made in noted(iter(given))] == [2, 2, 2, 2]
    Context._localProperties = {NARROWED: str(NotedRecords("orders", 3, 4, 9))}
    assert [made["offset"].to_pylist() for made in noted(iter(given))] == [[1, 2], [3], [5], [3, 4], [4, 5]]
    Context._localProperties = {NARROWED: str(NotedRecords("*", 3, 4, 9))}  # the batch had records of several topics
    assert [made.num_rows for made in noted(iter(given))] == [2, 1, 1, 2, 1, 1]
