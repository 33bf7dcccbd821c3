"""Tables with a versioned store: what follows from the declaration, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from streamplan.model.checkpoint_identity import store_content
from streamplan.model.pipeline import Pipeline
from streamplan.model.stages import stage_of
from streamplan.model.stages.stage import Restore
from streamplan.model.topology import Topology
from streamplan.model.unused import unused
from streamplan.model.windows import Versioned
from streamplan.queries.store_form import changelogs_of
from streamplan.serdes.json import Json

PRICE, ORDER = Json("price double"), Json("id string, amount bigint")


def priced(store: Versioned) -> Pipeline:
    topology = Topology("app")
    prices = topology.table("prices", value=PRICE, store=store)
    orders = topology.stream("orders", value=ORDER)
    orders.join(prices, {"id": "id", "cost": "amount * table.price"}).to("priced")
    return Pipeline("priced", topology, "", {"orders": 2, "prices": 2})


def test_the_changelog_is_not_compacted_while_the_history_lasts() -> None:
    pipeline = priced(Versioned("prices", history="1 hour"))
    (spec,) = (spec for spec in pipeline.topics() if spec.name == "app-prices-changelog")
    assert spec.configs == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "min.compaction.lag.ms": str(25 * 3_600_000),
    }


def test_the_state_is_restored_from_every_record_and_has_an_identity_of_its_own() -> None:
    hour, plain = priced(Versioned("prices", timedelta(hours=1))), priced(Versioned("prices", "2 hours"))
    (group,), (other,) = hour.topology.subtopologies, plain.topology.subtopologies
    assert stage_of(group).stores == {"prices": Restore.EVERY_RECORD}
    contents = [store_content(each, each.processors[0]) for each in (group, other)]
    assert contents == [f"VersionedTableSource(store='prices', history_ms={hours * 3_600_000})" for hours in (1, 2)]


def test_nobody_asks_its_last_values() -> None:
    pipeline = priced(Versioned("prices", "1 hour"))
    assert changelogs_of(pipeline) == {}
    assert unused(pipeline) == ()


def test_other_operations_are_refused_with_what_to_write() -> None:
    topology = Topology("app")
    prices = topology.table("prices", value=PRICE, store=Versioned("prices", "1 hour"))
    others = topology.table("others", value=PRICE)
    prices.filter("price > 1")
    prices.filter_not("price > 1")
    prices.map_values({"price": "2 * price"})
    prices.group_by("price")
    prices.to_stream()
    others.join(prices, {"price": "table.price"})
    prices.left_join(others, {"price": "table.price"}, foreign_key="price")
    told = [fault.message.partition(":")[0] for fault in topology.faults]
    assert told == ["filter", "filter_not", "map_values", "group_by", "to_stream", "join", "left_join"]
    assert {fault.hint for fault in topology.faults} == {
        "Join streams with it, or give the table a store that is not versioned: store='prices'"
    }


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (Versioned("prices", "1 hr"), "Versioned, history: '1 hr' is not a duration; write '1 hour'"),
        (Versioned("a b", "1 hour"), "the name 'a b' contains ' '"),
        (Versioned("prices"), "Versioned: the argument history is missing"),  # type: ignore[call-arg]
    ],
)
def test_a_store_that_cannot_be_is_refused(store: Versioned, told: str) -> None:
    topology = Topology("app")
    topology.table("prices", value=PRICE, store=store)
    assert told in "; ".join(map(str, topology.faults))
