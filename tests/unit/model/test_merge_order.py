"""The order in which what is made of one record reaches the operations where its ways meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamplan import JoinWindows, Json, KStream, OnWindowClose, Processor, TimeWindows, Topology
from streamplan.model.merge_order import Ways, has_updates, ways_that_meet
from streamplan.model.operations import Merge

FIELDS = "id string, n bigint"


class Seen(Processor):
    def process(self, record: Any, store: Any) -> Any:
        return []


def processed(stream: KStream) -> KStream:
    return stream.process(Seen, store="seen", state="n bigint", schema=FIELDS)


def ways(declare: Callable[[KStream, KStream], KStream]) -> list[list[str]]:
    """The ways by which a record reaches the last merge, in the order of their places: the operations of each.

    A way begins where a record is read, or where an update is passed.
    """
    topology = Topology("app")
    declare(*(topology.stream(name, value=Json(FIELDS), key="id") for name in "ab"))
    (subtopology,) = (each for each in topology.subtopologies if each.processors_with(Merge))
    found = ways_that_meet(subtopology)
    merge = subtopology.processors_with(Merge)[-1]
    names = {node.name: type(getattr(node, "operation", node)).__name__ for node in subtopology.nodes}

    def of(name: str) -> list[tuple[tuple[int, ...], list[str]]]:
        if name in found.begun:
            return [((found.begun[name],), [names[name]])]
        before = subtopology.predecessors[name]
        return [
            ((*places, *([found.places[each, name]] if (each, name) in found.places else [])), [*way, names[name]])
            for each in before
            for places, way in of(each)
        ] or [((), [names[name]])]

    return [way[:-1] for _, way in sorted(of(merge.name))]


def updates_of(stream: KStream) -> KStream:
    return stream.group_by_key().count(store="counts").to_stream().map_values({"id": "'x'", "n": "count"})


def test_the_way_that_was_declared_first_comes_first_whatever_the_merge_names_first() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        first, second = a.filter("n > 1"), a.map_values({"id": "id", "n": "n"})
        return second.merge(first)

    assert ways(declare) == [["Source", "Filter"], ["Source", "MapValues"]]


def test_a_stream_comes_behind_the_class_that_was_declared_before_the_merge() -> None:
    assert ways(lambda a, b: a.merge(processed(a))) == [["Source", "Process"], ["Source"]]


def test_updates_come_behind_all_that_the_record_gives() -> None:
    assert ways(lambda a, b: updates_of(a).merge(a)) == [["Source"], ["Count", "ToStream", "MapValues"]]


def test_an_update_goes_all_its_ways_before_the_next_one_goes_any() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        counted = updates_of(a).merge(a)
        reduced = a.group_by_key().reduce(max_by="n", store="greatest").to_stream()
        return processed(counted.merge(reduced)).merge(counted)

    found = ways(declare)
    begun = [way[0] for way in found]
    assert begun == ["Source", "Source", "Count", "Count", "Reduce"]
    assert ["Process" in way for way in found] == [True, False, True, False, True]


def test_the_sides_of_a_join_are_reached_in_the_order_of_their_declaration() -> None:
    topology = Topology("app")
    stream = topology.stream("a", value=Json(FIELDS), key="id")
    some = stream.filter("n > 1")
    stream.join(some, {"id": "id", "m": "other.n"}, within=JoinWindows("1 minute"), store="joined")
    (subtopology,) = topology.subtopologies
    names = {node.name: type(getattr(node, "operation", node)).__name__ for node in subtopology.nodes}
    places = ways_that_meet(subtopology).places
    assert {(names[one], names[other]): place for (one, other), place in places.items()} == {
        ("Source", "Filter"): 0,
        ("Source", "StoreForJoin"): 1,
    }


def test_two_of_three_streams_that_are_aggregated_together_are_of_one_topic() -> None:
    topology = Topology("app")
    stream, other = (topology.stream(name, value=Json(FIELDS), key="id") for name in "ab")
    some, groups = stream.filter("n > 1"), stream.group_by_key()
    number = {"n": "count(*)"}
    of_two = other.group_by_key().cogroup(number).cogroup(groups, {"m": "count(*)"})
    of_two.cogroup(some.group_by_key(), {"k": "count(*)"}).aggregate(store="counts")
    (subtopology,) = topology.subtopologies
    assert len(ways_that_meet(subtopology).places) == 2


def test_streams_of_different_topics_have_no_way_in_common() -> None:
    topology = Topology("app")
    one, other = (topology.stream(name, value=Json(FIELDS), key="id") for name in "ab")
    one.filter("n > 1").merge(other)
    (subtopology,) = topology.subtopologies
    assert ways_that_meet(subtopology) == Ways({}, {})


def test_what_never_meets_again_has_no_places() -> None:
    topology = Topology("app")
    stream = topology.stream("a", value=Json(FIELDS), key="id")
    processed(stream)
    updates_of(stream).filter("n > 1")
    (subtopology,) = topology.subtopologies
    assert ways_that_meet(subtopology) == Ways({}, {})


def test_final_results_are_on_the_way_of_the_record_that_closes_their_window() -> None:
    topology = Topology("app")
    stream = topology.stream("a", value=Json(FIELDS), key="id")
    closed = (
        stream.group_by_key()
        .windowed_by(TimeWindows("1 minute"))
        .emit_strategy(OnWindowClose())
        .count(store="counts")
        .to_stream()
    )
    processed(stream).merge(closed.map("record.key", {"id": "record.key", "n": "count"})).merge(stream)
    (subtopology,) = topology.subtopologies
    assert ways_that_meet(subtopology).begun == {}


def test_only_what_is_behind_an_aggregate_may_be_an_update() -> None:
    topology = Topology("app")
    stream = topology.stream("a", value=Json(FIELDS), key="id")
    processed(stream)
    stream.group_by_key().count(store="counts").to_stream().filter("count > 1")
    (subtopology,) = topology.subtopologies
    found = {type(node.operation).__name__: has_updates(subtopology, node.name) for node in subtopology.processors}
    assert found == {"Process": False, "Count": True, "ToStream": True, "Filter": True}
