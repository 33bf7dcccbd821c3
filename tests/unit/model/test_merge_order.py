"""The order of what one record gives to both sides of a merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamplan import Json, KStream, Processor, Topology
from streamplan.model.merge_order import has_updates, merged_sides
from streamplan.model.operations import Merge

FIELDS = "id string, n bigint"


class Seen(Processor):
    def process(self, record: Any, store: Any) -> Any:
        return []


def processed(stream: KStream) -> KStream:
    return stream.process(Seen, store="seen", state="n bigint", schema=FIELDS)


def sides(declare: Callable[[KStream, KStream], KStream]) -> list[tuple[str, int | None]]:
    """The operations before a merge, in the order of what they give, with the places that follow that of the merge."""
    topology = Topology("app")
    declare(*(topology.stream(name, value=Json(FIELDS), key="id") for name in "ab"))
    (subtopology,) = (each for each in topology.subtopologies if each.processors_with(Merge))
    merge = subtopology.processors_with(Merge)[-1]
    nodes = {node.name: getattr(node, "operation", node) for node in subtopology.nodes}
    found = sorted(merged_sides(subtopology, merge), key=lambda side: side.place)
    return [(type(nodes[side.node]).__name__, side.places_behind) for side in found]


def test_the_side_that_was_declared_first_comes_first_whatever_the_merge_names_first() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        first, second = a.filter("n > 1"), a.map_values({"id": "id", "n": "n"})
        return second.merge(first)

    assert sides(declare) == [("Filter", 0), ("MapValues", 0)]


def test_a_stream_comes_behind_the_class_that_was_declared_before_the_merge() -> None:
    assert sides(lambda a, b: a.merge(processed(a))) == [("Process", 1), ("Source", 0)]


def test_updates_come_behind_all_that_the_record_gives() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        updates = a.group_by_key().count(store="counts").to_stream().map_values({"id": "'x'", "n": "count"})
        return updates.merge(a)

    assert sides(declare) == [("Source", 0), ("MapValues", None)]


def test_streams_of_different_topics_have_no_record_in_common() -> None:
    assert sides(lambda a, b: a.merge(b)) == []


def test_a_record_that_is_one_of_several_keeps_its_place_among_them() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        several = a.flat_map_values("array(1, 2)", {"id": "id", "n": "n"})
        return processed(several).merge(several.flat_map_values("array(1, 2)", {"id": "id", "n": "n"}))

    assert sides(declare) == [("Process", 1), ("FlatMapValues", 1)]


def test_what_is_merged_with_updates_is_not_held_back_with_them() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        updates = a.group_by_key().count(store="counts").to_stream().map_values({"id": "'x'", "n": "count"})
        return processed(a).merge(updates).merge(a)

    assert sides(declare) == [("Merge", 2), ("Source", 0)]


def test_a_record_does_not_reach_a_merge_by_the_way_of_its_update() -> None:
    def declare(a: KStream, b: KStream) -> KStream:
        some = a.filter("n > 1")
        updates = some.group_by_key().count(store="counts").to_stream().map_values({"id": "'x'", "n": "count"})
        with_updates = updates.merge(a)
        return with_updates.merge(processed(some))

    assert sides(declare) == [("Process", 1), ("Merge", 1)]


def test_only_what_is_behind_an_aggregate_may_be_an_update() -> None:
    topology = Topology("app")
    stream = topology.stream("a", value=Json(FIELDS), key="id")
    processed(stream)
    stream.group_by_key().count(store="counts").to_stream().filter("count > 1")
    (subtopology,) = topology.subtopologies
    found = {type(node.operation).__name__: has_updates(subtopology, node.name) for node in subtopology.processors}
    assert found == {"Process": False, "Count": True, "ToStream": True, "Filter": True}
