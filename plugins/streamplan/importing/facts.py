"""What a cluster tells of an application beyond its description. It only reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamplan.checks.discovery.changelogs import resolve_key_schema
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.importing.nodes import nodes_of, repartition_topics
from streamplan.model.description import DescribedSubtopology
from streamplan.model.kstream import RESERVED_FIELDS
from streamplan.model.partitioner import partition_for_key
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable

SAMPLED_RECORDS = 1_000
"""So many of the last records of a topic tell what its values are."""

WINDOWS, SESSIONS, COUNT = "windows", "sessions", "count"

_COUNT_BYTES = 8
_GREATEST_COUNT = 1 << 48
"""Greater than a count. Text of 8 bytes, or a double, is beyond it when it is read as a number."""

_FORMS = {STORED_WINDOW_BYTES: WINDOWS, STORED_SESSION_BYTES: SESSIONS}
_TYPES: Mapping[type, str] = {str: "string", int: "bigint", float: "double", bool: "boolean"}


@dataclass(frozen=True)
class Facts:
    """What a cluster tells of an application.

    Attributes:
        partitions: The partition counts of topics, by their names in the description.
        schemas: The fields of the values of source topics, as far as their records tell them.
        reasons: Why the fields of a source topic, or some of them, cannot be told.
        stores: By store what its changelog tells: :data:`COUNT`, :data:`WINDOWS`, :data:`SESSIONS`. Nothing is known of
            a store that is left out.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, frozenset[str]] = field(default_factory=dict)


def observe_facts(cluster: Cluster, application_id: str, subtopologies: Sequence[DescribedSubtopology]) -> Facts:
    """Ask a cluster for the topics of an application, and read the last records of some.

    Args:
        cluster: The cluster.
        application_id: The ``application.id``.
        subtopologies: The sub-topologies of the application's description.

    Raises:
        BrokersUnavailable: Kafka does not answer.
    """
    internal = {topic.topic for topic in repartition_topics(nodes_of(subtopologies)).values()}
    running = [part for part in subtopologies if not part.is_global]
    sources = dict.fromkeys(topic for part in running for source in part.sources for topic in source.topics)
    names = {
        topic: f"{application_id}-{topic}" if topic in internal else topic
        for topic in (*sources, *(topic for part in running for topic in part.sinks))
    }
    observed = cluster.topics([*names.values()])
    schemas: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for topic in sources:
        if topic not in internal:
            try:
                schema, reason = infer_schema([value for _, value in _last_records(cluster, topic)])
            except CouldNotLook as error:
                schema, reason = "", " ".join(str(error).split())
            schemas |= {topic: schema} if schema else {}
            reasons |= {topic: reason} if reason else {}
    stores: dict[str, frozenset[str]] = {}
    for store in dict.fromkeys(store for part in running for store in part.store_names):
        try:
            found = _store(cluster, f"{application_id}-{store}-changelog")
        except CouldNotLook:  # a changelog that is not there, or whose records go
            found = None
        stores |= {} if found is None else {store: found}
    partitions = {topic: observed[name].partitions for topic, name in names.items() if name in observed}
    return Facts(partitions, schemas, reasons, stores)


def _last_records(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Read the keys and the values of the last records of a topic."""

    def read() -> list[tuple[bytes | None, bytes | None]]:
        offsets = cluster.offsets(topic)
        share = -(-SAMPLED_RECORDS // max(len(offsets), 1))
        ranges = {
            number: (max(border.log_start, border.last_stable - share), border.last_stable)
            for number, border in offsets.items()
        }
        batches = cluster.read(topic, ranges)
        return [pair for batch in batches for pair in zip(batch.keys, batch.values, strict=True)]

    return attempt(read)


def _store(cluster: Cluster, changelog: str) -> frozenset[str] | None:
    """What a changelog tells of its store; None where it has no records."""
    values = [value for _, value in _last_records(cluster, changelog) if value is not None]
    if not values:
        return None
    partitions = len(cluster.offsets(changelog))
    form = _FORMS.get(resolve_key_schema(cluster, changelog, partitions, partition_for_key).suffix)
    return frozenset(({form} if form else set()) | ({COUNT} if all(map(_is_count, values)) else set()))


def _is_count(value: bytes) -> bool:
    """Whether a value can be what ``LongSerializer`` writes of a count."""
    return len(value) == _COUNT_BYTES and int.from_bytes(value, "big") < _GREATEST_COUNT


def infer_schema(values: Iterable[bytes | None]) -> tuple[str, str]:
    """Infer the fields of JSON objects from examples.

    Args:
        values: The values of some records. A null value tells nothing.

    Returns:
        The fields with their types, as ``Json`` takes them, and why fields are left out. Each may be empty.
    """
    present = [value for value in values if value is not None]
    if not present:
        return "", "there are no records"
    types: dict[str, set[str]] = {}
    for value in present:
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            return "", "there are values that are no JSON objects"
        for name, content in document.items():
            found = types.setdefault(name, set())
            found |= set() if content is None else {_TYPES.get(type(content), "nested")}
    told, left_out = [], []
    for name, found in types.items():
        field_type = _one_type(found)
        is_name = name.isidentifier() and name not in RESERVED_FIELDS
        if field_type in _TYPES.values() and is_name:
            if _is_decoded(present, f"{name} {field_type}"):
                told.append(f"{name} {field_type}")
                continue
            field_type = f"{field_type}, and beyond it"
        left_out.append(f"{name} ({field_type if is_name else 'it cannot be the name of a field'})")
    reason = f"left out {', '.join(left_out)}" if left_out else ""
    return ", ".join(told), reason


def _one_type(found: set[str]) -> str:
    """The type of a field; otherwise what it has instead of one."""
    if found == {"bigint", "double"}:
        return "double"
    return " and ".join(sorted(found)) or "always null"


def _is_decoded(values: Iterable[bytes], schema: str) -> bool:
    serde = Json(schema)
    try:
        for value in values:
            serde.decode(value)
    except Undecodable:
        return False
    return True
