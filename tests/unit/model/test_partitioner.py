"""Vectors of ``org.apache.kafka.common.utils.UtilsTest`` and others; the real library is asked in integration."""

from __future__ import annotations

import pytest
from streamplan.model.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


def test_ten_keys_over_three_partitions() -> None:
    assert [partition_for_key(b"%d" % n, 3) for n in range(10)] == [2, 0, 2, 2, 1, 0, 1, 0, 0, 2]


def test_products_of_the_reference_example() -> None:
    assert [partition_for_key(key, 2) for key in (b"0", b"1")] == [0, 1]


def test_as_int32_keys_both_products_fall_into_one_partition() -> None:
    assert {partition_for_key(n.to_bytes(4, "big"), 2) for n in (0, 1)} == {0}


def test_a_topic_without_partitions() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        partition_for_key(b"key", 0)
