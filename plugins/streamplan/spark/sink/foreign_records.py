"""Records in a repartition topic that the sub-topology which writes it did not write.

Linked sub-topologies do not read the topic back. So whether it has what was handed on, and nothing else, is told by its
offsets: each record has one, and the marker of each transaction has one.
"""

from __future__ import annotations

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka_types import TopicPartition
from streamplan.model.processor_topology import TaskId
from streamplan.spark.sink.spec import HandedOnTo


def require_own_records(
    brokers: Brokers, task: TaskId, source: TopicPartition, extent: tuple[int, int], handed_on: HandedOnTo
) -> None:
    """Require that a partition has the records that were handed on to its stream task, and no other ones.

    Where a micro-batch has run more than once there are more offsets: those of aborted records, and more markers. Only
    then the records are counted.

    Args:
        brokers: Where the topic is.
        task: The stream task.
        source: The topic and the partition.
        extent: The offsets of the micro-batch: the first one, and the one past the last.
        handed_on: What was handed on to the task.

    Raises:
        Refused: There are other records, or records are missing.
        CouldNotLook: The records could not be counted.
    """
    topic, partition = source
    first, until = extent
    if until - first == handed_on.records + handed_on.markers:
        return
    found = sum(map(len, KafkaCluster(brokers).read(topic, {partition: extent})))
    if found != handed_on.records:
        raise Refused(
            f"task {task}: {topic}-{partition} has records that the application did not write",
            expected=f"{handed_on.records:,} records in the offsets {first} to {until - 1}",
            observed=f"{found:,}",
            remedy="Find the program that writes into this internal topic, and stop it. To count its records, too, "
            "start the aggregator with STREAMPLAN_LINKED=false.",
        )
