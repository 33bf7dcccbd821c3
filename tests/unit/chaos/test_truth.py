"""The chaos suite's judgement: it must see each way in which records go wrong, or its green means nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.log import Record
from tests.chaos.murmur2 import murmur2, partition_of
from tests.chaos.positions import Commit, commits, partition_of_group
from tests.chaos.schedule import schedule
from tests.chaos.truth import Changelog, DeadLetters, Repartition, Source, Violation

REPARTITION = "repartition"


def order(number: int, offset: int | None = None) -> Record:
    key = b"order_%d" % number
    value = b'{"Id": "order_%d", "ProductType": %d}' % (number, number % 2)
    return Record("orders", partition_of(key, 2), number if offset is None else offset, number, key, value, {})


def re_keyed(number: int, offset: int) -> Record:
    key = b"%d" % (number % 2)
    return order(number)._replace(topic=REPARTITION, partition=partition_of(key, 2), offset=offset, key=key)


def update(number: int, count: int) -> Record:
    key = b"%d" % (number % 2)
    return Record("changelog", partition_of(key, 2), count, 0, key, count.to_bytes(8, "big"), {})


@pytest.fixture
def source() -> Source:
    made = Source()
    for number in range(10):
        made.take(order(number))
    return made


@pytest.fixture
def repartition(source: Source) -> Repartition:
    return Repartition(source)


@pytest.fixture
def changelog(repartition: Repartition) -> Changelog:
    """All of ten orders are re-keyed; positions at 3 and 5 (records 0 to 4) of each partition are committed."""
    for number in range(10):
        repartition.take(re_keyed(number, number // 2))
    made = Changelog(repartition)
    for position in (3, 5):
        for partition in range(2):
            made.plan(Commit(REPARTITION, partition, position, "somewhere"))
    return made


def kind_of(action: Callable[[], object]) -> str:
    with pytest.raises(Violation) as caught:
        action()
    return caught.value.kind


@pytest.mark.parametrize(("text", "expected"), [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)])
def test_murmur2_is_that_of_kafka(text: bytes, expected: int) -> None:
    assert struct.unpack(">i", struct.pack(">I", murmur2(text))) == (expected,)


def test_every_order_once_is_right(source: Source) -> None:
    source.close(stopped=True)
    assert source.orders == 10
    assert source.totals == {b"0": 5, b"1": 5}


def test_an_order_that_comes_twice_is_seen(source: Source) -> None:
    assert kind_of(lambda: source.take(order(9, 99))) == "doubled"


def test_an_order_that_never_comes_is_seen_at_the_next_cut() -> None:
    source = Source()
    for number in (0, 1, 2, 4, 5, 6, 7, 8, 9):
        source.take(order(number))
    assert kind_of(source.close) == "lost"


def test_an_order_in_flight_is_not_lost() -> None:
    """One partition is ahead of the other when the cut falls into a transaction."""
    source = Source()
    ahead = [number for number in range(40) if order(number).partition == 0]
    for number in ahead:
        source.take(order(number))
    source.close()
    assert kind_of(lambda: source.close(stopped=True)) == "lost"


def test_an_order_in_another_partition_is_seen(source: Source) -> None:
    record = order(10)
    assert kind_of(lambda: source.take(record._replace(partition=1 - record.partition))) == "wrong"


def test_the_repartition_topic_may_interleave_its_sources(repartition: Repartition, source: Source) -> None:
    by_source = sorted(range(10), key=lambda number: (order(number).partition, number))
    for offset, number in enumerate(by_source):
        repartition.take(re_keyed(number, offset))
    assert repartition.missing({0: 10, 1: 10}) is None


def test_a_re_keyed_order_that_is_missing_twice_or_elsewhere_is_seen(repartition: Repartition) -> None:
    repartition.take(re_keyed(0, 0))
    assert kind_of(lambda: repartition.take(re_keyed(0, 1))) == "doubled"
    missing = repartition.missing({0: 10, 1: 10})
    assert missing is not None
    wrong = re_keyed(1, 1)
    assert kind_of(lambda: repartition.take(wrong._replace(partition=1 - wrong.partition))) == "wrong"
    of_one_stream = [number for number in range(0, 10, 2) if order(number).partition != order(0).partition]
    assert kind_of(lambda: repartition.take(re_keyed(of_one_stream[1], 2))) == "lost"


def test_dead_letters_are_the_bad_records(source: Source) -> None:
    bad = Record("orders", 0, 77, 1, b"bad_0", b"no json", {})
    source.take(bad)
    letters = DeadLetters(source)
    assert letters.missing({0: 78, 1: 0}) == bad
    headers: Mapping[str, bytes] = {"streamplan.source.partition": b"0", "streamplan.source.offset": b"77"}
    letter = bad._replace(topic="dead-letter", headers=headers)
    letters.take(letter)
    assert letters.missing({0: 78, 1: 0}) is None
    assert kind_of(lambda: letters.take(letter)) == "doubled"


def test_a_changelog_with_each_intermediate_value_is_right(changelog: Changelog) -> None:
    assert changelog.take([update(0, 3), update(1, 3), update(0, 5), update(1, 5)]) == []
    assert changelog.missing({0: 5, 1: 5}) is None
    assert changelog.last == {b"0": 5, b"1": 5}


@pytest.mark.parametrize(("counts", "kind"), [((5,), "lost"), ((2,), "wrong"), ((3, 3), "doubled"), ((3, 6), "lost")])
def test_a_value_that_is_no_committed_prefix_is_seen(changelog: Changelog, counts: tuple[int, ...], kind: str) -> None:
    assert kind_of(lambda: changelog.take([update(0, count) for count in counts])) == kind


def test_an_update_that_never_comes_is_missing(changelog: Changelog) -> None:
    changelog.take([update(0, 3), update(1, 3), update(0, 5)])
    found = changelog.missing({0: 5, 1: 5})
    assert found is not None
    assert found[1:] == (5, {b"1": 5})


def test_an_update_without_a_position_is_given_back(changelog: Changelog) -> None:
    changelog.take([update(0, 3), update(0, 5)])
    assert changelog.take([update(0, 6)]) == [update(0, 6)]


def test_a_position_that_goes_back_is_seen(changelog: Changelog) -> None:
    assert kind_of(lambda: changelog.plan(Commit(REPARTITION, 0, 4, "somewhere"))) == "wrong"


def test_positions_are_read_from_the_brokers_topic() -> None:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    key = struct.pack(">h", 1) + text("app") + text(REPARTITION) + struct.pack(">i", 1)
    value = struct.pack(">hqi", 3, 4711, -1) + text("") + struct.pack(">q", 0)
    record = Record("__consumer_offsets", 3, 9, 0, key, value, {})
    member = record._replace(key=struct.pack(">h", 2) + text("app"))
    assert list(commits([record, member, record._replace(value=None)], "app")) == [
        Commit(REPARTITION, 1, 4711, record.place)
    ]
    assert list(commits([record], "another")) == []


def test_positions_that_a_claim_has_sent_again_to_lock_them_are_left_out() -> None:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    def committed(position: int, metadata: str, at_ms: int) -> Record:
        key = struct.pack(">h", 1) + text("app") + text(REPARTITION) + struct.pack(">i", 1)
        value = struct.pack(">hqi", 3, position, -1) + text(metadata) + struct.pack(">q", at_ms)
        return Record("__consumer_offsets", 3, at_ms, 0, key, value, {})

    old, new = "streamplan-generation 1 a ck {}  .", "streamplan-generation 2 b ck {}  ."
    history = [
        committed(5, old.format(1), 10),
        committed(9, old.format(2), 20),
        committed(5, old.format(1), 30),
        committed(9, new.format(2), 40),
        committed(7, new.format(3), 50),
    ]
    assert [commit.position for commit in commits(history, "app")] == [5, 9, 9, 7]


@pytest.mark.parametrize(
    ("group", "hashed"), [("a", 97), ("orders-aggregator", -1109757007), ("my-app", -1061206400), ("", 0)]
)
def test_the_partition_of_a_group_is_that_of_its_java_hash(group: str, hashed: int) -> None:
    assert partition_of_group(group, 50) == abs(hashed) % 50


def test_a_seed_is_a_schedule() -> None:
    faults = [fault for fault in FAULTS if not fault.optional]
    once, again = list(schedule(7, faults, 50)), list(schedule(7, faults, 50))
    assert once == again
    assert once != list(schedule(8, faults, 50))
    dealt = [planned.fault.name for planned_round in once for planned in planned_round.faults]
    counts = {fault.name: dealt.count(fault.name) for fault in faults}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_faults_have_names_of_their_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
