"""Values as a test and test data give them, with moments as texts."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from typing import Any

import pytest
from streamplan.serdes.avro import Avro
from streamplan.serdes.given_values import encode_given
from streamplan.serdes.json import Json
from streamplan.testing.declared_schemas import DeclaredSchemas

NOON = datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["2026-01-01T12:00:01Z", "2026-01-01T12:00:01.000Z", "2026-01-01T13:00:01+01:00", "2026-01-01T07:00:01-0500"],
)
def test_a_text_with_a_zone_is_the_moment(text: str) -> None:
    assert encode_given(Json("at timestamp"), {"at": text}) == b'{"at":"2026-01-01T12:00:01.000Z"}'
    assert encode_given(Json("at timestamp"), {"at": NOON}) == b'{"at":"2026-01-01T12:00:01.000Z"}'


def test_moments_in_parts_of_a_value_may_be_texts() -> None:
    serde = Json("day date, a struct<days: array<date>, n: int>, m map<string, timestamp>, s string, none date")
    value = {
        "day": "2026-01-31",
        "a": {"days": ["2026-02-01", None, date(2026, 2, 2)], "n": 3},
        "m": {"k": "2026-01-01T12:00:01Z"},
        "s": "2026-01-31",
        "none": None,
    }
    written = encode_given(serde, value)
    assert serde.decode(written) == {
        "day": date(2026, 1, 31),
        "a": {"days": [date(2026, 2, 1), None, date(2026, 2, 2)], "n": 3},
        "m": {"k": NOON},
        "s": "2026-01-31",
        "none": None,
    }
    assert value["day"] == "2026-01-31", "the value itself is not changed"


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (
            "at timestamp",
            {"at": "noon"},
            "at: expected a datetime, or a text as '2026-01-01T12:00:00Z', observed 'noon'",
        ),
        (
            "at timestamp",
            {"at": "2026-01-01T12:00:00"},
            "at: expected a datetime, or a text as '2026-01-01T12:00:00Z', observed '2026-01-01T12:00:00'",
        ),
        (
            "a struct<days: array<date>>",
            {"a": {"days": [None, "2026-02-30"]}},
            "a.days[1]: expected a date, or a text as '2026-01-31', observed '2026-02-30'",
        ),
        ("at timestamp", {"at": 3}, "at: expected datetime, observed int (3)"),
        ("a array<date>", {"a": "2026-01-31"}, "a: expected list, observed str ('2026-01-31')"),
    ],
)
def test_what_is_no_moment_is_told_with_its_path(schema: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        encode_given(Json(schema), value)


def test_a_text_is_the_moment_of_a_schema_too() -> None:
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    declared = Avro(json.dumps({"type": "record", "name": "order", "fields": [at]}))
    serde = declared.with_schemas(DeclaredSchemas((declared.declared,)), "orders")
    assert serde.decode(encode_given(serde, {"at": "2026-01-01T12:00:01Z"})) == {"at": NOON}
