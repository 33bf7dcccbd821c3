from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

from streamplan.spark.submit import import_path
from streamplan.testing import DeadLetter, SessionKey, TestRecord, WindowedKey, as_text

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_records_as_text_have_a_line_each_with_fields_in_one_order() -> None:
    records = [
        TestRecord("k", {"b": 1, "a": "é"}, NOON),
        TestRecord(None, None, NOON, (("trace", b"1"), ("none", None)), partition=3),
        TestRecord(WindowedKey("DE", NOON), 7, NOON.replace(microsecond=5000)),
        TestRecord(SessionKey("ann", NOON, NOON.replace(minute=4)), None, NOON.replace(minute=4)),
        TestRecord(b"\xff", {}, NOON),
    ]
    assert as_text(records) == (
        '2026-01-31T12:00:00.000Z  k  {"a": "é", "b": 1}\n'
        "2026-01-31T12:00:00.000Z  null  null  trace=1  none=null\n"
        "2026-01-31T12:00:00.005Z  DE at 2026-01-31T12:00:00Z  7\n"
        "2026-01-31T12:04:00.000Z  ann at 2026-01-31T12:00:00Z/2026-01-31T12:04:00Z  null\n"
        "2026-01-31T12:00:00.000Z  b'\\xff'  {}\n"
    )


def test_a_dead_letter_as_text_ends_with_its_reason() -> None:
    letter = DeadLetter("the value is not JSON", "orders", 0, 7, "k", b"no JSON", None, (), "0_0")
    assert as_text([letter]) == "no time  k  no JSON  orders: the value is not JSON\n"


def test_the_package_and_its_pytest_plugin_load_neither_spark_nor_kafka() -> None:
    code = "import sys, streamplan.testing.pytest_plugin as p; print([m for m in sys.modules if m in %r])"
    heavy = ("pyspark", "confluent_kafka", "pyarrow", "airflow", "great_expectations")
    environment = {**os.environ, "PYTHONPATH": import_path(os.environ)}
    argv = [sys.executable, "-c", code % (heavy,)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[]\n"
