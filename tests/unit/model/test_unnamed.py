"""Which stores and repartition topics have no name, and what keeps the name that the numbering gave them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from streamplan import Json, Topology, Versioned
from streamplan.model.kstream import KStream
from streamplan.model.unnamed import unnamed

VALUE = Json("country string, amount bigint")


def warnings(declare: Callable[[KStream, Topology], object]) -> list[str]:
    topology = Topology("app")
    declare(topology.stream("orders", value=VALUE), topology)
    return [str(warning) for warning in unnamed(topology)]


NAMED: list[Callable[[KStream, Topology], object]] = [
    lambda orders, topology: orders.filter("amount > 0").to("out"),
    lambda orders, topology: orders.group_by("country").count(store="totals"),  # its topic is named after the store
    lambda orders, topology: orders.select_key("country").repartition(name="moved").to("out"),
    lambda orders, topology: orders.select_key("country", name="by").join(table(topology, store="rows")).to("out"),
    lambda orders, topology: orders.select_key("country").join(table(topology, store="rows"), name="joined").to("out"),
    lambda orders, topology: table(topology).to_stream().to("out"),  # a table without a join has no store
]


def table(topology: Topology, **more: Any) -> object:
    return topology.table("rows", value=Json("city string"), **more)


@pytest.mark.parametrize("declare", NAMED)
def test_a_declaration_in_which_everything_has_a_name_is_not_warned_about(
    declare: Callable[[KStream, Topology], object],
) -> None:
    assert warnings(declare) == []


@pytest.mark.parametrize(
    ("declare", "subject", "keeps"),
    [
        (
            lambda orders, topology: orders.group_by("country").count(),
            "the store 'KSTREAM-AGGREGATE-STATE-STORE-0000000002' and its repartition topic have",
            "store='KSTREAM-AGGREGATE-STATE-STORE-0000000002'",
        ),
        (
            lambda orders, topology: orders.group_by("country", name="by").reduce(),
            "the store 'KSTREAM-REDUCE-STATE-STORE-0000000002' has",
            "store='KSTREAM-REDUCE-STATE-STORE-0000000002'",
        ),
        (
            lambda orders, topology: orders.join(table(topology)).to("out"),
            "the store 'rows-STATE-STORE-0000000001' has",
            "store='rows-STATE-STORE-0000000001'",
        ),
        (
            lambda orders, topology: orders.select_key("country").repartition().to("out"),
            "the repartition topic 'KSTREAM-REPARTITION-0000000002-repartition' has",
            "repartition(name='KSTREAM-REPARTITION-0000000002')",
        ),
        (
            lambda orders, topology: orders.select_key("country").join(table(topology, store="rows")).to("out"),
            "the repartition topic 'KSTREAM-KEY-SELECT-0000000001-repartition' has",
            "name='KSTREAM-KEY-SELECT-0000000001', at the operation that sets the key",
        ),
        (
            lambda orders, topology: orders.join(table(topology, store=Versioned("rows", "1 hour")), grace="1 minute"),
            "the store 'KSTREAM-JOIN-0000000003-Buffer' has",
            "name='KSTREAM-JOIN-0000000003', at the join",
        ),
    ],
)
def test_a_number_is_warned_about_with_its_line_and_the_name_that_keeps_it(
    declare: Callable[[KStream, Topology], object], subject: str, keeps: str
) -> None:
    (warning,) = warnings(declare)
    assert re.match(r".*test_unnamed\.py:\d+: ", warning)
    assert f"{subject} no name of its own" in warning
    assert keeps in warning


def test_a_generated_name_that_is_given_is_a_name() -> None:
    assert (
        warnings(
            lambda orders, topology: orders.group_by("country").count(store="KSTREAM-AGGREGATE-STATE-STORE-0000000007")
        )
        == []
    )
