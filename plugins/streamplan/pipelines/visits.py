"""How many pages each visitor looks at in a visit. A visit is over after five minutes without a page."""

from __future__ import annotations

from streamplan import Json, Pipeline, SessionWindows, TestData, Topology

topology = Topology("page-visits")
(
    topology.stream("page-requests", value=Json("id string, page string"), key="visitor")
    .group_by_key()
    .windowed_by(SessionWindows("5 minutes", grace="1 hour"))
    .count(store="pages-per-visit")
    .to_stream()
    .to("visits")
)


def request(n: int) -> tuple[str, bytes, bytes]:
    """Request ``n``; a visitor requests 25 pages in a row, and comes back when 19 others have done so."""
    visitor = b"visitor_%d" % (n // 25 % 20)
    return "page-requests", visitor, b'{"id": "request_%d", "page": "/page/%d"}' % (n, n % 7)


PIPELINE = Pipeline(
    name="visits",
    topology=topology,
    description="Counts the pages of each visit: of a visitor's requests that are at most five minutes apart.",
    topic_partitions={"page-requests": 2, "visits": 2},
    test_data=TestData(("page-requests",), record=request, number="id"),
)
