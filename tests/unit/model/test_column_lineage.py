"""Origins of columns, as a person reads them from the declarations of the examples."""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.model.column_lineage import column_lineage
from streamplan.model.topology import Topology
from streamplan.pipelines import enriched, orders, payments
from streamplan.serdes.json import Json


def origins(topology: Topology, topic: str) -> Mapping[str, set[str]]:
    found = column_lineage(topology)[topic]
    return {name: {f"{column.topic}.{column.name}" for column in columns} for name, columns in found.items()}


def test_a_count_comes_from_the_field_that_is_grouped_by() -> None:
    prefix = "orders-aggregator-orders-products-quantities"
    assert origins(orders.topology, f"{prefix}-repartition") == {
        "key": {"orders.ProductType"},
        "Id": {"orders.Id"},
        "ProductType": {"orders.ProductType"},
    }
    assert origins(orders.topology, f"{prefix}-changelog") == {
        "key": {"orders.ProductType"},
        "count": {"orders.ProductType"},
    }


def test_a_join_takes_columns_of_both_sides() -> None:
    found = origins(enriched.topology, "enriched-purchases")
    assert found["amount"] == {"purchases.amount"}
    assert found["city"] == {"customers.city"}


def test_a_join_of_two_streams_takes_columns_of_both() -> None:
    found = origins(payments.topology, "paid-orders")
    assert found["total"] == {"purchase-orders.total"}
    assert found["paid"] == {"payments.amount"}
    assert found["key"] == {"purchase-orders.key", "payments.key"}
    changelog = origins(payments.topology, "order-payments-KSTREAM-JOINOTHER-0000000005-store-changelog")
    assert changelog["method"] == {"payments.method"}


def test_expressions() -> None:
    topology = Topology("app")
    (
        topology.stream("in", value=Json("line string, price double, amount int"))
        .map_values({"total": "Price * `amount`", "fixed": "'price'", "words": "split(line, ' ')", "was": "record.key"})
        .flat_map("words", key="element", value={"word": "upper(element)", "total": "total"})
        .group_by_key()
        .aggregate({"sum": "sum(total)", "n": "count(*)"}, store="s")
        .to_stream()
        .to("out")
    )
    assert origins(topology, "out") == {
        "key": {"in.line"},
        "sum": {"in.price", "in.amount"},
        "n": set(),
    }
    repartition = origins(topology, "app-s-repartition")
    assert repartition["word"] == {"in.line"}


def test_values_that_are_made_of_one_record_and_branches_keep_its_key() -> None:
    topology = Topology("app")
    read = topology.stream("in", value=Json("line string, price double"))
    words = read.flat_map_values("split(line, ' ')", {"word": "upper(element)", "price": "price"})
    branches = words.split(name="by-").branch("price > 1", name="dear").default_branch(name="cheap")
    branches["by-dear"].to("dear")
    branches["by-cheap"].filter_not("word = ''").to("cheap")
    read.flat_map_values(len, schema="n bigint").to("numbers")
    for topic in ("dear", "cheap"):
        assert origins(topology, topic) == {"key": {"in.key"}, "word": {"in.line"}, "price": {"in.price"}}
    assert origins(topology, "numbers") == {"key": {"in.key"}, "n": {"in.key", "in.line", "in.price"}}


def test_each_topic_that_a_record_may_have_has_its_columns() -> None:
    topology = Topology("app")
    topology.stream("in", value=Json("country string")).to("concat('to-', country)", topics=("to-de", "to-fr"))
    for topic in ("to-de", "to-fr"):
        assert origins(topology, topic) == {"key": {"in.key"}, "country": {"in.country"}}


def test_parts_of_a_column_come_from_the_column() -> None:
    topology = Topology("app")
    customers = topology.table("customers", value=Json("name struct<first: string, last: string>, city string"))
    orders = topology.stream(
        "orders", value=Json("id string, lines array<struct<sku: string>>, by struct<city: string>")
    )
    value = {"sku": "lines[0].sku", "last": "table.name.last", "city": "coalesce(by.city, table.city)"}
    orders.join(customers, value).to("out")
    assert origins(topology, "out") == {
        "key": {"orders.key"},
        "sku": {"orders.lines"},
        "last": {"customers.name"},
        "city": {"orders.by", "customers.city"},
    }


def test_streams_that_are_merged() -> None:
    topology = Topology("app")
    value = Json("a int")
    topology.stream("one", value=value).merge(topology.stream("two", value=value)).to("out")
    assert origins(topology, "out")["a"] == {"one.a", "two.a"}


def test_groups_of_a_table() -> None:
    topology = Topology("app")
    users = topology.table("users", value=Json("city string, score bigint"), store="users")
    grouped = users.filter("score > 0").group_by("city", name="by-city")
    grouped.count(store="counts")
    grouped.reduce(max, min, store="reduced")
    grouped.aggregate(dict, max, min, schema="total bigint", store="totals")
    city, key, score = ({f"users.{name}"} for name in ("city", "key", "score"))
    assert origins(topology, "app-by-city-repartition") == {"key": city, "city": city, "score": score}
    assert origins(topology, "app-counts-changelog") == {"key": city, "count": city}
    assert origins(topology, "app-reduced-changelog") == {"key": city, "city": city | score, "score": city | score}
    assert origins(topology, "app-totals-changelog") == {"key": city, "total": city | score}
    assert origins(topology, "app-users-changelog") == {"key": key, "city": city, "score": score}
