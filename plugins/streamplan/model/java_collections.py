"""Java's hash codes and the order of its hash maps, where what Kafka Streams does depends on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """``String.hashCode`` as 32 bits without a sign."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & _MASK
    return value


def objects_hash(*hashes: int) -> int:
    """``java.util.Objects.hash`` of objects of these hash codes."""
    value = 1
    for one in hashes:
        value = (31 * value + one) & _MASK
    return value


def hash_order(items: Iterable[Item], hash_of: Callable[[Item], int]) -> list[Item]:
    """The order in which a ``java.util.HashMap`` yields different keys that were put in this one."""
    listed = list(items)
    capacity = 16
    while len(listed) > capacity * 3 // 4:
        capacity *= 2

    def bucket(item: Item) -> int:
        spread = hash_of(item) & _MASK
        return (spread ^ spread >> 16) & (capacity - 1)

    return sorted(listed, key=bucket)  # stable: within a bucket as they came
