"""What Python code reads of stores, beside plain recounts of the changelogs."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from streamplan.errors import CouldNotLook, Refused, StreamplanError
from streamplan.model.partitioner import partition_for_key
from streamplan.model.processor import KeyValue, Windowed
from streamplan.model.windows import stored_session_key, stored_window_key
from streamplan.queries import PartitionNotHeld, ValueAndTimestamp, open_queries, state_view, stores
from streamplan.queries.store_form import UnknownStore

from tests.support.queried import MINUTE, PARTITIONS, Queried

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


@pytest.fixture
def queried() -> Queried:
    return Queried()


def placed(key: bytes) -> int:
    return partition_for_key(key, PARTITIONS)


@pytest.mark.parametrize(("seed", "scanned"), [(0, 1), (1, 5), (2, 10_000)])
def test_the_last_value_of_each_key_counts_and_ranges_are_in_byte_order(
    queried: Queried, seed: int, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAGE_ENTRIES", 7)  # so that there are many pages
    monkeypatch.setattr(state_view, "SCANNED_ENTRIES", scanned)
    numbers, expected = random.Random(seed), dict[bytes, int]()
    for step in range(1_000):
        key = "".join(numbers.choices("aébzß", k=numbers.randint(1, 4))).encode()
        if key in expected and numbers.random() < 0.4:
            queried.put("totals", key, None, partition=placed(key))
            del expected[key]
        else:
            queried.count("totals", key, step, partition=placed(key))
            expected[key] = step
    store = queried.open().key_value_store("totals")
    in_order = [KeyValue(key.decode(), count) for key, count in sorted(expected.items())]
    assert [*store.all()] == in_order
    assert [*store.reverse_all()] == in_order[::-1]
    assert store.approximate_num_entries() == len(expected)
    assert {key: store.get(key) for key, _ in in_order} == dict(in_order)
    assert store.get("never") is None
    first, last = sorted(("b", "éa"), key=str.encode)
    between = [each for each in in_order if first.encode() <= each.key.encode() <= last.encode()]
    assert between
    assert [*store.range(first, last)] == between
    assert [*store.reverse_range(first, last)] == between[::-1]
    assert [*store.range(last, first)] == []
    assert [*store.prefix_scan("aé")] == [each for each in in_order if each.key.startswith("aé")]
    assert [*store.prefix_scan(b"a\xc3")] == [each for each in in_order if each.key.encode().startswith(b"a\xc3")]


def test_a_value_is_what_its_json_says_and_has_the_time_of_its_update(queried: Queried) -> None:
    queried.put("longest", b"ann", b'{"longest":7}', partition=placed(b"ann"), timestamp=90_000)
    queried.put("users", b"ann", b'{"country":"DE","more":[1.5,null]}', partition=placed(b"ann"))
    queries = queried.open()
    assert queries.key_value_store("longest").get("ann") == {"longest": 7}
    assert queries.timestamped_key_value_store("longest").get("ann") == ValueAndTimestamp({"longest": 7}, at(90_000))
    assert queries.key_value_store("users").get("ann") == {"country": "DE", "more": [1.5, None]}


def test_a_value_that_cannot_be_read_is_text(queried: Queried) -> None:
    queried.put("longest", b"ann", b"no JSON", partition=placed(b"ann"))
    queried.put("totals", b"ann", b"no number", partition=placed(b"ann"))
    queries = queried.open()
    assert queries.key_value_store("longest").get("ann") == "no JSON"
    assert queries.key_value_store("totals").get("ann") == "no number"


def test_windows(queried: Queried) -> None:
    counts = {("ann", 0): 1, ("ann", MINUTE): 2, ("ann", 3 * MINUTE): 3, ("anna", MINUTE): 4, ("bob", 2 * MINUTE): 5}
    for (user, start), count in counts.items():
        stored = stored_window_key(user.encode(), start)
        queried.count("per-minute", stored, count, partition=placed(user.encode()), timestamp=start + 5)
    store = queried.open().window_store("per-minute")
    assert store.fetch("ann", MINUTE) == 2
    assert store.fetch("ann", at(MINUTE)) == 2
    assert store.fetch("ann", MINUTE + 1) is None
    assert [*store.fetch("ann", 0, 2 * MINUTE)] == [(at(0), 1), (at(MINUTE), 2)]
    assert [*store.backward_fetch("ann", at(0), at(10 * MINUTE))] == [(at(3 * MINUTE), 3), (at(MINUTE), 2), (at(0), 1)]
    assert [*store.fetch("ann", 2 * MINUTE, MINUTE)] == []

    def window(user: str, start: int) -> Windowed:
        return Windowed(user, at(start), at(start + MINUTE))

    in_order = [(window(*key), count) for key, count in counts.items()]
    assert [*store.all()] == in_order
    assert [*store.fetch_all(MINUTE, 2 * MINUTE)] == [in_order[1], in_order[3], in_order[4]]
    assert [*store.backward_fetch_all(MINUTE, 2 * MINUTE)] == [in_order[4], in_order[3], in_order[1]]
    timestamped = queried.open().timestamped_window_store("per-minute")
    assert timestamped.fetch("ann", MINUTE) == ValueAndTimestamp(2, at(MINUTE + 5))


def test_windows_older_than_the_retention_are_gone_as_in_the_library(queried: Queried) -> None:
    """The retention is 5 minutes: ``AbstractRocksDBSegmentedBytesStore`` reads from the newest start back."""
    partition = placed(b"ann")
    for minute in (0, 1, 5):
        queried.count("per-minute", stored_window_key(b"ann", minute * MINUTE), minute, partition=partition)
    queries = queried.open()
    assert [*queries.window_store("per-minute").fetch("ann", 0, 9 * MINUTE)] == [(at(MINUTE), 1), (at(5 * MINUTE), 5)]
    assert queries.window_store("per-minute").fetch("ann", 0) is None
    queried.count("per-minute", stored_window_key(b"ann", 20 * MINUTE), 20, partition=partition)
    queried.count("per-minute", stored_window_key(b"ann", 2 * MINUTE), 2, partition=partition)
    queries = queried.open()
    assert [*queries.window_store("per-minute").all()] == [(Windowed("ann", at(20 * MINUTE), at(21 * MINUTE)), 20)]
    assert queries.window_store("per-minute").approximate_num_entries() == 1, "nor does it take memory"


def test_sessions(queried: Queried) -> None:
    partition = placed(b"ann")
    for start, end, count in ((0, 30_000, 2), (100_000, 100_000, 1), (200_000, 260_000, 4)):
        queried.count("sessions", stored_session_key(b"ann", start, end), count, partition=partition)
    queried.count("sessions", stored_session_key(b"bob", 5, 6), 9, partition=placed(b"bob"))
    queried.put("sessions", stored_session_key(b"ann", 0, 30_000), None, partition=partition)  # it became longer
    queried.count("sessions", stored_session_key(b"ann", 0, 40_000), 3, partition=partition)
    store = queried.open().session_store("sessions")
    sessions = [
        (Windowed("ann", at(0), at(40_000)), 3),
        (Windowed("ann", at(100_000), at(100_000)), 1),
        (Windowed("ann", at(200_000), at(260_000)), 4),
    ]
    assert [*store.fetch("ann")] == sessions
    assert [*store.backward_fetch("ann")] == sessions[::-1]
    assert store.fetch_session("ann", 0, 40_000) == 3
    assert store.fetch_session("ann", 0, 30_000) is None
    assert [*store.find_sessions("ann", 100_000, 150_000)] == [sessions[1]]
    assert [*store.find_sessions("ann", at(100_001), at(10**6))] == [sessions[2]]
    assert [*store.all()] == [*sessions, (Windowed("bob", at(5), at(6)), 9)]


def test_a_key_of_another_partition_is_told_and_never_answered_with_none(queried: Queried) -> None:
    queried.count("totals", b"ann", 1, partition=placed(b"ann"))
    queried.count("totals", b"bob", 2, partition=placed(b"bob"))
    assert placed(b"ann") != placed(b"bob")
    store = queried.open(partitions=[placed(b"ann")]).key_value_store("totals")
    assert store.get("ann") == 1
    assert [*store.all()] == [("ann", 1)]
    with pytest.raises(
        PartitionNotHeld, match=f"in partition {placed(b'bob')} of 3: expected one of the partitions"
    ) as told:
        store.get("bob")
    assert told.value.partition == placed(b"bob")
    with pytest.raises(PartitionNotHeld):
        queried.open(partitions=[placed(b"ann")]).window_store("per-minute").fetch("bob", 0, 1)


def test_a_processor_may_have_a_key_in_any_partition(queried: Queried) -> None:
    other = (placed(b"/home") + 1) % PARTITIONS
    queried.put("seen", b"/home", b'{"user":"ann"}', partition=other)
    assert queried.open().key_value_store("seen").get("/home") == {"user": "ann"}
    assert queried.open(partitions=[other]).key_value_store("seen").get("/home") == {"user": "ann"}
    assert queried.open().key_value_store("seen").get("/") is None
    with pytest.raises(PartitionNotHeld, match=f"perhaps in partition {placed(b'/home')}"):
        queried.open(partitions={*range(PARTITIONS)} - {placed(b"/home")}).key_value_store("seen").get("/")


def test_a_key_that_another_partitioner_has_placed_is_found(queried: Queried) -> None:
    queried.put("users", b"ann", b'{"country":"DE"}', partition=(placed(b"ann") + 1) % PARTITIONS)
    assert queried.open().key_value_store("users").get("ann") == {"country": "DE"}


def test_the_position_is_that_of_the_changelog(queried: Queried) -> None:
    queried.count("totals", b"ann", 1, partition=0)
    queried.count("totals", b"bob", 2, partition=0)
    queries = queried.open(stores=["totals"])
    assert queries.position("totals") == {queried.changelog("totals"): {0: 2, 1: 0, 2: 0}}
    assert queries.lag("totals") == 0
    queried.follower.silent_seconds = 31.0
    assert queries.lag("totals") is None


def test_records_of_an_open_transaction_are_not_read_and_lag(queried: Queried) -> None:
    queried.count("totals", b"ann", 1, partition=0)
    queried.count("totals", b"ann", 2, partition=0)
    queried.cluster.existing[queried.changelog("totals")].partitions[0].open_since = 1
    queries = queried.open()
    assert queries.key_value_store("totals").get("ann") == 1
    assert queries.lag("totals") == 1


def test_what_is_wrong_with_a_question_is_told_at_once(queried: Queried) -> None:
    queries = queried.open()
    with pytest.raises(UnknownStore, match=r"store 'total': expected a store of queried .* Did you mean totals\?"):
        queries.key_value_store("total")
    with pytest.raises(Refused, match=r"observed a window store. Open it with window_store\('per-minute'\)"):
        queries.key_value_store("per-minute")
    with pytest.raises(Refused, match=r"the key 7 of store totals: expected a key of String\(\)"):
        queries.key_value_store("totals").get(7)
    with pytest.raises(Refused, match="expected a time with a time zone"):
        queries.window_store("per-minute").fetch("ann", datetime(2026, 1, 1))


def test_what_cannot_be_read_is_refused(queried: Queried) -> None:
    with pytest.raises(Refused, match="partition 3: expected partitions of the changelogs, 0 to 2"):
        queried.open(partitions=[0, 3])
    with pytest.raises(UnknownStore):
        queried.open(stores=["unknown"])
    del queried.cluster.existing[queried.changelog("totals")]
    with pytest.raises(CouldNotLook, match="changelog queried-totals-changelog: expected an existing topic"):
        queried.open()
    assert queried.open(stores=["users"]).view.stores.keys() == {"users"}


def test_no_query_is_answered_when_the_changelogs_are_not_read_any_more(queried: Queried) -> None:
    queries = queried.open()
    store = queries.key_value_store("totals")
    queried.follower.failure = StreamplanError("changelog", observed="no such topic")
    with pytest.raises(StreamplanError, match="no such topic"):
        store.get("ann")
    with pytest.raises(StreamplanError, match="no such topic"):
        store.all()
    with queries:
        pass
    assert queried.follower.closed


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ((5, "k:9092"), {}, "open_queries: pipeline: expected a Pipeline, or the name of one, observed the number 5"),
        (("orders", 5), {}, "open_queries: brokers: expected host:port,host:port, observed the number 5"),
        (
            ("orders", "k:9092"),
            {"stores": "n"},
            "open_queries: stores: expected a list: stores=['n'], observed the text",
        ),
        (
            ("orders", "k:9092"),
            {"partitions": 0},
            "open_queries: partitions: expected a list: partitions=[0], observed",
        ),
    ],
)
def test_wrong_arguments_of_queries_are_told(arguments: Any, options: Any, told: str) -> None:
    with pytest.raises(Refused, match=re.escape(told)):
        open_queries(*arguments, **options)
