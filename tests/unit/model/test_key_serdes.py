"""The serde of keys: declared, carried through topics, refused where two do not fit, and part of what a store holds."""

from __future__ import annotations

from typing import Any

import pytest
from streamplan.model.checkpoint_identity import checkpoint_identity
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, OnWindowClose, SessionWindows, SlidingWindows, TimeWindows
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import KEY_SERDES, UUID, Bytes, Double, Integer, Long, String

VALUE = Json("n bigint, s string")


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


def told(topology: Topology) -> list[str]:
    return [fault.message for fault in topology.faults]


def test_a_serde_of_keys_goes_through_repartition_topics_up_to_the_next_new_key(topology: Topology) -> None:
    stream = topology.stream("a", value=VALUE, key_serde=Long())
    stream.repartition(name="through").filter("n > 1").group_by_key().count(store="same")
    stream.group_by("n", key_serde=Integer(), name="by-n").count(store="typed").to_stream().to("counts")
    stream.group_by("s", name="by-s").count(store="text")
    stream.map("s", {"n": "n"}, key_serde=UUID()).to("mapped")
    stream.flat_map("array(n)", key="element", value={"n": "n"}, key_serde=Double()).to("each")
    key_types = {spec.name: spec.key_type for spec in Pipeline("app", topology, "", {"a": 2}).topics()}
    assert key_types == {
        "a": "long",
        "app-through-repartition": "long",
        "app-by-n-repartition": "int",
        "app-by-s-repartition": "string",
        "app-same-changelog": "long",
        "app-typed-changelog": "int",
        "app-text-changelog": "string",
        "counts": "int",
        "mapped": "uuid",
        "each": "double",
        "app-dead-letter": "string",
    }


def test_behind_an_aggregate_of_windows_the_keys_of_a_topic_have_their_window(topology: Topology) -> None:
    stream = topology.stream("a", value=VALUE, key_serde=Long())
    windowed = stream.group_by_key().windowed_by(TimeWindows("5 minutes")).count(store="c").to_stream()
    windowed.filter("count > 1").to("counts")
    windowed.select_key("record.key").to("plain")
    visits = stream.group_by("s", name="by-s").windowed_by(SessionWindows("5 minutes", grace="1 minute"))
    visits.count(store="d").to_stream().to("visits")
    by_fields = stream.group_by("struct(s, n)", key_serde=Json("s string, n bigint"), name="by-fields")
    by_fields.windowed_by(SlidingWindows("5 minutes", grace="1 minute")).count(store="e").to_stream().to("by-fields")
    pipeline = Pipeline("app", topology, "", {"a": 2})
    assert not topology.faults
    specs = {spec.name: spec for spec in pipeline.topics()}
    noon = (1_767_268_800_000).to_bytes(8, "big")
    later = (1_767_268_860_000).to_bytes(8, "big")
    assert specs["counts"].key_text(bytes(7) + b"\x07" + noon) == "7 at 2026-01-01T12:00:00Z"
    assert specs["plain"].key_text(b"7") == "'7'"
    assert specs["visits"].key_text(b"DE" + later + noon) == "DE at 2026-01-01T12:00:00Z/2026-01-01T12:01:00Z"
    assert specs["by-fields"].key_text(b'{"s":"a","n":1}' + noon) == '{"s":"a","n":1} at 2026-01-01T12:00:00Z'
    assert specs["app-c-changelog"].key_type == "long"


def test_what_is_no_serde_of_keys_is_refused(topology: Topology) -> None:
    wrong: Any = "bigint"
    topology.stream("a", value=VALUE, key_serde=wrong)
    (fault,) = topology.faults
    assert fault.message == "stream: key_serde='bigint' is no serde of keys"
    assert fault.hint == "One of String(), Integer(), Long(), Double(), UUID(), Bytes(), Json('…')"


def test_a_key_of_several_fields_goes_through_repartition_topics_and_stores(topology: Topology) -> None:
    serde = Json("s string, n bigint")
    stream = topology.stream("a", value=VALUE, key_serde=serde)
    stream.repartition(name="through").group_by_key().count(store="same")
    stream.group_by("struct(s, n)", key_serde=Json("s  string,n bigint"), name="by").count(store="new")
    stream.join(topology.table("t", value=Json("city string"), key_serde=Json("s string,n bigint"))).to("joined")
    key_types = {spec.name: spec.key_type for spec in Pipeline("app", topology, "", {"a": 2, "t": 2}).topics()}
    dead_letters = key_types.pop("app-dead-letter")
    assert dead_letters == "string"
    assert set(key_types.values()) == {"struct<s: string, n: bigint>"}
    assert len(key_types) == 8
    assert identity(key_serde=serde)["store counts"] == (
        "Count(store='counts', window=None) with keys of Json(\"s string, n bigint\")"
    )


def test_keys_of_other_fields_are_other_keys(topology: Topology) -> None:
    stream = topology.stream("a", value=VALUE, key_serde=Json("s string, n bigint"))
    stream.join(topology.table("t", value=Json("city string"), key_serde=Json("n bigint, s string")))
    topology.stream("b", value=VALUE, key_serde=Json("n double"))
    assert told(topology) == [
        "join: keys of unlike serdes: the stream's are Json(\"s string, n bigint\"), the table's"
        ' Json("n bigint, s string")',
        'stream: key_serde=Json("n double"): n is of type double; the fields of a key are of string, int, bigint,'
        " boolean",
    ]
    assert topology.faults[0].hint == "Before it, select_key('…', key_serde=Json(\"n bigint, s string\"))"


def test_bytes_is_a_serde_of_values_too_and_no_field_of_an_object_is_binary(topology: Topology) -> None:
    topology.stream("a", value=Bytes()).filter("length(value) > 1").to("b", value=Bytes())
    assert told(topology) == []
    with pytest.raises(ValueError, match="type 'binary' is not one of string, int"):
        Json("data binary").fields  # noqa: B018


def test_sides_of_a_join_whose_keys_have_unlike_serdes_are_refused(topology: Topology) -> None:
    stream = topology.stream("a", value=Json("n bigint"), key_serde=Long())
    stream.join(topology.table("t", value=Json("s string")))
    stream.join(topology.stream("b", value=Json("s string"), key_serde=Integer()), within=JoinWindows("1 minute"))
    stream.merge(topology.stream("c", value=Json("n bigint")))
    assert told(topology) == [
        "join: keys of unlike serdes: the stream's are Long, the table's String",
        "join: keys of unlike serdes: the stream's are Long, the other stream's Integer",
        "merge: keys of unlike serdes: the stream's are Long, the other stream's String",
    ]
    assert topology.faults[0].hint == "Before it, select_key('…', key_serde=String())"


def test_a_topic_has_keys_of_one_serde(topology: Topology) -> None:
    topology.stream("a", value=VALUE, key_serde=Long())
    topology.stream("a", value=VALUE)
    assert told(topology) == ["the topic 'a' is read with keys of String and of Long"]


def test_a_name_of_the_key_and_its_serde_are_declared_side_by_side(topology: Topology) -> None:
    table = topology.table("t", value=Json("city string"), key="customer", key_serde=Long())
    topology.stream("a", value=VALUE, key="order", key_serde=Long()).join(table)
    assert told(topology) == ["join: the keys differ: that of the stream is 'order', that of the table 'customer'"]


def identity(**declared: Any) -> dict[str, str]:
    topology = Topology("app")
    topology.stream("a", value=VALUE, **declared).group_by_key().count(store="counts")
    pipeline = Pipeline("app", topology, "", {"a": 2})
    return checkpoint_identity(pipeline, topology.subtopologies[0], {"a": "id"})


def test_final_results_have_the_store_of_updates_and_another_state() -> None:
    identities = []
    for strategy in (None, OnWindowClose(), OnWindowClose(idle="1 minute"), OnWindowClose(idle="2 minutes")):
        topology = Topology("app")
        windowed = topology.stream("a", value=VALUE).group_by_key().windowed_by(TimeWindows("1 minute"))
        (windowed if strategy is None else windowed.emit_strategy(strategy)).count(store="counts")
        pipeline = Pipeline("app", topology, "", {"a": 2})
        identities.append(checkpoint_identity(pipeline, topology.subtopologies[0], {"a": "id"}))
    updates, results, *by_clock = identities
    assert results == {**updates, "emit strategy": "on window close"}
    assert by_clock == [{**results, "time of idle tasks": "the wall clock"}] * 2


def test_a_checkpoint_names_the_serde_of_keys_that_are_no_text() -> None:
    assert identity()["store counts"] == "Count(store='counts', window=None)"
    assert identity(key_serde=String()) == identity()
    assert identity(key_serde=Long())["store counts"] == "Count(store='counts', window=None) with keys of Long"


@pytest.mark.parametrize(
    ("key_type", "key", "text"),
    [
        ("string", b"\xff", "'\\\\xff'"),
        ("int", b"\xff\xff\xff\xfe", "-2"),
        ("long", bytes(7) + b"\x07", "7"),
        ("double", KEY_SERDES["double"].write_key(-0.1), "-0.1"),
        ("uuid", b"0A1B2C3D-0000-4000-8000-00000000ffff", "0a1b2c3d-0000-4000-8000-00000000ffff"),
        ("bytes", b"\x00\xff", "00ff"),
        ("long", b"seven", "'seven'"),
        ("struct<s: string, n: int>", b'{"s":"a","n":1}', '{"s":"a","n":1}'),
        ("struct<s: string, n: int>", b'{"n":1,"s":"a"}', '\'{"n":1,"s":"a"}\''),
    ],
)
def test_a_key_is_shown_as_people_read_it(key_type: str, key: bytes, text: str) -> None:
    assert TopicSpec("t", TopicRole.CHANGELOG, 1, {}, key_type=key_type).key_text(key) == text
