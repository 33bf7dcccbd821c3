from __future__ import annotations

from streamplan.model.operations import SubscriptionReceive, SubscriptionSend
from streamplan.model.subtopology_graph import responders_of, subscribers_of, upstream_of
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json


def test_upstream_are_all_sub_topologies_that_write_what_one_reads() -> None:
    topology = Topology("app")
    for name in ("sold", "returned"):
        topology.stream(name, value=Json("shop string")).to("both")
    topology.stream("both", value=Json("shop string")).to("copied")
    writers = {each.id for each in topology.subtopologies if "both" in each.sink_topics}
    (reader,) = (each for each in topology.subtopologies if "both" in each.source_topics)
    assert len(writers) == 2
    assert upstream_of(reader, topology) == writers
    assert [upstream_of(topology.subtopologies[writer], topology) for writer in sorted(writers)] == [set(), set()]


def test_who_responds_to_a_join_by_a_foreign_key_comes_after_it() -> None:
    topology = Topology("app")
    orders = topology.table("orders", value=Json("product string"))
    products = topology.table("products", value=Json("price int"))
    orders.join(products, {"price": "table.price"}, foreign_key="product").to_stream().to("prices")
    (subscriber,) = (each for each in topology.subtopologies if each.processors_with(SubscriptionSend))
    (responder,) = (each for each in topology.subtopologies if each.processors_with(SubscriptionReceive))
    assert subscribers_of(responder, topology) == [subscriber]
    assert responders_of(subscriber, topology) == [responder]
    assert responders_of(responder, topology) == []
    assert upstream_of(responder, topology) == {subscriber.id}
    assert responder.id not in upstream_of(subscriber, topology)
