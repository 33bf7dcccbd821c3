"""What belongs to ``make soak``: the same tests with more values, more seeds, and for longer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def soak(values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters that only ``make soak`` uses."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def seeds(quick: int, in_soak: int) -> list[Any]:
    """Return the seeds of random examples, as parameters.

    Args:
        quick: Number of seeds that every run uses.
        in_soak: Number of further seeds, which only ``make soak`` uses.
    """
    return [*range(quick), *soak(range(quick, quick + in_soak))]
