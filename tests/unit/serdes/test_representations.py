"""The ``repr`` of a serde is short and true; checkpoints do not depend on it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from streamplan import (
    Avro,
    Json,
    JsonSchema,
    KeyValueStore,
    Long,
    Processor,
    Protobuf,
    Record,
    Serde,
    String,
    Topology,
    WindowStore,
)
from streamplan.model.checkpoint_identity import store_content


@dataclass
class Order:
    id: str
    amount: int


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (Json("id string, n int"), "Json('id string, n int')"),
        (Json(Order), "Json('id string, amount bigint')"),
        (Json("a int", allowed={"a": {0: "No"}}, max_bytes=9), "Json('a int', allowed={'a': {0: 'No'}}, max_bytes=9)"),
        (String(), "String()"),
        (Long(max_bytes=9), "Long(max_bytes=9)"),
        (Avro('{"type":"record","name":"K","fields":[{"name":"id","type":"int"}]}'), "<Avro K: id>"),
        (JsonSchema('{"type":"object","properties":{"a":{"type":"string"}}}'), "<JsonSchema: a>"),
    ],
)
def test_a_serde_shows_what_it_reads(serde: Serde, text: str) -> None:
    assert repr(serde) == text


@pytest.mark.parametrize("serde", [Avro("no.avsc"), JsonSchema("no.json"), Protobuf("no.desc")])
def test_a_schema_that_cannot_be_read_shows_why(serde: Serde) -> None:
    assert repr(serde).startswith(f"<{type(serde).__name__}: the schema ")
    assert "cannot be read" in repr(serde)


class Seen(Processor):
    def process(self, record: Record) -> None:
        """Nothing."""


def test_the_identity_of_a_checkpoint_has_every_field_of_its_serdes_as_in_earlier_releases() -> None:
    topology = Topology("app")
    stores = {
        "kept": KeyValueStore(Long(), Json("n bigint")),
        "seen": WindowStore(Json("a string"), String(), retention="1 day", size="1 minute"),
    }
    topology.stream("in", value=Json("id string")).process(Seen, stores=stores, schema="id string").to("out")
    (group,) = topology.subtopologies
    told = {node.store: store_content(group, node) for node in group.processors if node.writes_store}
    assert told == {
        "kept": "StateStore(store='kept', key_serde=Long(max_bytes=1048000), value=Json(schema='n bigint', allowed={}, "
        "max_bytes=1048000), retention_ms=None, window_ms=0, retain_duplicates=False) with keys of Long",
        "seen": "StateStore(store='seen', key_serde=Json(schema='a string', allowed={}, max_bytes=1048000), "
        "value=String(max_bytes=1048000), retention_ms=86400000, window_ms=60000, retain_duplicates=False) with keys "
        'of Json("a string")',
    }
