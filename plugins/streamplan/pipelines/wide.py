"""More stream tasks than the source has partitions: a repartition topic of four."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

SENSORS = 40

topology = Topology("wide-counter")
(
    topology.stream("readings", value=Json("id string"))
    .repartition(number_of_partitions=4, name="wide")
    .group_by_key()
    .count(store="readings-per-sensor")
)


def reading(n: int) -> tuple[str, bytes, bytes]:
    """Reading ``n``, keyed by its sensor."""
    return "readings", b"sensor_%d" % (n % SENSORS), b'{"id": "reading_%d"}' % n


PIPELINE = Pipeline(
    name="wide",
    topology=topology,
    description="Counts readings by sensor in four stream tasks, from a topic of two partitions.",
    topic_partitions={"readings": 2},
    test_data=TestData(("readings",), record=reading, number="id"),
)
