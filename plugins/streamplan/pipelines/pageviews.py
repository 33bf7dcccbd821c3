"""Page views per country and minute."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, TimeWindows, Topology

topology = Topology("pageviews-per-minute")
(
    topology.stream("pageviews", value=Json("id string, country string, robot boolean"))
    .filter("not robot")
    .group_by("country", name="by-country")
    .windowed_by(TimeWindows("1 minute"))
    .count(store="views-per-country-and-minute")
)


def view(n: int) -> tuple[str, bytes, bytes]:
    """View ``n``; every tenth is a robot's."""
    country = (b"DE", b"FR", b"IT", b"PL")[n % 4]
    robot = b"true" if n % 10 == 0 else b"false"
    value = b'{"id": "view_%d", "country": "%b", "robot": %b}' % (n, country, robot)
    return "pageviews", b"visitor_%d" % (n % 777), value


PIPELINE = Pipeline(
    name="pageviews",
    topology=topology,
    description="Counts page views per country and minute, robots left out.",
    topic_partitions={"pageviews": 2},
    test_data=TestData(("pageviews",), record=view, number="id"),
)
