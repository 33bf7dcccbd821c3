"""The declaration of a Python class with several stores: names, topics, lineage and faults."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.model.acls import Role, required_acls
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.kstream import KStream, KTable
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import (
    STREAM_TIME,
    WALL_CLOCK_TIME,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    VersionedKeyValueStore,
    WindowStore,
)
from streamplan.model.stages import stage_of, stages_of
from streamplan.model.stages.chain import StageChain
from streamplan.model.stages.stage import Restore
from streamplan.model.topology import Topology
from streamplan.model.windows import OnWindowClose, TimeWindows
from streamplan.observability.diagram import diagram_of
from streamplan.queries.store_form import changelogs_of
from streamplan.serdes.avro import Avro
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String

SEEN = KeyValueStore(Long(), Json("count bigint"))
RECENT = WindowStore(String(), Long(), retention="10 minutes", size="5 minutes")


class Detector(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.seen = context.get_state_store("seen")

    def process(self, record: Record) -> None: ...


class Ticking(Detector):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(timedelta(seconds=5), WALL_CLOCK_TIME, self.tick)

    def tick(self, now: datetime) -> None: ...


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def orders(topology: Topology) -> KStream:
    return topology.stream("orders", value=Json("id string, amount bigint"), key="customer")


def pipeline_of(topology: Topology) -> Pipeline:
    counts = dict.fromkeys((*topology.source_topics, *topology.sink_topics), 2)
    return Pipeline("app", topology, "Detects.", counts)


def test_each_store_has_a_changelog_and_the_library_sees_one_processor(topology: Topology, orders: KStream) -> None:
    orders.process(Detector, stores={"seen": SEEN, "recent": RECENT}, schema="alarm boolean").to("alarms")
    pipeline = pipeline_of(topology)
    specs = {spec.name: spec for spec in pipeline.topics()}
    assert specs["app-seen-changelog"].configs["cleanup.policy"] == "compact"
    assert specs["app-recent-changelog"].configs["cleanup.policy"] == "compact,delete"
    assert specs["app-recent-changelog"].configs["retention.ms"] == str((10 + 24 * 60) * 60_000)
    assert (specs["app-seen-changelog"].window_bytes, specs["app-recent-changelog"].window_bytes) == (0, 12)
    assert pipeline.key_types["app-seen-changelog"] == Long().key_type
    assert "Processor: KSTREAM-PROCESSOR-0000000001 (stores: [recent, seen])\n" in topology.describe()
    assert "state store" not in topology.describe()


def test_a_versioned_store_keeps_each_record_of_its_changelog_for_the_history(
    topology: Topology, orders: KStream
) -> None:
    orders.process(Detector, stores={"seen": VersionedKeyValueStore(String(), Long(), history="1 hour")})
    pipeline = pipeline_of(topology)
    spec = next(spec for spec in pipeline.topics() if spec.name == "app-seen-changelog")
    assert spec.configs["min.compaction.lag.ms"] == str(25 * 3_600_000)
    assert spec.configs["cleanup.policy"] == "compact"
    (stage,) = stages_of(topology.subtopologies[0])
    assert stage.stores == {"seen": Restore.EVERY_RECORD}
    assert changelogs_of(pipeline) == {}  # the last record of a key may be a late one: nobody can ask for it


def test_a_changelog_of_duplicates_is_never_compacted(topology: Topology, orders: KStream) -> None:
    every = WindowStore(String(), Long(), retention="10 minutes", size="5 minutes", retain_duplicates=True)
    orders.process(Detector, stores={"seen": SEEN, "every": every})
    spec = next(spec for spec in pipeline_of(topology).topics() if spec.name == "app-every-changelog")
    assert spec.configs["cleanup.policy"] == "delete"


def test_permissions_diagram_lineage_and_checks_know_the_stores(topology: Topology, orders: KStream) -> None:
    rules = topology.stream("rules", value=Json("n bigint"))
    rules.process(Detector, stores={"seen": SEEN})
    orders.process(Detector, stores={"seen": SEEN, "recent": RECENT}, schema="alarm boolean").to("alarms")
    pipeline = pipeline_of(topology)
    every = {Column(topic, name) for topic, name in (("orders", "key"), ("orders", "id"), ("orders", "amount"))}
    both = {*every, Column("rules", "key"), Column("rules", "n")}
    lineage = column_lineage(topology)
    assert lineage["alarms"]["alarm"] == lineage["app-seen-changelog"]["count"] == both
    assert lineage["app-recent-changelog"]["value"] == both
    shown = diagram_of(pipeline)
    named = [node.name for node in shown.nodes]
    assert [name for name in named if "state store" in name] == []
    assert {"seen", "recent"} <= {*named}
    changelogs = {"app-seen-changelog", "app-recent-changelog"}
    assert changelogs <= {entry.name for entry in required_acls(pipeline, Role.AGGREGATOR)}
    assert application_of(pipeline).unjudged.keys() == changelogs


def test_processors_that_share_a_store_are_one_sub_topology_and_one_state(topology: Topology, orders: KStream) -> None:
    rules = topology.stream("rules", value=Json("n bigint"))
    rules.process(Detector, stores={"seen": SEEN})
    orders.process(Detector, stores={"seen": KeyValueStore(Long(), Json("count bigint"))}, schema="n int").to("alarms")
    pipeline_of(topology)
    (subtopology,) = topology.subtopologies
    (stage,) = stages_of(subtopology)
    assert len(stage.nodes) == 2
    assert [*stage.stores] == ["seen"]


def test_processors_with_stores_of_their_own_are_two_states(topology: Topology, orders: KStream) -> None:
    class Other(Processor):
        def process(self, record: Record) -> None: ...

    first = orders.process(Detector, stores={"seen": SEEN}, schema="n bigint")
    first.process(Other, stores={"other": SEEN}, schema="n bigint").to("out")
    pipeline_of(topology)
    assert [[*stage.stores] for stage in stages_of(topology.subtopologies[0])] == [["seen"], ["other"]]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stores": {}}, "the processor has no store 'seen'; it has none"),
        ({"stores": {"seen": SEEN}, "store": "seen"}, "stores beside store"),
        ({"stores": {"seen": Long()}}, "stores['seen'] is a Long"),
        (
            {"stores": {"seen": KeyValueStore(Avro("id"), Long())}},
            "KeyValueStore: key_serde is an Avro; it takes a serde of keys",
        ),
        ({"stores": {"seen": KeyValueStore(String(), Avro("id"))}}, "the values of 'seen' are"),
        (
            {"stores": {"seen": WindowStore(String(), Long(), retention="1 minute", size="2 minutes")}},
            "the retention of 'seen', 1 minute, is shorter than its windows, 2 minutes",
        ),
        ({"stores": {"seen": WindowStore(String(), Long(), retention="soon", size="2 minutes")}}, "'soon' is not a"),
        ({"stores": {"seen": VersionedKeyValueStore(String(), Long(), history="soon")}}, "'soon' is not a duration"),
        ({"stores": {"other": SEEN}}, "Detector.init raised KeyError"),
        ({"stores": {"seen": SEEN}, "schema": "no schema at all,"}, "schema"),
        ({"store": "seen"}, "the store is not declared"),
        ({}, "the processor has no store 'seen'; it has none"),
        ({"store": "seen", "state": "n int", "key_serde": Long()}, "key_serde without stores"),
    ],
)
def test_a_wrong_declaration_is_told(topology: Topology, orders: KStream, options: dict[str, Any], told: str) -> None:
    orders.process(Detector, **options)
    assert any(told in fault.message for fault in topology.faults), [fault.message for fault in topology.faults]


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (("0 seconds", STREAM_TIME), "the minimum supported scheduling interval"),
        (("often", STREAM_TIME), "'often' is not a duration"),
        (("1 second", "SOON"), "'SOON' is neither"),
    ],
)
def test_a_wrong_schedule_is_told_when_it_is_declared(
    topology: Topology, orders: KStream, schedule: tuple[Any, Any], told: str
) -> None:
    class Wrong(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(*schedule, print)

        def process(self, record: Record) -> None: ...

    orders.process(Wrong, stores={"seen": SEEN})
    (fault,) = topology.faults
    assert told in fault.message


def test_a_store_of_another_form_under_the_same_name_is_refused(topology: Topology, orders: KStream) -> None:
    orders.process(Detector, stores={"seen": SEEN})
    orders.process(Detector, stores={"seen": KeyValueStore(String(), Long())})
    assert any("the store 'seen' is declared twice" in fault.message for fault in topology.faults)


def test_processors_behind_each_other_cannot_share_a_store(topology: Topology, orders: KStream) -> None:
    first = orders.process(Detector, stores={"seen": SEEN}, schema="n bigint")
    first.process(Detector, stores={"seen": SEEN}, schema="n bigint").to("out")
    with pytest.raises(Exception, match="processors that share a store stand behind each other"):
        pipeline_of(topology)


def test_a_wall_clock_cannot_stand_beside_idle_aggregates(topology: Topology, orders: KStream) -> None:
    orders.process(Ticking, stores={"seen": SEEN}, schema="n bigint").to("out")
    windows = orders.group_by_key().windowed_by(TimeWindows("1 minute"))
    windows.emit_strategy(OnWindowClose(idle="1 minute")).count(store="counts")
    with pytest.raises(Exception, match="punctuators of WALL_CLOCK_TIME share their sub-topology"):
        pipeline_of(topology)


def test_a_wall_clock_is_known_from_init(topology: Topology, orders: KStream) -> None:
    orders.process(Ticking, stores={"seen": SEEN}, schema="n bigint").to("out")
    pipeline_of(topology)
    assert stage_of(topology.subtopologies[0]).punctuates_ms == 5_000


def test_a_punctuator_that_init_cancels_tells_how_often_the_wall_clock_is_needed(
    topology: Topology, orders: KStream
) -> None:
    class Waiting(Ticking):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule("2 seconds", WALL_CLOCK_TIME, self.tick).cancel()

    orders.process(Waiting, stores={"seen": SEEN}, schema="n bigint").to("out")
    pipeline_of(topology)
    assert topology.faults == ()
    assert stage_of(topology.subtopologies[0]).punctuates_ms == 2_000


def test_nothing_that_such_a_processor_makes_is_judged(topology: Topology, orders: KStream) -> None:
    orders.process(Detector, stores={"seen": SEEN}, schema="n bigint").to("out")
    pipeline_of(topology)
    (subtopology,) = topology.subtopologies
    assert "is not judged" in stage_of(subtopology).depends_on_arrival(subtopology.nodes)


def users_of(topology: Topology) -> KTable:
    return topology.table("users", value=Json("name string"), store="users")


class Reader(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.users = context.get_state_store("users")

    def process(self, record: Record) -> None: ...


def test_a_processor_that_reads_a_table_is_in_its_sub_topology(topology: Topology, orders: KStream) -> None:
    orders.process(Reader, stores={"users": users_of(topology), "seen": SEEN}, schema="n bigint").to("out")
    pipeline_of(topology)
    (subtopology,) = topology.subtopologies
    (stage,) = stages_of(subtopology)
    assert {*stage.stores} == {"users", "seen"}
    assert [node.store for node in stage.read_nodes] == ["users"]
    assert stage.identity == {"read by KSTREAM-PROCESSOR-0000000003": "users"}
    described = topology.describe()
    assert "Processor: KSTREAM-PROCESSOR-0000000003 (stores: [seen, users])\n" in described
    assert "Processor: KTABLE-SOURCE-0000000002 (stores: [users])\n" in described


def test_a_processor_that_reads_an_aggregate_is_given_its_results(topology: Topology, orders: KStream) -> None:
    counts = orders.group_by_key().count(store="users")
    orders.process(Reader, stores={"users": counts}, schema="n bigint").to("out")
    pipeline_of(topology)
    chain = stage_of(topology.subtopologies[0])
    assert isinstance(chain, StageChain)
    counting, reading = chain.parts
    assert chain.before(reading) == (counting,)
    assert "users" not in {node.store for node in reading.nodes}


def test_processors_that_read_a_table_may_stand_behind_each_other(topology: Topology, orders: KStream) -> None:
    users = users_of(topology)
    first = orders.process(Reader, stores={"users": users, "seen": SEEN}, schema="n bigint")
    first.process(Reader, stores={"users": users}, schema="n bigint").to("out")
    pipeline_of(topology)
    stages = stages_of(topology.subtopologies[0])
    assert [{*stage.stores} for stage in stages] == [{"seen", "users"}, {"users"}]


def test_a_changed_store_that_is_read_is_judged(topology: Topology, orders: KStream) -> None:
    counts = orders.group_by_key().count(store="users")
    orders.process(Reader, stores={"users": counts}, schema="n bigint").to("out")
    assert application_of(pipeline_of(topology)).unjudged == {}


@pytest.mark.parametrize(
    ("aggregate", "told"),
    [
        (lambda grouped: grouped.aggregate({"n": "avg(amount)"}, store="users"), "the store 'users' of KSTREAM-AGG"),
        (
            lambda grouped: grouped.windowed_by(TimeWindows("1 minute")).count(store="users"),
            ", which has windows, is read by a processor",
        ),
    ],
)
def test_a_store_that_holds_more_than_results_is_not_read(
    topology: Topology, orders: KStream, aggregate: Any, told: str
) -> None:
    orders.process(Reader, stores={"users": aggregate(orders.group_by_key())}, schema="n bigint").to("out")
    with pytest.raises(Exception, match=told):
        pipeline_of(topology)


@pytest.mark.parametrize(
    "made",
    [
        lambda orders: orders.group_by_key().reduce(store="users"),
        lambda orders: orders.group_by_key().reduce(lambda old, new: new, store="users"),
        lambda orders: orders.group_by_key().aggregate(dict, lambda *of: {}, schema="n bigint", store="users"),
        lambda orders: orders.to_table(store="users"),
    ],
    ids=["reduce", "a reducer", "functions", "to_table"],
)
def test_the_store_of_a_result_is_read(topology: Topology, orders: KStream, made: Any) -> None:
    orders.process(Reader, stores={"users": made(orders)}, schema="n bigint").to("out")
    pipeline_of(topology)
    reading = next(stage for stage in stages_of(topology.subtopologies[0]) if stage.read_nodes)
    assert [node.store for node in reading.read_nodes] == ["users"]


def test_the_name_of_a_store_that_is_read_is_that_of_the_table(topology: Topology, orders: KStream) -> None:
    class Wrong(Reader):
        def init(self, context: ProcessorContext) -> None:
            self.users = context.get_state_store("customers")

    orders.process(Wrong, stores={"customers": users_of(topology)})
    (fault,) = topology.faults
    assert fault.message == "process: the store of the table is 'users', and not 'customers'"
    assert fault.hint == "Write stores={'users': …}"


def test_a_table_without_a_store_is_not_read(topology: Topology, orders: KStream) -> None:
    kept = users_of(topology).filter("name is not null")
    orders.process(Reader, stores={"users": kept})
    assert any("the table 'users' has no state store" in fault.message for fault in topology.faults)
