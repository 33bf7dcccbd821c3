"""Global tables in a declaration: what follows from one, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.model.acls import Operation, Role, required_acls
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.kstream import GlobalKTable, KStream
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import STREAM_TIME, KeyValueStore, Processor, ProcessorContext, Record
from streamplan.model.stages import repeats_its_state
from streamplan.model.topology import Topology
from streamplan.model.unused import unused
from streamplan.observability.diagram import diagram_of
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String

COUNTS = {"orders": 2, "products": 3}
VALUE = {"id": "id", "price": "table.price"}


def declared() -> tuple[Topology, KStream, GlobalKTable]:
    topology = Topology("app")
    products = topology.global_table("products", value=Json("name string, price double"))
    orders = topology.stream("orders", value=Json("id string, product string"))
    return topology, orders, products


def faults(topology: Topology) -> str:
    with pytest.raises(Refused) as refused:
        Pipeline("p", topology, "", COUNTS)
    return str(refused.value)


def priced() -> Pipeline:
    topology, orders, products = declared()
    orders.join(products, VALUE, key="product").to("priced")
    return Pipeline("p", topology, "", COUNTS)


def test_the_topic_is_read_whole_by_each_stream_task_and_is_its_own_changelog() -> None:
    pipeline = priced()
    (joining,) = pipeline.topology.subtopologies
    assert (joining.id, joining.source_topics, joining.global_topics) == (1, ("orders",), ("products",))
    assert [str(task) for task in pipeline.tasks()] == ["1_0", "1_1"]
    specs = {spec.name: spec for spec in pipeline.topics()}
    assert set(specs) == {"orders", "products", "priced", "app-dead-letter"}
    assert specs["products"].configs == {"cleanup.policy": "compact"}
    assert specs["app-dead-letter"].partitions == 2


def test_a_topic_without_a_declared_count_belongs_to_others() -> None:
    topology, orders, products = declared()
    orders.join(products, VALUE, key="product").to("priced")
    pipeline = Pipeline("p", topology, "", {"orders": 2})
    assert pipeline.topics_of_others == ("products",)
    resolved = pipeline.resolved({"products": 7, "orders": 9})
    assert {spec.name: spec.partitions for spec in resolved.topics()}["products"] == 7


def test_permissions_lineage_and_the_diagram_have_the_table() -> None:
    pipeline = priced()
    acls = [
        (acl.name, acl.reason) for acl in required_acls(pipeline, Role.AGGREGATOR) if acl.operation is Operation.READ
    ]
    assert ("products", "sub-topology 1 reads it as a global table") in acls
    assert column_lineage(pipeline.topology)["priced"]["price"] == {Column("products", "price")}
    edges = {(start, end) for start, end, _ in diagram_of(pipeline).edges}
    assert ("topic products", "1 KSTREAM-LEFTJOIN-0000000004") in edges


class Priced(Processor):
    """Looks prices up. It has no store of its own."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.products = context, context.get_state_store("prices")

    def process(self, record: Record) -> None:
        row = self.products.get(record.value.product)
        self.context.forward({"price": None if row is None else row.value.price})


class Ticking(Priced):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule("1 minute", STREAM_TIME, print)


def read_by_a_class(**stores: Any) -> Topology:
    topology = Topology("app")
    prices = topology.global_table("products", value=Json("name string, price double"), store="prices")
    orders = topology.stream("orders", value=Json("id string, product string"))
    orders.process(Priced, stores={"prices": prices, **stores}, schema="price double").to("priced")
    return topology


@pytest.mark.parametrize("stores", [{}, {"own": KeyValueStore(String(), Long())}])
def test_a_class_that_reads_a_global_table_is_not_connected_with_it(stores: dict[str, Any]) -> None:
    topology = read_by_a_class(**stores)
    (processing,) = topology.subtopologies
    assert (processing.global_topics, processing.stores) == (("products",), tuple(stores))
    assert f"stores: [{', '.join(stores)}]" in topology.describe()
    pipeline = Pipeline("p", topology, "", COUNTS)
    assert unused(pipeline) == ()
    assert Column("products", "price") in column_lineage(topology)["priced"]["price"]
    edges = {(start, end) for start, end, _ in diagram_of(pipeline).edges}
    assert ("topic products", "1 KSTREAM-PROCESSOR-0000000003") in edges
    assert repeats_its_state(processing) is not bool(stores)


def test_a_class_asks_for_the_store_of_a_global_table_by_its_name() -> None:
    topology, orders, products = declared()
    orders.process(Priced, stores={"prices": products}, schema="price double").to("priced")
    assert "the store of the table is 'products-STATE-STORE-0000000000', and not 'prices'" in faults(topology)


def test_a_class_of_global_tables_alone_has_no_punctuator() -> None:
    topology = Topology("app")
    prices = topology.global_table("products", value=Json("name string, price double"), store="prices")
    orders = topology.stream("orders", value=Json("id string, product string"))
    orders.process(Ticking, stores={"prices": prices}, schema="price double").to("priced")
    assert "schedules a punctuator, and the processor has only global tables" in faults(topology)


def test_what_nobody_uses_is_told_of_the_table_and_of_the_stream() -> None:
    assert [warning.message for warning in unused(priced())] == ["nothing uses the field name of 'products'"]
    topology, orders, products = declared()
    orders.join(products, {"price": "table.price"}, key="product")
    said = [str(warning) for warning in unused(Pipeline("p", topology, "", COUNTS))]
    assert any("the result of join leads nowhere" in text for text in said)


def test_a_topology_of_a_global_table_alone_reads_nothing() -> None:
    topology = Topology("app")
    topology.global_table("products", value=Json("price double"))
    assert "the topology reads nothing" in faults(topology)


def test_a_join_says_which_key_it_looks_up() -> None:
    topology, orders, products = declared()
    orders.left_join(products, VALUE).to("priced")
    assert "left_join: which key is looked up in the global table is not given" in faults(topology)


def test_the_key_of_another_join_is_that_of_the_stream() -> None:
    topology, orders, products = declared()
    orders.join(products, VALUE, key="product").to("priced")
    names = topology.table("names", value=Json("name string"))
    orders.join(names, {"name": "table.name"}, key="product").to("named")
    assert "join: key= is given, and the other side is no global table" in faults(topology)


def test_unknown_fields_are_told_of_the_table_and_of_the_key() -> None:
    topology, orders, products = declared()
    orders.join(products, {"price": "table.prise"}, key="produkt").to("priced")
    said = faults(topology)
    assert "join, price: the table has no field 'prise'" in said
    assert "join, key: the value has no field 'produkt'" in said


def test_windows_and_stores_are_for_streams() -> None:
    topology, orders, products = declared()
    orders.join(products, VALUE, key="product", store="s").to("priced")
    assert "a table is joined without within and store" in faults(topology)


def test_the_topic_is_read_once() -> None:
    topology, _, _ = declared()
    topology.stream("products", value=Json("name string, price double")).to("copies")
    assert "the topic 'products' is read twice, as a global table at" in faults(topology)


def test_a_state_behind_the_join_is_not_left_alike_by_a_micro_batch_that_runs_again() -> None:
    topology, orders, products = declared()
    joined = orders.join(products, VALUE, key="product")
    joined.group_by("price", name="by-price").count(store="per-price")
    (joining, counting) = topology.subtopologies
    assert (repeats_its_state(joining), repeats_its_state(counting)) == (True, True)
    topology, orders, products = declared()
    orders.join(products, VALUE, key="product").group_by_key().count(store="counts")
    assert [repeats_its_state(group) for group in topology.subtopologies] == [False]


def test_a_state_before_the_join_or_beside_it_is_left_alike() -> None:
    topology, orders, products = declared()
    counts = orders.group_by_key().count(store="counts").to_stream()
    counts.join(products, {"count": "count", "price": "table.price"}, key="record.key").to("priced")
    orders.join(products, VALUE, key="product").to("more")
    assert [repeats_its_state(group) for group in topology.subtopologies] == [True]
    topology, orders, products = declared()
    names = topology.table("names", value=Json("name string"))
    orders.join(products, VALUE, key="product").join(names, {"id": "id", "name": "table.name"}).to("named")
    assert [repeats_its_state(group) for group in topology.subtopologies] == [True]


def test_a_global_table_is_only_joined() -> None:
    _, _, products = declared()
    with pytest.raises(AttributeError, match="A global table is only joined"):
        products.filter("price > 1")  # type: ignore[attr-defined]
