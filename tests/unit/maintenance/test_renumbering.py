from __future__ import annotations

import pytest
from streamplan.maintenance.renumbering import Likeness, match_names

COMPACT = frozenset({"compact"})


def aggregate(number: int, operation: str = "", *, partitions: int = 2, policy: frozenset[str] = COMPACT) -> Likeness:
    name = f"KSTREAM-AGGREGATE-STATE-STORE-{number:010d}"
    return Likeness(name, partitions, policy, operation and f"{operation}(store={name!r})")


def numbers(declared: list[Likeness], deployed: list[Likeness]) -> dict[int, list[int]]:
    matches = match_names(declared, deployed)
    return {int(name[-10:]): [int(each[-10:]) for each in found] for name, found in matches.items()}


@pytest.mark.parametrize(
    ("declared", "deployed", "matches"),
    [
        ([aggregate(7)], [aggregate(3)], {7: [3]}),
        ([aggregate(9), aggregate(13)], [aggregate(3), aggregate(9)], {9: [3], 13: [9]}),  # in their order
        ([aggregate(7, "Sum")], [aggregate(3, "Count")], {}),
        ([aggregate(7, "Sum"), aggregate(9, "Count")], [aggregate(3, "Count"), aggregate(5, "Sum")], {7: [5], 9: [3]}),
        ([aggregate(7)], [aggregate(3, partitions=4)], {}),
        ([aggregate(7)], [aggregate(3, policy=frozenset({"compact", "delete"}))], {}),
        ([aggregate(7)], [aggregate(3), aggregate(5)], {7: [3, 5]}),  # one of them is gone, and which is not known
        ([aggregate(3), aggregate(7)], [aggregate(3)], {3: [3]}),  # one was added
        ([aggregate(7)], [], {}),
    ],
)
def test_what_was_renumbered_is_recognised(
    declared: list[Likeness], deployed: list[Likeness], matches: dict[int, list[int]]
) -> None:
    assert numbers(declared, deployed) == matches


def test_a_name_that_was_given_tells_nothing_unless_both_are_known_to_hold_the_same() -> None:
    old, new = Likeness("totals", 2, COMPACT), Likeness("sums", 2, COMPACT)
    assert match_names([new], [old]) == {}
    known = Likeness("totals", 2, COMPACT, "Count(store='totals')"), Likeness("sums", 2, COMPACT, "Count(store='sums')")
    assert match_names([known[1]], [known[0]]) == {"sums": ("totals",)}


def test_one_of_two_is_given_a_name() -> None:
    first, second = aggregate(2, "Count"), aggregate(8, "Count")
    given = Likeness("totals", 2, COMPACT, "Count(store='totals')")
    assert match_names([given, second], [first, second]) == {"totals": (first.name,), second.name: (second.name,)}
    assert match_names([given, first], [first, second]) == {"totals": (second.name,), first.name: (first.name,)}
