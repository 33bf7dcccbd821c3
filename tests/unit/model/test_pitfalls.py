"""Expressions that Spark takes, and whose results surprise, are warned about with what to write."""

from __future__ import annotations

import pytest
from streamplan import Json, Pipeline, Topology
from streamplan.model.pitfalls import pitfalls

NULL = "compares with null, and the result is null for each record. Write customer is null, or customer is not null"
AGAIN = (
    "() gives another result when it is computed again, as after a crash and in the check totals. Write what the "
    "record has, such as record.timestamp, or a function with deterministic=False"
)


def told(expression: str) -> list[str]:
    topology = Topology("orders-app")
    orders = topology.stream("orders", value=Json("customer string, amount bigint, current_date date"))
    orders.map_values({"x": expression}).to("out")
    pipeline = Pipeline("orders", topology, "", {"orders": 1, "out": 1})
    return [str(warning).partition(".py:")[2].partition(": ")[2] for warning in pitfalls(pipeline)]


@pytest.mark.parametrize("expression", ["customer = null", "customer != NULL", "amount>null", "not customer == null"])
def test_a_comparison_with_null(expression: str) -> None:
    assert told(expression) == [f"{expression!r} {NULL}"]


@pytest.mark.parametrize(
    "expression",
    [
        "customer <=> null",
        "coalesce(customer, null)",
        "customer = ' = null'",
        "customer = nullable",
        "'now()'",
        "unix_timestamp(customer)",
        "current_date > date '2026-01-31'",
        "known(amount)",
    ],
)
def test_what_is_meant_is_not_warned_about(expression: str) -> None:
    assert told(expression) == []


def test_an_alias_in_a_mapping() -> None:
    said = "'as double' in 'amount * 2 as double' names nothing: the name of the field is the key of the mapping"
    assert told("amount * 2 as double") == [f"{said}. Write {{'double': 'amount * 2'}}"]
    assert told("cast(amount as string)") == told("'known as x'") == []


@pytest.mark.parametrize(
    ("expression", "functions"),
    [
        ("rand() < 0.5", ["rand"]),
        ("UUID()", ["UUID"]),
        ("coalesce(now(), current_timestamp)", ["now", "current_timestamp"]),
        ("unix_timestamp( )", ["unix_timestamp"]),
        ("current_date()", ["current_date"]),
    ],
)
def test_a_function_whose_result_changes(expression: str, functions: list[str]) -> None:
    assert told(expression) == [f"{name}{AGAIN}" for name in functions]
