from __future__ import annotations

import subprocess
import sys

import pytest
from streamplan.spark.noted_records import NotedRecords, noted_in

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
