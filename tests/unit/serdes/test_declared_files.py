"""Schemas in files, where Python imports the declaration from a zip archive, as a job of Spark does."""

from __future__ import annotations

import zipfile
from importlib import import_module
from pathlib import Path

import pytest

FILES = {
    "zipped_shop/__init__.py": "",
    "zipped_shop/declared.py": """
from streamplan import Avro, JsonSchema, Protobuf
AVRO = Avro("schemas/order.avsc")
JSON = JsonSchema("schemas/order.schema.json")
PROTOBUF = Protobuf("schemas/order.proto")
ROOTED = Protobuf("shop/order.proto", proto_path="protos/../protos")
MISSING = Avro("schemas/missing.avsc")
""",
    "zipped_shop/schemas/order.avsc": '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"}]}',
    "zipped_shop/schemas/order.schema.json": '{"type": "object", "properties": {"id": {"$ref": "id.json"}}}',
    "zipped_shop/schemas/id.json": '{"type": "string"}',
    "zipped_shop/schemas/order.proto": 'syntax = "proto3"; import "id.proto"; message Order { Id id = 1; }',
    "zipped_shop/schemas/id.proto": 'syntax = "proto3"; message Id { string id = 1; }',
    "zipped_shop/protos/shop/order.proto": 'syntax = "proto3"; import "shop/id.proto"; message Order { Id id = 1; }',
    "zipped_shop/protos/shop/id.proto": 'syntax = "proto3"; message Id { string id = 1; }',
}


def test_the_files_beside_a_declaration_are_read_from_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "job.zip"
    with zipfile.ZipFile(archive, "w") as written:
        for name, text in FILES.items():
            written.writestr(name, text)
    monkeypatch.syspath_prepend(str(archive))
    declared = import_module("zipped_shop.declared")
    assert dict(declared.AVRO.fields) == dict(declared.JSON.fields) == {"id": "string"}
    assert dict(declared.PROTOBUF.fields) == dict(declared.ROOTED.fields) == {"id": "struct<id: string>"}
    with pytest.raises(ValueError, match=r"job.zip/zipped_shop/schemas/missing.avsc cannot be read"):
        _ = declared.MISSING.fields
