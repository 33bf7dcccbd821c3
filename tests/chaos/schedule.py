"""Which faults come when: a function of the seed alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.chaos.faults import Fault

FAULTS_OF_A_ROUND = (1, 1, 1, 2, 3)


@dataclass(frozen=True)
class Planned:
    """A fault, the seconds between the one before and it, and the seed of all that is random about it."""

    fault: Fault
    pause: float
    seed: int


@dataclass(frozen=True)
class Round:
    number: int
    bad_records: int
    faults: tuple[Planned, ...]

    @property
    def name(self) -> str:
        return " + ".join(planned.fault.name for planned in self.faults)


def schedule(seed: int, faults: Sequence[Fault], rounds: int) -> Iterator[Round]:
    """Faults are dealt from a shuffled pack, a new one when it is used up: each comes as often as the others."""
    random = Random(seed)
    pack: list[Fault] = []
    for number in range(1, rounds + 1):
        planned = []
        for _ in range(random.choice(FAULTS_OF_A_ROUND)):
            if not pack:
                pack = random.sample(faults, len(faults))
            planned.append(Planned(pack.pop(), random.uniform(0.2, 2.0), random.getrandbits(32)))
        yield Round(number, random.randint(0, 5), tuple(planned))
