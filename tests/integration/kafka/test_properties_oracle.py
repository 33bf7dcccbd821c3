"""Properties files and lines of JAAS, read by us and by Java and Kafka's own client."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.java_properties import parse_jaas_config, parse_properties

from tests.support import property_table
from tests.support.jvm_client import JvmClient, jvm_client
from tests.support.property_files import FILES, PropertyFile


@pytest.fixture(scope="module")
def tools() -> Iterator[JvmClient]:
    """The client that Kafka's own tools have."""
    with jvm_client("4.3.1") as client:
        yield client


def test_the_table_of_properties_is_what_the_clients_list() -> None:
    assert property_table.FILE.read_text() == property_table.text(), "python -m tests.support.property_table writes it"


def read(content: bytes) -> dict[str, str] | None:
    try:
        return {name: value for name, (value, _) in parse_properties(content.decode("latin-1")).items()}
    except Refused:
        return None


@pytest.mark.soak
def test_properties_files_are_read_as_java_reads_them(tools: JvmClient) -> None:
    drawn = random.Random(38)
    parts = [
        b"a",
        b"b.c",
        b"=",
        b":",
        b" ",
        b"\t",
        b"\f",
        b"\\",
        b"\n",
        b"\r\n",
        b"\r",
        b"#",
        b"!",
        b"\\u00e4",
        b"\\u12",
    ]
    parts += [
        b"\\\\",
        b"\\\n",
        b"\\\r\n  ",
        b"\xe4",
        b"\xef\xbb\xbf",
        b"\\t",
        b"\\q",
        b'"',
        b"\\=",
        b"\0",
    ]
    for _ in range(3000):
        content = b"".join(drawn.choices(parts, k=drawn.randint(1, 14)))
        assert read(content) == tools.properties(content), content


@pytest.mark.soak
def test_jaas_is_read_as_kafka_reads_it(tools: JvmClient) -> None:
    drawn = random.Random(38)
    parts = ["a", "b.c", "=", " ", ";", '"', "'", "\\", "1", "-", "_", "$", "/", "//", "/*", "*/", "\n", "\\n", "\\101"]
    parts += ["required", "optional", "ä", "☃", ' a="b"', " c=d", "m required", ";", " ", "\x85", "\\\\", '\\"']
    for number in range(3000):
        text = "".join(drawn.choices(parts, k=drawn.randint(1, 8)))
        text = f"m required{text}" + ";" * (number % 2) if number % 3 else text
        try:
            ours = parse_jaas_config(text)
        except Refused:
            ours = None
        theirs = tools.jaas(text)
        if theirs is not None and None in {theirs[0], *theirs[1]}:
            theirs = None  # Kafka takes a mark or a number as a name that is null
        assert ours == theirs, text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_properties_file_means_what_it_means_to_kafkas_client(
    tools: JvmClient, file: PropertyFile, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(file.text.encode("latin-1"))
    loaded = tools.properties(path.read_bytes())
    theirs = "refused" if loaded is None else tools.connects(loaded)
    servers = "" if "bootstrap.servers" in file.text else "127.0.0.1:1"
    if file.refused:
        with pytest.raises(Refused, match=file.refused) as refused:
            Brokers.from_properties(path, servers=servers)
        assert str(path) in str(refused.value)
        assert refused.value.remedy or "escape" in file.name
        assert '"pw"' not in str(refused.value)
        assert isinstance(theirs, str) != bool(file.jvm_differs), theirs
        return
    ours = Brokers.from_properties(path, servers=servers)
    assert isinstance(Producer(ours.client_configs()), Producer)  # librdkafka takes all of it
    if file.jvm_differs:
        return
    assert not isinstance(theirs, str), theirs
    assert ours.properties.get("security.protocol", "PLAINTEXT") == theirs["security.protocol"].upper()
    if "sasl.username" in ours.properties:
        assert ours.properties["sasl.mechanism"] == theirs["sasl.mechanism"]
        assert loaded is not None
        options = tools.jaas(loaded["sasl.jaas.config"])
        assert options is not None
        assert ours.properties["sasl.password"] == options[1]["password"]
    spark = {name.removeprefix("kafka."): value for name, value in ours.spark_options().items()}
    assert not isinstance(again := tools.connects(spark), str), again
    assert again["security.protocol"] == theirs["security.protocol"].upper()
