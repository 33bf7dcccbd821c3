"""Which micro-batches the driver writes."""

from __future__ import annotations

from streamplan.spark.sink.driver import DriverShare


def _share(*, possible: bool = True, record_bytes: int = 100) -> DriverShare:
    share = DriverShare(possible)
    assert not share.takes(10, 2)  # nobody knows yet how large a record is
    share.note(10, 10 * record_bytes)
    return share


def test_the_driver_writes_from_the_second_small_micro_batch_on() -> None:
    share = _share()
    assert [share.takes(1000, 2) for _ in range(3)] == [False, True, True]


def test_workers_write_a_large_micro_batch_and_the_next_one() -> None:
    share = _share()
    assert [share.takes(records, 2) for records in (10, 10, 500_000, 10, 10)] == [False, True, False, False, True]


def test_workers_write_few_large_records() -> None:
    share = _share(record_bytes=1_000_000)
    assert [share.takes(1000, 2) for _ in range(3)] == [False] * 3
    assert [share.takes(2, 2) for _ in range(3)] == [False, True, True]


def test_workers_write_many_stream_tasks() -> None:
    share = _share()
    assert [share.takes(1000, 64) for _ in range(3)] == [False] * 3


def test_workers_write_everything_on_a_cluster() -> None:
    share = _share(possible=False)
    assert [share.takes(1000, 2) for _ in range(3)] == [False] * 3
