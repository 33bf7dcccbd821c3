from __future__ import annotations

import pytest
from streamplan.errors import Refused
from streamplan.model.dead_letters import Origin
from streamplan.model.left_out import VARIABLE, records_left_out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        (" ", set()),
        ("orders-1@17", {Origin("orders", 1, 17)}),
        (
            "eu.orders-v2-0@0, my_app-x-repartition-12@9",
            {Origin("eu.orders-v2", 0, 0), Origin("my_app-x-repartition", 12, 9)},
        ),
    ],
)
def test_records_are_named_by_topic_partition_and_offset(text: str, expected: set[Origin]) -> None:
    assert records_left_out({VARIABLE: text}) == expected


@pytest.mark.parametrize("text", ["orders", "orders-1", "orders@17", "-1@17", "orders-1@", "orders-1@x", "orders-a@1"])
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused, match="such as orders-1@17"):
        records_left_out({VARIABLE: text})
