"""Several states of one sub-topology on real brokers: what is restored of them, recounted, and taken over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.maintenance.evolution import observe_evolution
from streamplan.model.kstream import KStream
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.spark.recount.recount import recount

from tests.support.records import read_committed
from tests.support.tried_topology import SALE, Tried, sale


class Silence(Processor):
    """Passes each update of a count, and tells of a key whose count has not changed for a minute."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        seen = store.get()
        updates = 1 if seen is None else seen.updates + 1
        store.put({"count": record.value.count, "updates": updates, "due": record.timestamp + timedelta(minutes=1)})
        yield {"count": record.value.count, "updates": updates, "silent": False}

    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        seen = store.get()
        yield {"count": seen.count, "updates": seen.updates, "silent": True}


@pytest.fixture
def tried(
    request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> Iterator[Tried]:
    """``restoring``: before each micro-batch the state is lost, and built from the changelogs."""
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=getattr(request, "param", False))
    yield made
    made.delete_topics()


def silent(counts: KStream, to: str) -> None:
    timed = {"store": "seen", "state": "count bigint, updates bigint, due timestamp", "timer": "due"}
    counts.process(Silence, schema="count bigint, updates bigint, silent boolean", **timed).to(to)


def declare(tried: Tried, topology: Topology) -> None:
    """A class behind a count, and an aggregate beside both."""
    sales = topology.stream(tried.named("sales"), value=SALE)
    silent(sales.group_by_key().count(store="sold").to_stream(), tried.named("out"))
    sales.group_by_key().aggregate({"amount": "sum(amount)"}, store="amounts")


def values(tried: Tried, store: str) -> dict[str, list[Any]]:
    """By key all values of a changelog, in their order. A count is its number."""
    found: dict[str, list[Any]] = {}
    where_it_begins = {"auto.offset.reset": "earliest"}
    for message in read_committed(tried.bootstrap_servers, tried.topology.changelog_topic(store), where_it_begins):
        data = message.value()
        value = int.from_bytes(data, "big") if len(data) == 8 and data[:1] == b"\0" else json.loads(data)
        found.setdefault(message.key().decode(), []).append(value)
    return found


def update(count: int, updates: int, *, is_silent: bool = False) -> dict[str, Any]:
    return {"count": count, "updates": updates, "silent": is_silent}


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_all_states_of_a_sub_topology_are_restored_and_go_on(tried: Tried) -> None:
    """The null values are no sales, and let a minute pass: the count leaves them out, and the timers fire."""
    declare(tried, tried.topology)
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 2), 1), ("b", sale("x", 4), 1)])
    tried.drain()
    tried.produce("sales", [("a", sale("x", 8), 5), ("b", sale("x", 16), 5)])
    tried.drain()
    tried.produce("sales", [("a", None, 70), ("b", None, 70), ("a", sale("x", 32), 80)])
    tried.drain()
    assert values(tried, "sold") == {"a": [2, 3, 4], "b": [1, 2]}
    assert values(tried, "amounts") == {
        "a": [{"amount": 3}, {"amount": 11}, {"amount": 43}],
        "b": [{"amount": 4}, {"amount": 20}],
    }
    expected = [
        *(("a", update(*made)) for made in ((2, 1), (3, 2), (4, 3))),
        *(("b", update(*made)) for made in ((1, 1), (2, 2))),
        ("a", update(3, 2, is_silent=True)),
        ("b", update(2, 2, is_silent=True)),
    ]
    assert tried.records("out") == sorted(expected, key=repr)
    assert tried.dead_letters() == []
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (2 if tried.restoring else 0), tried.lines
    assert recounted(tried) == {"sold": 2, "amounts": 2}


def recounted(tried: Tried) -> dict[str, int]:
    """The stores that a recount compares, with the keys of each. It leaves out what the class has made, and says so."""
    rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
    assert [row for row in rows if not row.agrees] == []
    untold = {row.subject for row in rows if not row.is_judged and "a state takes each update of" in row.where}
    of_class = ("seen-changelog", "out", "dead letters of sub-topology 0")
    assert {subject.removeprefix(f"{tried.name}-").split(":")[0] for subject in untold} == {*of_class}
    keys = {row.subject: row.observed for row in rows if row.subject not in untold}
    stores = ("sold", "amounts")
    return {store: number for store in stores for subject, number in keys.items() if f"{store}-changelog" in subject}


def cluster(tried: Tried) -> KafkaCluster:
    return KafkaCluster(Brokers(tried.bootstrap_servers))


def empty(tried: Tried, topic: str) -> None:
    """Delete all records of a compacted topic."""
    admin = AdminClient({"bootstrap.servers": tried.bootstrap_servers})
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[policy])
    for altered in admin.incremental_alter_configs([changed]).values():
        altered.result(120)
    for deleted in admin.delete_records([TopicPartition(topic, number, -1) for number in (0, 1)]).values():
        deleted.result(120)


@pytest.mark.soak
def test_a_state_whose_changelog_is_empty_begins_anew_and_the_others_are_restored(tried: Tried) -> None:
    declare(tried, tried.topology)
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 2), 1)])
    tried.drain()
    empty(tried, tried.topology.changelog_topic("seen"))
    tried.restoring = True
    tried.produce("sales", [("a", sale("x", 4), 2)])
    tried.drain()
    assert values(tried, "sold") == {"a": [2, 3]}
    assert values(tried, "amounts") == {"a": [{"amount": 3}, {"amount": 7}]}
    assert [value["updates"] for value in values(tried, "seen")["a"]] == [1]
    assert tried.records("out") == [("a", update(2, 1)), ("a", update(3, 1))]


@pytest.mark.soak
@pytest.mark.parametrize("lost", [("seen",), ("seen", "sold")], ids=["one", "two"])
def test_a_missing_changelog_is_named_and_created_again_its_state_begins_anew(
    tried: Tried, lost: tuple[str, ...]
) -> None:
    """As where a sub-topology has one store. The other states are restored."""
    declare(tried, tried.topology)
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 2), 1)])
    tried.drain()
    topics = [tried.topology.changelog_topic(store) for store in lost]
    admin = AdminClient({"bootstrap.servers": tried.bootstrap_servers})
    for deleted in admin.delete_topics(topics).values():
        deleted.result(120)
    tried.restoring = True
    tried.produce("sales", [("a", sale("x", 4), 2)])
    with pytest.raises(Refused) as refused:
        tried.drain()
    assert sorted(re.findall(rf"({tried.name}\S+) does not exist", str(refused.value))) == sorted(topics)
    tried.create_topics()
    tried.drain()
    sold = [1] if "sold" in lost else [2, 3]
    assert values(tried, "sold") == {"a": sold}
    assert values(tried, "amounts") == {"a": [{"amount": 3}, {"amount": 7}]}
    assert [value["updates"] for value in values(tried, "seen")["a"]] == [1]
    assert tried.records("out") == sorted([("a", update(2, 1)), ("a", update(sold[-1], 1))], key=repr)


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_a_reduction_and_the_table_that_it_is_joined_with_are_restored_and_go_on(tried: Tried) -> None:
    """Of equal amounts the last one is kept. A row of the table that is deleted is met no more."""
    rates = tried.topology.table(tried.named("rates"), value=Json("rate bigint"), store="rates")
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    largest = sales.reduce(max_by="amount", store="largest").to_stream()
    rated = largest.left_join(rates, {"shop": "shop", "amount": "amount", "rate": "table.rate"})
    rated.to(tried.named("out"))
    rated.group_by_key().aggregate({"rates": "sum(rate)"}, store="sums")
    tried.create_topics()
    for given, sold in (
        ([("a", {"rate": 1}, 0)], [("a", sale("x", 5), 1), ("a", sale("y", 3), 2)]),
        ([("a", {"rate": 2}, 3)], [("a", sale("z", 5), 4), ("b", sale("x", 9), 4)]),
        ([("a", None, 5), ("b", {"rate": 4}, 5)], [("a", sale("y", 4), 6), ("b", sale("y", 10), 6)]),
    ):
        tried.produce("rates", given)
        tried.produce("sales", sold)
        tried.drain()
    made = [("x", 5, 1), ("z", 5, 2), ("z", 5, None)], [("x", 9, None), ("y", 10, 4)]
    expected = [
        (key, {"shop": shop, "amount": amount, **({} if rate is None else {"rate": rate})})
        for key, records in zip("ab", made, strict=True)
        for shop, amount, rate in records
    ]
    assert without_nulls(tried.records("out")) == sorted(expected, key=repr)
    assert tried.store("sums") == {"a": {"rates": 3}, "b": {"rates": 4}}
    assert {key: value["shop"] for key, value in tried.store("largest").items()} == {"a": "z", "b": "y"}
    assert tried.dead_letters() == []
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (2 if tried.restoring else 0), tried.lines


@pytest.mark.parametrize(
    "tried", [True, pytest.param(False, marks=pytest.mark.soak)], indirect=True, ids=["restored", "continued"]
)
def test_the_tables_that_a_stream_is_joined_with_are_restored_from_the_changelogs_of_what_has_made_them(
    tried: Tried,
) -> None:
    """One is a count of the stream, and the other one a stream as a table. A deleted row is met no more."""
    rates = tried.topology.stream(tried.named("rates"), value=Json("rate bigint")).to_table()
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    counts = sales.group_by_key().count(store="sold")
    counted = sales.join(counts, {"amount": "amount", "nth": "table.count"})
    counted.left_join(rates, {"amount": "amount", "nth": "nth", "rate": "table.rate"}).to(tried.named("out"))
    tried.create_topics()
    for given, sold in (
        ([("a", {"rate": 1}, 0), ("a", {"rate": 2}, 3)], [("a", sale("x", 5), 1), ("a", sale("x", 3), 2)]),
        (
            [("a", None, 5), ("b", {"rate": 4}, 5)],
            [("a", sale("x", 4), 4), ("b", sale("x", 9), 4), ("a", sale("x", 6), 6), ("b", sale("x", 8), 6)],
        ),
    ):
        tried.produce("rates", given)
        tried.produce("sales", sold)
        tried.drain()
    made = [("a", 5, 1, 1), ("a", 3, 2, 1), ("a", 4, 3, 2), ("b", 9, 1, None), ("a", 6, 4, None), ("b", 8, 2, 4)]
    expected = [
        (key, {"amount": amount, "nth": nth, **({} if rate is None else {"rate": rate})})
        for key, amount, nth, rate in made
    ]
    assert without_nulls(tried.records("out")) == sorted(expected, key=repr)
    assert values(tried, "sold") == {"a": [2, 4], "b": [2]}
    assert tried.dead_letters() == []
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (1 if tried.restoring else 0), tried.lines
    if not tried.restoring:
        rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
        assert [row for row in rows if not row.agrees] == []


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_a_join_of_results_is_restored_from_the_changelogs_of_its_tables(tried: Tried) -> None:
    """An aggregate, a stream as a table, and a table. A deleted row is joined no more."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    counts, sums = sales.count(store="sold"), sales.aggregate({"amount": "sum(amount)"}, store="amounts")
    rates = tried.topology.stream(tried.named("rates"), value=Json("rate bigint")).to_table(store="rates")
    limits = tried.topology.table(tried.named("limits"), value=Json("most bigint"), store="limits")
    joined = counts.join(sums, {"sold": "count", "amount": "table.amount"}, store="both")
    joined = joined.left_join(rates, {"sold": "sold", "amount": "amount", "rate": "table.rate"})
    joined.left_join(limits, {"sold": "sold", "rate": "rate", "most": "table.most"}, store="all").to_stream().to(
        tried.named("out")
    )
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 5), 1), ("a", sale("x", 3), 2), ("b", sale("x", 1), 2)])
    tried.produce("rates", [("a", {"rate": 1}, 0)])
    tried.drain()
    assert tried.store("both") == {"a": {"sold": 2, "amount": 8}, "b": {"sold": 1, "amount": 1}}
    tried.produce("limits", [("a", {"most": 7}, 3), ("c", {"most": 9}, 3)])
    tried.produce("rates", [("b", {"rate": 2}, 3)])
    tried.drain()
    tried.produce("rates", [("a", None, 4)])
    tried.produce("sales", [("b", sale("x", 4), 5)])
    tried.drain()
    assert tried.store("both") == {"a": {"sold": 2, "amount": 8}, "b": {"sold": 2, "amount": 5}}
    nothing = {"rate": None, "most": None}
    seen = {key: {**nothing, **value} for key, value in tried.store("all").items()}
    assert seen == {"a": {"sold": 2, "rate": None, "most": 7}, "b": {"sold": 2, "rate": 2, "most": None}}
    assert tried.dead_letters() == []
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (2 if tried.restoring else 0), tried.lines
    rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
    assert [row for row in rows if not row.agrees] == []


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_a_joined_table_that_a_stream_is_joined_with_is_restored_for_both(tried: Tried) -> None:
    """Its changelog may have several records of a key, of which the join of tables needs the last one."""
    rates = tried.topology.table(tried.named("rates"), value=Json("rate bigint"), store="rates")
    limits = tried.topology.table(tried.named("limits"), value=Json("most bigint"), store="limits")
    joined = {"rate": "rate", "most": "table.most"}
    rates.left_join(limits, joined).to_stream().to(tried.named("both"))
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.left_join(rates, {"amount": "amount", "rate": "table.rate"}).to(tried.named("out"))
    tried.create_topics()
    tried.produce("rates", [("a", {"rate": 1}, 0), ("a", {"rate": 2}, 1), ("b", {"rate": 3}, 1)])
    tried.drain()
    tried.produce("rates", [("b", None, 2)])
    tried.produce("sales", [("a", sale("x", 5), 3), ("b", sale("x", 6), 3)])
    tried.drain()
    tried.produce("limits", [("a", {"most": 10}, 4), ("b", {"most": 20}, 4)])
    tried.produce("sales", [("a", sale("x", 7), 5), ("b", sale("x", 8), 5)])
    tried.drain()
    made = [("a", 5, 2), ("a", 7, 2), ("b", 6, None), ("b", 8, None)]
    expected = [(key, {"amount": amount, **({} if rate is None else {"rate": rate})}) for key, amount, rate in made]
    assert without_nulls(tried.records("out")) == sorted(expected, key=repr)
    both = [("a", {"rate": 1}), ("a", {"rate": 2}), ("a", {"rate": 2, "most": 10}), ("b", {"rate": 3}), ("b", None)]
    assert without_nulls(tried.records("both")) == sorted(both, key=repr)
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (2 if tried.restoring else 0), tried.lines


@pytest.mark.soak
@pytest.mark.parametrize("tried", [False, True], indirect=True, ids=["continued", "restored"])
def test_a_count_that_is_merged_with_its_stream_comes_behind_the_records(tried: Tried) -> None:
    """What they are merged to is aggregated, too. A rejected record is dead-lettered once, on whichever way it came."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    counts = sales.group_by_key().count(store="sold").to_stream().map_values({"n": "count"})
    merged = counts.merge(sales.filter("amount > 1").map_values({"n": "10 * amount"}))
    merged.to(tried.named("out"))
    merged.group_by_key().aggregate({"n": "sum(n)"}, store="sums")
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 2), 1), ("b", sale("x", 4), 1), ("a", b"{", 1)])
    tried.drain()
    tried.produce("sales", [("a", sale("x", 8), 5), (None, sale("x", 16), 5)])
    tried.drain()
    written: dict[Any, list[int]] = {}
    for message in tried.read(tried.named("out")):
        written.setdefault(message.key(), []).append(json.loads(message.value())["n"])
    assert written == {b"a": [20, 2, 80, 3], b"b": [40, 1], None: [160]}
    assert tried.store("sums") == {"a": {"n": 105}, "b": {"n": 41}}
    reasons = [reason for _, reason in tried.dead_letters()]
    assert (len(reasons), reasons.count("the key is null")) == (3, 2), reasons
    rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
    assert [row for row in rows if not row.agrees] == []
    untold = [row.subject for row in rows if not row.is_judged]
    assert untold != []
    assert not any("sold-changelog" in subject or f"{tried.name}-out" in subject for subject in untold)


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_states_beside_a_join_by_a_foreign_key_and_behind_it_go_on(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    carriers = topology.table(named("carriers"), value=Json("name string"), store="carriers")
    shipments = topology.table(named("shipments"), value=Json("carrier string, weight int"), store="shipments")
    joined = shipments.left_join(carriers, {"weight": "weight", "name": "table.name"}, foreign_key="carrier")
    joined.to_stream().group_by_key().aggregate({"names": "count(name)", "n": "count(*)"}, store="updates")
    shipments.to_stream().group_by_key().count(store="changes")
    carriers.to_stream().group_by_key().reduce(max_by="name", store="greatest")
    tried.create_topics()
    tried.produce("carriers", [("c0", {"name": "Ann"}, 1)])
    tried.produce("shipments", [("s0", {"carrier": "c0", "weight": 1}, 2), ("s1", {"carrier": "c1", "weight": 2}, 3)])
    tried.drain()
    tried.produce("carriers", [("c1", {"name": "Eve"}, 10), ("c0", {"name": "Al"}, 11)])
    tried.drain()
    tried.produce("shipments", [("s0", {"carrier": "c1", "weight": 3}, 20), ("gone", None, 21)])
    tried.drain()
    assert tried.store("updates") == {"s0": {"names": 3, "n": 3}, "s1": {"names": 1, "n": 2}}
    assert values(tried, "changes") == {"s0": [1, 2], "s1": [1]}
    assert tried.store("greatest") == {"c0": {"name": "Ann"}, "c1": {"name": "Eve"}}
    assert tried.dead_letters() == []
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (4 if tried.restoring else 0), tried.lines
    rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
    assert [row for row in rows if not row.agrees] == []
    told = [row.is_judged for row in rows if "changes-changelog" in row.subject]
    assert told != []
    assert all(told)


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_joins_by_foreign_keys_in_a_row_and_of_one_table_go_on(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    tried.partition_counts = {named("products"): 3}
    customers = topology.table(named("customers"), value=Json("name string"), store="customers")
    products = topology.table(named("products"), value=Json("title string"), store="products")
    orders = topology.table(named("orders"), value=Json("customer string, product string"), store="orders")
    buying = orders.join(customers, {"product": "product", "name": "table.name"}, foreign_key="customer", name="buying")
    bought = {"name": "name", "title": "table.title"}
    buying.left_join(products, bought, foreign_key="product", store="bought", name="bought-by")
    orders.join(products, {"title": "table.title"}, foreign_key="product", store="titles", name="titled")
    tried.create_topics()
    tried.produce("customers", [("c0", {"name": "Ann"}, 1)])
    tried.produce("products", [("p0", {"title": "Pen"}, 1)])
    tried.produce("orders", [(f"o{n}", {"customer": f"c{n}", "product": "p0"}, 2) for n in (0, 1)])
    tried.produce("orders", [("bad", {"customer": 1}, 3), ("none", None, 3)])
    tried.drain()
    assert tried.store("bought") == {"o0": {"name": "Ann", "title": "Pen"}}
    assert tried.store("titles") == {"o0": {"title": "Pen"}, "o1": {"title": "Pen"}}
    tried.produce("customers", [("c1", {"name": "Eve"}, 10)])
    tried.produce("products", [("p0", {"title": "Pencil"}, 11), ("p1", {"title": "Ink"}, 12)])
    tried.drain()
    assert tried.store("bought") == {
        "o0": {"name": "Ann", "title": "Pencil"},
        "o1": {"name": "Eve", "title": "Pencil"},
    }
    tried.produce("orders", [("o0", {"customer": "c1", "product": "p1"}, 20), ("o1", None, 21)])
    tried.drain()
    assert tried.store("bought") == {"o0": {"name": "Eve", "title": "Ink"}, "o1": None}
    assert tried.store("titles") == {"o0": {"title": "Ink"}, "o1": None}
    assert len(tried.dead_letters()) == 1
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (6 if tried.restoring else 0), tried.lines
    rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
    assert [row for row in rows if not row.agrees] == []
    stores = [store for group in tried.pipeline.topology.subtopologies for store in group.stores]
    assert len(stores) == 9, stores
    compared = {store: [row.is_judged for row in rows if f"-{store}-changelog" in row.subject] for store in stores}
    assert all(found and all(found) for found in compared.values()), compared


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_tables_and_streams_that_meet_a_join_by_a_foreign_key_go_on(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    customers = topology.table(named("customers"), value=Json("name string"), store="customers")
    orders = topology.table(named("orders"), value=Json("customer string"), store="orders")
    clicks = topology.stream(named("clicks"), value=Json("page string"))
    buying = orders.join(customers, {"name": "table.name"}, foreign_key="customer", name="buying")
    clicks.join(buying, {"page": "page", "name": "table.name"}).to(named("met"))
    of_orders = clicks.join(orders, {"page": "page", "name": "table.customer"})
    of_orders.merge(buying.to_stream().map_values({"page": "'none'", "name": "name"})).to(named("merged"))
    tried.create_topics()
    tried.produce("customers", [("c0", {"name": "Ann"}, 1)])
    tried.produce("orders", [("o0", {"customer": "c0"}, 2), ("o1", {"customer": "c1"}, 2)])
    tried.drain()
    tried.produce("clicks", [("o0", {"page": "a"}, 5), ("o1", {"page": "b"}, 5)])
    tried.produce("customers", [("c0", {"name": "Al"}, 10), ("c1", {"name": "Eve"}, 10)])
    tried.drain()
    tried.produce("clicks", [("o0", {"page": "c"}, 20), ("o1", {"page": "d"}, 20)])
    tried.produce("orders", [("o0", {"customer": "c1"}, 22)])
    tried.drain()
    met = [("o0", "a", "Ann"), ("o0", "c", "Al"), ("o1", "d", "Eve")]
    assert tried.records("met") == sorted([(key, {"page": page, "name": name}) for key, page, name in met], key=repr)
    merged = [("o0", "a", "c0"), ("o1", "b", "c1"), ("o0", "c", "c0"), ("o1", "d", "c1")]
    merged += [("o0", "none", name) for name in ("Ann", "Al", "Eve")] + [("o1", "none", "Eve")]
    assert tried.records("merged") == sorted(
        [(key, {"page": page, "name": name}) for key, page, name in merged], key=repr
    )
    assert tried.dead_letters() == []
    begun = [line for line in tried.lines if "begins with its changelog topics" in line]
    assert len(begun) == (4 if tried.restoring else 0), tried.lines
    rows = list(recount(tried.spark, tried.pipeline, cluster(tried), Brokers(tried.bootstrap_servers)))
    assert [row for row in rows if not row.agrees] == []


def without_nulls(records: list[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    return sorted(
        (
            (key, value and {name: field for name, field in value.items() if field is not None})
            for key, value in records
        ),
        key=repr,
    )


@pytest.mark.soak
def test_states_that_had_a_topic_between_them_go_on_without_it(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    silent(sales.group_by_key().count(store="sold").to_stream().repartition(name="counts"), tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 2), 1)])
    tried.drain()
    between = tried.named("counts-repartition")
    before = tried.pipeline
    sales = tried.declare_anew().stream(tried.named("sales"), value=SALE)
    silent(sales.group_by_key().count(store="sold").to_stream(), tried.named("out"))
    plan = observe_evolution(tried.pipeline, cluster(tried), str(tried.checkpoints))
    verdicts = {f"{change.part} {change.name}": str(change.verdict) for change in plan.changes}
    assert verdicts == {
        "sub-topology 0": "rebuilt",
        "store sold": "rebuilt",
        "store seen": "rebuilt",
        f"topic {between}": "orphaned",
    }
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 4), 2)])
    tried.drain()
    assert values(tried, "sold") == {"a": [2, 3]}
    assert tried.records("out") == [("a", update(2, 1)), ("a", update(3, 2))]
    assert recounted(tried) == {"sold": 1}
    admin = AdminClient({"bootstrap.servers": tried.bootstrap_servers})
    kept = {spec.name for spec in before.topics()} - {spec.name for spec in tried.pipeline.topics()}
    assert kept == {between}
    for deleted in admin.delete_topics([between]).values():
        deleted.result(120)
