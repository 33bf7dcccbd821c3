"""Records that a topic further on would refuse: they are dead-lettered, whole or with what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from streamplan.serdes.json import Json

from tests.support.tried_topology import SALE, Tried

MB = 1024 * 1024
TOO_LARGE = "key, value and headers are larger than 1048000 bytes"


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=True)
    yield made
    made.delete_topics()


def produce(tried: Tried, topic: str, records: list[tuple[int, int]]) -> None:
    """Produce records, with so many bytes in their values and in their headers. Their key is ``k``."""
    producer = Producer(
        {
            "bootstrap.servers": tried.bootstrap_servers,
            "message.max.bytes": 16 * MB,
            "partitioner": "murmur2_random",
            "linger.ms": 0,
        }
    )
    refused: list[Any] = []
    for value_bytes, header_bytes in records:
        headers = [("pad", b"h" * header_bytes)] if header_bytes else []
        producer.produce(
            tried.named(topic),
            b'{"shop": "x", "pad": "' + b"v" * value_bytes + b'"}',
            b"k",
            headers=headers,
            on_delivery=lambda error, message: refused.append(error) if error else None,
        )
        assert producer.flush(120) == 0  # a batch of several could be larger than the topic takes
    assert refused == []


@pytest.mark.soak
def test_a_record_that_its_next_topic_would_refuse_is_dead_lettered(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    topology.stream(named("joined"), value=SALE).left_join(shops).to(named("located"))
    topology.stream(named("rekeyed"), value=SALE).group_by("shop", name="by-shop").count(store="counted")
    topology.stream(named("reduced"), value=SALE).group_by_key().reduce(store="latest")
    topology.stream(named("mapped"), value=SALE).map_values({"shop": "shop"}).to(named("shown"))
    sources = ("joined", "rekeyed", "reduced", "mapped", "shops")
    tried.create_topics({topic: {"max.message.bytes": str(16 * MB)} for topic in sources})
    whole, large_value, large_headers, together = (1000, 500_000), (5 * MB, 0), (10, 3 * MB), (600_000, 600_000)
    for topic in ("rekeyed", "joined"):
        produce(tried, topic, [whole, large_value, large_headers, together, whole])
    produce(tried, "reduced", [whole, large_value, (1_500_000, 0), together, whole])  # a changelog has no headers
    produce(tried, "mapped", [whole, large_value, large_headers, together, whole])
    produce(tried, "shops", [whole, large_value])
    tried.drain()
    letters = {
        topic: sorted(
            (len(m.value() or b""), headers.get("streamplan.omitted", b"").decode())
            for m in tried.read(tried.topology.dead_letter_topic)
            if (headers := dict(m.headers()))["streamplan.source.topic"].decode() == named(topic)
        )
        for topic in sources
    }
    json_bytes = 24
    without_value = (0, f"value of {5 * MB + json_bytes} bytes")
    without_headers = (10 + json_bytes, f"headers of {3 * MB + 9} bytes")
    both = (600_000 + json_bytes, "")
    assert letters == {
        "rekeyed": [without_value, without_headers, both],
        "joined": [without_headers],  # the value of the others is replaced by a small one
        "reduced": [without_value, (1_500_000 + json_bytes, "")],
        "mapped": [without_headers],
        "shops": [without_value],
    }
    assert {reason for _, reason in tried.dead_letters()} == {TOO_LARGE}
    (counted,) = tried.read(topology.changelog_topic("counted"))
    assert counted.value() == (2).to_bytes(8, "big")
    assert [len(m.value()) for m in tried.read(topology.changelog_topic("latest"))] == [1000 + json_bytes]
    assert [(len(m.value()), m.headers()) for m in tried.read(topology.changelog_topic(_store(tried)))] == [
        (1000 + json_bytes, None)
    ]


def _store(tried: Tried) -> str:
    """The store of the one table."""
    (store,) = (store for group in tried.topology.subtopologies for store in group.table_stores.values())
    return store
