"""Joins with versioned tables that have a grace period: what follows from the declaration, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.operations import BufferRecords
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages import stage_of, stages_of
from streamplan.model.stages.stage import Restore
from streamplan.model.topology import Topology
from streamplan.model.unused import unused
from streamplan.model.windows import Duration, JoinWindows, Versioned
from streamplan.observability.diagram import diagram_of
from streamplan.queries.store_form import changelogs_of
from streamplan.serdes.join_buffer import BufferKey
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long

PRICE, ORDER = Json("price double"), Json("id string, amount bigint")


def priced(grace: Duration = "1 minute") -> Pipeline:
    topology = Topology("app")
    prices = topology.table("prices", value=PRICE, store=Versioned("prices", history="1 hour"))
    orders = topology.stream("orders", value=ORDER)
    orders.filter("amount > 0").join(
        prices, {"id": "id", "cost": "amount * table.price"}, grace=grace, name="with-price"
    ).to("priced")
    assert topology.faults == ()
    return Pipeline("priced", topology, "", {"orders": 2, "prices": 2})


def group_of(pipeline: Pipeline) -> Subtopology:
    (group,) = pipeline.topology.subtopologies
    return group


def test_the_buffer_has_a_compacted_changelog_of_its_own() -> None:
    (spec,) = (spec for spec in priced().topics() if spec.name == "app-with-price-Buffer-changelog")
    assert spec.configs == {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    key = BufferKey(17_000, b"order_1", 3).as_bytes()
    assert spec.application_key(key) == b"order_1"
    assert spec.key_text(key) == "'order_1' of 1970-01-01T00:00:17Z"
    assert not spec.is_of_store


def test_the_state_is_a_buffer_and_a_look_up_behind_it() -> None:
    group = group_of(priced())
    assert [type(stage).__name__ for stage in stages_of(group)] == ["ProcessStage", "ResultLookUpStage"]
    assert stage_of(group).stores == {"with-price-Buffer": Restore.LAST_OF_KEY, "prices": Restore.EVERY_RECORD}
    assert stage_of(group).judged_by_time == {"buffer of with-price": "which records wait for rows of the table"}
    assert stage_of(group).depends_on_arrival(group.processors_with(BufferRecords))


def test_a_checkpoint_outlives_another_grace_period() -> None:
    identities = [stage_of(group_of(priced(grace))).identity for grace in ("1 minute", timedelta(minutes=2))]
    assert identities[0] == identities[1]


def test_the_drawing_has_the_join_and_its_buffer_and_no_further_node() -> None:
    diagram = diagram_of(priced())
    shown = {node.name for node in diagram.nodes}
    assert {"with-price", "with-price-Buffer"} <= shown
    assert "buffer of with-price" not in shown


def test_the_buffer_has_the_columns_of_the_stream() -> None:
    lineage = column_lineage(priced().topology)
    assert lineage["app-with-price-Buffer-changelog"]["amount"] == {Column("orders", "amount")}
    assert lineage["priced"]["cost"] == {Column("orders", "amount"), Column("prices", "price")}


def test_nobody_asks_what_waits() -> None:
    assert changelogs_of(priced()) == {}
    assert unused(priced()) == ()


def test_the_keys_of_the_stream_count_for_the_changelog() -> None:
    topology = Topology("app")
    prices = topology.table("prices", value=PRICE, store=Versioned("prices", "1 hour"), key_serde=Long())
    topology.stream("orders", value=ORDER, key_serde=Long()).join(prices, {"id": "id"}, grace="1 minute").to("priced")
    pipeline = Pipeline("priced", topology, "", {"orders": 2, "prices": 2})
    (spec,) = (spec for spec in pipeline.topics() if spec.name.endswith("-Buffer-changelog"))
    assert spec.key_text(BufferKey(0, (7).to_bytes(8, "big"), 1).as_bytes()) == "7 of 1970-01-01T00:00:00Z"


@pytest.mark.parametrize("word", ["join", "left_join"])
@pytest.mark.parametrize(
    ("grace", "told"),
    [
        ("2 hours", "grace='2 hours' is longer than the history of the table, which is 3,600,000 ms"),
        (timedelta(hours=2), "is longer than the history of the table"),
        ("1 minit", "grace: '1 minit' is not a duration; write '1 minute'"),
    ],
)
def test_a_grace_period_that_the_table_does_not_have_is_refused(word: str, grace: Duration, told: str) -> None:
    topology = Topology("app")
    prices = topology.table("prices", value=PRICE, store=Versioned("prices", "1 hour"))
    getattr(topology.stream("orders", value=ORDER), word)(prices, {"id": "id"}, grace=grace).to("priced")
    (fault,) = topology.faults
    assert f"{word}" in fault.message
    assert told in str(fault)


def test_what_is_no_versioned_table_has_no_grace_period() -> None:
    topology = Topology("app")
    orders, others = topology.stream("orders", value=ORDER), topology.stream("others", value=ORDER)
    plain = topology.table("plain", value=PRICE, store="plain")
    everywhere = topology.global_table("everywhere", value=PRICE)
    counts = others.group_by_key().count(store="counts")
    orders.join(plain, {"id": "id"}, grace="1 minute")
    orders.join(counts, {"id": "id"}, grace="1 minute")
    orders.join(everywhere, {"id": "id"}, key="id", grace="1 minute")
    orders.join(others, {"id": "id"}, within=JoinWindows("1 minute"), grace="1 minute")
    assert [fault.message.partition(", and the ")[2] for fault in topology.faults] == [
        "table is not versioned, so that it has no earlier rows",
        "table is not versioned, so that it has no earlier rows",
        "other side is no versioned table",
        "other side is no versioned table",
    ]
    hint = "A table of a topic can have a versioned store: topology.table(…, store=Versioned('plain', history='…'))"
    assert topology.faults[0].hint == hint
    assert topology.faults[3].hint == "Give it to the window: within=JoinWindows('…', grace='…')"


def test_the_join_is_the_node_of_the_library() -> None:
    group = group_of(priced())
    shown = [node.name for node in group.processors if isinstance(node, Processor) and node.is_of_library]
    assert shown == ["KTABLE-SOURCE-0000000001", "KSTREAM-FILTER-0000000003", "with-price"]
    (filtered,) = (node for node in group.processors if node.name.startswith("KSTREAM-FILTER"))
    assert group.children_of(filtered) == ("with-price",)
