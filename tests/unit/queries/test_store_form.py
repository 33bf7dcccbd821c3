"""Which stores can be asked, and what their keys and values are: declarations beside lists written by hand."""

from __future__ import annotations

from datetime import datetime

import pytest
from streamplan import (
    Bytes,
    CalendarWindows,
    CustomWindows,
    Integer,
    JoinWindows,
    Json,
    KStream,
    Long,
    Pipeline,
    SessionWindows,
    SlidingWindows,
    String,
    TimeWindows,
    Topology,
)
from streamplan.model.windows import stored_window_key
from streamplan.queries.store_form import ReadValues, StoreForm, StoreKind, changelogs_of, forms_of
from streamplan.registry import registered_pipelines
from streamplan.serdes.moments import as_milliseconds
from streamplan.serdes.serde import Serde
from streamplan.testing.declared_schemas import DeclaredSchemas

ORDER = Json("id string, total bigint")


def form_of(topology: Topology, store: str, *topics: str) -> StoreForm:
    pipeline = Pipeline("asked", topology, "", dict.fromkeys(topics or topology.source_topics, 2))
    return forms_of(pipeline, dict.fromkeys(changelogs_of(pipeline).values(), 2))[store]


def stream_of(value: Serde) -> tuple[Topology, KStream]:
    topology = Topology("asked")
    return topology, topology.stream("orders", value=value)


@pytest.mark.parametrize("value", [String(), Long(), Integer(), Bytes(), ORDER], ids=repr)
def test_a_value_that_nothing_has_changed_is_read_with_the_serde_of_its_source(value: Serde) -> None:
    topology, stream = stream_of(value)
    stream.filter("record.key is not null").select_key("'all'").repartition(name="again").to_table(store="kept")
    form = form_of(topology, "kept")
    assert (form.value, form.kind) == (value, StoreKind.KEY_VALUE)


def test_a_value_that_was_made_is_json() -> None:
    topology, stream = stream_of(String())
    stream.map_values({"length": "length(value)"}).to_table(store="kept")
    assert form_of(topology, "kept").value is None


def test_counts_of_a_table_and_what_a_filter_keeps_of_counts_have_eight_bytes() -> None:
    topology, stream = stream_of(ORDER)
    counts = stream.group_by_key().count(store="counts").filter("count > 1", store="often")
    counts.to_stream().select_key("'all'").to_table(store="behind-a-topic")
    counts.map_values({"n": "count"}).group_by("n").count(store="keys")
    forms = {name: form_of(topology, name).value for name in ("counts", "often", "keys", "behind-a-topic")}
    assert forms == {"counts": Long(), "often": Long(), "keys": Long(), "behind-a-topic": None}


def test_the_time_of_a_window_is_what_was_declared() -> None:
    topology, stream = stream_of(ORDER)
    grouped = stream.group_by_key()
    grouped.windowed_by(TimeWindows("1 minute", grace="1 hour")).count(store="windows")
    assert form_of(topology, "windows").window_ms == 60_000
    assert form_of(topology, "windows").retention_ms == 3_660_000


@pytest.mark.parametrize(
    ("windows", "start", "end"),
    [
        (SlidingWindows("5 minutes"), "2026-03-01T12:00:00.001", "2026-03-01T12:05:00.001"),
        (TimeWindows("1 hour", offset="15 minutes"), "2026-03-01T12:15:00", "2026-03-01T13:15:00"),
        (CustomWindows(lambda at: [(at, at + 1000)], size="1 hour"), "2026-03-01T12:15:00", "2026-03-01T12:15:01"),
        (CustomWindows(lambda at: (), size="1 hour"), "2026-03-01T12:15:00", "2026-03-01T13:15:00"),
        (CalendarWindows("1 day", time_zone="Europe/Berlin"), "2026-03-28T23:00:00", "2026-03-29T22:00:00"),
        (CalendarWindows("1 day", time_zone="Europe/Berlin"), "2026-10-24T22:00:00", "2026-10-25T23:00:00"),
        (CalendarWindows("1 day", "Europe/Berlin", offset="6 hours"), "2026-03-28T05:00:00", "2026-03-29T04:00:00"),
        (CalendarWindows("1 week", time_zone="UTC"), "2026-11-23T00:00:00", "2026-11-30T00:00:00"),
        (CalendarWindows("1 month", time_zone="Europe/Berlin"), "2026-02-28T23:00:00", "2026-03-31T22:00:00"),
        (CalendarWindows("1 month", time_zone="UTC"), "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        # At midnight the clock is set forward to one o'clock.
        (CalendarWindows("1 day", time_zone="America/Asuncion"), "2023-09-30T04:00:00", "2023-10-01T04:00:00"),
    ],
    ids=repr,
)
def test_a_window_ends_where_it_was_declared_to_end(windows: TimeWindows, start: str, end: str) -> None:
    topology, stream = stream_of(ORDER)
    stream.group_by_key().windowed_by(windows).count(store="windows")
    form = form_of(topology, "windows")
    began, ended = (as_milliseconds(datetime.fromisoformat(f"{each}+00:00")) for each in (start, end))
    assert form.kind is StoreKind.WINDOW
    assert form.retention_ms == windows.retention_ms
    assert form.bounds_ms(stored_window_key(b"k", began)) == (began, ended)


def test_the_stores_of_joins_that_hold_what_waits_cannot_be_asked() -> None:
    """They have no keys of the application."""
    topology, stream = stream_of(ORDER)
    payments = topology.stream("payments", value=Json("amount bigint"))
    joined = stream.left_join(payments, {"total": "total"}, within=JoinWindows("1 minute"), store="paid")
    joined.to("joined")
    pipeline = Pipeline("asked", topology, "", {"orders": 2, "payments": 2})
    assert {node.store for _, node in pipeline.stores} - {*changelogs_of(pipeline)} == {"paid-left-shared-join-store"}


def test_every_store_of_the_examples_but_those_of_joins_can_be_asked() -> None:
    not_asked = {
        node.store
        for pipeline in registered_pipelines()
        for _, node in pipeline.stores
        if node.store not in changelogs_of(pipeline)
    }
    assert not_asked == {"unpaid-left-shared-join-store", "tracking-subscription-store"}


def test_sessions_and_windows_of_keys_that_are_numbers() -> None:
    topology = Topology("asked")
    stream = topology.stream("orders", value=ORDER, key_serde=Long())
    stream.group_by_key().windowed_by(SessionWindows("1 minute")).count(store="sessions")
    form = form_of(topology, "sessions")
    assert form.kind is StoreKind.SESSION
    stored = (7).to_bytes(8, "big") + (30).to_bytes(8, "big") + (20).to_bytes(8, "big")
    assert (form.key(stored), form.bounds_ms(stored), form.time_ms(stored)) == (7, (20, 30), 30)
    assert form.partition_of(form.raw_key(stored)) in (0, 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"n":1.5}', {"n": 1.5}),
        ((7).to_bytes(8, "big"), 7),
        ((-7).to_bytes(8, "big", signed=True), -7),
        (b"no text\xff", int.from_bytes(b"no text\xff", "big")),
        (b"no JSON!", "no JSON!"),
        (b"", ""),
        (b"\xff", "\\xff"),
    ],
)
def test_a_value_whose_serde_is_not_known_is_json_a_number_or_text(data: bytes, expected: object) -> None:
    form = StoreForm("s", StoreKind.KEY_VALUE, "t", 1, String(), None)
    assert ReadValues(DeclaredSchemas(())).value(form, data) == expected
