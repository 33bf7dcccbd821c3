"""Keys with a window: the bytes of ``TimeWindowedSerializer`` and ``SessionWindowedSerializer``, and their text."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Bytes, KeySerde, Long, String, key_serde_of_type
from streamplan.serdes.serde import Undecodable
from streamplan.serdes.windowed import SessionWindowed, TimeWindowed

NOON, NOON_TEXT = 1_767_268_800_000, "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("serde", "key", "data", "text"),
    [
        (TimeWindowed(String()), {"key": "a", "start": NOON}, b"a" + NOON.to_bytes(8, "big"), f"a at {NOON_TEXT}"),
        (TimeWindowed(String()), {"key": "", "start": 1}, struct.pack(">q", 1), " at 1970-01-01T00:00:00.001Z"),
        (TimeWindowed(Long()), {"key": 7, "start": -1}, struct.pack(">qq", 7, -1), "7 at 1969-12-31T23:59:59.999Z"),
        (TimeWindowed(Bytes()), {"key": b"\xff", "start": 2**62}, b"\xff" + struct.pack(">q", 2**62), f"ff at {2**62}"),
        (
            SessionWindowed(String()),
            {"key": "a at b", "start": 0, "end": NOON},
            b"a at b" + struct.pack(">qq", NOON, 0),
            "a at b at 1970-01-01T00:00:00Z/2026-01-01T12:00:00Z",
        ),
    ],
)  # fmt: skip
def test_a_key_is_followed_by_the_times_of_its_window(serde: KeySerde, key: Any, data: bytes, text: str) -> None:
    assert serde.write_key(key) == data
    assert serde.read_key(data) == key
    assert serde.key_text(key) == text
    assert serde.key_of_text(text) == key
    assert key_serde_of_type(serde.key_type) == serde


def test_what_is_no_such_key_is_told() -> None:
    with pytest.raises(Undecodable, match=r"the key has 7 bytes; TimeWindowed\(String\(\)\) has 8 or more"):
        TimeWindowed(String()).read_key(bytes(7))
    with pytest.raises(Undecodable, match="the key has 3 bytes; Long has 8"):
        TimeWindowed(Long()).read_key(bytes(11))
    for key in ("ann", {"key": "ann"}, {"key": "ann", "start": "noon"}, {"key": "ann", "start": 1 << 63}):
        with pytest.raises(ValueError, match=r"is no mapping of key, start|is not in ms since 1970"):
            TimeWindowed(String()).write_key(key)
    for text in ("ann", "ann at noon", "ann at 2026-01-01T12:00:00", "ann at 1/2"):
        with pytest.raises(ValueError, match=r"is no key with a window|Invalid isoformat|has no time zone"):
            TimeWindowed(String()).key_of_text(text)


def test_a_serde_of_keys_with_windows_goes_through_repartition_topics_and_stores() -> None:
    topology = Topology("app")
    stream = topology.stream("a", value=Json("s string"), key_serde=TimeWindowed(String()))
    stream.group_by_key().count(store="same").to_stream().to("b")
    stream.group_by("struct(s as key, 1 as start)", key_serde=TimeWindowed(String()), name="by-s").count(store="new")
    specs = {spec.name: spec for spec in Pipeline("app", topology, "", {"a": 2, "b": 2}).topics()}
    assert {
        specs[name].key_type for name in ("a", "b", "app-same-changelog", "app-by-s-repartition", "app-new-changelog")
    } == {"TimeWindowed(string)"}
    assert specs["app-new-changelog"].key_text(b"ann" + struct.pack(">q", NOON)) == "ann at 2026-01-01T12:00:00Z"


def test_a_window_has_a_key_of_one_text_or_one_number() -> None:
    topology = Topology("app")
    topology.stream("a", value=Json("s string"), key_serde=TimeWindowed(Json("n int")))
    topology.stream("b", value=Json("s string")).join(
        topology.table("t", value=Json("s string"), key_serde=TimeWindowed(String())), {"s": "s"}
    )
    with pytest.raises(Refused) as refused:
        _ = topology.processors
    assert "the key of a window is Json('n int'), no text and no number" in str(refused.value)
    assert "keys of unlike serdes: the stream's are String, the table's TimeWindowed(String())" in str(refused.value)
