"""The latest value of each key, under a new key."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

DEVICES = 50

topology = Topology("latest-by-device")
(
    topology.stream("sourceTopic", value=Json("id string, device string, reading bigint"))
    .group_by("device", name="by-device")
    .reduce(store="latest")
    .to_stream()
    .to("targetTopic")
)


def measurement(n: int) -> tuple[str, bytes, bytes]:
    """Measurement ``n`` of device ``n % 50``."""
    value = b'{"id": "measurement_%d", "device": "device_%d", "reading": %d}' % (n, n % DEVICES, n * n % 1009)
    return "sourceTopic", b"measurement_%d" % n, value


PIPELINE = Pipeline(
    name="latest",
    topology=topology,
    description="Keeps the latest measurement of each device and writes it to targetTopic.",
    topic_partitions={"sourceTopic": 2, "targetTopic": 2},
    test_data=TestData(("sourceTopic",), record=measurement, number="id"),
)
