"""The offsets at which an application began to write its sinks anew, as a file.

A reset deletes no record of a sink, for others read them. The next run writes them once more. So the recount must know
where the records of the present run begin. After a repartition of a source, it must know from where on the order of the
sink's records is that of the new topic. After an upgrade it must know which staging topic has what was written before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamplan.files import read_json, write_atomically
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import OffsetByPartition
from streamplan.model.pipeline import Pipeline


@dataclass(frozen=True)
class SinkOffsets:
    """Offsets of sinks, by topic.

    Attributes:
        begins: Where the records of the present run begin; a topic that is absent begins at offset 0.
        ordered_from: From where on the order of the records is that of the sources as they are now.
        staging: The topic with what an application wrote before it took over from another one.
        in_turn: Topics that an application has written, then another one, and then the first one again.
    """

    begins: Mapping[str, OffsetByPartition] = field(default_factory=dict)
    ordered_from: Mapping[str, OffsetByPartition] = field(default_factory=dict)
    staging: Mapping[str, str] = field(default_factory=dict)
    in_turn: frozenset[str] = frozenset()


def read_sink_offsets(path: Path, cluster: Cluster) -> SinkOffsets:
    """Read the offsets of the sinks that are still the same topics.

    Raises:
        CouldNotLook: The file cannot be read.
    """
    kept = _read(path, cluster)
    return SinkOffsets(
        {topic: _offsets(entry["begins"]) for topic, entry in kept.items()},
        {topic: _offsets(entry["ordered_from"]) for topic, entry in kept.items()},
        {topic: entry["staging"] for topic, entry in kept.items() if entry.get("staging")},
        frozenset(topic for topic, entry in kept.items() if entry.get("in_turn")),
    )


def record_reset(path: Path, pipeline: Pipeline, cluster: Cluster) -> Mapping[str, OffsetByPartition]:
    """Record that the application begins anew at the present ends of its sinks, and return these."""
    ends = _ends(pipeline, cluster)
    _write(path, cluster, {topic: {"begins": end, "ordered_from": {}} for topic, end in ends.items()})
    return ends


def record_switch(path: Path, pipeline: Pipeline, cluster: Cluster) -> None:
    """Record that the application takes over from another one at the present ends of its sinks.

    Args:
        pipeline: The pipeline, declared with ``upgrade_from``. Nobody writes its sinks now.
    """
    kept, application_id = _read(path, cluster), pipeline.topology.application_id
    entries: dict[str, dict[str, Any]] = {}
    for topic, end in _ends(pipeline, cluster).items():
        before = kept.get(topic, {})
        writers = before.get("writers", [])
        if writers[-1:] == [application_id] and _offsets(before["begins"]) == end:
            entries[topic] = before  # an earlier switch has died behind this
            continue
        in_turn = application_id in writers
        entries[topic] = {
            "begins": end,
            "ordered_from": {},
            "staging": "" if in_turn else pipeline.staging_topics[topic],
            "in_turn": in_turn,
            "writers": [*(writers or [pipeline.upgrade_from]), application_id],
        }
    _write(path, cluster, entries)


def record_moved_sources(path: Path, pipeline: Pipeline, cluster: Cluster) -> None:
    """Record that a source was copied to another topic: what lies in the sinks is in the order of the old one."""
    kept = _read(path, cluster)
    _write(
        path,
        cluster,
        {
            topic: {"begins": {}, **kept.get(topic, {}), "ordered_from": end}
            for topic, end in _ends(pipeline, cluster).items()
        },
    )


def _ends(pipeline: Pipeline, cluster: Cluster) -> dict[str, OffsetByPartition]:
    topology = pipeline.topology
    sinks = [sink for subtopology in topology.subtopologies for sink in subtopology.sinks if not sink.internal]
    topics = cluster.topics([topology.decorate(sink.topic) for sink in sinks])
    return {
        topic: {number: offsets.high_watermark for number, offsets in cluster.offsets(topic).items()}
        for topic in topics
    }


def _read(path: Path, cluster: Cluster) -> dict[str, Any]:
    remedy = "Restore it from a backup of the reports, or remove it: the sinks are then compared from their beginning."
    content = read_json(path, _entries, remedy=remedy) or {}
    ids = cluster.topic_ids(list(cluster.topics(list(content)))) if content else {}
    return {topic: entry for topic, entry in content.items() if entry["id"] == ids.get(topic)}


def _entries(content: Any) -> dict[str, Any]:
    return {topic: {**entry, "id": entry["id"]} for topic, entry in content.items()}


def _write(path: Path, cluster: Cluster, entries: Mapping[str, Mapping[str, Any]]) -> None:
    ids = cluster.topic_ids(list(entries)) if entries else {}
    content = {topic: {**entry, "id": ids[topic]} for topic, entry in entries.items()}
    write_atomically(path, json.dumps(content, indent=1))


def _offsets(content: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in content.items()}
