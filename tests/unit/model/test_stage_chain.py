"""Which states of one sub-topology stand in one query, in which order, and which of them are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamplan import (
    JoinWindows,
    Json,
    KStream,
    KTable,
    OnWindowClose,
    Pipeline,
    Processor,
    SessionWindows,
    TimeWindows,
    Topology,
)
from streamplan.errors import Refused
from streamplan.model.merge_order import ways_that_meet
from streamplan.model.processor_topology import Source
from streamplan.model.stages import passing_by, stage_of, stages_of
from streamplan.model.stages.chain import StageChain
from streamplan.model.stages.look_up import LookUpInResultStage

FIELDS = "id string, n bigint"


class Seen(Processor):
    def process(self, record: Any, store: Any) -> Any:
        return []


def counted(stream: KStream, store: str) -> KStream:
    return stream.group_by_key().count(store=store).to_stream()


def processed(stream: KStream, store: str) -> KStream:
    return stream.process(Seen, store=store, state="n bigint", schema=FIELDS)


def declared(declare: Callable[[KStream, KStream, KTable, KTable], Any]) -> Pipeline:
    topology = Topology("app")
    streams = [topology.stream(name, value=Json(FIELDS), key="id") for name in ("a", "b")]
    tables = [topology.table(name, value=Json(FIELDS), key="id") for name in ("t", "u")]
    declare(*streams, *tables)
    used = dict.fromkeys((*topology.source_topics, *topology.sink_topics), 1)
    return Pipeline("app", topology, "", used)


def parts(declare: Callable[[KStream, KStream, KTable, KTable], Any]) -> list[tuple[str, list[str], list[str]]]:
    """The kind and the stores of each state, and the stores of those before it."""
    (subtopology,) = (each for each in declared(declare).topology.subtopologies if each.stores)
    stage = stage_of(subtopology)
    assert isinstance(stage, StageChain)
    return [
        (type(part).__name__.removesuffix("Stage"), [*part.stores], [s for b in stage.before(part) for s in b.stores])
        for part in stage.parts
    ]


def test_a_state_is_behind_those_of_whose_results_it_is_given_records() -> None:
    found = parts(lambda a, b, t, u: processed(counted(counted(a, "x").filter("count > 1"), "y"), "z"))
    assert found == [
        ("TaskAggregate", ["x"], []),
        ("TaskAggregate", ["y"], ["x"]),
        ("Process", ["z"], ["x", "y"]),
    ]


def test_states_beside_each_other_know_nothing_of_each_other() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(a, "x")
        a.group_by_key().windowed_by(SessionWindows("1 minute")).count(store="y")
        a.group_by_key().windowed_by(TimeWindows("1 minute")).emit_strategy(OnWindowClose()).count(store="w")
        processed(a, "z")

    assert [(kind, stores) for kind, stores, before in parts(declare) if not before] == [
        ("TaskAggregate", ["x"]),
        ("Window", ["y"]),
        ("Window", ["w"]),
        ("Process", ["z"]),
    ]


def test_a_join_with_a_table_comes_first_wherever_it_was_declared() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(a, "x")
        counted(a.join(t, {"n": "table.n"}), "y")

    stores = [store for _, (store,), _ in parts(declare)]
    assert [(kind, before) for kind, _, before in parts(declare)] == [
        ("LookUp", []),
        ("TaskAggregate", []),
        ("TaskAggregate", [stores[0]]),
    ]


def test_a_join_with_a_table_of_what_a_state_has_made_is_behind_that_state() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        joined = counted(a.join(t, {"n": "table.n"}), "x").left_join(t, {"n": "count"})
        counted(joined.join(u, {"n": "table.n"}), "y")

    found = parts(declare)
    assert [kind for kind, *_ in found] == ["LookUp", "TaskAggregate", "ResultLookUp", "ResultLookUp", "TaskAggregate"]
    (_, (t,), _), (_, (u,), _) = found[2:4]
    assert [before for *_, before in found[2:4]] == [[t, u, "x"], [t, u, "x", t]]


def test_a_join_of_a_stream_with_a_table_is_given_its_stream_beside_joined_tables_and_behind_them() -> None:
    topology = Topology("app")
    t, u, v = (topology.table(name, value=Json(FIELDS), key="id", store=name) for name in ("t", "u", "v"))
    t.join(u, {"n": "n"}).to_stream().join(v, {"n": "n"})
    t.to_stream().join(v, {"n": "n"})
    (subtopology,) = topology.subtopologies
    stage = stage_of(subtopology)
    assert isinstance(stage, StageChain)
    found = [(type(part).__name__, [*part.stores], len(stage.before(part))) for part in stage.parts]
    assert found == [
        ("TableJoinStage", ["t", "u"], 0),
        ("ResultLookUpStage", ["v"], 1),
        ("ResultLookUpStage", ["v"], 0),
    ]


def looked_up_in(declare: Callable[[KStream, KStream, KTable, KTable], Any]) -> list[LookUpInResultStage]:
    (subtopology,) = (each for each in declared(declare).topology.subtopologies if each.stores)
    return [stage for stage in stages_of(subtopology) if isinstance(stage, LookUpInResultStage)]


def table_comes_first(stage: LookUpInResultStage) -> bool:
    """Whether a record reaches the table before the join: a way that begins as another one does is behind it."""
    ways = ways_that_meet(stage.subtopology)

    def way_to(name: str) -> tuple[int, ...]:
        for before in stage.subtopology.predecessors[name]:
            way = (ways.begun[before],) if before in ways.begun else way_to(before)
            return (*way, ways.places[before, name]) if (before, name) in ways.places else way
        return ()

    (join,), (table,) = stage.nodes, stage.looked_up
    return way_to(table.name) <= way_to(join.name)


def test_a_join_with_a_result_is_behind_the_state_that_makes_it_and_has_its_store() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counts = a.group_by_key().count(store="x")
        counted(b.join(counts, {"n": "table.count"}), "y")

    assert parts(declare) == [
        ("TaskAggregate", ["x"], []),
        ("LookUpInResult", ["x"], ["x"]),
        ("TaskAggregate", ["y"], ["x"]),
    ]
    (join,) = looked_up_in(declare)
    assert [source.topic for source in join.read_without_limit] == ["a"]
    assert not join.in_order


def test_a_stream_as_a_table_has_the_only_state_of_its_sub_topology() -> None:
    (join,) = looked_up_in(lambda a, b, t, u: b.join(a.to_table(), {"n": "table.n"}))
    assert stage_of(join.subtopology) == join
    assert list(join.stores) == list(join.subtopology.stores)
    assert join.identity == {f"rows of {join.nodes[0].name}": "by their times"}, (
        "a checkpoint without it is another one"
    )


def test_a_record_meets_what_it_has_made_of_a_table_that_was_declared_before() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        large = a.filter("n > 1")
        counts = a.group_by_key().count(store="x")
        latest = a.to_table(store="y")
        for stream in (a, large, latest.to_stream()):
            stream.join(counts, {"n": "table.count"})
            stream.join(latest, {"n": "table.n"})

    assert [join.in_order for join in looked_up_in(declare)] == [True] * 6
    assert [table_comes_first(join) for join in looked_up_in(declare)] == [True, True, False, False, True, True]


def test_what_a_record_cache_holds_back_comes_behind_the_record() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        often = a.group_by_key().count(store="x").filter("count > 1", store="often")
        a.join(often, {"n": "table.count"})

    (join,) = looked_up_in(declare)
    assert not table_comes_first(join)


def test_joins_of_results_that_join_each_other_s_results_are_one_state() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counts, latest = a.group_by_key().count(store="x"), b.to_table(store="y")
        joined = counts.join(latest, {"n": "count"}).left_join(t, {"n": "n"}, store="z")
        joined.filter("n > 1", store="f").left_join(u, {"n": "n"}).to_stream().to("out")

    stores = [s for _, s, _ in parts(declare)]
    assert [kind for kind, *_ in parts(declare)] == ["TaskAggregate", "ResultTableJoin", "OldValues", "ResultTableJoin"]
    assert [len(each) for each in stores] == [1, 4, 1, 2]
    assert passing(declare) == []


def test_both_sides_of_a_join_of_streams_belong_to_it() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(a.left_join(b, {"n": "n"}, within=JoinWindows("1 day"), store="j"), "x")

    (join, stores, _), (_, _, before) = parts(declare)
    assert (join, len(stores), before) == ("StreamJoin", 3, stores)


def test_aggregates_of_one_kind_that_pass_each_update_have_one_operator_of_spark() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(a, "x")
        a.group_by_key().aggregate({"total": "sum(n)"}, store="y")

    (subtopology,) = (each for each in declared(declare).topology.subtopologies if each.stores)
    assert (stage_of(subtopology).is_native, len(stage_of(subtopology).nodes)) == (True, 2)


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda a, b, t, u: counted(a, "x").merge(counted(a, "y").merge(counted(a, "z"))), None),
        (lambda a, b, t, u: processed(a, "x").merge(a), None),
        (lambda a, b, t, u: counted(a, "x").merge(b.map_values({"count": "n"})), None),
        (lambda a, b, t, u: (processed(a, "x"), a.group_by_key().reduce(max_by="n", store="y")), None),
        (lambda a, b, t, u: (a.join(t, {"n": "n"}), t.join(u, {"n": "n"})), None),
        (
            lambda a, b, t, u: (counted(a, "x"), t.join(u, {"n": "n"}, foreign_key="id")),
            None,
        ),
        (
            lambda a, b, t, u: (
                a.group_by_key().windowed_by(TimeWindows("1 minute")).emit_strategy(OnWindowClose(idle="1 minute"))
                .count(store="x"),
                a.group_by_key().windowed_by(TimeWindows("1 hour")).emit_strategy(OnWindowClose(idle="1 hour"))
                .count(store="y"),
            ),
            "two aggregates of one sub-topology have different idle times",
        ),
    ],
)  # fmt: skip
def test_what_stands_together_and_what_is_refused(declare: Callable[..., Any], told: str | None) -> None:
    if told is None:
        declared(declare)
        return
    with pytest.raises(Refused, match=told):
        declared(declare)


def passing(declare: Callable[[KStream, KStream, KTable, KTable], Any]) -> list[str]:
    """The operations whose records pass by the state; the topic of a source."""
    (subtopology,) = (each for each in declared(declare).topology.subtopologies if each.stores)
    nodes = {node.name: node for node in subtopology.nodes}
    passed = (nodes[name] for name in passing_by(subtopology))
    return [node.topic if isinstance(node, Source) else type(node.operation).__name__ for node in passed]


def test_a_stream_that_is_merged_with_results_passes_by_the_state() -> None:
    assert passing(lambda a, b, t, u: processed(a, "x").merge(a)) == ["a"]
    assert passing(lambda a, b, t, u: counted(a, "x").merge(b.map_values({"count": "n"}))) == ["MapValues"]


def test_what_no_result_meets_passes_by_no_state() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(a, "x").merge(counted(a, "y"))
        a.filter("n > 1").to("out")

    assert passing(declare) == []


def test_a_stream_that_is_joined_with_results_passes_by_their_state() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(a, "x").join(b.filter("n > 1"), {"n": "count"}, within=JoinWindows("1 day"), store="j")

    assert passing(declare) == ["Filter"]


def test_a_stream_passes_through_the_state_that_is_given_what_the_sources_read() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        a.join(t, {"n": "table.n"}).merge(counted(a, "x").map_values({"n": "count"}))

    assert passing(declare) == []


def untold(declare: Callable[[KStream, KStream, KTable, KTable], Any], store: str | None = None) -> dict[str, str]:
    """By store why a recount leaves it out; empty where it does not. ``store`` names one of the sub-topology."""
    found = (each for each in declared(declare).topology.subtopologies if each.stores)
    (subtopology,) = (each for each in found if store is None or store in each.stores)
    writers = {node.store: node for node in subtopology.processors if node.writes_store}
    reasons = {
        store: stage_of(subtopology).depends_on_arrival([node, *subtopology.upstream_of([node])])
        for store, node in writers.items()
    }
    return {str(store): reason.split(" KSTREAM")[0] for store, reason in reasons.items()}


def test_what_is_behind_an_aggregate_is_not_recounted_and_the_aggregate_is() -> None:
    found = untold(lambda a, b, t, u: (processed(counted(a, "x"), "z"), counted(a, "y")))
    assert found == {"x": "", "y": "", "z": "a state takes each update of"}


@pytest.mark.parametrize(("timer", "told"), [({}, ""), ({"ttl": "1 day"}, "timers go by records that a recount of")])
def test_a_class_behind_final_results_is_recounted_unless_it_goes_by_time(timer: dict[str, str], told: str) -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        final = a.group_by_key().windowed_by(TimeWindows("1 minute")).emit_strategy(OnWindowClose()).count(store="w")
        final.to_stream().map("'all'", {"id": "'x'", "n": "count"}).process(
            Seen, store="z", state="n bigint", schema=FIELDS, **timer
        )

    assert untold(declare) == {"w": "", "z": told}


def test_beside_a_join_by_a_foreign_key_is_recounted_what_does_not_take_its_updates() -> None:
    def declare(a: KStream, b: KStream, t: KTable, u: KTable) -> None:
        counted(t.join(u, {"id": "id", "n": "table.n"}, foreign_key="id").to_stream(), "x")
        counted(t.to_stream(), "y")

    found = untold(declare, "y")
    assert (found["x"][:29], found["y"]) == ("a state takes each update of ", "")


def windowed(stream: KStream, store: str, grace: str) -> KStream:
    return stream.group_by_key().windowed_by(TimeWindows("1 minute", grace=grace)).count(store=store).to_stream()


@pytest.mark.parametrize(
    ("declare", "kinds"),
    [
        (lambda a, b, t, u: (counted(a, "all"), windowed(a, "short", "1 second")), ["Aggregate"]),
        (lambda a, b, t, u: (windowed(a, "one", "1 second"), windowed(a, "two", "1 second")), ["Aggregate"]),
        (lambda a, b, t, u: (windowed(a, "short", "1 second"), windowed(a, "long", "1 day")), ["TaskAggregate"] * 2),
        (
            lambda a, b, t, u: (windowed(a, "all", "1 day"), windowed(a.filter("n > 1"), "some", "1 day")),
            ["TaskAggregate"] * 2,
        ),
    ],
)
def test_windows_share_the_native_operator_if_they_go_by_one_time(
    declare: Callable[[KStream, KStream, KTable, KTable], Any], kinds: list[str]
) -> None:
    (subtopology,) = (each for each in declared(declare).topology.subtopologies if each.stores)
    assert [type(stage).__name__.removesuffix("Stage") for stage in stages_of(subtopology)] == kinds
