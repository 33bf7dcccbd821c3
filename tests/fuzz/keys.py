"""A stub."""

from collections.abc import Iterator
from random import Random

NAME = "keys"


def findings(random: Random) -> Iterator[str]:
    yield from ()
