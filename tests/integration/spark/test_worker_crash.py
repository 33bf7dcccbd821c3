"""A record that ends every Python worker: it is named, and goes to the dead-letter topic when an operator says so."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.spark.recount.recount import recount

from tests.support.tried_topology import SALE, Tried, sale


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=False)
    yield made
    made.delete_topics()


def crash(shop: str) -> None:
    if shop == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if shop == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def shown(sale: Any) -> dict[str, Any]:
    crash(sale.shop)
    return {"shop": sale.shop}


class Seen(Processor):
    def process(self, record: Record, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        crash(record.value.shop)
        before = store.get()
        store.put({"seen": 1 if before is None else before.seen + 1})
        yield {"shop": record.value.shop}


def mapped(tried: Tried) -> None:
    """A function before an aggregate with a state."""
    shops = tried.topology.stream(tried.named("sales"), value=SALE).map_values(shown, schema="shop string")
    shops.to(tried.named("made"))
    shops.group_by_key().count(store="counted")


def processed(tried: Tried) -> None:
    """A class with a state."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.process(Seen, store="seen", state="seen bigint", schema="shop string").to(tried.named("made"))


@pytest.mark.parametrize(
    ("declare", "shop"), [(mapped, "segfault"), pytest.param(processed, "killed", marks=pytest.mark.soak)]
)
def test_a_record_that_ends_each_worker_is_named_and_dead_lettered_once(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, declare: Any, shop: str
) -> None:
    declare(tried)
    tried.create_topics()
    keys = [f"k{number}" for number in range(6)]
    tried.produce("sales", [(key, sale("sound", 1), 0) for key in keys])
    tried.drain()
    tried.produce("sales", [(key, sale("sound", 1), 1) for key in keys])
    tried.produce("sales", [("k0", sale(shop, 1), 2)])
    tried.produce("sales", [(key, sale("sound", 1), 3) for key in keys])
    (source,) = (m for m in tried.read(tried.named("sales")) if json.loads(m.value())["shop"] == shop)
    place = f"{source.topic()}-{source.partition()}"
    named = f"{place} offset {source.offset()}: .*STREAMPLAN_DEAD_LETTER={place}@{source.offset()} "
    with pytest.raises(StreamplanError, match=named):
        tried.drain()
    assert tried.dead_letters() == []
    # The other partition goes on, and this one up to the record.
    passed = [
        (m.key().decode(), {"shop": "sound"})
        for m in tried.read(tried.named("sales"))
        if m.partition() != source.partition() or m.offset() < source.offset()
    ]
    assert len({m.partition() for m in tried.read(tried.named("sales"))}) == 2
    assert tried.records("made") == sorted(passed, key=repr)

    monkeypatch.setenv("STREAMPLAN_DEAD_LETTER", f"{place}@{source.offset()}")
    tried.drain()
    tried.drain()
    assert tried.records("made") == sorted([(key, {"shop": "sound"}) for key in keys * 3], key=repr)
    assert tried.dead_letters() == [("sales", "it is not processed, as STREAMPLAN_DEAD_LETTER says")]
    (letter,) = tried.read(tried.topology.dead_letter_topic)
    assert (letter.key(), letter.value()) == (source.key(), source.value())
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []
