"""What a record adds to windows, with the results of Spark's own aggregate functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import Any, Protocol

from pyspark.sql.types import DataType, DecimalType

PARTS = {"avg": 2, "min_by": 2, "max_by": 2, "latest_min_by": 2, "latest_max_by": 2}
"""How many parts the state of a function has, where it has more than one: sum and count, or the value and its rank.

``latest_min_by`` and ``latest_max_by`` are those of a reduction.
"""

_EXACT = Context(prec=100)
"""Adds decimals of any type of Spark without rounding."""


class Fold(Protocol):
    """Adds a record to what windows have aggregated."""

    def added(self, totals: Sequence[tuple[Any, ...]], parts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the parts of a window with one more record; None for a window that is deleted.

        Args:
            totals: The parts of the windows that the record makes one of. A new window has none of them.
            parts: What the record gives.
        """

    def is_deleted(self, parts: tuple[Any, ...]) -> bool:
        """Return whether a window was deleted, of which only the time is kept."""


@dataclass(frozen=True)
class Merging:
    """Merges the parts of sessions, and of windows with a record. It is a :class:`Fold`.

    A record is a session, too. Null is passed over, as in SQL. Of equals ``min_by`` and ``max_by`` keep the first. A
    reduction keeps the last of equals, and a value without a rank where there is no other one.

    Attributes:
        functions: The aggregate functions, in the order of their parts.
        types: The type of each part.
    """

    functions: tuple[str, ...]
    types: tuple[DataType, ...]

    def of(self, row: Any) -> Fold:
        """Return what adds one record: every record is added alike."""
        return self

    def restored(self, parts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return what a window has of what a changelog has: no window is deleted."""
        return parts

    def is_deleted(self, parts: tuple[Any, ...]) -> bool:
        """Return whether a window was deleted: none is."""
        return False

    def added(self, totals: Sequence[tuple[Any, ...]], parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """See :meth:`Fold.added`."""
        return reduce(self.merge, [*totals, parts])

    def merge(self, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
        """Return the parts of both sessions together.

        Args:
            one: The parts of a session.
            other: Those of another one.

        Raises:
            ArithmeticError: A sum is too large for its type.
        """
        merged: list[Any] = []
        for function in self.functions:
            place = len(merged)
            until = place + PARTS.get(function, 1)
            left, right = tuple(one[place:until]), tuple(other[place:until])
            match function:
                case "sum" | "count" | "count_if" | "avg":
                    merged += [self._added(one[n], other[n], n) for n in range(place, until)]
                case "latest_max_by" | "latest_min_by":
                    merged += right if _is_kept(function, right[-1], left[-1]) else left
                case _ if left[-1] is None or right[-1] is None:  # the rank, of min_by and max_by
                    merged += right if left[-1] is None else left
                case "bool_and":
                    merged.append(left[0] and right[0])
                case "bool_or":
                    merged.append(left[0] or right[0])
                case "max" | "max_by":
                    merged += right if _rank(right[-1]) > _rank(left[-1]) else left
                case "min" | "min_by":
                    merged += right if _rank(right[-1]) < _rank(left[-1]) else left
                case _:
                    raise NotImplementedError(f"the parts of {function} cannot be merged")
        return tuple(merged)

    def _added(self, one: Any, other: Any, place: int) -> Any:
        if one is None or other is None:
            return one if other is None else other
        total = _EXACT.add(one, other) if isinstance(one, Decimal) else one + other
        of_part = self.types[place]
        if isinstance(of_part, DecimalType):
            fits = abs(total) < 10 ** (of_part.precision - of_part.scale)
        else:
            fits = isinstance(total, float) or -(1 << 63) <= total < 1 << 63
        if not fits:
            raise ArithmeticError(f"the sum {total} of a session does not fit into {of_part.simpleString()}")
        return total


def _is_kept(function: str, by: Any, before: Any) -> bool:
    """Whether a reduction keeps a value with the rank ``by``, and not that with the rank ``before``."""
    if by is None or before is None:
        return before is None
    is_greatest = function == "latest_max_by"
    return bool(_rank(by) >= _rank(before) if is_greatest else _rank(by) <= _rank(before))


def _rank(value: Any) -> Any:
    """What values are compared by. NaN is greater than any other number, as in Spark."""
    return (value != value, value) if isinstance(value, float) else value
