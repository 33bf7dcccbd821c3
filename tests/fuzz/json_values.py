"""A stub."""

from collections.abc import Iterator
from random import Random

NAME = "json_values"


def findings(random: Random) -> Iterator[str]:
    yield from ()
