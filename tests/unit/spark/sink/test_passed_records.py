"""Records that go straight from Kafka to a topic from outside are judged as a plan judges them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from streamplan.model.dead_letters import Origin
from streamplan.model.left_out import REASON_LEFT_OUT
from streamplan.model.timestamps import timestamp_fault
from streamplan.serdes.json import Json
from streamplan.serdes.serde import MAX_BYTES, too_large
from streamplan.spark.headers import headers_as_text
from streamplan.spark.sink.writers import PassedRecords, TaskProgress

from tests.unit.spark.sink.test_planned_rows import FakeTransaction

LARGE = b'{"kind": 1, "pad": "%s"}'

RECORDS: list[tuple[bytes | None, bytes | None, int]] = [
    (b"a", b'{"kind": 7}', 1),
    (b"b", b"no JSON", 1),
    (b"c", None, 1),
    (None, b'{"kind": 8}', 1),
    (b"e", b"{}", 1),
    (b"f", b'{"kind": "7"}', 1),
    (b"g", LARGE % (b"x" * MAX_BYTES), 1),
    (b"h", LARGE % (b"x" * (MAX_BYTES - 30)), 1),
    (b"i", b'{"kind": 9}', -5),
    (b"j", b'{"kind": 9}', 1),
    (b"k", b"", 1),
]
"""Key, value and timestamp."""


class Written(FakeTransaction):
    """Collects keys and values."""

    def __init__(self) -> None:
        super().__init__({"orders": 0}, old=False)
        self.passed: list[tuple[bytes | None, bytes | None]] = []
        self.dead: list[tuple[bytes | None, bytes | None, str]] = []

    def produce(self, output: Any, keys: list[bytes], values: list[bytes], *more: Any) -> None:  # type: ignore[override]
        self.passed += zip(keys, values, strict=True)

    def dead_letter(self, letter: Any) -> None:
        self.dead.append((letter.key, letter.value, letter.reason))


@pytest.mark.parametrize(
    ("field", "keys"), [("kind", [b"7", None, b"8", None, b"1"]), ("", [b"a", b"c", None, b"e", b"h"])]
)
def test_a_record_without_key_or_value_passes(field: str, keys: list[bytes | None]) -> None:
    written = Written()
    left_out = frozenset({Origin("orders", 0, 9)})
    rows = batch(RECORDS)
    PassedRecords("orders", Json("kind int"), field, left_out).write(rows, TaskProgress(written))  # type: ignore[arg-type]
    assert written.passed == [*zip(keys, (RECORDS[n][1] for n in (0, 2, 3, 4, 7)), strict=True)]
    fault = timestamp_fault(-5)
    assert fault is not None
    reasons = {
        1: "the value is not JSON",
        5: "kind is not of type int",
        6: too_large(MAX_BYTES),
        8: fault,
        9: REASON_LEFT_OUT,
        10: "the value is not JSON: it is empty",
    }
    assert [(key, value) for key, value, _ in written.dead] == [RECORDS[number][:2] for number in reasons]
    for (_, _, reason), expected in zip(written.dead, reasons.values(), strict=True):
        assert reason.startswith(expected)


@pytest.mark.parametrize(("spare", "passes"), [(0, True), (20, False)])
@pytest.mark.parametrize("field", ["kind", ""])
def test_headers_count_where_there_is_no_key(field: str, spare: int, passes: bool) -> None:
    value = b'{"pad": "%s"}' % (b"x" * (MAX_BYTES - 120 + spare))
    rows = batch([(None, value, 1)])
    text = headers_as_text([("trace", b"1" * 90)])
    rows = rows.set_column(rows.schema.get_field_index("headers"), "headers", pa.array([text], pa.string()))
    written = Written()
    PassedRecords("orders", Json("kind int"), field).write(rows, TaskProgress(written))  # type: ignore[arg-type]
    assert bool(written.passed) == passes
    assert [reason for _, _, reason in written.dead] == ([] if passes else [too_large(MAX_BYTES)])


def batch(records: list[tuple[bytes | None, bytes | None, int]]) -> pa.RecordBatch:
    keys, values, timestamps = zip(*records, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(len(records)), pa.int64()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "headers": pa.nulls(len(records), pa.string()),
        }
    )
