"""Kafka's default partitioner for records with a key.

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey``.
librdkafka calls this partitioner ``murmur2_random``. Its own default, ``consistent_random``, uses CRC32.
"""

from __future__ import annotations

LIBRDKAFKA_PARTITIONER = "murmur2_random"
"""The value of librdkafka's ``partitioner`` that agrees with :func:`partition_for_key`."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of ``data``, signed as Java has it."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition, 0 to ``partitions - 1``, in which Kafka puts a record with this key.

    Raises:
        ValueError: There are no partitions.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least 1 partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
