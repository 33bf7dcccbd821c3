"""Every wrong expression of an operation is told, whatever Spark says of them; the planning is a stand-in here."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException
from streamplan.errors import Refused
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    Aggregate,
    AggregateColumn,
    Count,
    Filter,
    FilterNot,
    FlatMap,
    FlatMapValues,
    Join,
    KeySelect,
    Map,
    MapValues,
    Operation,
    Peek,
    Split,
)
from streamplan.serdes.primitive import Long
from streamplan.spark.planning.each_expression import Judged, judge_each


def judged(operation: Operation, wrong: str = "wrong", unknown: tuple[str, ...] = ()) -> Judged | None:
    """Judge an operation whose planning stops where its text has a word."""

    def attempt(tried: Operation) -> None:
        if wrong in repr(tried):
            raise Refused(wrong)

    return judge_each(operation, unknown, attempt)


def columns(**expressions: str) -> tuple[tuple[str, str], ...]:
    return tuple(expressions.items())


FUNCTION = PythonFunction("is_new", bool)


@pytest.mark.parametrize(
    ("operation", "told", "unknown"),
    [
        (Filter("wrong > 1"), ["filter"], set()),
        (KeySelect("wrong(a)", Long()), ["the key"], set()),
        (MapValues(columns(a="wrong", b="b", c="wrong + 1")), ["map_values, a", "map_values, c"], {"a", "c"}),
        (Map("wrong", columns(a="a", b="wrong")), ["map, key", "map, b"], {"b"}),
        (FlatMap("wrong", "element", columns(a="wrong", b="element")), ["flat_map, each", "flat_map, a"], {"a", "b"}),
        (FlatMap("each", "wrong", columns(a="element")), ["flat_map, key"], set()),
        (Peek(columns(n="count(wrong)", m="max(m)")), ["peek, n"], set()),
        (Join("store", columns(a="table.wrong", b="b"), left=False), ["join, a"], {"a"}),
        (
            Aggregate("store", (AggregateColumn("n", "count", "*"), AggregateColumn("x", "sum", "wrong")), None),
            ["aggregate, x"],
            {"x"},
        ),
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
    assert [where for where, _, _ in found.faults] == told
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


def test_what_uses_an_unknown_field_is_not_judged_and_is_unknown_too() -> None:
    found = judged(MapValues(columns(a="x + wrong", b="wrong", c="'x'", d="d")), unknown=("x",))
    assert found is not None
    assert [where for where, _, _ in found.faults] == ["map_values, b"]
    assert found.unknown == {"a", "b"}


def test_a_filter_passes_what_is_unknown() -> None:
    found = judged(Filter("y > 1"), unknown=("x",))
    assert found is not None
    assert (found.faults, found.unknown, found.operation) == ((), {"x"}, Filter("y > 1"))


def test_an_operation_without_expressions_has_nothing_to_judge() -> None:
    assert judged(Count("store", None)) is None


def test_an_expression_over_a_field_that_is_not_known_is_told_where_it_is_no_sql() -> None:
    def attempt(tried: Operation) -> None:
        if "wrong and" in repr(tried):
            raise ParseException("no SQL")
        if "wrong" in repr(tried):
            raise Refused("another type")

    no_sql = judge_each(MapValues(columns(a="wrong and", b="wrong > 1")), ("wrong",), attempt)
    assert no_sql is not None
    assert [where for where, _, _ in no_sql.faults] == ["map_values, a"]
    assert no_sql.unknown == {"a", "b"}
