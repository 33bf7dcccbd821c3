"""What belongs to ``make soak``: the same tests with more values, more seeds, and for longer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


def sized(
    texts: Mapping[str, str], quick: Collection[str], records: tuple[int, int], in_soak: tuple[int, int]
) -> list[Any]:
    """Return texts with the seed and the number of random records, as parameters.

    Args:
        texts: The texts by their names.
        quick: The names of those that every run uses.
        records: Seed and number of the records in every run.
        in_soak: Seed and number of the records in ``make soak``, which uses all texts.
    """
    assert {*quick} <= {*texts}
    return [
        *(pytest.param(texts[name], *records, id=name) for name in quick),
        *(pytest.param(text, *in_soak, id=f"{name}, long", marks=pytest.mark.soak) for name, text in texts.items()),
    ]
