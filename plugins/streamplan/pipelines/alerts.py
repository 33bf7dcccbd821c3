"""Temperature alerts: the sensors whose mean temperature in a minute is 90 degrees or more, once for each minute."""

from __future__ import annotations

from streamplan import Json, OnWindowClose, Pipeline, TestData, TimeWindows, Topology

topology = Topology("temperature-alerts")
(
    topology.stream("sensor-temperatures", value=Json("id string, celsius bigint"), key="sensor")
    .group_by_key()
    .windowed_by(TimeWindows("1 minute", grace="10 seconds"))
    .emit_strategy(OnWindowClose())
    .aggregate({"mean": "avg(celsius)"}, store="mean-temperatures")
    .to_stream()
    .filter("mean >= 90")
    .map("record.key", {"minute": "record.window.start", "mean": "mean"})
    .to("temperature-alerts")
)


def reading(n: int) -> tuple[str, bytes, bytes]:
    """Reading ``n``; of twenty sensors each reads in turn, and each fourth one is hot for 600 of 1,800 readings."""
    sensor, hot = n % 20, n % 4 == 0 and n // 600 % 3 == 1
    celsius = 60 + 40 * hot + n // 20 % 8
    return "sensor-temperatures", b"sensor_%d" % sensor, b'{"id": "reading_%d", "celsius": %d}' % (n, celsius)


PIPELINE = Pipeline(
    name="alerts",
    topology=topology,
    description="Finds sensors that are too hot, by the mean of each minute, once, when the minute is over.",
    topic_partitions={"sensor-temperatures": 2, "temperature-alerts": 2},
    test_data=TestData(("sensor-temperatures",), record=reading, number="id"),
)
