"""A JSON Schema with all types that a field can have, and random values of it."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

EVERYTHING = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "shop.Everything",
        "type": "object",
        "definitions": {
            "Line": {
                "type": "object",
                "properties": {"sku": {"type": "string", "minLength": 1}, "price": {"$ref": "#/definitions/Cents"}},
                "required": ["sku", "price"],
            },
            "Cents": {"type": "number", "multipleOf": 0.01, "minimum": -99999.99, "maximum": 99999.99},
            "State": {"enum": ["NEW", "PAID"]},
        },
        "properties": {
            "text": {"type": "string"},
            "small": {"type": "integer", "format": "int32"},
            "large": {"type": "integer"},
            "exact": {"type": "number"},
            "price": {"$ref": "#/definitions/Cents"},
            "great": {"type": "number", "multipleOf": 0.0001},
            "yes": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "state": {"$ref": "#/definitions/State"},
            "maybe_state": {"enum": ["NEW", None]},
            "fixed": {"const": "a"},
            "maybe_text": {"type": ["string", "null"]},
            "maybe_number": {"oneOf": [{"type": "null", "title": "Not included"}, {"type": "integer"}]},
            "maybe_line": {"anyOf": [{"$ref": "#/definitions/Line"}, {"type": "null"}]},
            "line": {"allOf": [{"$ref": "#/definitions/Line"}, {"description": "the last"}]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
            "texts": {"type": "array", "items": {"type": ["null", "string"]}},
            "rates": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["text", "large", "maybe_text", "lines"],
    }
)

LINE = "struct<sku: string, price: decimal(7,2)>"

FIELDS = {
    "text": "string",
    "small": "int",
    "large": "bigint",
    "exact": "double",
    "price": "decimal(7,2)",
    "great": "decimal(38,4)",
    "yes": "boolean",
    "at": "timestamp",
    "day": "date",
    "state": "string",
    "maybe_state": "string",
    "fixed": "string",
    "maybe_text": "string",
    "maybe_number": "bigint",
    "maybe_line": LINE,
    "line": LINE,
    "lines": f"array<{LINE}>",
    "texts": "array<string>",
    "rates": "map<string, double>",
}

LEAST: dict[str, Any] = {**dict.fromkeys(FIELDS), "text": "", "large": 0, "lines": []}
"""A value without all that may be absent."""


def document_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a value in Python's own types, without what is absent. Decimals are floats of few digits."""
    found = {name: _plain(each) for name, each in value.items() if each is not None}
    return {**found, "maybe_text": value.get("maybe_text")}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case Decimal():
            return float(value)
        case datetime():
            return value.isoformat().rjust(26, "0")
        case date():
            return value.isoformat().rjust(10, "0")
    return value


def random_value(generator: random.Random) -> dict[str, Any]:
    """A value with all its fields: limits, what is absent, and what lies between."""

    def text(least: int = 0) -> str:
        length = generator.choice((0, 1, 5, 40, 200))
        return "".join(generator.choices(string.ascii_letters + 'äß€𝄞\0"\\ ', k=max(least, length)))

    def integer(bits: int) -> int:
        last = (1 << bits) - 1
        return generator.choice((-last - 1, last, 0, 1, -1, generator.randint(-last, last)))

    def cents(limit: int = 9_999_999) -> Decimal:
        return Decimal(generator.choice((0, limit, -limit, generator.randint(-limit, limit)))).scaleb(-2)

    def line() -> dict[str, Any]:
        return {"sku": text(1), "price": cents()}

    def maybe(made: Any) -> Any:
        return generator.choice((None, made))

    def moment() -> datetime:
        return datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=generator.randint(0, 315_537_897_599_999_999))

    def several(make: Any) -> list[Any]:
        return [make() for _ in range(generator.choice((0, 1, 3)))]

    return {
        "text": text(),
        "small": maybe(integer(31)),
        "large": integer(63),
        "exact": maybe(generator.choice((0.0, 0.1, 1e300, 5e-324, generator.uniform(-1e6, 1e6)))),
        "price": maybe(cents()),
        "great": maybe(Decimal(generator.randint(-(10**12), 10**12)).scaleb(-4)),
        "yes": generator.choice((None, True, False)),
        "at": maybe(moment()),
        "day": maybe(date.fromordinal(generator.randint(1, 3_652_059))),
        "state": generator.choice((None, "NEW", "PAID")),
        "maybe_state": generator.choice((None, "NEW")),
        "fixed": maybe("a"),
        "maybe_text": maybe(text()),
        "maybe_number": maybe(integer(63)),
        "maybe_line": maybe(line()),
        "line": maybe(line()),
        "lines": several(line),
        "texts": generator.choice((None, several(lambda: maybe(text())))),
        "rates": generator.choice((None, {text(): generator.uniform(-1, 1) for _ in range(3)})),
    }
