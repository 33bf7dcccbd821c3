"""Keys in the order of their bytes. A key is added or removed in a few microseconds, however many there are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

_RUN = 1_000
"""A run of keys is divided in two when it has twice as many."""


class SortedKeys:
    """A set of keys in the order of their bytes.

    The keys lie in runs, each a sorted list. An insertion moves the keys of one run, and not those of all runs.
    """

    def __init__(self) -> None:
        self._runs: list[list[bytes]] = []
        self._last_of_runs: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Add a key that is not there."""
        if not self._runs:
            self._runs.append([key])
            self._last_of_runs.append(key)
            return
        place = min(bisect_left(self._last_of_runs, key), len(self._runs) - 1)
        run = self._runs[place]
        insort(run, key)
        if len(run) > 2 * _RUN:
            self._runs[place : place + 1] = [run[:_RUN], run[_RUN:]]
            self._last_of_runs[place : place + 1] = [run[_RUN - 1], run[-1]]
        else:
            self._last_of_runs[place] = run[-1]

    def remove(self, key: bytes) -> None:
        """Remove a key that is there."""
        place = bisect_left(self._last_of_runs, key)
        run = self._runs[place]
        del run[bisect_left(run, key)]
        if run:
            self._last_of_runs[place] = run[-1]
        else:
            del self._runs[place], self._last_of_runs[place]

    def between(self, first: bytes | None, last: bytes | None, *, reverse: bool = False) -> Iterator[bytes]:
        """Yield the keys from one to another, both among them. None stands for no bound.

        Args:
            first: The least key.
            last: The greatest key.
            reverse: Whether the greatest key comes first.
        """
        places = (
            range(len(self._runs)) if first is None else range(bisect_left(self._last_of_runs, first), len(self._runs))
        )
        if last is not None:
            places = range(places.start, min(bisect_left(self._last_of_runs, last) + 1, places.stop))
        for place in reversed(places) if reverse else places:
            run = self._runs[place]
            begin = 0 if first is None else bisect_left(run, first)
            end = len(run) if last is None else bisect_right(run, last)
            yield from reversed(run[begin:end]) if reverse else run[begin:end]
