"""Every wrong expression of an operation is told, whatever Spark says of them; the planning is a stand-in here."""

from __future__ import annotations

import pytest
from streamplan.errors import Refused
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import FilterNot, FlatMapValues, Operation, Split
from streamplan.spark.planning.each_expression import Judged, judge_each


def judged(operation: Operation, wrong: str = "wrong", unknown: tuple[str, ...] = ()) -> Judged | None:
    """Judge an operation whose planning stops where its text has a word."""

    def attempt(tried: Operation) -> None:
        if wrong in repr(tried):
            raise Refused(wrong)

    return judge_each(operation, unknown, attempt)


FUNCTION = PythonFunction("is_new", bool)


@pytest.mark.parametrize(
    ("operation", "told", "unknown"),
    [
        (FilterNot("wrong > 1"), ["filter_not"], set()),
        (FlatMapValues("wrong(line)", (("a", "element"), ("b", "id"))), ["flat_map_values, each"], {"a"}),
        (
            FlatMapValues("split(line)", (("a", "wrong1"), ("b", "id"), ("c", "wrong2"))),
            ["flat_map_values, a", "flat_map_values, c"],
            {"a", "c"},
        ),
        (Split(("wrong1", "amount > 1", FUNCTION, "wrong2")), ["branch 1", "branch 4"], set()),
    ],
)
def test_every_wrong_expression_is_told(operation: Operation, told: list[str], unknown: set[str]) -> None:
    found = judged(operation)
    assert found is not None
    assert [where for where, _ in found.faults] == told
    assert found.unknown == unknown
    assert "wrong" not in repr(found.operation)


def test_the_functions_among_the_conditions_of_branches_stay() -> None:
    found = judged(Split(("wrong", FUNCTION)))
    assert found is not None
    assert found.operation == Split(("true", FUNCTION))


def test_a_condition_over_what_is_not_known_is_not_judged() -> None:
    found = judged(Split(("x = 'wrong'", "amount > 1")), unknown=("x",))
    assert found == Judged((), Split(("true", "amount > 1")), frozenset({"x"}))


def test_an_operation_that_is_refused_whatever_its_expressions_are_is_told_once() -> None:
    assert judged(Split(("amount > 1", "amount > 2")), wrong="Split") is None
