"""The offsets at which an application began to write its sinks anew, as a file.

A reset deletes no record of a sink, for others read them. The next run writes them once more. So the recount must know
where the records of the present run begin. After a repartition of a source, it must know from where on the order of the
sink's records is that of the new topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from streamplan.checks.framework.cluster import Cluster
from streamplan.files import write_atomically
from streamplan.model.pipeline import Pipeline

Offsets: TypeAlias = Mapping[int, int]
"""By partition."""


@dataclass(frozen=True)
class SinkOffsets:
    """Offsets of sinks, by topic.

    Attributes:
        begins: Where the records of the present run begin; a topic that is absent begins at offset 0.
        ordered_from: From where on the order of the records is that of the sources as they are now.
    """

    begins: Mapping[str, Offsets] = field(default_factory=dict)
    ordered_from: Mapping[str, Offsets] = field(default_factory=dict)


def read_sink_offsets(path: Path, cluster: Cluster) -> SinkOffsets:
    """Read the offsets of the sinks that are still the same topics."""
    kept = _read(path, cluster)
    return SinkOffsets(
        *({topic: _offsets(entry[name]) for topic, entry in kept.items()} for name in ("begins", "ordered_from"))
    )


def record_reset(path: Path, pipeline: Pipeline, cluster: Cluster) -> Mapping[str, Offsets]:
    """Record that the application begins anew at the present ends of its sinks, and return these."""
    ends = _ends(pipeline, cluster)
    _write(path, cluster, {topic: {"begins": end, "ordered_from": {}} for topic, end in ends.items()})
    return ends


def record_moved_sources(path: Path, pipeline: Pipeline, cluster: Cluster) -> None:
    """Record that a source was copied to another topic: what lies in the sinks is in the order of the old one."""
    kept = _read(path, cluster)
    _write(
        path,
        cluster,
        {
            topic: {"begins": kept.get(topic, {}).get("begins", {}), "ordered_from": end}
            for topic, end in _ends(pipeline, cluster).items()
        },
    )


def _ends(pipeline: Pipeline, cluster: Cluster) -> dict[str, Offsets]:
    topology = pipeline.topology
    sinks = [sink for subtopology in topology.subtopologies for sink in subtopology.sinks if not sink.internal]
    topics = cluster.topics([topology.decorate(sink.topic) for sink in sinks])
    return {
        topic: {number: offsets.high_watermark for number, offsets in cluster.offsets(topic).items()}
        for topic in topics
    }


def _read(path: Path, cluster: Cluster) -> dict[str, Any]:
    content = json.loads(path.read_text()) if path.exists() else {}
    ids = cluster.topic_ids(list(cluster.topics(list(content)))) if content else {}
    return {topic: entry for topic, entry in content.items() if entry["id"] == ids.get(topic)}


def _write(path: Path, cluster: Cluster, entries: Mapping[str, Mapping[str, Offsets]]) -> None:
    ids = cluster.topic_ids(list(entries)) if entries else {}
    content = {topic: {"id": ids[topic], **entry} for topic, entry in entries.items()}
    write_atomically(path, json.dumps(content, indent=1))


def _offsets(content: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in content.items()}
