"""Java's hash codes, and the order of its hash maps and tree sets.

What Kafka Streams does depends on them in places: the order in which counts are resolved and descriptions are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")


class Ranked(Protocol):
    """An element of a :class:`TreeSet`."""

    @property
    def rank(self) -> tuple[int, bytes]:
        """What the comparator compares."""


Element = TypeVar("Element", bound=Ranked)

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
    for hash_code in hashes:
        value = (31 * value + hash_code) & _MASK
    return value


def hash_order(items: Iterable[Item], hash_of: Callable[[Item], int], *, is_copied: bool = False) -> list[Item]:
    """The order in which a ``java.util.HashMap`` yields different keys that were put in this one.

    Args:
        items: The keys.
        hash_of: Gives the hash code of a key.
        is_copied: Whether the map was made of another collection. It has room for one key more than there are then.
    """
    listed = list(items)
    capacity = 16
    while len(listed) + is_copied > capacity * 3 // 4:
        capacity *= 2

    def bucket(item: Item) -> int:
        spread = hash_of(item) & _MASK
        return (spread ^ spread >> 16) & (capacity - 1)

    return sorted(listed, key=bucket)  # Stable: items of one bucket stay in the order in which they were put.


class TreeSet(Generic[Element]):
    """``java.util.TreeSet``, to which elements are only added.

    The ranks of elements may change after they were added. Then the place of the next element depends on the elements
    that it is compared with, and so on the shape of the red-black tree.
    """

    def __init__(self) -> None:
        self._root: _TreeNode[Element] | None = None

    def __iter__(self) -> Iterator[Element]:
        return self._in_order(self._root)

    def _in_order(self, node: _TreeNode[Element] | None) -> Iterator[Element]:
        if node is not None:
            left, right = node.children
            yield from self._in_order(left)
            yield node.element
            yield from self._in_order(right)

    def add(self, element: Element) -> None:
        """Adds an element by its present rank."""
        parent, side = None, 0
        node = self._root
        while node is not None:
            parent, side = node, int(element.rank > node.element.rank)
            node = node.children[side]
        added = _TreeNode(element, parent)
        if parent is None:
            self._root = added
        else:
            parent.children[side] = added
        self._balance(added)

    def _balance(self, node: _TreeNode[Element]) -> None:
        """``TreeMap.fixAfterInsertion``."""
        while (parent := node.parent) is not None and parent.red and (grandparent := parent.parent) is not None:
            side = grandparent.children.index(parent)
            uncle = grandparent.children[1 - side]
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grandparent.red = True
                node = grandparent
            else:
                if parent.children[1 - side] is node:
                    self._rotate(parent, side)
                    node, parent = parent, node
                parent.red = False
                grandparent.red = True
                self._rotate(grandparent, 1 - side)
        if self._root is not None:
            self._root.red = False

    def _rotate(self, node: _TreeNode[Element], side: int) -> None:
        """``rotateLeft`` for side 0, ``rotateRight`` for side 1."""
        child = node.children[1 - side]
        assert child is not None
        inner = child.children[side]
        node.children[1 - side] = inner
        if inner is not None:
            inner.parent = node
        child.parent = node.parent
        if node.parent is None:
            self._root = child
        else:
            node.parent.children[node.parent.children.index(node)] = child
        child.children[side] = node
        node.parent = child


@dataclass(eq=False)
class _TreeNode(Generic[Element]):
    """A node of the red-black tree. ``children``: the lesser and the greater."""

    element: Element
    parent: _TreeNode[Element] | None
    children: list[_TreeNode[Element] | None] = field(default_factory=lambda: [None, None])
    red: bool = True
