"""Records that a person asks for, of an application as ``exactly_once_v2`` leaves it."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.errors import Refused, SchemaRegistryUnavailable
from streamplan.model.dead_letters import LetterPlace, Redrive, mark_headers
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.start_moment import StartMoment
from streamplan.model.topology import Topology
from streamplan.model.windows import SessionWindows, TimeWindows, stored_session_key, stored_window_key
from streamplan.observability.lookup import as_text, find_key, moment, newest_dead_letters, read_records
from streamplan.observability.topic_view import view_topic
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.avro import Avro
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Bytes, Long, String
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.windowed import KeyInWindow, TimeWindowed
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """Nineteen orders are counted: ten jackets, nine shirts."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def test_a_key_has_its_last_value(cluster: FakeCluster, application: FakeApplication) -> None:
    (found,) = find_key(ORDERS, cluster, "0")
    assert (found.changelog, found.value) == (application.changelog, "10")
    last = list(cluster.existing[application.changelog].partitions[found.partition].records)
    assert found.offset == max(record.offset for record in last if record.key == b"0")
    assert find_key(ORDERS, cluster, "2") == []


def test_a_key_has_its_declared_label_and_is_found_by_it(cluster: FakeCluster, application: FakeApplication) -> None:
    (by_key,) = find_key(ORDERS, cluster, "0")
    (by_label,) = find_key(ORDERS, cluster, "Jackets")
    assert (by_key, by_key.label) == (by_label, "Jackets")
    assert find_key(ORDERS, cluster, "Socks") == []


def test_records_of_internal_topics_have_the_label_of_their_key(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    for topic in (application.changelog, application.repartition):
        found = read_records(ORDERS, cluster, topic, last=1, containing="Shirts")
        assert [(each.key, each.label) for each in found] == [("1", "Shirts")]
    assert {each.label for each in read_records(ORDERS, cluster, "orders", last=5)} == {""}


def test_a_deleted_key_is_told_from_a_key_that_never_was(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.changelog, b"0", None)
    (found,) = find_key(ORDERS, cluster, "0")
    assert found.value is None


def test_the_newest_records_of_each_partition(cluster: FakeCluster, application: FakeApplication) -> None:
    found = read_records(ORDERS, cluster, "orders", last=2)
    ends = [partition.end for partition in cluster.existing["orders"].partitions]
    assert sorted((each.partition, each.offset) for each in found) == [
        (0, ends[0] - 2),
        (0, ends[0] - 1),
        (1, ends[1] - 2),
        (1, ends[1] - 1),
    ]


def test_records_from_an_offset_and_with_a_text(cluster: FakeCluster, application: FakeApplication) -> None:
    found = read_records(ORDERS, cluster, "orders", last=3, partition=0, offset=1)
    assert sorted(each.offset for each in found) == [1, 2, 3]
    found = read_records(ORDERS, cluster, "orders", last=5, containing='"order_7"')
    assert [each.key for each in found] == ["order_7"]


def test_records_from_a_time(cluster: FakeCluster, application: FakeApplication) -> None:
    records = cluster.existing["orders"].partitions[0].records
    at = datetime.fromtimestamp(records[3].timestamp / 1000, UTC)
    found = read_records(ORDERS, cluster, "orders", last=2, partition=0, since=StartMoment(at=at))
    first = next(record.offset for record in records if record.timestamp >= records[3].timestamp)
    assert sorted(each.offset for each in found) == [first, first + 1]
    found = read_records(ORDERS, cluster, "orders", last=2, partition=0, since=moment("earliest"))
    assert sorted(each.offset for each in found) == [0, 1]
    assert read_records(ORDERS, cluster, "orders", last=2, since=moment("latest")) == []


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31T00:00:00", "by_duration:1h"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="by_duration:P7D or 2026-01-31T00:00:00Z"):
        moment(text)


def test_records_of_an_open_transaction_are_shown_on_request(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    partition = cluster.existing["orders"].partitions[0]
    partition.open_since = partition.end - 2
    committed = read_records(ORDERS, cluster, "orders", last=3, partition=0)
    assert max(each.offset for each in committed) == partition.end - 3
    found = read_records(ORDERS, cluster, "orders", last=3, partition=0, uncommitted=True)
    assert max(each.offset for each in found) == partition.end - 1


AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "day", "type": {"type": "int", "logicalType": "date"}}]}"""


def test_values_in_avro_are_shown_as_json_and_a_registry_that_is_away_is_asked_once(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    schemas = DeclaredSchemas((WrittenSchema(AVRO),))
    data = Avro(AVRO).with_schemas(schemas, "orders").encode({"id": "order_99", "day": date(2026, 11, 24)})
    for value in (data, data[:-1], data[:4] + b"\7" + data[5:]):
        cluster.produce("orders", b"avro", value)
    partition = next(
        n for n, each in enumerate(cluster.existing["orders"].partitions) if each.records[-1].key == b"avro"
    )
    cluster.schemas = schemas
    found = [each.value for each in read_records(ORDERS, cluster, "orders", last=3, partition=partition)]
    assert sorted(map(str, found))[-1] == '{"id": "order_99", "day": "2026-11-24"}'
    assert len([value for value in found if "\0" in str(value)]) == 2

    class Away(DeclaredSchemas):
        asked = 0

        def schema(self, schema_id: int) -> WrittenSchema:
            Away.asked += 1
            raise SchemaRegistryUnavailable("the Schema Registry")

    cluster.schemas = Away(())
    read_records(ORDERS, cluster, "orders", last=3, partition=partition)
    assert Away.asked == 1


def test_what_is_not_there_is_refused(cluster: FakeCluster, application: FakeApplication) -> None:
    with pytest.raises(Refused, match="a topic of orders: orders, "):
        read_records(ORDERS, cluster, "other", last=1)
    with pytest.raises(Refused, match="expected 0 to 1"):
        read_records(ORDERS, cluster, "orders", last=1, partition=2)
    with pytest.raises(Refused, match="observed both"):
        read_records(ORDERS, cluster, "orders", last=1, offset=0, since=StartMoment())
    with pytest.raises(Refused, match="1 or more"):
        newest_dead_letters(ORDERS, cluster, 0)


def test_dead_letters_are_found_among_markers(cluster: FakeCluster, application: FakeApplication) -> None:
    application.dead_letter(application.order(40))
    letters = cluster.existing[application.dead_letters].partitions
    for partition in letters:
        partition.end += 30  # markers of transactions that wrote nothing else
    (letter,) = newest_dead_letters(ORDERS, cluster, 1)
    assert (letter.reason, letter.key, letter.headers) == ("the reason", "order_40", {})


def test_a_dead_letter_that_was_redriven_says_by_whom_and_marks_are_no_dead_letters(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    for n in (40, 42):
        application.dead_letter(application.order(n))
    letters = [letter for each in cluster.existing[application.dead_letters].partitions for letter in each.records]
    first = next(letter for letter in letters if letter.key == b"order_40")
    who = Redrive("ann", "2026-01-02T03:04:05.000+00:00", "a run")
    mark = mark_headers(first.headers, LetterPlace(first.partition, first.offset), b"digest", who)
    for _ in range(3):  # more marks than dead letters are asked for
        cluster.produce(application.dead_letters, None, None, partition=first.partition, headers=tuple(mark))  # type: ignore[arg-type]
    found = {letter.key: letter.redriven for letter in newest_dead_letters(ORDERS, cluster, 2)}
    assert found == {"order_40": who, "order_42": None}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"Jackets", "Jackets"),
        ((7).to_bytes(8, "big"), "7"),
        (b"8 digits", "8 digits"),
        (b"\xff", "\\xff"),
        (None, None),
    ],
)
def test_values_as_people_read_them(value: bytes | None, text: str | None) -> None:
    assert as_text(value) == text


def test_typed_keys_are_asked_for_and_shown_as_people_write_them(cluster: FakeCluster) -> None:
    topology = Topology("typed")
    topology.stream("payments", value=Json("amount bigint"), key_serde=Long()).group_by_key().count(store="counts")
    topology.stream("blobs", value=Json("amount bigint"), key_serde=Bytes()).group_by_key().count(store="of-bytes")
    orders = topology.stream("orders", value=Json("n int"), key_serde=Json("customer string, product int"))
    orders.group_by_key().count(store="of-fields")
    typed = application_of(Pipeline("typed", topology, "", {"payments": 2, "blobs": 2, "orders": 5}))
    for spec in typed.topics:
        cluster.create(spec.name, spec.partitions)
    cluster.produce("payments", Long().write_key(-7), b"{}")
    cluster.produce("typed-counts-changelog", Long().write_key(-7), (3).to_bytes(8, "big"))
    cluster.produce("typed-of-bytes-changelog", b"\xff\0", (4).to_bytes(8, "big"))
    (found,) = find_key(typed, cluster, "-7")
    assert (found.changelog, found.key, found.value) == ("typed-counts-changelog", "-7", "3")
    (found,) = find_key(typed, cluster, "ff00")
    assert (found.changelog, found.key, found.value) == ("typed-of-bytes-changelog", "ff00", "4")
    assert find_key(typed, cluster, "no number") == []
    key = '{"customer":"ann","product":1}'
    cluster.produce("typed-of-fields-changelog", key.encode(), (5).to_bytes(8, "big"))
    (found,) = find_key(typed, cluster, '{"product": 1, "customer": "ann"}')
    assert (found.changelog, found.key, found.value) == ("typed-of-fields-changelog", key, "5")
    (record,) = read_records(typed, cluster, "payments", last=1)
    assert record.key == "-7"


def test_a_record_with_a_timestamp_beyond_all_years_is_shown(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    for timestamp in (253_402_300_800_000, (1 << 63) - 1):
        cluster.produce("orders", b"k", b"{}", partition=0, timestamp=timestamp)
    found = read_records(ORDERS, cluster, "orders", last=2, partition=0)
    assert {each.at for each in found} == {"253402300800000 ms", "9223372036854775807 ms"}


def test_a_key_of_a_windowed_store_is_found_with_its_window_and_without(cluster: FakeCluster) -> None:
    noon, later = 1_767_268_800_000, 1_767_268_860_000
    topology = Topology("windowed")
    stream = topology.stream("payments", value=Json("amount double"), key_serde=Long())
    stream.group_by_key().windowed_by(TimeWindows("1 minute")).count(store="counts")
    stream.group_by_key().windowed_by(SessionWindows("5 minutes", grace="1 minute")).count(store="visits")
    application = application_of(Pipeline("windowed", topology, "", {"payments": 5}))
    for spec in application.topics:
        cluster.create(spec.name, spec.partitions)
    for key, n in ((7, 3), (8, 4)):
        for at in (noon, later):
            place = partition_for_key(Long().write_key(key), 5)
            stored = stored_window_key(Long().write_key(key), at)
            cluster.produce("windowed-counts-changelog", stored, n.to_bytes(8, "big"), partition=place)
        stored = stored_session_key(Long().write_key(key), noon, later)
        cluster.produce("windowed-visits-changelog", stored, n.to_bytes(8, "big"), partition=place)

    def found(key: str) -> list[tuple[str, str | None]]:
        return [(each.key, each.value) for each in find_key(application, cluster, key)]

    session = "7 at 2026-01-01T12:00:00Z/2026-01-01T12:01:00Z"
    windows = ["7 at 2026-01-01T12:00:00Z", "7 at 2026-01-01T12:01:00Z"]
    assert found("7") == [(key, "3") for key in (*windows, session)]
    for key in (*windows, session):
        assert found(key) == [(key, "3")], "the command line takes the text that it shows"
    assert found("7 at 2026-01-01T13:00:00+01:00") == [(windows[0], "3")]
    assert found("7 at 2026-01-01T12:02:00Z") == []


def test_a_key_with_its_window_is_shown_in_the_topic_of_a_sink_as_people_write_it(cluster: FakeCluster) -> None:
    topology = Topology("windowed")
    stream = topology.stream("payments", value=Json("amount double"))
    stream.group_by_key().windowed_by(TimeWindows("5 minutes")).count(store="counts").to_stream().to("totals")
    application = application_of(Pipeline("windowed", topology, "", {"payments": 1}))
    cluster.create("totals", 1)
    for _ in range(2):
        cluster.produce("totals", b"DE" + (1_767_268_800_000).to_bytes(8, "big"), b"{}")
    (record, _) = read_records(application, cluster, "totals", last=2)
    assert record.key == "DE at 2026-01-01T12:00:00Z"
    assert record.window == KeyInWindow("DE", "2026-01-01T12:00:00Z")
    (partition,) = view_topic(application, cluster, "totals").partitions
    assert [each.key for each in partition.busiest] == ["DE at 2026-01-01T12:00:00Z"]
    assert [each.window for each in partition.busiest] == [record.window]


def test_a_changelog_is_described_and_a_dead_letter_is_shown_with_the_parts_of_keys_that_have_windows(
    cluster: FakeCluster,
) -> None:
    topology = Topology("windowed")
    stream = topology.stream("payments", value=Json("amount double"))
    stream.group_by_key().windowed_by(TimeWindows("1 minute")).count(store="counts")
    topology.stream("again", value=Json("n int"), key_serde=TimeWindowed(String())).to("totals")
    application = application_of(Pipeline("windowed", topology, "", {"payments": 1, "again": 1, "totals": 1}))
    key = b"DE" + (1_767_268_800_000).to_bytes(8, "big")
    cluster.create("windowed-counts-changelog", 1, {"cleanup.policy": "compact,delete"})
    cluster.create(topology.dead_letter_topic, 1)
    cluster.produce("windowed-counts-changelog", key + bytes(4), (7).to_bytes(8, "big"))
    origin = {"topic": b"again", "partition": b"0", "offset": b"3"}
    headers = tuple((f"streamplan.source.{name}", value) for name, value in origin.items())
    cluster.produce(topology.dead_letter_topic, key, b"{}", headers=headers)
    (partition,) = view_topic(application, cluster, "windowed-counts-changelog").partitions
    assert [each.window for each in partition.greatest] == [KeyInWindow("DE", "2026-01-01T12:00:00Z")]
    (letter,) = newest_dead_letters(application, cluster, 1)
    assert letter.key == "DE at 2026-01-01T12:00:00Z"
    assert letter.window == KeyInWindow("DE", "2026-01-01T12:00:00Z")
