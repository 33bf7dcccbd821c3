"""Which application the command ``check`` looks at: a declared pipeline, or one that the options describe."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

from streamplan.checks.discovery.counts import CountOf
from streamplan.checks.discovery.discover import discover
from streamplan.checks.discovery.running import running_application
from streamplan.checks.framework.application import Application, Partitioner
from streamplan.errors import WrongUsage
from streamplan.kafka_port import Cluster
from streamplan.model.pipeline import Limits
from streamplan.model.topics import SERIALIZED_KEY_TYPES
from streamplan.serdes.avro import Avro
from streamplan.serdes.json import Json
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.serde import Serde

OPTIONS = {
    "source": "--source",
    "topology": "--topology",
    "count": "--count",
    "value": "--value",
    "store": "--store",
    "partitioner": "--partitioner",
    "key_type": "--key-type",
    "unjudged_store": "--unjudged-store",
    "partition_share": "--partition-share",
    "lag_seconds": "--lag-seconds",
}
"""The options that describe an application. A declared pipeline needs none of them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe an application."""
    group = parser.add_argument_group("any application")
    group.add_argument("--application-id", metavar="ID", help="the application.id")
    group.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic that it reads; needed if its consumer group has no position in it; may be given several times",
    )
    group.add_argument("--topology", type=Path, metavar="FILE", help="a file with the text of Topology.describe()")
    group.add_argument(
        "--partitioner",
        action="append",
        default=[],
        metavar="TOPIC=MODULE:FUNCTION",
        help="a Python function of a key and a number of partitions that returns the key's partition in that topic;"
        " without it the check expects murmur2",
    )
    group.add_argument(
        "--key-type",
        action="append",
        default=[],
        metavar="TOPIC=TYPE",
        help=f"the type by which keys of the topic are shown: {', '.join(SERIALIZED_KEY_TYPES)}",
    )
    group.add_argument(
        "--unjudged-store",
        action="append",
        default=[],
        metavar="NAME",
        help="a store whose keys are not the keys of the records that its tasks read, as a Processor API store may have"
        " them, or whose logging is off: the partitions of its keys are not judged, and the result says so",
    )
    group.add_argument(
        "--partition-share",
        type=float,
        metavar="SHARE",
        help=f"the greatest share of a topic that one partition may have (default {Limits().partition_share})",
    )
    group.add_argument(
        "--lag-seconds", type=float, metavar="SECONDS", help="the greatest age of the oldest record to process"
    )
    group.add_argument(
        "--count",
        metavar="TOPIC[:FIELD]",
        help="the topic whose records are counted, by a field of their value or, without one, by their key; counts"
        " have values of 8 bytes, as LongSerializer writes them, and keys of text or of the --key-type",
    )
    group.add_argument(
        "--value",
        metavar="SCHEMA",
        help='the fields of the values of that topic: "Id string, Type int"; or, with a Schema Registry in the client '
        "properties, a file: of Avro (order.avsc), of JSON Schema (order.schema.json) or of Protobuf (order.proto); if "
        "the file has several messages or records, add the name of one after a colon: order.proto:Order",
    )
    group.add_argument("--store", metavar="NAME", help="the store that holds the counts, if there are several stores")


class Subject(Protocol):
    """An application that is named on the command line."""

    def application(self, cluster: Cluster) -> Application:
        """Return the application as the checks see it.

        Raises:
            BrokersUnavailable: Kafka does not answer.
            CouldNotLook: There is no such application.
            Refused: The options do not fit it.
        """


class DeclaredPipeline:
    """A pipeline that is declared in this installation."""

    def __init__(self, name: str) -> None:
        from streamplan.registry import pipeline_named

        self._pipeline = pipeline_named(name)

    def application(self, cluster: Cluster) -> Application:
        """Return the pipeline as the checks see it; see :class:`Subject`."""
        cluster.names()  # if Kafka does not answer, wait for this one question and not for those of each check
        return running_application(self._pipeline, cluster)


class DescribedApplication:
    """An application that the options describe. They are parsed before Kafka is asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._id = options.application_id
        self._sources = options.source
        self._counts = [_count(options)] if options.count else []
        self._partitioners = {topic: _function(name) for topic, name in _pairs("--partitioner", options.partitioner)}
        self._key_types = dict(_pairs("--key-type", options.key_type))
        for topic, key_type in self._key_types.items():
            if key_type not in SERIALIZED_KEY_TYPES:
                raise WrongUsage(f"--key-type {topic}={key_type}", expected=" or ".join(SERIALIZED_KEY_TYPES))
        share = Limits().partition_share if options.partition_share is None else options.partition_share
        self._unjudged_stores = options.unjudged_store
        self._limits = Limits(share, options.lag_seconds)
        self._topology = _text(options.topology) if options.topology else None

    def application(self, cluster: Cluster) -> Application:
        """Discover the application; see :class:`Subject`."""
        counts = [
            replace(count, value=count.value.with_schemas(cluster.schemas, count.source)) if count.value else count
            for count in self._counts
        ]
        return discover(
            cluster,
            self._id,
            sources=self._sources,
            topology=self._topology,
            counts=counts,
            partitioners=self._partitioners,
            key_types=self._key_types,
            limits=self._limits,
            unjudged_stores=self._unjudged_stores,
        )


def _count(options: argparse.Namespace) -> CountOf:
    source, _, name = options.count.partition(":")
    try:
        value = _serde(options.value) if options.value else None
        _ = value and value.fields  # parses the schema
    except ValueError as error:
        raise WrongUsage(f"--value {options.value!r}", observed=str(error)) from error
    return CountOf(source, name or None, value, options.store)


def _serde(declared: str) -> Serde:
    file, _, name = declared.partition(":")
    path = str(Path(file).absolute())
    match Path(file).suffix:
        case ".avsc" | ".avpr":
            return Avro(path, record=name)
        case ".proto" | ".desc" | ".binpb":
            return Protobuf(path, message=name)
        case ".json":
            return JsonSchema(path)
    return Avro(declared) if declared.lstrip().startswith("{") else Json(declared)


def _pairs(option: str, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for argument in arguments:
        topic, _, value = argument.partition("=")
        if not (topic and value):
            raise WrongUsage(f"{option} {argument}", expected="TOPIC=…")
        yield topic, value


def _function(argument: str) -> Partitioner:
    module, _, name = argument.partition(":")
    subject = f"--partitioner …={argument}"
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise WrongUsage(
            subject,
            expected="MODULE:FUNCTION",
            observed=str(error),
            remedy="Add the directory that holds the module to PYTHONPATH.",
        ) from error
    if not callable(function):
        raise WrongUsage(subject, expected="a function", observed=f"{type(function).__name__}")
    partitioner: Partitioner = function
    return partitioner


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        observed = getattr(error, "strerror", None) or "bytes that are no text"
        raise WrongUsage(f"--topology {file}", expected="a text file", observed=observed) from error
