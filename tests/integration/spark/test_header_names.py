"""Headers as any client writes them: names that are not UTF-8, empty, repeated, and without a value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.checks.framework.application import aggregations
from streamplan.checks.recount.counting import count_source
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.copying import copy_topic
from streamplan.kafka_port import records_of
from streamplan.kafka_types import UNREADABLE_HEADERS

from tests.support.raw_headers import produce_with_raw_headers
from tests.support.tried_topology import EPOCH, SALE, Tried

LATIN_1 = (b"gr\xf6\xdfe", b"1")
OTHERS = [(b"a", b"1"), (b"a", None), (b"", b"\xff"), (b"a", b"")]


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=False)
    yield made
    made.delete_topics()


@pytest.mark.soak
def test_a_header_name_that_is_not_utf_8_passes_as_in_the_jvm_and_is_marked_by_the_client(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.group_by("shop", name="by-shop").count(store="counted")
    tried.create_topics()
    sound, faulty = b'{"shop": "x"}', b"no JSON"
    for _ in range(3):  # the driver writes small micro-batches from the third on
        records = [(b"k", sound, [LATIN_1, *OTHERS]), (b"k", sound, OTHERS), (b"k", faulty, [*OTHERS, LATIN_1])]
        produce_with_raw_headers(tried.bootstrap_servers, tried.named("sales"), records, timestamp=EPOCH)
        tried.drain()
    others = [("a", b"1"), ("a", None), ("", b"\xff"), ("a", b"")]
    replaced = ("gr\ufffd\ufffde", b"1")  # as Java decodes it, and so as Kafka Streams passes it
    rekeyed = [m.headers() for m in tried.read(tried.topology.decorate("by-shop-repartition"))]
    assert rekeyed == [[replaced, *others], others] * 3
    letters = [m.headers() for m in tried.read(tried.topology.dead_letter_topic)]
    assert [headers[:5] for headers in letters] == [[*others, replaced]] * 3

    brokers = Brokers(tried.bootstrap_servers)
    cluster = KafkaCluster(brokers)
    (batch,) = cluster.read(tried.named("sales"), {0: (0, 3)})
    assert [record.headers for record in records_of(batch)] == [UNREADABLE_HEADERS, tuple(others), UNREADABLE_HEADERS]
    assert [*map(tuple, batch.headers)] == [record.headers for record in records_of(batch)]
    (aggregation,) = aggregations(tried.pipeline)
    counts = count_source(cluster, aggregation, {}, {0: 9})
    assert (counts.by_key, len(counts.rejected)) == ({b"x": 6}, 3)

    names = {"group": f"{tried.name}-copy", "transactional_id": f"{tried.name}-copy"}
    with pytest.raises(Refused, match=r"partition 0, offset 0 cannot be copied.*UTF-8"):
        copy_topic(brokers, tried.named("sales"), tried.named("copy"), 2, **names, report=tried.lines.append)
