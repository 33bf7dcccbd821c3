"""Four of five records on one key: equal numbers of stream tasks, unequal work."""

from __future__ import annotations

from streamplan import Json, Limits, Pipeline, TestData, Topology

topology = Topology("skewed-counter")
(
    topology.stream("clicks", value=Json("id string, page string"))
    .group_by("page", name="by-page")
    .count(store="clicks-by-page")
)


def click(n: int) -> tuple[str, bytes, bytes]:
    """Click ``n``: 80% on the page ``home``, the others on twenty pages in turn."""
    page = b"home" if n % 5 else b"page_%d" % (n // 5 % 20)
    return "clicks", b"visitor_%d" % (n % 1000), b'{"id": "click_%d", "page": "%b"}' % (n, page)


PIPELINE = Pipeline(
    name="skewed",
    topology=topology,
    description="Counts clicks by page; 80% are on one page.",
    topic_partitions={"clicks": 4},
    test_data=TestData(("clicks",), record=click, number="id"),
    limits=Limits(partition_share=0.9),  # 88% come together in the partition of home
)
