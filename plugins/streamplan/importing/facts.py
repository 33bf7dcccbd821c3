"""What a cluster tells of an application beyond its description. It only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamplan.checks.discovery.changelogs import resolve_stored_keys
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.importing.examples import infer_schema
from streamplan.importing.nodes import nodes_of, repartition_topics
from streamplan.importing.recognition import foreign_key_joins
from streamplan.kafka_port import Cluster
from streamplan.model.description import DescribedSubtopology
from streamplan.model.partitioner import partition_for_key
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES

SAMPLED_RECORDS = 1_000
"""The types of a topic's values are found from this many of its last records."""

WINDOWS, SESSIONS, COUNT = "windows", "sessions", "count"

_COUNT_BYTES = 8
_GREATEST_COUNT = 1 << 48
"""Greater than a count. Text of 8 bytes, or a double, is beyond it when it is read as a number."""

_FORMS = {STORED_WINDOW_BYTES: WINDOWS, STORED_SESSION_BYTES: SESSIONS}


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
        subtopologies: The sub-topologies of the application's description.

    Raises:
        BrokersUnavailable: Kafka does not answer.
    """
    nodes = nodes_of(subtopologies)
    internal = {topic.topic for topic in repartition_topics(nodes).values()}
    between = {name for _, join in foreign_key_joins(nodes) for name in join.nodes}
    internal |= {topic for name in between for topic in nodes[name].topics}
    running = [part for part in subtopologies if not part.is_global]
    sources = dict.fromkeys(topic for part in subtopologies for source in part.sources for topic in source.topics)
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
    form = _FORMS.get(resolve_stored_keys(cluster, changelog, partitions, partition_for_key, ()).schema.suffix)
    return frozenset(({form} if form else set()) | ({COUNT} if all(map(_is_count, values)) else set()))


def _is_count(value: bytes) -> bool:
    """Whether a value can be what ``LongSerializer`` writes of a count."""
    return len(value) == _COUNT_BYTES and int.from_bytes(value, "big") < _GREATEST_COUNT
