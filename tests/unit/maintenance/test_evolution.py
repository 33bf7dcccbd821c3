"""What a changed declaration would do, told from topics and positions in memory and from checkpoints as files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamplan import Json, Long, Pipeline, TimeWindows, Topology
from streamplan.maintenance.evolution import observe_evolution
from streamplan.maintenance.evolution_plan import Change, EvolutionPlan, Part, Verdict
from streamplan.model.checkpoint_identity import checkpoint_identity
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.group_member import Member
from streamplan.model.kstream import KStream
from streamplan.model.topics import TopicRole, resolve_configs

from tests.support.fake_cluster import FakeCluster

APP = "shop"


def declared(declare: Callable[[KStream], object], *, others: bool = False, **changes: object) -> Pipeline:
    """A pipeline that reads the orders, with what ``declare`` makes of them."""
    topology = Topology(APP)
    declare(topology.stream("orders", value=Json("country string, product string, amount bigint")))
    counts = {} if others else {"orders": 2}
    return replace(Pipeline("shop", topology, "", topic_partitions=counts), **changes)  # type: ignore[arg-type]


def named(orders: KStream) -> None:
    orders.group_by("country", name="by-country").aggregate({"total": "sum(amount)"}, store="totals")


def unnamed_count(orders: KStream) -> None:
    orders.group_by("country").count()


class Shop:
    """An application that was deployed, has worked, and was stopped."""

    def __init__(self, pipeline: Pipeline, checkpoints: Path) -> None:
        self.cluster, self.checkpoints = FakeCluster(), checkpoints
        for spec in pipeline.topics():
            self.cluster.create(spec.name, spec.partitions, resolve_configs(spec, 1))
            for partition in self.cluster.existing[spec.name].partitions:
                partition.end = 5 if spec.role is TopicRole.CHANGELOG else 10
        for group in pipeline.topology.subtopologies:
            id = f"{group.id:08x}"
            topics = pipeline.source_topics(group)
            ends = {topic: dict.fromkeys(range(pipeline.partition_counts[topic]), 10) for topic in topics}
            for topic in topics:
                self.cluster.committed[APP, topic] = dict(ends[topic])
                self.cluster.metadata[APP, topic] = PositionMetadata(Generation(1000, "a:1:x"), id, 3).text
            directory = checkpoints / APP / f"{group.id}-{id}-1000"
            identity = checkpoint_identity(pipeline, group, self.cluster.topic_ids(topics))
            for name, text in (
                ("streamplan.json", json.dumps(identity)),
                ("offsets/3", "v1\n{}\n" + "\n".join(json.dumps({topic: end}) for topic, end in ends.items())),
                ("commits/3", "v1\n{}"),
            ):
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_text(text)

    def plan(self, pipeline: Pipeline) -> EvolutionPlan:
        return observe_evolution(pipeline, self.cluster, str(self.checkpoints))


def change_of(plan: EvolutionPlan, part: Part, name: str) -> Change:
    (found,) = [change for change in plan.changes if (change.part, change.name) == (part, name)]
    return found


def verdicts(plan: EvolutionPlan) -> dict[str, str]:
    return {f"{change.part} {change.name}": change.verdict.value for change in plan.changes}


def test_what_was_not_changed_is_kept(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(named))
    assert verdicts(plan) == {"sub-topology 0": "kept", "sub-topology 1": "kept", "store totals": "kept"}
    assert not plan.refused
    assert not plan.warnings
    assert "a changed filter, expression or function is not seen" in plan.text
    assert plan.text.endswith("\nNothing is refused: 3 kept. Nothing was changed.")
    assert json.loads(json.dumps(plan.written()))["refused"] is False


def test_a_new_application_reads_its_topics_from_their_first_records(tmp_path: Path) -> None:
    cluster = FakeCluster()
    plan = observe_evolution(declared(named), cluster, str(tmp_path))
    assert verdicts(plan) == {
        "sub-topology 0": "new",
        "sub-topology 1": "new",
        "store totals": "new",
        "topic orders": "created",
        "topic shop-by-country-repartition": "created",
        "topic shop-totals-changelog": "created",
        "topic shop-dead-letter": "created",
    }
    assert "orders is read from its first record on" in change_of(plan, Part.SUBTOPOLOGY, "0").reason
    assert "gets what sub-topology 0 writes, which is new, too" in change_of(plan, Part.SUBTOPOLOGY, "1").reason


def test_a_new_application_may_begin_later(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 2)
    plan = observe_evolution(declared(named, others=True, auto_offset_reset="latest"), cluster, str(tmp_path))
    assert "auto_offset_reset on, latest" in change_of(plan, Part.SUBTOPOLOGY, "0").reason


def maximum(orders: KStream) -> None:
    orders.group_by("country", name="by-country").aggregate({"total": "max(amount)"}, store="totals")


def windowed(orders: KStream) -> None:
    grouped = orders.group_by("country", name="by-country").windowed_by(TimeWindows("1 minute"))
    grouped.aggregate({"total": "sum(amount)"}, store="totals")


def typed(orders: KStream) -> None:
    grouped = orders.group_by("amount", key_serde=Long(), name="by-country")
    grouped.aggregate({"total": "sum(amount)"}, store="totals")


def test_another_serde_of_keys_is_named(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(typed))
    assert change_of(plan, Part.STORE, "totals").reason == (
        "shop-totals-changelog holds Aggregate(columns=(total=sum(amount),)), "
        "and Aggregate(columns=(total=sum(amount),)) with keys of Long is declared"
    )
    assert not Shop(declared(typed), tmp_path / "typed").plan(declared(typed)).refused


def test_a_store_that_would_mean_something_else_is_refused_and_a_reset_rebuilds_it(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(maximum))
    assert verdicts(plan) == {"sub-topology 0": "kept", "sub-topology 1": "refused", "store totals": "refused"}
    store = change_of(plan, Part.STORE, "totals")
    assert store.reason == (
        "shop-totals-changelog holds Aggregate(columns=(total=sum(amount),)), "
        "and Aggregate(columns=(total=max(amount),)) is declared"
    )
    assert "rebuilt from orders" in store.remedy
    assert plan.text.endswith("\nSomething is refused: 1 kept, 2 refused. Nothing was changed.")


def test_another_field_of_a_stream_makes_another_store(tmp_path: Path) -> None:
    def cogrouped(orders: KStream, **more: str) -> None:
        products = orders.group_by("product", name="by-product")
        both = orders.group_by("country", name="by-country").cogroup({"orders": "count(*)"})
        both.cogroup(products, {"total": "sum(amount)", **more}).aggregate(store="both")

    shop = Shop(declared(cogrouped), tmp_path)
    assert verdicts(shop.plan(declared(cogrouped)))["store both"] == "kept"
    refused = change_of(shop.plan(declared(lambda orders: cogrouped(orders, most="max(amount)"))), Part.STORE, "both")
    assert refused.verdict is Verdict.REFUSED
    assert "holds Cogroup(columns=[[orders=count(*)], [total=sum(amount)]])" in refused.reason
    assert "Cogroup(columns=[[orders=count(*)], [total=sum(amount), most=max(amount)]]) is declared" in refused.reason


def tracked(foreign_key: str, value: str = "table.name", *, left: bool = False) -> Pipeline:
    topology = Topology(APP)
    carriers = topology.table("carriers", value=Json("name string"), store="carriers")
    shipments = topology.table("shipments", value=Json("carrier string, former string"), store="shipments")
    join = shipments.left_join if left else shipments.join
    join(carriers, {"name": value}, foreign_key=foreign_key, name="tracking", store="tracked").to_stream().to("tracked")
    return Pipeline("shop", topology, "", topic_partitions={"carriers": 3, "shipments": 2})


@pytest.mark.parametrize("changed", [tracked("former"), tracked("carrier", left=True)])
def test_another_foreign_key_or_kind_of_join_makes_another_store(tmp_path: Path, changed: Pipeline) -> None:
    shop = Shop(tracked("carrier"), tmp_path)
    same = verdicts(shop.plan(tracked("carrier")))
    assert {name: verdict for name, verdict in same.items() if name.startswith("store")} == {
        "store carriers": "kept",
        "store tracking-subscription-store": "kept",
        "store shipments": "kept",
        "store tracked": "kept",
    }
    assert verdicts(shop.plan(changed))["store tracking-subscription-store"] == "refused"


def test_another_window_is_refused_by_the_deployment_too(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(windowed))
    assert verdicts(plan)["store totals"] == "refused"
    topic = change_of(plan, Part.TOPIC, "shop-totals-changelog")
    assert topic.verdict is Verdict.REFUSED
    assert "cleanup.policy: expected compact,delete, observed compact" in topic.reason


def test_without_the_checkpoint_it_cannot_be_known_what_a_changelog_holds(tmp_path: Path) -> None:
    shop = Shop(declared(named), tmp_path / "elsewhere")
    shop.checkpoints = tmp_path / "here"
    plan = shop.plan(declared(maximum))
    assert verdicts(plan) == {"sub-topology 0": "not known", "sub-topology 1": "not known", "store totals": "not known"}
    assert "name checkpoint 00000001, and there is none in" in change_of(plan, Part.SUBTOPOLOGY, "1").reason
    assert "Kafka has no schema" in change_of(plan, Part.STORE, "totals").reason
    assert not plan.refused


def test_a_lost_checkpoint_is_rebuilt_from_the_changelog(tmp_path: Path) -> None:
    shop = Shop(declared(named), tmp_path)
    (tmp_path / APP / "1-00000001-1000" / "streamplan.json").unlink()
    plan = shop.plan(declared(named))
    assert verdicts(plan) == {"sub-topology 0": "kept", "sub-topology 1": "rebuilt", "store totals": "not known"}
    assert "no complete checkpoint 00000001" in change_of(plan, Part.SUBTOPOLOGY, "1").reason


def added_in_front(orders: KStream) -> None:
    orders.group_by("product", name="by-product").count(store="products")
    named(orders)


def test_a_sub_topology_in_front_of_another_renumbers_it_and_its_store_is_rebuilt(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(added_in_front))
    assert verdicts(plan) == {
        "sub-topology 0": "kept",
        "sub-topology 1": "new",
        "store products": "new",
        "sub-topology 2": "rebuilt",
        "store totals": "rebuilt",
        "topic shop-by-product-repartition": "created",
        "topic shop-products-changelog": "created",
    }
    new = change_of(plan, Part.SUBTOPOLOGY, "1")
    assert "gets what sub-topology 0 writes from its committed positions on" in new.reason
    assert "reads orders again" in new.remedy


def test_what_is_not_declared_any_more_is_left_over(tmp_path: Path) -> None:
    plan = Shop(declared(added_in_front), tmp_path).plan(declared(named))
    assert verdicts(plan) == {
        "sub-topology 0": "kept",
        "sub-topology 1": "rebuilt",
        "store totals": "rebuilt",
        "topic shop-by-product-repartition": "orphaned",
        "topic shop-products-changelog": "orphaned",
    }
    left = change_of(plan, Part.TOPIC, "shop-products-changelog")
    assert "at most 10 records of Count()" in left.reason
    assert "--delete" in left.remedy


def test_what_a_topic_that_is_not_declared_any_more_has_left_to_process_is_told(tmp_path: Path) -> None:
    """A repartition topic between two states that stand in one sub-topology from now on."""
    shop = Shop(declared(added_in_front), tmp_path)
    topic = "shop-by-product-repartition"
    left = change_of(shop.plan(declared(named)), Part.TOPIC, topic)
    assert "processed" not in left.reason + left.remedy
    shop.cluster.existing[topic].partitions[1].end = 17
    left = change_of(shop.plan(declared(named)), Part.TOPIC, topic)
    assert left.reason.endswith("At most 7 of them were not processed, and will not be")
    assert left.remedy.startswith("To lose nothing, let the declaration of before process them first. ")


def test_an_unnamed_store_that_was_renumbered_is_recognised_and_can_be_kept(tmp_path: Path) -> None:
    def filtered(orders: KStream) -> None:
        orders.filter("amount > 0").group_by("country").count()

    def kept(orders: KStream) -> None:
        orders.filter("amount > 0").group_by("country").count(store=before)

    shop = Shop(declared(unnamed_count), tmp_path)
    (before,) = [node.store for _, node in declared(unnamed_count).stores]
    (after,) = [node.store for _, node in declared(filtered).stores]
    assert before is not None
    assert before != after
    plan = shop.plan(declared(filtered))
    store = change_of(plan, Part.STORE, str(after))
    assert store.verdict is Verdict.NEW
    assert f"probably the same store, renumbered: before it was {before}" in store.reason
    assert f"store={before!r}" in store.remedy
    assert change_of(plan, Part.TOPIC, f"{APP}-{before}-changelog").verdict is Verdict.ORPHANED
    assert change_of(plan, Part.TOPIC, f"{APP}-{before}-repartition").verdict is Verdict.ORPHANED
    (warning,) = plan.warnings
    assert f"the store {after!r} and its repartition topic have no name of its own" in warning

    as_told = shop.plan(declared(kept))
    assert verdicts(as_told) == {"sub-topology 0": "kept", "sub-topology 1": "kept", f"store {before}": "kept"}
    assert not as_told.warnings


def test_numbers_that_moved_to_another_store_are_refused(tmp_path: Path) -> None:
    """Each of two counts would go on with what the other has counted, or with nothing."""

    def two(orders: KStream) -> None:
        orders.group_by("country").count()
        orders.group_by("product").count()

    def moved(orders: KStream) -> None:
        orders = orders.filter("amount > 0")
        for _ in range(5):
            orders = orders.filter("amount > 1")
        two(orders)

    stores = [str(node.store) for _, node in declared(two).stores]
    after = [str(node.store) for _, node in declared(moved).stores]
    assert after[0] == stores[1]  # or the test has another number of filters than there are numbers between them
    plan = Shop(declared(two), tmp_path).plan(declared(moved))
    refused = change_of(plan, Part.STORE, after[0])
    assert refused.verdict is Verdict.REFUSED
    assert f"The name of this store was {stores[0]} before" in refused.reason
    assert f"before it was {stores[1]}" in change_of(plan, Part.STORE, after[1]).reason


def test_a_store_under_another_name_begins_empty(tmp_path: Path) -> None:
    def renamed(orders: KStream) -> None:
        orders.group_by("country", name="by-land").aggregate({"total": "sum(amount)"}, store="sums")

    plan = Shop(declared(named), tmp_path).plan(declared(renamed))
    store = change_of(plan, Part.STORE, "sums")
    assert store.verdict is Verdict.NEW
    assert "may be the same store, renamed: before it was totals" in store.reason
    assert store.remedy == "To go on with it, declare store='totals'."


def test_a_store_that_is_renamed_behind_the_same_topic_is_refused(tmp_path: Path) -> None:
    def renamed(orders: KStream) -> None:
        orders.group_by("country", name="by-country").aggregate({"total": "sum(amount)"}, store="sums")

    plan = Shop(declared(named), tmp_path).plan(declared(renamed))
    assert verdicts(plan)["sub-topology 1"] == "refused"


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(named, topic_partitions={"orders": 4}))
    assert {change.name for change in plan.refused} == {
        "orders",
        "shop-by-country-repartition",
        "shop-totals-changelog",
        "shop-dead-letter",
    }
    assert plan.text.count("shop_repartition is the safe way") == 1
    assert "judged when the partition counts are as declared" in plan.text


def test_topics_of_others_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    plan = observe_evolution(declared(named, others=True), FakeCluster(), str(tmp_path))
    (refused,) = plan.refused
    assert "topic orders: expected an external topic" in refused.reason
    assert "Its owner creates it" in refused.remedy


def test_a_position_that_an_aggregator_did_not_commit_is_refused(tmp_path: Path) -> None:
    shop = Shop(declared(named), tmp_path)
    shop.cluster.metadata[APP, "orders"] = "by hand"
    plan = shop.plan(declared(named))
    refused = change_of(plan, Part.SUBTOPOLOGY, "0")
    assert refused.verdict is Verdict.REFUSED
    assert "orders-0 at 10, with the metadata 'by hand'" in refused.reason
    assert "reset the application" in refused.remedy


def test_a_repartition_that_is_declared_comes_first(tmp_path: Path) -> None:
    topology = Topology(APP)
    named(topology.stream("orders-v2", value=Json("country string, product string, amount bigint")))
    moved = Pipeline("shop", topology, "", topic_partitions={"orders-v2": 2}, repartition_from={"orders-v2": "orders"})
    plan = Shop(declared(named), tmp_path).plan(moved)
    assert change_of(plan, Part.SUBTOPOLOGY, "0").remedy.startswith("Run shop_repartition")


@pytest.mark.parametrize("member", [Member("kafka-streams-1", "10.0.0.7", "m"), None])
def test_a_member_of_another_program_is_refused(tmp_path: Path, member: Member | None) -> None:
    shop = Shop(declared(named), tmp_path)
    shop.cluster.group_members[APP] = None if member is None else [member]
    (refused,) = shop.plan(declared(named)).refused
    assert (refused.part, refused.name) == (Part.APPLICATION, APP)
    assert (str(member) if member else "members of another protocol") in refused.reason


def test_an_aggregator_that_runs_is_taken_to_end_in_order(tmp_path: Path) -> None:
    """Meanwhile its positions are ahead of the checkpoint that was read a moment before."""
    shop = Shop(declared(named), tmp_path)
    for partition in shop.cluster.existing["shop-by-country-repartition"].partitions:
        partition.end = 20
    shop.cluster.committed[APP, "shop-by-country-repartition"] = {0: 15, 1: 20}
    assert verdicts(shop.plan(declared(named)))["store totals"] == "rebuilt"
    shop.cluster.group_members[APP] = [Member("streamplan:a:1:x", "10.0.0.7", "m")]
    plan = shop.plan(declared(named))
    assert verdicts(plan)["store totals"] == "kept"
    assert "an aggregator runs: streamplan:a:1:x on 10.0.0.7" in plan.text


def test_an_unnamed_repartition_topic_that_was_renumbered_can_be_kept(tmp_path: Path) -> None:
    def repartitioned(orders: KStream) -> None:
        orders.select_key("country").repartition().to("out")

    def filtered(orders: KStream) -> None:
        orders.filter("amount > 0").select_key("country").repartition().to("out")

    def kept(orders: KStream) -> None:
        orders.filter("amount > 0").select_key("country").repartition(name="KSTREAM-REPARTITION-0000000002").to("out")

    counts = {"orders": 2, "out": 2}
    shop = Shop(declared(repartitioned, topic_partitions=counts), tmp_path)
    plan = shop.plan(declared(filtered, topic_partitions=counts))
    created = change_of(plan, Part.TOPIC, "shop-KSTREAM-REPARTITION-0000000003-repartition")
    assert created.remedy == "To go on with it, declare repartition(name='KSTREAM-REPARTITION-0000000002')."
    assert set(verdicts(shop.plan(declared(kept, topic_partitions=counts))).values()) == {"kept"}


def test_an_unnamed_repartition_topic_of_a_join_can_be_kept(tmp_path: Path) -> None:
    def joined(*, filters: int, name: str | None = None) -> Pipeline:
        topology = Topology(APP)
        customers = topology.table("customers", value=Json("city string"), store="customers")
        orders = topology.stream("orders", value=Json("customer string, amount bigint"))
        for _ in range(filters):
            orders = orders.filter("amount > 0")
        orders.select_key("customer", name=name).join(customers).to("out")
        return Pipeline("shop", topology, "", topic_partitions={"orders": 2, "customers": 2, "out": 2})

    shop = Shop(joined(filters=0), tmp_path)
    plan = shop.plan(joined(filters=1))
    (created,) = [change for change in plan.changes if change.verdict is Verdict.CREATED]
    before = created.reason.rpartition(" was ")[2]
    assert before.startswith("KSTREAM-KEY-SELECT-")
    assert f"name={before!r}" in created.remedy
    assert set(verdicts(shop.plan(joined(filters=1, name=before))).values()) == {"kept"}


def test_the_state_of_a_kafka_streams_application_is_rebuilt_from_its_changelogs(tmp_path: Path) -> None:
    shop = Shop(declared(named), tmp_path)
    shutil.rmtree(tmp_path / APP)
    for topic in ("orders", "shop-by-country-repartition"):
        shop.cluster.metadata[APP, topic] = "AgAAAZ9LcdUM"  # TopicPartitionMetadata.encode of kafka-streams 4.3.1
    plan = shop.plan(declared(named))
    assert verdicts(plan) == {"sub-topology 0": "kept", "sub-topology 1": "rebuilt", "store totals": "not known"}
    assert "Kafka names no checkpoint" in change_of(plan, Part.SUBTOPOLOGY, "1").reason


def stand_beside(shop: Shop) -> None:
    """From now on the application is the candidate of an upgrade."""
    metadata = PositionMetadata(Generation(2000, "beside/a:1:x")).text
    shop.cluster.metadata = dict.fromkeys(shop.cluster.metadata, metadata)


def test_a_declared_upgrade_begins_where_the_old_application_did(tmp_path: Path) -> None:
    plan = observe_evolution(declared(named, upgrade_from="shop-1"), FakeCluster(), str(tmp_path))
    application = change_of(plan, Part.APPLICATION, APP)
    assert application.verdict is Verdict.BESIDE
    assert (
        "the candidate of an upgrade: shop-1 writes the outputs. No aggregator of the candidate starts"
        in application.reason
    )
    assert "Run shop_upgrade" in application.remedy
    assert not plan.refused
    begins = change_of(plan, Part.SUBTOPOLOGY, "0").reason
    assert "shop_upgrade reads orders from where shop-1 began to read it" in begins
    assert "first record" not in plan.text


def test_an_application_that_was_built_does_not_start_before_it_takes_over(tmp_path: Path) -> None:
    shop = Shop(declared(named), tmp_path)
    stand_beside(shop)
    plan = shop.plan(declared(named, upgrade_from="shop-1"))
    assert change_of(plan, Part.APPLICATION, APP).verdict is Verdict.BESIDE
    assert not plan.refused


def test_the_start_of_an_application_that_another_one_has_taken_over_from_is_refused(tmp_path: Path) -> None:
    shop = Shop(declared(named), tmp_path)
    stand_beside(shop)
    plan = shop.plan(declared(named))
    (refused,) = plan.refused
    assert (refused.part, refused.name) == (Part.APPLICATION, APP)
    assert "another application has taken over from it" in refused.reason
    assert "upgrade_from" in refused.remedy


def test_an_application_that_has_taken_over_is_judged_as_any_other(tmp_path: Path) -> None:
    plan = Shop(declared(named), tmp_path).plan(declared(named, upgrade_from="shop-1"))
    assert verdicts(plan) == {"sub-topology 0": "kept", "sub-topology 1": "kept", "store totals": "kept"}
