"""Questions over HTTP and their answers, as the service gives them, without a network."""

from __future__ import annotations

import json
import struct
from typing import Any
from urllib.parse import urlencode

import pytest
from streamplan import (
    Bytes,
    CalendarWindows,
    Json,
    Pipeline,
    SessionWindows,
    TimeWindowed,
    TimeWindows,
    Topology,
)
from streamplan.errors import StreamplanError
from streamplan.model.partitioner import partition_for_key
from streamplan.model.windows import stored_session_key, stored_window_key
from streamplan.queries.answers import OPERATIONS, Answer, Answers
from streamplan.queries.store_form import StoreKind
from streamplan.serdes.moments import FIRST_US, LAST_US

from tests.support.queried import MINUTE, PARTITIONS, Queried

ANN = partition_for_key(b"ann", PARTITIONS)


@pytest.fixture
def queried() -> Queried:
    made = Queried()
    for number in range(5):
        key = b"k%d" % number
        made.count("totals", key, number, partition=partition_for_key(key, PARTITIONS), timestamp=number)
    made.put("seen", b"/home", b'{"user":"ann"}', partition=1)
    for minute in range(3):
        made.count("per-minute", stored_window_key(b"ann", minute * MINUTE), minute, partition=ANN, timestamp=7)
    made.count("sessions", stored_session_key(b"ann", MINUTE, 2 * MINUTE), 4, partition=ANN, timestamp=2 * MINUTE)
    return made


def ask(queried: Queried, path: str, /, partitions: list[int] | None = None, **parameters: Any) -> Answer:
    target = f"{path}?{urlencode(parameters)}" if parameters else path
    return Answers(queried.open(partitions=partitions)).answer(target)


def test_a_key(queried: Queried) -> None:
    answer = ask(queried, "/stores/totals/get", key="k3")
    partition = partition_for_key(b"k3", PARTITIONS)
    changelog = queried.changelog("totals")
    ends = {number: found.end for number, found in enumerate(queried.cluster.existing[changelog].partitions)}
    assert (answer.status, answer.body) == (
        200,
        {
            "store": "totals",
            "key": "k3",
            "value": 3,
            "timestamp": "1970-01-01T00:00:00.003+00:00",
            "partition": partition,
            "position": {changelog: ends},
            "lag": 0,
        },
    )


def test_a_key_without_a_value_is_404_with_the_position(queried: Queried) -> None:
    answer = ask(queried, "/stores/totals/get", key="never")
    assert (answer.status, answer.body["key"], answer.body["value"]) == (404, "never", None)
    assert answer.body["position"].keys() == {queried.changelog("totals")}
    assert "error" not in answer.body


def test_a_range_comes_page_after_page(queried: Queried) -> None:
    answer = ask(queried, "/stores/totals/range", first="k1", last="k4", limit=2)
    found = [each["key"] for each in answer.body["entries"]]
    while answer.body["after"]:
        answer = ask(queried, "/stores/totals/range", first="k1", last="k4", limit=2, after=answer.body["after"])
        found += [each["key"] for each in answer.body["entries"]]
    assert found == ["k1", "k2", "k3", "k4"]
    answer = ask(queried, "/stores/totals/reverse_range", first="k1", limit=3)
    assert [each["key"] for each in answer.body["entries"]] == ["k4", "k3", "k2"]
    answer = ask(queried, "/stores/totals/reverse_range", first="k1", limit=3, after=answer.body["after"])
    assert [each["key"] for each in answer.body["entries"]] == ["k1"]
    assert answer.body["after"] is None


@pytest.mark.parametrize(
    ("path", "parameters", "expected"),
    [
        ("totals/all", {}, ["k0", "k1", "k2", "k3", "k4"]),
        ("totals/reverse_all", {"limit": 2}, ["k4", "k3"]),
        ("totals/prefix_scan", {"prefix": "k"}, ["k0", "k1", "k2", "k3", "k4"]),
        ("totals/prefix_scan", {"prefix": "l"}, []),
        ("totals/range", {"last": "k1"}, ["k0", "k1"]),
        ("seen/all", {}, ["/home"]),
    ],
)
def test_several_keys(queried: Queried, path: str, parameters: dict[str, Any], expected: list[str]) -> None:
    answer = ask(queried, f"/stores/{path}", **parameters)
    assert answer.status == 200
    assert [each["key"] for each in answer.body["entries"]] == expected


@pytest.mark.parametrize("time", ["60000", "1970-01-01T00:01:00Z", "1970-01-01T01:01:00+01:00"])
def test_a_window(queried: Queried, time: str) -> None:
    answer = ask(queried, "/stores/per-minute/fetch", key="ann", first=time)
    assert (answer.status, answer.body["value"], answer.body["window"]) == (
        200,
        1,
        {"start": "1970-01-01T00:01:00.000+00:00", "end": "1970-01-01T00:02:00.000+00:00"},
    )


def test_a_plus_that_was_not_escaped_is_read_as_one(queried: Queried) -> None:
    answers = Answers(queried.open())
    assert answers.answer("/stores/per-minute/fetch?key=ann&first=1970-01-01T01:01:00+01:00").body["value"] == 1


@pytest.mark.parametrize(
    ("path", "parameters", "expected"),
    [
        ("per-minute/fetch", {"key": "ann", "first": 0, "last": MINUTE}, [0, 1]),
        ("per-minute/backward_fetch", {"key": "ann", "first": 0, "last": MINUTE}, [1, 0]),
        ("per-minute/fetch_all", {"first": MINUTE, "last": "1970-01-01T00:02:00Z"}, [1, 2]),
        ("per-minute/backward_fetch_all", {"first": MINUTE, "last": 2 * MINUTE}, [2, 1]),
        ("per-minute/all", {}, [0, 1, 2]),
        ("sessions/fetch", {"key": "ann"}, [4]),
        ("sessions/backward_fetch", {"key": "bob"}, []),
        ("sessions/find_sessions", {"key": "ann", "earliest_session_end": 0, "latest_session_start": MINUTE}, [4]),
        ("sessions/find_sessions", {"key": "ann", "earliest_session_end": 0, "latest_session_start": 1}, []),
        ("sessions/all", {}, [4]),
    ],
)
def test_several_windows_or_sessions(
    queried: Queried, path: str, parameters: dict[str, Any], expected: list[int]
) -> None:
    answer = ask(queried, f"/stores/{path}", **parameters)
    assert answer.status == 200
    assert [each["value"] for each in answer.body["entries"]] == expected


def test_a_session(queried: Queried) -> None:
    answer = ask(queried, "/stores/sessions/fetch_session", key="ann", start=MINUTE, end=2 * MINUTE)
    assert (answer.status, answer.body["value"]) == (200, 4)
    assert ask(queried, "/stores/sessions/fetch_session", key="ann", start=MINUTE, end=MINUTE).status == 404


def test_how_many_there_are_and_where_a_key_is(queried: Queried) -> None:
    assert ask(queried, "/stores/totals/approximate_num_entries").body["entries"] == 5
    of_ann = ask(queried, "/stores/totals/partition", key="ann").body
    assert (of_ann["partition"], of_ann["held"]) == (ANN, [0, 1, 2])
    assert ask(queried, "/stores/seen/partition", key="ann").body["partition"] is None


def test_a_key_of_a_partition_that_the_service_does_not_read_is_421(queried: Queried) -> None:
    others = [number for number in range(PARTITIONS) if number != ANN]
    for path, parameters in (
        ("totals/get", {}),
        ("per-minute/fetch", {"first": 0}),
        ("per-minute/fetch", {"first": 0, "last": 1}),
        ("sessions/fetch", {}),
    ):
        answer = ask(queried, f"/stores/{path}", others, key="ann", **parameters)
        assert (answer.status, answer.body["partition"]) == (421, ANN)
        assert "Ask the service that reads that partition" in answer.body["remedy"]
    answer = ask(queried, "/stores/seen/get", [0], key="/home")
    assert (answer.status, answer.body["partition"]) == (421, None)
    assert ask(queried, "/stores/seen/get", [1], key="/home").status == 200
    assert ask(queried, "/stores/totals/partition", others, key="ann").body["partition"] == ANN


def test_the_stores_and_their_operations_are_listed(queried: Queried) -> None:
    listed = ask(queried, "/").body
    assert (listed, listed["pipeline"]) == (ask(queried, "/stores").body, "queried")
    kinds = {each["store"]: each["kind"] for each in listed["stores"]}
    assert kinds == {
        **dict.fromkeys(("totals", "longest", "users", "seen"), "key-value"),
        "per-minute": "window",
        "sessions": "session",
    }
    for each in listed["stores"]:
        assert each["operations"] == [*OPERATIONS[StoreKind(each["kind"])], "approximate_num_entries", "partition"]
    assert ask(queried, "/stores/totals", [2]).body["held"] == [2]


@pytest.mark.parametrize(
    ("path", "parameters", "status", "error"),
    [
        ("/nothing", {}, 404, "path /nothing: expected /, /health, /metrics, or /stores/STORE/OPERATION"),
        ("/stores/total/get", {"key": "k"}, 404, "store 'total'"),
        ("/stores/totals/gets", {"key": "k"}, 404, "Did you mean get?"),
        ("/stores/totals/fetch", {"key": "k"}, 404, "operation 'fetch' of store totals, a key-value store"),
        ("/stores/totals/get", {}, 400, "parameter key: expected a value"),
        ("/stores/totals/get", {"key": "k", "kez": "k"}, 400, "Did you mean key?"),
        ("/stores/totals/get?key=1&key=2", {}, 400, "parameter key: expected one value, observed two"),
        ("/stores/totals/all", {"limit": 0}, 400, "limit: expected a whole number, 1 to 100000, observed 0"),
        ("/stores/totals/all", {"limit": "many"}, 400, "observed many"),
        ("/stores/totals/all", {"after": "x"}, 400, "after: expected the `after` of an answer"),
        ("/stores/per-minute/fetch", {"key": "k", "first": "noon"}, 400, "first=noon: expected ms since the epoch"),
        ("/stores/per-minute/fetch", {"key": "k", "first": "2026-01-31T12:00:00"}, 400, "a time with a zone"),
        ("/stores/totals/all", {"limit": "9" * 5_000}, 400, "limit: expected a whole number, 1 to 100000"),
        ("/stores/totals/all", {"limit": "１"}, 400, "limit: expected a whole number, 1 to 100000"),
        ("/stores/totals/all", {f"a{number}": "" for number in range(21)}, 400, "parameters: expected at most 20"),
        ("http://[1", {}, 400, "path http://[1: expected a path of a URL"),
        ("/stores/../totals", {}, 404, "store '..'"),
        ("/stores/%2e%2e/all", {}, 404, "store '..'"),
        ("/stores/per-minute/fetch", {"key": "k", "first": "9" * 19}, 400, "expected ms since the epoch in 64 bits"),
    ],
)
def test_a_wrong_question_is_answered_with_what_to_write(
    queried: Queried, path: str, parameters: dict[str, Any], status: int, error: str
) -> None:
    answer = ask(queried, path, **parameters)
    assert answer.status == status
    assert error in answer.body["error"]


NUMBERS = {
    b'{"a": 0.1, "b": -0.0, "c": 1E2}': '{"a": 0.1, "b": -0.0, "c": 100.0}',
    b'{"a": 9007199254740993}': '{"a": 9007199254740993}',
    b'{"a": 123456789012345678.123456789012345678}': '{"a": "123456789012345678.123456789012345678"}',
    b'{"a": [1e999, 1e-999]}': '{"a": ["1E+999", "1E-999"]}',
    b'{"a": 1e-9999999999999999999}': '{"a": "1e-9999999999999999999"}',
    b'{"a": NaN}': '"{\\"a\\": NaN}"',
    b'{"a": "\\ud800"}': '{"a": "\\ud800"}',
    b"[%b]" % (b"9" * 5_000): f'["{"9" * 5_000}"]',
    struct.pack(">d", float("-inf")): "-4503599627370496",
    b"\xff": '"\\\\xff"',
    b"": '""',
}
"""By value what the answer has of it: a number that a double would round is a text."""


@pytest.mark.parametrize(("value", "expected"), NUMBERS.items(), ids=range(len(NUMBERS)))
def test_no_value_is_read_as_another_one(value: bytes, expected: str) -> None:
    queried = Queried()
    queried.put("longest", b"k", value, partition=0)
    (entry,) = ask(queried, "/stores/longest/all").body["entries"]
    assert json.dumps(entry["value"], default=str, allow_nan=False) == expected


TIMES = (
    0,
    -1,
    1 << 62,
    -(1 << 62),
    (1 << 63) - 1,
    -(1 << 63),
    LAST_US // 1000,
    LAST_US // 1000 + 1,
    FIRST_US // 1000 - 1,
)
"""Times of windows: also those of years that Python does not have."""


def test_records_that_another_program_wrote_into_a_changelog_do_not_end_the_service() -> None:
    """A window in the year 10000 made the end of a calendar's window overflow, where its record was read."""
    topology = Topology("odd")
    grouped = topology.stream("visits", value=Json("user string")).group_by("user", name="by-user")
    grouped.windowed_by(CalendarWindows("1 day", "Europe/Berlin")).count(store="days")
    grouped.windowed_by(CalendarWindows("1 month", "Pacific/Kiritimati", offset="6 hours")).count(store="months")
    grouped.windowed_by(TimeWindows("1 minute")).count(store="minutes")
    grouped.windowed_by(SessionWindows("1 minute")).count(store="sessions")
    users = topology.table("users", value=Json("x double"), key_serde=TimeWindowed(Bytes()), store="users")
    users.to_stream().to("copies", value=Json("x double"))
    queried = Queried(Pipeline("odd", topology, "", dict.fromkeys(("visits", "users", "copies"), 1)))
    keys = [
        b"",
        b"short",
        b"x" * 11,
        b"x" * 12,
        b"\xff" * 16,
    ]
    keys += [stored_window_key(b"ann", time) for time in TIMES]
    keys += [stored_session_key(b"ann", start, end) for start in TIMES for end in TIMES]
    for store in ("days", "months", "minutes", "sessions", "users"):
        for key in keys:
            queried.put(store, key, b"\0" * 7 + b"\1", partition=0, timestamp=TIMES[len(key) % len(TIMES)])
    opened = queried.open()
    for path in ("all", "reverse_all"):
        for store in opened.view.stores:
            answer = Answers(opened).answer(f"/stores/{store}/{path}")
            assert answer.body["entries"], store
            json.dumps(answer.body, allow_nan=False)
    keys_of_users = [each["key"] for each in Answers(opened).answer("/stores/users/all").body["entries"]]
    assert {"key": "78787878", "start": 0x7878787878787878} in keys_of_users
    for store in ("days", "months", "minutes"):
        assert len([*opened.window_store(store).all()]) == len(
            Answers(opened).answer(f"/stores/{store}/all").body["entries"]
        )
    assert [*opened.session_store("sessions").all()]


def test_the_health_says_whether_the_changelogs_are_read(queried: Queried) -> None:
    assert (ask(queried, "/health").status, ask(queried, "/health").body) == (200, {"status": "ok", "lag": 0})
    queried.follower.silent_seconds = 31.0
    assert ask(queried, "/health").status == 503
    answer = ask(queried, "/stores/totals/get", key="k3")
    assert (answer.status, answer.body["value"], answer.body["lag"]) == (200, 3, None)
    queried.follower.failure = StreamplanError("changelog", observed="no such topic", remedy="Start it again.")
    for path in ("/health", "/", "/stores/totals/get?key=k3"):
        answer = ask(queried, path)
        assert (answer.status, answer.body["remedy"]) == (503, "Start it again.")
