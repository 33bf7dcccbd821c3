"""Avro as Java has it, the library of Confluent's serializers, is the truth for bytes and for other schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from streamplan.serdes.avro import Avro
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.serde import Undecodable
from streamplan.spark.submit import pyspark_home
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.avro_files import file_with_types
from tests.support.kafka_streams import java_with

PREFIX_BYTES = 5


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM with Avro, from the jars of PySpark."""
    with java_with(str(pyspark_home() / "jars" / "*")) as jvm:
        yield jvm


def record(*fields: tuple[Any, ...], name: str = "shop.Order") -> str:
    listed = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})} for field in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def read_by_java(jvm: Any, data: bytes, writer: str, reader: str) -> Any:
    """Return the record that Java reads."""
    avro = jvm.org.apache.avro
    schemas = [avro.Schema.Parser().parse(text) for text in (writer, reader)]
    decoder = avro.io.DecoderFactory.get().binaryDecoder(bytearray(data), None)
    return avro.generic.GenericDatumReader(*schemas).read(None, decoder)


def written_by_java(jvm: Any, read: Any, schema: str) -> bytes:
    """Return the bytes that Java writes of a record that it has read."""
    avro = jvm.org.apache.avro
    stream = jvm.java.io.ByteArrayOutputStream()
    encoder = avro.io.EncoderFactory.get().binaryEncoder(stream, None)
    avro.generic.GenericDatumWriter(avro.Schema.Parser().parse(schema)).write(read, encoder)
    encoder.flush()
    return bytes(stream.toByteArray())


NESTED = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
EVERYTHING = record(
    ("text", "string"),
    ("number", "int"),
    ("long", "long"),
    ("ratio", "double"),
    ("rough", "float"),
    ("paid", "boolean"),
    ("state", STATE),
    ("note", ["null", "string"]),
    ("other", ["string", "null"]),
    ("lines", {"type": "array", "items": NESTED}),
    ("last", ["null", "Line"]),
    ("rates", {"type": "map", "values": ["null", "double"]}),
)
VALUES: list[dict[str, Any]] = [
    {
        "text": "Käse",
        "number": -(1 << 31),
        "long": (1 << 63) - 1,
        "ratio": 0.1,
        "rough": -0.5,
        "paid": True,
        "state": "PAID",
        "note": None,
        "other": "x",
        "lines": [{"sku": "a", "n": 1}, {"sku": "", "n": -1}],
        "last": {"sku": "b", "n": 300},
        "rates": {"EUR": 1.5},
    },
    {
        "text": "",
        "number": 0,
        "long": -1,
        "ratio": -0.0,
        "rough": 0.0,
        "paid": False,
        "state": "NEW",
        "note": "n",
        "other": None,
        "lines": [],
        "last": None,
        "rates": {},
    },
]


def serde_of(reader: str, *written: str) -> Avro:
    return Avro(reader).with_schemas(DeclaredSchemas(tuple(map(WrittenSchema, written))), "orders")


@pytest.mark.parametrize("value", VALUES)
def test_java_reads_what_is_written_and_writes_the_same_bytes(jvm: Any, value: dict[str, Any]) -> None:
    data = serde_of(EVERYTHING, EVERYTHING).encode(value)[PREFIX_BYTES:]
    read = read_by_java(jvm, data, EVERYTHING, EVERYTHING)
    assert json.loads(read.toString()) == value
    assert written_by_java(jvm, read, EVERYTHING) == data


@pytest.mark.parametrize(
    "text",
    ["0.00", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "327.67", "327.68", "-327.68", "99999999.99"],
)
def test_a_decimal_has_the_bytes_that_java_gives_it(jvm: Any, text: str) -> None:
    of_field = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    schema = record(("total", of_field))
    parsed = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(of_field))
    conversion = jvm.org.apache.avro.Conversions.DecimalConversion()
    buffer = conversion.toBytes(jvm.java.math.BigDecimal(text), parsed, parsed.getLogicalType())
    data = serde_of(schema, schema).encode({"total": Decimal(text)})[PREFIX_BYTES:]
    assert data[1:] == bytes(buffer.array())
    assert data[0] == 2 * len(data[1:])


EVOLUTIONS: list[tuple[tuple[Any, ...], tuple[Any, ...], Any]] = [
    (("a", "int"), ("a", "long"), 7),
    (("a", "int"), ("a", "double"), 7),
    (("a", "long"), ("a", "int"), 7),
    (("a", "string"), ("a", "int"), "7"),
    (("a", "int"), ("a", ["null", "long"]), 7),
    (("a", ["null", "int"]), ("a", ["null", "double"]), 7),
    (("a", ["null", "int"]), ("a", "int"), 7),
    (("a", ["null", "int"]), ("a", "int"), None),
    (("a", ["null", "int"]), ("a", ["int", "null"]), None),
    (("a", "int"), ("b", "int"), 7),
    (("a", "int"), ("b", "int", 3), 7),
    (("a", STATE), ("a", {**STATE, "symbols": ["PAID", "NEW", "LOST"]}), "PAID"),
    (("a", STATE), ("a", {**STATE, "symbols": ["NEW"]}), "PAID"),
    (("a", STATE), ("a", {**STATE, "symbols": ["NEW"], "default": "NEW"}), "PAID"),
    (("a", STATE), ("a", "string"), "PAID"),
    (("a", NESTED), ("a", {**NESTED, "fields": [NESTED["fields"][1]]}), {"sku": "a", "n": 1}),
    (("a", {"type": "array", "items": "int"}), ("a", {"type": "array", "items": "long"}), [1, 2]),
    (("a", {"type": "array", "items": "int"}), ("a", {"type": "array", "items": "string"}), [1, 2]),
    (("a", {"type": "map", "values": "int"}), ("a", {"type": "map", "values": ["null", "double"]}), {"x": 1}),
]


@pytest.mark.parametrize(("writer", "reader", "value"), EVOLUTIONS)
def test_other_schemas_are_read_as_java_reads_them(
    jvm: Any, writer: tuple[Any, ...], reader: tuple[Any, ...], value: Any
) -> None:
    written, declared = record(writer), record(reader)
    data = serde_of(written, written).encode({"a": value})
    try:
        expected = json.loads(read_by_java(jvm, data[PREFIX_BYTES:], written, declared).toString())
    except Py4JJavaError:  # AvroTypeException
        with pytest.raises(Undecodable):
            serde_of(declared, written).decode(data)
    else:
        assert serde_of(declared, written).decode(data) == expected


def of_classes(jvm: Any, file: str) -> dict[str, str]:
    """Return by name the schemas that the classes of a file's records have in Java."""
    parser = jvm.org.apache.avro.Schema.Parser()
    parser.parse(file)
    types = parser.getTypes().items()
    return {name: str(each.toString()) for name, each in types if each.getType().getName() == "record"}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_registered_of_a_file_with_several_types_is_what_a_class_of_java_has(jvm: Any, seed: int) -> None:
    random = Random(seed)
    types = file_with_types(random)
    shuffled = json.dumps(random.sample(types, len(types)))
    for name, of_class in of_classes(jvm, json.dumps(types)).items():
        declared = Avro(shuffled, record=name).schema
        assert jvm.org.apache.avro.Schema.Parser().parse(declared).toString() == of_class


def test_a_name_means_the_type_that_it_means_in_java(jvm: Any) -> None:
    lines = [
        json.loads(record(("number" if "." in name else "text", "int"), name=name))
        for name in ("Line", "a.Line", "shop.a.Line", "shop.Line")
    ]
    for known, named in ((lines, "a.Line"), (lines, "Line"), (lines[:3], "Line"), (lines[:1], "Line")):
        file = json.dumps([*known, json.loads(record(("line", named), ("lines", ["null", named])))])
        declared = Avro(file, record="shop.Order").schema
        of_class = of_classes(jvm, file)["shop.Order"]
        assert jvm.org.apache.avro.Schema.Parser().parse(declared).toString() == of_class
