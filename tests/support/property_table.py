"""The client properties as the clients themselves list them: what `streamplan/kafka/property_table.py` must be.

Run as a module, it writes that file: `PYTHONPATH=plugins .venv/bin/python -m tests.support.property_table`.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from py4j.java_gateway import get_field
from streamplan.local.jars import BROKERS, KAFKA_STREAMS, SPARK, require
from streamplan.settings import PACKAGE

from tests.support.kafka_streams import java_with

FILE = PACKAGE / "kafka" / "property_table.py"

_CLIENTS = ("consumer.ConsumerConfig", "producer.ProducerConfig", "admin.AdminClientConfig")
_CLASS_PATHS = {
    "3.9.2": ((SPARK, "kafka-clients"), (BROKERS, "slf4j-api")),
    "4.3.1": ((KAFKA_STREAMS, "kafka-clients"), (KAFKA_STREAMS, "kafka-streams"), (KAFKA_STREAMS, "slf4j-api")),
}
"""Spark's client, and that of Kafka's own tools."""


def class_path(version: str) -> str:
    """The class path of a version of Kafka's JVM client."""
    jars = [
        str(jar)
        for jar_set, name in _CLASS_PATHS[version]
        for jar in sorted(require(jar_set, os.environ).glob(f"{name}-[0-9]*.jar"))
    ]
    return os.pathsep.join(jars)


def _of_jvm(version: str) -> tuple[dict[str, str], set[str]]:
    """The properties of the JVM client with their types, and those that the brokers alone have."""
    with java_with(class_path(version)) as jvm:
        definitions = [getattr(jvm.org.apache.kafka.clients, name.split(".")[0]) for name in _CLIENTS]
        listed = [
            getattr(package, name.split(".")[1]).configDef()
            for package, name in zip(definitions, _CLIENTS, strict=True)
        ]
        if version == "4.3.1":
            listed.append(jvm.org.apache.kafka.streams.StreamsConfig.configDef())
        clients = {name: kind for definition in listed for name, kind in _types(definition).items()}
        brokers = _types(jvm.org.apache.kafka.common.config.internals.BrokerSecurityConfigs.CONFIG_DEF)
    return clients, brokers.keys() - clients.keys()


def _types(definition: Any) -> dict[str, str]:
    keys = definition.configKeys()
    return {str(name): get_field(keys[name], "type").toString() for name in keys}


def _of_librdkafka() -> dict[str, str]:
    """The properties of the librdkafka in confluent-kafka's package, with their types."""
    [library] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    librdkafka, libc = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as shown:
        stream = ctypes.c_void_p(libc.fopen(shown.name.encode(), b"w"))
        librdkafka.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        text = Path(shown.name).read_text()
    rows = re.findall(r"^([\w.]+) +\|.*\*Type: ([^*]+)\*", text, re.MULTILINE)
    # What only a program in C can set, such as ssl_ca, has no text as its value.
    return {name: kind for name, kind in rows if kind != "see dedicated API"}


def text() -> str:
    """The text of the file."""
    spark, _ = _of_jvm("3.9.2")
    tools, of_brokers = _of_jvm("4.3.1")
    parts = [
        '"""The client properties of the two clients, with their types as these list them. Generated; do not edit.\n\n'
        "`tests/support/property_table.py` writes it, and says how. A test compares it with the clients.\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom collections.abc import Mapping\n',
        _mapping("JVM", spark, "The properties of the JVM client of Kafka 3.9.2, which Spark uses."),
        _mapping(
            "JVM_SINCE_4",
            _without(tools, spark),
            "Those that Kafka 4.3.1 and its tools, or Kafka Streams, have besides.",
        ),
        _mapping("LIBRDKAFKA", _of_librdkafka(), f"The properties of librdkafka {confluent_kafka.libversion()[0]}."),
        _names("OF_BROKERS", of_brokers - spark.keys(), "Security properties that brokers have, and no client."),
    ]
    return "\n".join(parts)


def _without(properties: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in properties.items() if name not in others}


def _mapping(name: str, properties: Mapping[str, str], meaning: str) -> str:
    rows = "".join(f'    "{each}": "{kind.strip()}",\n' for each, kind in sorted(properties.items()))
    return f'{name}: Mapping[str, str] = {{\n{rows}}}\n"""{meaning}"""\n'


def _names(name: str, properties: set[str], meaning: str) -> str:
    rows = "".join(f'        "{each}",\n' for each in sorted(properties))
    return f'{name} = frozenset(\n    {{\n{rows}    }}\n)\n"""{meaning}"""\n'


if __name__ == "__main__":
    FILE.write_text(text())
