from __future__ import annotations

import random

import pytest
from streamplan.queries import sorted_keys
from streamplan.queries.sorted_keys import SortedKeys


def random_key(numbers: random.Random) -> bytes:
    return bytes(numbers.choices((0, 1, 127, 128, 255), k=numbers.randint(0, 4)))


@pytest.mark.parametrize("seed", range(5))
def test_keys_are_in_the_order_of_their_bytes_whatever_is_added_and_removed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_keys, "_RUN", 4)  # so that there are many runs
    numbers = random.Random(seed)
    keys, expected = SortedKeys(), set[bytes]()
    for _ in range(2_000):
        key = random_key(numbers)
        if key in expected:
            keys.remove(key)
            expected.remove(key)
        else:
            keys.add(key)
            expected.add(key)
        first, last = (numbers.choice((None, random_key(numbers))) for _ in range(2))
        wanted = sorted(key for key in expected if (first is None or key >= first) and (last is None or key <= last))
        assert [*keys.between(first, last)] == wanted
        assert [*keys.between(first, last, reverse=True)] == wanted[::-1]


def test_there_may_be_no_key() -> None:
    assert [*SortedKeys().between(None, None)] == []
    assert [*SortedKeys().between(b"a", b"b", reverse=True)] == []
