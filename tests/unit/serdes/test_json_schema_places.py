"""References, names and composed objects of JSON Schema: types and validation find the same schema."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
import pytest
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.json_schema_places import bundled
from streamplan.serdes.json_schema_resolution import differences, undeclared_fields
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.testing.declared_schemas import DeclaredSchemas


def reading(serde: JsonSchema) -> JsonSchema:
    return serde.with_schemas(DeclaredSchemas((serde.declared,)), "orders")


def test_a_reference_by_the_name_of_a_schema_within_leads_to_it() -> None:
    """``$id`` and ``$anchor`` give names, and a schema with a name is the root of the pointers in it."""
    line = {
        "type": "object",
        "properties": {"n": {"$ref": "#/definitions/n"}},
        "definitions": {"n": {"type": "integer"}},
    }
    named = {"$id": "lines/line.json", **line}
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "http://example.org/order.json",
        "type": "object",
        "properties": {
            "by_name": {"$ref": "lines/line.json"},
            "by_address": {"$ref": "http://example.org/lines/line.json"},
            "by_pointer": {"$ref": "#/definitions/line"},
            "part": {"$ref": "lines/line.json#/definitions/n"},
            "anchored": {"$ref": "#day"},
        },
        "definitions": {
            "line": named,
            "n": {"type": "string"},  # not the one that is meant in lines/line.json
            "default": {"$anchor": "day", "type": "string", "format": "date"},
        },
    }
    fields = JsonSchema(json.dumps(document)).fields
    assert fields == {
        **dict.fromkeys(("by_name", "by_address", "by_pointer"), "struct<n: bigint>"),
        "part": "bigint",
        "anchored": "date",
    }


@pytest.mark.parametrize(
    ("draft", "named", "reference"),
    [
        ("http://json-schema.org/draft-04/schema#", {"id": "#n"}, "#n"),
        ("http://json-schema.org/draft-04/schema#", {"id": "n.json"}, "n.json"),
        ("http://json-schema.org/draft-07/schema#", {"$id": "#n"}, "#n"),
        ("http://json-schema.org/draft-07/schema#", {"$id": "urn:n"}, "urn:n"),
        ("https://json-schema.org/draft/2019-09/schema", {"$anchor": "n"}, "#n"),
        ("https://json-schema.org/draft/2020-12/schema", {"$anchor": "n"}, "http://example.org/order#n"),
        ("https://json-schema.org/draft/2020-12/schema", {"$id": "/n"}, "http://example.org/n"),
    ],
)
def test_each_draft_has_its_words_for_names(draft: str, named: dict[str, str], reference: str) -> None:
    document = {
        "$schema": draft,
        "id" if "04" in draft else "$id": "http://example.org/order",
        "type": "object",
        "properties": {"n": {"$ref": reference}, "id": {"type": "string"}},
        "definitions": {"a/b ~%": {**named, "type": "integer"}},
    }
    assert JsonSchema(json.dumps(document)).fields == {"n": "bigint", "id": "string"}


@pytest.mark.parametrize("word", ["default", "const", "enum", "examples"])
def test_a_value_that_looks_like_a_reference_is_none(word: str) -> None:
    value: Any = {"$ref": "nowhere.json"}
    schema = {"type": "object", "properties": {"a": {"type": "string"}, word: {"type": "string"}}}
    schema[word] = [value] if word in ("enum", "examples") else value
    assert JsonSchema(json.dumps(schema)).fields == {"a": "string", word: "string"}


def test_a_file_may_name_itself(tmp_path: Path) -> None:
    schema = {
        "$id": "order.json",
        "type": "object",
        "properties": {"a": {"$ref": "order.json#/definitions/a"}},
        "definitions": {"a": {"type": "integer"}},
    }
    (tmp_path / "order.json").write_text(json.dumps(schema))
    assert JsonSchema(str(tmp_path / "order.json")).fields == {"a": "bigint"}


BASE = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
MORE = {"properties": {"y": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#/definitions/base"}, MORE]},
        {"type": "object", "allOf": [{"$ref": "#/definitions/base"}, MORE]},
        {"type": "object", **MORE, "allOf": [{"$ref": "#/definitions/base"}]},
        {"type": "object", **MORE, "allOf": [{"allOf": [{"$ref": "#/definitions/base"}]}, {"required": ["y"]}]},
        {"allOf": [BASE, {"properties": {"x": {"minimum": 0}, **MORE["properties"]}}]},
        {"allOf": [BASE, MORE], "oneOf": [{"required": ["x"]}, {"required": ["z"]}]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/definitions/base", **MORE},
    ],
)
def test_the_properties_of_schemas_that_hold_together_are_those_of_one_object(schema: dict[str, Any]) -> None:
    serde = reading(JsonSchema(json.dumps({**schema, "definitions": {"base": BASE}})))
    assert dict(sorted(serde.fields.items())) == {"x": "bigint", "y": "string"}
    data = serde.encode({"x": 1, "y": "b"})
    assert serde.decode(data) == {"x": 1, "y": "b"}
    with pytest.raises(ValueError, match="x is null"):
        serde.encode({"x": None, "y": "b"})
    assert undeclared_fields(serde.declared, WrittenSchema(json.dumps(MORE), (), "JSON")) == ["x"]
    assert differences(serde.declared, serde.declared) == ()


@pytest.mark.parametrize("seed", range(40))
def test_a_document_without_names_is_judged_as_the_one_with_names(seed: int) -> None:
    """The partner is the library that validates: it follows names and pointers itself."""
    random = Random(seed)
    draft = random.choice(["draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12"])
    url = f"https://json-schema.org/{draft}/schema" if "/" in draft else f"http://json-schema.org/{draft}/schema#"
    word = "id" if draft == "draft-04" else "$id"
    types = ["string", "integer", "boolean"]

    def resource(name: str) -> dict[str, Any]:
        inner = {each: {"type": random.choice(types)} for each in ("n", "m/~ %")}
        return {
            **({word: f"http://example.org/{name}"} if random.random() < 0.7 else {}),
            "type": "object",
            "properties": {
                "a": {"$ref": random.choice(["#/definitions/n", "#/definitions/m~1~0%20%25"])},
                "definitions": {"type": random.choice(types)},
            },
            "definitions": inner,
        }

    parts = {name: resource(name) for name in "pq"}
    references = [f"#/definitions/{name}" for name in parts]
    references += [f"http://example.org/{name}" for name, part in parts.items() if word in part]
    references += [f"{name}#/definitions/n" for name, part in parts.items() if word in part]
    document = {
        "$schema": url,
        word: "http://example.org/root",
        "type": "object",
        "properties": {each: {"$ref": random.choice(references)} for each in ("one", "two", "three")},
        "definitions": {**parts, "n": {"type": random.choice(types)}, "m/~ %": {"type": random.choice(types)}},
    }
    bundle = bundled(WrittenSchema(json.dumps(document), (), "JSON"))
    validator = {"draft-04": "Draft4", "draft-06": "Draft6", "draft-07": "Draft7"}.get(
        draft, f"Draft{draft[-7:].replace('-', '')}"
    )
    original, placed = (
        getattr(jsonschema_rs, f"{validator}Validator")(each, offline=True) for each in (document, dict(bundle))
    )
    for _ in range(60):
        value = {
            each: random.choice([1, "x", True, {"a": 1}, {"a": "x"}, {"a": True, "definitions": "x"}])
            for each in ("one", "two", "three")
        }
        assert original.is_valid(value) == placed.is_valid(value), value
