"""Where a query begins: the committed positions of the consumer group ``<application.id>``."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streamplan.adapters.kafka.connect import client_config
from streamplan.adapters.kafka.reader import KafkaCluster
from streamplan.errors import Refused


def begin_positions(bootstrap_servers: str, group: str, topic: str, *, new: bool) -> Mapping[int, int]:
    """The group's position in every partition of ``topic``.

    A ``new`` query, one without a checkpoint, of a group without positions begins at the start of the topic, and
    commits that before it reads: from then on a missing position is a fault and never taken for 0.
    """
    cluster = KafkaCluster(bootstrap_servers)
    positions = dict(cluster.positions(group, topic))
    starts = {partition: offsets.start for partition, offsets in cluster.offsets(topic).items()}
    missing = sorted(starts.keys() - positions.keys())
    if not missing:
        return positions
    if positions or not new:
        raise Refused(
            f"group {group} has no position for partitions {', '.join(map(str, missing))} of {topic}",
            expected="positions beside the checkpoint and the other partitions",
            remedy="They were deleted or have expired (the brokers' offsets.retention.minutes): reset the application.",
        )
    consumer = Consumer(client_config(bootstrap_servers, group_id=group, enable_auto_commit=False))
    try:
        committed = consumer.commit(
            offsets=[TopicPartition(topic, partition, start) for partition, start in starts.items()],
            asynchronous=False,
        )
        for position in committed or ():
            if position.error is not None:
                raise KafkaException(position.error)
    finally:
        consumer.close()
    return starts


def records_ever_written(bootstrap_servers: str, topics: list[str]) -> int:
    """The sum of the topics' end offsets: 0 only when nothing was ever written to them."""
    cluster = KafkaCluster(bootstrap_servers)
    return sum(offsets.end for topic in topics for offsets in cluster.offsets(topic).values())
