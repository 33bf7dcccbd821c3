"""Which records wait in a left join when an application takes over, on a cluster in memory."""

from __future__ import annotations

from streamplan.maintenance.upgrade_waiting import plan_waiting
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows
from streamplan.serdes.json import Json

from tests.support.fake_cluster import FakeCluster

AT_MS = 1_700_000_000_000

PLACES = {name: AT_MS.to_bytes(8, "big") + b"\x01" + name.encode() for name in ("both", "old", "new", "unknown")}


def listed(value: bytes) -> bytes:
    """A list of one value of this stream, as ``ListSerializer`` writes it."""
    return b"\x01" + (1).to_bytes(4, "big") + (1 + len(value)).to_bytes(4, "big") + b"\x01" + value


def test_what_waits_in_the_old_application_waits_in_the_new_one() -> None:
    topology = Topology("new")
    orders, payments = (topology.stream(name, value=Json("id string"), key="order") for name in ("orders", "payments"))
    orders.left_join(payments, {"id": "id", "paid": "other.id"}, within=JoinWindows("1 hour"), store="paid")
    pipeline = Pipeline("shop", topology, "", {"orders": 2, "payments": 2}, upgrade_from="old")
    cluster = FakeCluster()
    for topic in ("new-paid-this-join-store-changelog", "new-paid-outer-other-join-store-changelog"):
        cluster.create(topic, 2)
    for application, waiting in (("old", ("both", "old", "unknown")), ("new", ("both", "new"))):
        topic = f"{application}-paid-left-shared-join-store-changelog"
        cluster.create(topic, 2)
        for name in waiting:
            value = listed(b'{"id": "%b"}' % name.encode())
            cluster.produce(topic, PLACES[name], value, partition=0, timestamp=AT_MS)
    for name in ("both", "old", "new"):
        key = name.encode() + AT_MS.to_bytes(8, "big") + bytes(4)
        cluster.produce("new-paid-this-join-store-changelog", key, b'{"id": "%b"}' % name.encode(), partition=0)
    (found,) = plan_waiting(pipeline, cluster)  # type: ignore[arg-type]
    assert (found.store, found.changelog) == (
        "paid-left-shared-join-store",
        "new-paid-left-shared-join-store-changelog",
    )
    assert {row.record.key: row.record.value for row in found.rows} == {
        PLACES["new"]: None,
        PLACES["old"]: listed(b'{"id": "old"}'),
    }
    assert found.left_out == 1


def test_an_application_without_such_a_join_is_left_alone() -> None:
    topology = Topology("new")
    topology.stream("orders", value=Json("id string")).to("paid")
    pipeline = Pipeline("shop", topology, "", {"orders": 2}, upgrade_from="old")
    assert [*plan_waiting(pipeline, FakeCluster())] == []  # type: ignore[arg-type]
