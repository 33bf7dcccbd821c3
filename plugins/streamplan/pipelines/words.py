"""How often each word stands in lines of text: the first example of Kafka Streams' documentation."""

from __future__ import annotations

from streamplan import Pipeline, String, TestData, Topology

topology = Topology("word-count")
(
    topology.stream("text-lines", value=String())
    .flat_map("regexp_extract_all(lower(value), '[a-z]+', 0)", key="element", value={"word": "element"})
    .group_by_key(name="by-word")
    .count(store="words")
    .to_stream()
    .to("word-counts")
)

_TEXT = (b"All streams lead to Kafka", b"Hello Kafka Streams", b"Join the Kafka Summit", b"A stream of words")


def line(n: int) -> tuple[str, bytes, bytes]:
    """Line ``n``, with its number at the end."""
    return "text-lines", b"page_%d" % (n % 97), b"%b %d" % (_TEXT[n % 4], n)


PIPELINE = Pipeline(
    name="words",
    topology=topology,
    description="Counts how often each word stands in lines of text.",
    topic_partitions={"text-lines": 2, "word-counts": 2},
    test_data=TestData(("text-lines",), record=line, number=lambda value: value.decode()),
)
