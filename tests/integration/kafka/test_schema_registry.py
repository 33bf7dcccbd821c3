"""The client of a Schema Registry, against a server of the tests that follows the registry's REST interface."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest
from streamplan.cli import main
from streamplan.errors import Refused, SchemaRegistryUnavailable
from streamplan.kafka import schema_registry
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.registered_schemas import compare_with_registry
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.avro import Avro
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.schema_source import Reference, UnknownSchema, WrittenSchema
from streamplan.serdes.serde import Undecodable

from tests.support.schema_registry_server import PASSWORD, USER, SchemaRegistryServer

ORDER = '{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "string"}]}'

REGISTERED = WrittenSchema(ORDER)


def registry_of(registry_server: SchemaRegistryServer, **properties: str) -> SchemaRegistry:
    given = {**registry_server.properties, **{name.replace("_", "."): value for name, value in properties.items()}}
    return SchemaRegistry.of(Brokers.from_connection({"bootstrap.servers": "one:1", **given}))


def test_a_schema_is_asked_for_once_in_each_process(registry_server: SchemaRegistryServer) -> None:
    schema_id = registry_server.add("orders-value", ORDER)
    registry = registry_of(registry_server)
    assert [registry.schema(schema_id) for _ in range(3)] == [WrittenSchema(ORDER)] * 3
    assert len(registry_server.asked) == 1
    sent: SchemaRegistry = pickle.loads(pickle.dumps(registry))
    assert sent == registry
    assert sent.schema(schema_id).text == ORDER
    assert len(registry_server.asked) == 2


def test_many_records_of_an_unknown_schema_ask_once_in_a_while(
    registry_server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(schema_registry.time, "monotonic", lambda: now[0])
    serde = Avro(ORDER).with_schemas(registry_of(registry_server), "orders")
    value = b"\0\0\0\0\1\2x"
    read = serde.decode_column([value] * 1000)
    assert set(read.rejected.values()) == {"the Schema Registry has no schema 1"}
    assert len(registry_server.asked) == 1
    registry_server.add("orders-value", ORDER)
    now[0] += 5
    assert serde.decode(value) == {"id": "x"}


def test_the_schemas_that_a_schema_refers_to_come_with_it(registry_server: SchemaRegistryServer) -> None:
    money = '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}'
    line = '{"type": "record", "name": "Line", "fields": [{"name": "price", "type": "Money"}]}'
    order = '{"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}'
    registry_server.add("money", money)
    registry_server.add("line", line, ({"name": "Money", "subject": "money", "version": 1},))
    references = (
        {"name": "Line", "subject": "line", "version": 1},
        {"name": "Money", "subject": "money", "version": 1},
    )
    schema_id = registry_server.add("order", order, references)
    of_money = Reference("Money", WrittenSchema(money))
    expected = WrittenSchema(order, (Reference("Line", WrittenSchema(line, (of_money,))), of_money))
    assert [*expected.flattened()] == ["Money", "Line"]
    assert registry_of(registry_server).schema(schema_id) == expected


def test_only_the_registrys_own_word_makes_a_value_undecodable(registry_server: SchemaRegistryServer) -> None:
    serde = Avro(ORDER).with_schemas(registry_of(registry_server), "orders")
    with pytest.raises(UnknownSchema):
        registry_of(registry_server).schema(7)
    with pytest.raises(Undecodable, match="the Schema Registry has no schema 7"):
        serde.decode(b"\0\0\0\0\7\2x")
    for status in (404, 401, 403, 500, 503):
        registry_server.answers_with = status
        with pytest.raises(SchemaRegistryUnavailable, match=f"observed HTTP {status}, .*No record is lost or rejected"):
            serde.decode(b"\0\0\0\0\x08\2x")
    registry_server.answers_with = None
    registry_server.add("orders-value", ORDER)
    assert serde.decode(b"\0\0\0\0\1\2x") == {"id": "x"}


def test_a_registry_that_is_away_is_told_with_its_address_and_without_secrets(
    registry_server: SchemaRegistryServer,
) -> None:
    away = {"schema.registry.url": f"http://{USER}:{PASSWORD}@127.0.0.1:1"}
    registry = SchemaRegistry(away)
    with pytest.raises(SchemaRegistryUnavailable, match=r"at http://127\.0\.0\.1:1: .*ConnectError") as told:
        registry.schema(1)
    assert PASSWORD not in f"{told.value} {told.value.__cause__} {registry!r} {Brokers('one:1', {}, away)!r}"
    wrong = registry_of(registry_server, basic_auth_user_info=f"{USER}:wrong")
    with pytest.raises(SchemaRegistryUnavailable, match=r"HTTP 401, .*Correct the credentials"):
        wrong.schema(1)


@pytest.mark.parametrize("answer", ["<html>login</html>", '"login"', [], {}])
def test_what_is_no_registry_is_told(
    registry_server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(SchemaRegistryServer, "answer", lambda *_: (200, answer))
    with pytest.raises(SchemaRegistryUnavailable, match="this is no Schema Registry"):
        registry_of(registry_server).schema(1)
    with pytest.raises(Refused, match=r"expected its address, schema\.registry\.url"):
        SchemaRegistry.of(Brokers("one:1")).schema(1)


def test_a_schema_is_registered_under_the_subject_of_its_topic(registry_server: SchemaRegistryServer) -> None:
    registry = registry_of(registry_server)
    with pytest.raises(Refused, match=r"subject orders-value .*does not have this schema\. Register it"):
        registry.id_of("orders", "shop.Order", REGISTERED)
    schema_id = registry.register("orders", "shop.Order", REGISTERED)
    assert registry.id_of("orders", "shop.Order", REGISTERED) == schema_id
    assert registry_of(registry_server).id_of("orders", "shop.Order", REGISTERED) == schema_id
    assert registry_server.subjects == {"orders-value": [schema_id]}
    assert registry.latest("orders", "shop.Order") == ("orders-value", WrittenSchema(ORDER))
    assert registry.latest("others", "shop.Order") == ("others-value", None)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "orders-shop.Order"),
    ],
)
def test_the_subject_follows_the_strategy(registry_server: SchemaRegistryServer, strategy: str, subject: str) -> None:
    registry_of(registry_server, value_subject_name_strategy=strategy).register("orders", "shop.Order", REGISTERED)
    assert [*registry_server.subjects] == [subject]
    with pytest.raises(Refused, match=r"observed my\.Strategy"):
        registry_of(registry_server, value_subject_name_strategy="my.Strategy").register(
            "orders", "shop.Order", REGISTERED
        )


def test_a_schema_is_only_looked_up_where_it_must_not_be_registered(registry_server: SchemaRegistryServer) -> None:
    registry = registry_of(registry_server, auto_register_schemas="false")
    with pytest.raises(Refused, match="Register it, or set"):
        registry.register("orders", "shop.Order", REGISTERED)
    schema_id = registry_server.add("orders-value", ORDER)
    assert registry.register("orders", "shop.Order", REGISTERED) == schema_id
    assert not [path for path in registry_server.asked if path.endswith("/versions")]


def test_a_schema_that_the_registry_does_not_take_is_refused(registry_server: SchemaRegistryServer) -> None:
    registry_server.takes_schemas = False
    with pytest.raises(
        Refused, match=r"subject orders-value .*incompatible.*compatibility rule of the subject allows it"
    ):
        registry_of(registry_server).register("orders", "shop.Order", REGISTERED)


def test_a_schema_that_the_registry_cannot_read_is_refused(
    registry_server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = 422, {"error_code": 42201, "message": "Input schema is an invalid schema"}
    monkeypatch.setattr(SchemaRegistryServer, "answer", lambda *_: refusal)
    with pytest.raises(Refused, match=r"observed Input schema is an invalid schema\. Does the registry read PROTOBUF"):
        registry_of(registry_server).register("orders", "shop.Order", REGISTERED._replace(format="PROTOBUF"))


def test_the_properties_of_the_registry_are_handed_over_and_given_to_no_client_of_kafka(tmp_path: Path) -> None:
    given = {
        "bootstrap.servers": "one:1",
        "security.protocol": "SSL",
        "schema.registry.url": "https://registry:8081",
        "schema.registry.basic.auth.user.info": f"{USER}:{PASSWORD}",
        "schema.registry.ssl.ca.location": "/etc/ca.pem",
    }
    brokers = Brokers.from_connection(given)
    assert brokers.properties == {"security.protocol": "SSL"}
    handed_over = brokers.hand_over(tmp_path / "a job.kafka")
    assert PASSWORD not in str(handed_over)
    assert Brokers.from_environment("one:1", handed_over) == brokers
    assert PASSWORD not in f"{brokers} {brokers!r}"
    assert not [name for name in (*brokers.client_configs(), *brokers.spark_options()) if "registry" in name]
    config = SchemaRegistry.of(brokers)._client_config()
    assert (config["url"], config["ssl.ca.location"]) == ("https://registry:8081", "/etc/ca.pem")
    assert config["basic.auth.user.info"] == f"{USER}:{PASSWORD}"
    with pytest.raises(Refused, match=r"schema\.registry\.ssl\.ca\.pem: expected files in PEM"):
        SchemaRegistry({**given, "schema.registry.ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nx"}).schema(1)
    with pytest.raises(Refused, match=r"schema\.registry\.ssl\.ca\.pem: expected PEM"):
        SchemaRegistry({**given, "schema.registry.ssl.ca.pem": "x"}).schema(1)


def test_the_registry_may_have_the_brokers_user() -> None:
    given = {
        "bootstrap.servers": "one:1",
        "sasl.username": "u",
        "sasl.password": "p",
        "basic.auth.credentials.source": "SASL_INHERIT",
    }
    registry = SchemaRegistry.of(Brokers.from_connection({**given, "schema.registry.url": "http://registry:8081"}))
    assert registry._client_config()["basic.auth.user.info"] == "u:p"
    assert json.dumps([repr(registry)]) == "[\"SchemaRegistry('http://registry:8081')\"]"


def with_fields(*fields: tuple[object, ...]) -> str:
    listed = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})} for field in fields
    ]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": listed})


DECLARED = with_fields(("id", "string"), ("state", {"type": "enum", "name": "State", "symbols": ["NEW"]}))


def pipeline_of(schema: str) -> Pipeline:
    topology = Topology("compared")
    topology.stream("orders", value=Avro(schema)).to("copied", value=Avro(schema))
    return Pipeline("compared", topology, "", {"orders": 1})


def test_a_declaration_is_compared_with_what_is_registered(registry_server: SchemaRegistryServer) -> None:
    def told(**properties: str) -> list[tuple[str, bool]]:
        return [*compare_with_registry(pipeline_of(DECLARED), registry_of(registry_server, **properties))]

    assert told() == [
        ("orders: the registry has no schema under the subject orders-value", False),
        (
            "copied: the subject copied-value has no schema yet. The aggregator registers the declared schema when it "
            "starts",
            False,
        ),
    ]
    ((_, wrong), *_) = reversed(told(auto_register_schemas="false"))
    assert wrong
    registry_server.add("copied-value", DECLARED)
    registry_server.add("orders-value", ORDER)
    assert told() == [
        (
            "orders: the latest schema of the subject orders-value cannot be read: state is not written, and the "
            "declaration has no default for it",
            True,
        ),
        ("copied: the declared schema is registered under the subject copied-value", False),
    ]
    states = {"type": "enum", "name": "State", "symbols": ["NEW", "LOST"]}
    registry_server.add("orders-value", with_fields(("id", ["null", "string"]), ("state", states), ("note", "string")))
    assert [sentence for sentence, _ in told()][:-1] == [
        "orders: the latest schema of the subject orders-value can be read",
        "orders: id may be null, and the declaration has no null there. Such a record goes to the dead-letter topic",
        "orders: state may be LOST, which the declaration does not list. Such a record goes to the dead-letter topic",
        "orders: fields that are written and not declared: note",
    ]
    assert not [wrong for _, wrong in told() if wrong]


def test_declarations_of_other_formats_are_compared_with_what_is_registered(
    registry_server: SchemaRegistryServer, tmp_path: Path
) -> None:
    proto = 'syntax = "proto3"; package shop; message Order { string id = 1; enum E { A = 0; %s } E state = 2; %s }'
    (tmp_path / "order.proto").write_text(proto % ("", ""))
    document = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    topology = Topology("compared")
    orders = topology.stream("orders", value=Protobuf(str(tmp_path / "order.proto")))
    orders.map_values({"id": "id"}).to("documents", value=JsonSchema(json.dumps(document)))
    topology.stream("more", value=JsonSchema(json.dumps(document))).to("copied")
    pipeline = Pipeline("compared", topology, "", {"orders": 1, "more": 1})

    def told() -> list[str]:
        return [finding.sentence for finding in compare_with_registry(pipeline, registry_of(registry_server))]

    registry_server.add("orders-value", proto % ("B = 1;", "int32 added = 3;"), kind="PROTOBUF")
    registry_server.add("more-value", json.dumps({**document, "required": []}), kind="JSON")
    registry_server.add("documents-value", json.dumps(document), kind="JSON")
    assert told() == [
        "orders: the latest schema of the subject orders-value can be read",
        "orders: state may be B, which the declaration does not list. Such a record goes to the dead-letter topic",
        "orders: fields that are written and not declared: added",
        "documents: the declared schema is registered under the subject documents-value",
        "more: the latest schema of the subject more-value can be read",
        "more: id may be absent, and the declaration requires it. Such a record goes to the dead-letter topic",
    ]
    registry_server.add("orders-value", 'syntax = "proto3"; message Order { int64 id = 1; }', kind="PROTOBUF")
    registry_server.add("more-value", ORDER)
    assert [*told()[:1], *told()[2:]] == [
        "orders: the latest schema of the subject orders-value cannot be read: id is written as int64, and declared as "
        "string",
        "more: the subject more-value has a schema in the format AVRO",
    ]
    registry_server.add("orders-value", "no file", kind="PROTOBUF")
    assert told()[0].startswith(
        "orders: the latest schema of the subject orders-value cannot be used: schema.proto:1:1"
    )


def test_a_json_schema_without_a_title_has_no_subject_of_its_name(registry_server: SchemaRegistryServer) -> None:
    schema = '{"type": "object", "properties": {"id": {"type": "string"}}}'
    registry = registry_of(registry_server, value_subject_name_strategy="RecordNameStrategy")
    with pytest.raises(Refused, match='A JSON Schema has its name as "title"'):
        JsonSchema(schema).with_schemas(registry, "orders").prepare_to_write()
    JsonSchema('{"title": "Order", ' + schema[1:]).with_schemas(registry, "orders").prepare_to_write()
    assert [*registry_server.subjects] == ["Order"]


@pytest.mark.parametrize(("registered", "status"), [(DECLARED, 0), (ORDER, 1)])
def test_validate_tells_it(
    registry_server: SchemaRegistryServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    registered: str,
    status: int,
) -> None:
    no_faults: list[Diagnostic] = []
    monkeypatch.setattr("streamplan.spark.planning.validation.find_diagnostics", lambda pipelines: no_faults)
    monkeypatch.setitem(sys.modules, "compared_pipelines", ModuleType("compared_pipelines"))
    monkeypatch.setattr(sys.modules["compared_pipelines"], "PIPELINE", pipeline_of(DECLARED), raising=False)
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "compared_pipelines")
    registry_server.add("orders-value", registered)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in registry_server.properties.items()))
    assert main(["validate", "compared", "--bootstrap-servers", "one:1", "--command-config", str(file)]) == status
    told = capsys.readouterr().out
    assert f"compared, compared with the Schema Registry at {registry_server.url}:" in told
    assert PASSWORD not in told
    assert main(["validate", "compared"]) == 0
    assert "declared schemas were not compared with a registry" in capsys.readouterr().out
