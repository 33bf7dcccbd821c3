"""TopologyTestDriver on its own: what a user of it relies on. test_oracle.py compares it with the library's."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from streamplan.errors import Refused, StreamplanError
from streamplan.model.functions import arrow_batch
from streamplan.model.operations import OuterJoinSide, StoreForJoin
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import KeyValueStore, Processor, ProcessorContext, Record
from streamplan.model.topology import Topology
from streamplan.model.windows import OnWindowClose, SessionWindows, TimeWindows
from streamplan.pipelines.alerts import PIPELINE as ALERTS
from streamplan.pipelines.enriched import PIPELINE as ENRICHED
from streamplan.pipelines.orders import PIPELINE as ORDERS
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import UUID, Bytes, Long, String
from streamplan.testing import SessionKey, TopologyTestDriver, WindowedKey, as_text
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.examples import PIPELINES
from tests.support.pipeline_cases import CASES

Drive = Callable[[Pipeline], TopologyTestDriver]

SALE = Json("shop string, amount bigint")


@pytest.fixture
def drive(spark: SparkSession) -> Iterator[Drive]:
    """Makes a driver on the Spark of all tests: a process has one."""
    with ExitStack() as drivers:
        yield lambda pipeline: drivers.enter_context(TopologyTestDriver(pipeline, spark=spark))


def sales(declare: Callable[[Topology, Any], None], **topics: int) -> Pipeline:
    topology = Topology("sales-test")
    declare(topology, topology.stream("sales", value=SALE))
    return Pipeline("sales", topology, "", {"sales": 2, **topics})


def test_each_record_is_a_micro_batch_and_a_block_is_one(drive: Drive) -> None:
    driver = drive(ORDERS)
    changelog = "orders-aggregator-orders-products-quantities-changelog"
    for n in range(3):
        driver.pipe("orders", {"Id": f"order_{n}", "ProductType": n % 2}, key=f"order_{n}", at="12:00")
    assert [(record.key, record.value) for record in driver.output(changelog)] == [("0", 1), ("1", 1), ("0", 2)]
    with driver.micro_batch():
        for n in range(3, 19):
            driver.pipe("orders", {"Id": f"order_{n}", "ProductType": n % 2}, key=f"order_{n}")
        assert driver.output(changelog) == []
    assert sorted((record.key, record.value) for record in driver.output(changelog)) == [("0", 10), ("1", 9)]
    assert driver.store("orders-products-quantities") == {"0": 10, "1": 9}
    assert driver.store("orders-products-quantities")["0"] == 10


def test_each_micro_batch_has_its_own_records_however_many_there_were_before(drive: Drive) -> None:
    driver = drive(
        sales(
            lambda topology, stream: (
                stream.map_values({"tripled": "3 * amount"}).to("mapped"),
                stream.filter("amount % 2 = 0").group_by_key().count(store="even"),
            )
        )
    )
    amounts, expected = iter(range(100)), list[int]()
    for size in (1, 3, 1, 12, 3, 12, 0, 1):
        piped = [next(amounts) for _ in range(size)]
        with driver.micro_batch():
            for amount in piped:
                driver.pipe("sales", {"shop": "north", "amount": amount}, key="k")
        assert [record.value["tripled"] for record in driver.output("mapped")] == [3 * amount for amount in piped]
        expected += [amount for amount in piped if amount % 2 == 0]
        assert driver.store("even")["k"] == len(expected)


@pytest.mark.parametrize("of_count", [False, True], ids=["without state", "behind a count"])
def test_an_expression_that_draws_a_value_draws_one_for_each_record(drive: Drive, of_count: bool) -> None:
    def declare(topology: Topology, stream: Any) -> None:
        records = stream.group_by_key().count(store="counted").to_stream() if of_count else stream
        records.map_values({"id": "uuid()"}).to("drawn")

    driver = drive(sales(declare))
    for _ in range(3):
        driver.pipe("sales", {"amount": 1}, key="k")
    assert len({record.value["id"] for record in driver.output("drawn")}) == 3


def test_a_record_lies_in_the_partition_of_its_key_with_its_time_and_headers(
    drive: Drive,
) -> None:
    pipeline = sales(lambda topology, stream: stream.select_key("shop").to("copied"), copied=5)
    driver = drive(pipeline)
    shops = [f"shop-{n}" for n in range(8)]
    with driver.micro_batch():
        for shop in shops:
            driver.pipe("sales", {"shop": shop}, key="k", at="2026-02-03T04:05:06+01:00", headers=[("trace", b"\xff")])
    records = driver.output("copied")
    assert {record.key: record.partition for record in records} == {
        shop: partition_for_key(shop.encode(), 5) for shop in shops
    }
    assert {record.timestamp for record in records} == {datetime(2026, 2, 3, 3, 5, 6, tzinfo=UTC)}
    assert {record.headers for record in records} == {(("trace", b"\xff"),)}
    assert driver.output("copied") == []


def test_a_record_without_a_time_has_that_of_the_driver(drive: Drive) -> None:
    driver = drive(sales(lambda topology, stream: stream.to("copied")))
    driver.pipe("sales", {"shop": "x"}, key="a")
    driver.pipe("sales", {"shop": "x"}, key="b", at="12:00")
    driver.pipe("sales", {"shop": "x"}, key="c", at="11:00")  # a late record does not set the clock back
    driver.advance("5 minutes")
    driver.pipe("sales", None, key="d")
    assert as_text(driver.output("copied")) == (
        '2026-01-01T00:00:00.000Z  a  {"shop": "x"}\n'
        '2026-01-01T12:00:00.000Z  b  {"shop": "x"}\n'
        '2026-01-01T11:00:00.000Z  c  {"shop": "x"}\n'
        "2026-01-01T12:05:00.000Z  d  null\n"
    )


def test_the_dead_letter_of_what_a_table_has_deleted_has_the_value_that_was_read(drive: Drive) -> None:
    def declare(topology: Topology, stream: Any) -> None:
        places = topology.table("places", value=Json("shop string, size bigint")).filter("size > 1", store="large")
        places.to_stream().group_by("shop").count(store="places-of-shop")

    driver = drive(sales(declare, places=2))
    for shop, size in (("x", 2), ("y", 1)):
        driver.pipe("places", {"shop": shop, "size": size}, key=shop)
    assert driver.store("large") == {"x": {"shop": "x", "size": 2}}
    assert driver.store("places-of-shop") == {"x": 1}
    [letter] = driver.dead_letters
    assert (letter.key, letter.reason) == ("y", "the value is null")
    assert json.loads(letter.value or b"") == {"shop": "y", "size": 1}


def test_a_table_and_a_stream_that_is_joined_with_it(drive: Drive) -> None:
    for _ in range(2):  # the second driver has the plans of the first, and nothing of its state
        driver = drive(ENRICHED)
        driver.pipe("purchases", {"id": "1", "amount": 1}, key="ann", at="12:00")
        driver.pipe("customers", {"name": "Ann", "city": "Lyon"}, key="ann")
        driver.pipe("purchases", {"id": "2", "amount": 2}, key="ann")
        driver.pipe("purchases", {"id": "3", "amount": 3}, key=b"\xff")
        enriched = {"id": "2", "amount": 2, "name": "Ann", "city": "Lyon"}
        assert [record.value for record in driver.output("enriched-purchases")] == [enriched]
        [letter] = driver.dead_letters
        assert (letter.reason, letter.topic, letter.key) == ("the key is not UTF-8", "purchases", b"\xff")
        driver.close()


def test_a_dead_letter_says_what_it_was(drive: Drive) -> None:
    driver = drive(sales(lambda topology, stream: stream.group_by("shop").count(store="counted")))
    driver.pipe("sales", b"no JSON", key="k", at="12:00", headers=[("a", "b")], partition=1)
    driver.pipe("sales", {"amount": 1}, key="k", partition=1)
    driver.pipe("sales", {"shop": "x"}, key="k", at=-5)
    first, second, third = driver.dead_letters
    assert (first.reason, first.topic, first.partition, first.offset) == ("the value is not JSON", "sales", 1, 0)
    assert (first.key, first.value, first.headers, first.task) == ("k", b"no JSON", (("a", b"b"),), "0_1")
    assert (second.reason, second.offset) == ("shop is missing", 1)
    assert (third.reason, third.timestamp) == ("the timestamp -5 is negative", None)
    assert driver.store("counted") == {}


def test_a_value_that_is_one_text_or_number_needs_no_dict(drive: Drive) -> None:
    topology = Topology("texts")
    topology.stream("texts", value=String()).filter("value <> ''").to("copied")
    driver = drive(Pipeline("texts", topology, "", {"texts": 1}))
    driver.pipe("texts", "a text", key="k")
    driver.pipe("texts", {"value": "another"}, key="k")
    driver.pipe("texts", "", key="k")
    assert [record.value for record in driver.output("copied")] == ["a text", "another"]


def test_windows_are_looked_up_with_their_start(drive: Drive) -> None:
    def declare(topology: Topology, stream: Any) -> None:
        counted = stream.group_by_key().windowed_by(TimeWindows("1 minute")).count(store="counted")
        counted.to_stream().to("counts")

    driver = drive(sales(declare))
    driver.pipe("sales", {"shop": "x"}, key="k", at="12:00:30")
    driver.pipe("sales", {"shop": "x"}, key="k", at="12:01:30")
    assert driver.store("counted")["k", "12:01"] == 1
    window = WindowedKey("k", datetime(2026, 1, 1, 12, 1, tzinfo=UTC))
    assert driver.store("counted")[window] == 1
    assert [record.key for record in driver.output("counts")][-1] == window
    with pytest.raises(KeyError, match="the store counted has no key"):
        driver.store("counted")["k", "12:02"]


def test_a_name_that_does_not_exist_is_told_with_those_that_do(
    drive: Drive,
) -> None:
    driver = drive(ORDERS)
    with pytest.raises(Refused, match=r"'order': expected a source topic of orders: orders$"):
        driver.pipe("order", {})
    with pytest.raises(Refused, match="'counts': expected a topic that orders writes: orders-aggregator-orders-prod"):
        driver.output("counts")
    with pytest.raises(Refused, match="'total': expected a store of orders: orders-products-quantities"):
        driver.store("total")
    with pytest.raises(Refused, match="expected the declared fields Id, ProductType, observed id"):
        driver.pipe("orders", {"id": "order_1"})
    with pytest.raises(Refused, match="partition 2 of orders: expected 0 to 1"):
        driver.pipe("orders", {"Id": "order_1"}, partition=2)
    wrong: Any = {"Id": "order_1"}
    with pytest.raises(Refused, match=r"topic {'Id': 'order_1'}: expected a source topic of orders: orders$"):
        driver.pipe(wrong, "orders")
    with pytest.raises(Refused, match="partition '1' of orders: expected 0 to 1"):
        driver.pipe("orders", wrong, partition="1")  # type: ignore[arg-type]
    wrong = 5
    with pytest.raises(Refused, match="topic 5: expected a topic that orders writes: orders-aggregator-orders-prod"):
        driver.output(wrong)
    assert ORDERS.topology.faults == ()


def test_a_moment_may_be_a_text_as_a_topic_has_it(drive: Drive) -> None:
    topology = Topology("timed")
    topology.stream("payments", value=Json("id string, time timestamp")).filter("hour(time) = 12").to("at-noon")
    driver = drive(Pipeline("timed", topology, "", {"payments": 1}))
    driver.pipe("payments", {"id": "1", "time": "2026-01-01T12:00:01Z"})
    assert [record.value for record in driver.output("at-noon")] == [{"id": "1", "time": "2026-01-01T12:00:01.000Z"}]
    with pytest.raises(Refused, match=r"^the value for payments: time: expected a datetime, .* observed 'noon'$"):
        driver.pipe("payments", {"id": "1", "time": "noon"})


def test_an_expression_that_fails_stops_it_as_it_stops_the_application(
    drive: Drive,
) -> None:
    driver = drive(sales(lambda topology, stream: stream.map_values({"n": "10 / amount"}).to("divided")))
    driver.pipe("sales", {"amount": 5}, key="k")
    assert [record.value for record in driver.output("divided")] == [{"n": 2.0}]
    with pytest.raises(StreamplanError, match=r"sub-topology 0 of sales stopped.*DIVIDE_BY_ZERO"):
        driver.pipe("sales", {"amount": 0}, key="k")
    with pytest.raises(StreamplanError, match="observed stopped by an error"):
        driver.pipe("sales", {"amount": 5}, key="k")


def test_a_process_of_spark_that_starts_too_late_stops_nothing(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine: Spark gives it 10 seconds. Here it says so before the micro-batch has begun."""
    driver, process = drive(ORDERS), StreamingQuery.processAllAvailable
    late = [True, False, True, True, True]

    def processed(query: StreamingQuery) -> None:
        if late.pop(0):
            query.stop()
            raise PySparkException("[STREAM_FAILED] terminated with exception: Python worker failed to connect back.")
        process(query)

    monkeypatch.setattr(StreamingQuery, "processAllAvailable", processed)
    driver.pipe("orders", {"Id": "order_0", "ProductType": 1}, key="order_0")
    assert driver.store("orders-products-quantities") == {"1": 1}
    with pytest.raises(StreamplanError, match="failed to connect back"):
        driver.pipe("orders", {"Id": "order_1", "ProductType": 1}, key="order_1")


def test_faults_that_spark_finds_are_told_with_their_lines(drive: Drive) -> None:
    with pytest.raises(Refused, match=r"test_topology_test_driver.py:\d+"):
        drive(sales(lambda topology, stream: stream.filter("ammount > 1").to("large")))


def test_two_drivers_of_one_pipeline_share_nothing(drive: Drive) -> None:
    one, other = drive(ORDERS), drive(ORDERS)
    for driver, count in ((one, 1), (other, 2), (one, 3)):
        with driver.micro_batch():
            for _ in range(count):
                driver.pipe("orders", {"Id": "order_0", "ProductType": 0}, key="order_0")
    assert (one.store("orders-products-quantities")["0"], other.store("orders-products-quantities")["0"]) == (4, 2)


def test_a_result_is_passed_when_a_record_closes_its_window(drive: Drive) -> None:
    """Time that passes without a record closes nothing."""
    driver = drive(ALERTS)
    for celsius in (90, 101):
        driver.pipe("sensor-temperatures", {"id": "1", "celsius": celsius}, key="oven", at="12:00:30")
    driver.advance("1 hour")
    assert driver.output("temperature-alerts") == []
    driver.pipe("sensor-temperatures", {"id": "2", "celsius": 20}, key="oven")
    (alert,) = driver.output("temperature-alerts")
    found = alert.key, alert.value["mean"], alert.timestamp
    assert found == ("oven", 95.5, datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC))
    driver.pipe("sensor-temperatures", {"id": "3", "celsius": 500}, key="oven", at="12:00:31")
    assert driver.output("temperature-alerts") == []


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
def test_an_example_pipeline_computes_what_a_plain_recount_computes(drive: Drive, pipeline: Pipeline) -> None:
    """Its records come in three micro-batches, of all topics at once."""
    case, topology = CASES[pipeline.name], pipeline.topology
    records = case.records(pipeline.with_schemas(DeclaredSchemas.of(pipeline)), partition_for_key)
    expected = case.recount(records)
    driver = drive(pipeline)
    for third in range(3):
        with driver.micro_batch():
            for record in records[third * len(records) // 3 : (third + 1) * len(records) // 3]:
                driver.pipe(record.topic, record.value, key=record.key, at=record.timestamp)
    letters = Counter((letter.topic, letter.value) for letter in driver.dead_letters)
    assert letters == Counter((record.topic, record.value) for record in expected.dead)
    for topic, last in expected.last.items():
        latest = {record.key: record.value for record in driver.output(topic)}
        found = {key: value for key, value in latest.items() if value is not None}
        number = 0
        if topic.endswith("-changelog"):
            [node] = [
                node for _, node in pipeline.stores if node.store and topology.changelog_topic(node.store) == topic
            ]
            found = dict(driver.store(node.store or ""))
            number = int(
                isinstance(node.operation, StoreForJoin)
            )  # it numbers the records of a key and a time from 1 on
            if isinstance(node.operation, OuterJoinSide):
                waiting = {key_of_waiting(key): value for key, value in found.items()}
                assert waiting == {key: [json.loads(value[10:])] for key, value in last.items()}  # each list has one
                continue
        assert {as_bytes(key, number): value for key, value in found.items()} == {
            key: as_value(value) for key, value in last.items()
        }
    for topic, every in expected.every.items():
        results: dict[bytes, list[Any]] = {}
        for record in driver.output(topic):
            results.setdefault(as_bytes(record.key), []).append(record.value)
        assert results == every


def as_bytes(key: Any, number: int = 0) -> bytes:
    if isinstance(key, SessionKey):
        end, start = (round(moment.timestamp() * 1000) for moment in (key.end, key.start))
        return str(key.key).encode() + end.to_bytes(8, "big") + start.to_bytes(8, "big")
    if isinstance(key, WindowedKey):
        start = round(key.start.timestamp() * 1000)
        return str(key.key).encode() + start.to_bytes(8, "big") + number.to_bytes(4, "big")
    if isinstance(key, Mapping):
        return json.dumps(dict(key), separators=(",", ":"), ensure_ascii=False).encode()
    return key.to_bytes(8, "big") if isinstance(key, int) else str(key).encode()


def key_of_waiting(key: WindowedKey) -> bytes:
    """The key of a record of this side that waits for a match."""
    return round(key.start.timestamp() * 1000).to_bytes(8, "big") + b"\1" + str(key.key).encode()


def as_value(value: bytes) -> Any:
    return int.from_bytes(value, "big") if len(value) == 8 and value[:1] == b"\0" else json.loads(value)


@arrow_batch
def have_a_shop(sales: pa.RecordBatch) -> pa.Array:
    return pc.is_valid(sales["shop"])


@arrow_batch
def shares_of(sales: pa.RecordBatch) -> dict[str, Any]:
    return {"share": [100 // amount for amount in sales["amount"].to_pylist()], "key": sales["record"].field("key")}


def test_a_function_of_arrow_batches_has_the_records_of_a_micro_batch(drive: Drive) -> None:
    def declare(topology: Topology, stream: Any) -> None:
        shares = "share bigint, key string"
        with_shop = stream.filter(have_a_shop)
        with_shop.map_values(shares_of, schema=shares).to("shares")
        with_shop.filter("amount > 0").map("share + 1", shares_of, schema=shares, key_serde=Long()).to("by-share")

    driver = drive(sales(declare))
    with driver.micro_batch():
        for number in range(5):
            driver.pipe("sales", {"shop": "x", "amount": number}, key=f"k{number}", at="12:00", partition=0)
        driver.pipe("sales", {"amount": 1}, key="none", partition=0)
    values = [record.value for record in driver.output("shares")]
    assert values == [{"share": 100 // number, "key": f"k{number}"} for number in range(1, 5)]
    by_share = [(record.key, record.value["key"]) for record in driver.output("by-share")]
    assert by_share == [(100 // number + 1, f"k{number}") for number in range(1, 5)]
    [letter] = driver.dead_letters
    assert (letter.key, letter.offset) == ("k0", 0)
    line = shares_of.__code__.co_firstlineno + 2
    assert f"shares_of raised ZeroDivisionError in line {line}: " in letter.reason


def test_windows_close_by_the_wall_clock_where_a_task_is_idle(drive: Drive) -> None:
    """Each stream task by itself: the one of ``b`` has no record at all, and goes on by the clock, too."""

    def declare(topology: Topology, stream: Any) -> None:
        windowed = stream.group_by_key().windowed_by(TimeWindows("1 minute", grace="10 seconds"))
        counts = windowed.emit_strategy(OnWindowClose(idle="5 minutes")).count(store="counts")
        counts.to_stream().to("out")

    driver = drive(sales(declare, out=2))
    a, b = (next(key for key in "abcdef" if partition_for_key(key.encode(), 2) == number) for number in (0, 1))

    def closed() -> list[tuple[Any, Any]]:
        return [(record.key.key, record.value) for record in driver.output("out")]

    driver.pipe("sales", {"shop": "x", "amount": 1}, key=a, at="12:00:30")
    driver.advance("5 minutes")
    driver.advance("39 seconds")  # the task is at 12:01:09, and the window takes records until 12:01:10
    driver.pipe("sales", {"shop": "x", "amount": 1}, key=b, at="12:00:50")
    assert closed() == []
    driver.advance("1 second")
    assert closed() == [(a, 1)]
    driver.pipe("sales", {"shop": "x", "amount": 1}, key=a, at="12:00:31")  # late
    driver.advance("1 hour")
    assert closed() == [(b, 1)]
    driver.pipe("sales", {"shop": "x", "amount": 1}, key=b, at="12:00:50")  # late
    driver.advance("1 hour")
    assert closed() == []
    assert len(driver.store("counts")) == 2


def test_a_response_goes_back_to_the_partition_that_has_the_key(drive: Drive) -> None:
    """Its producer has chosen another partition than that of the key, and the result is computed all the same."""
    (pipeline,) = (each for each in PIPELINES if each.name == "shipments")
    driver, number = drive(pipeline), 1 - partition_for_key(b"s", 2)
    driver.pipe("carriers", {"name": "Ann"}, key="c", at="12:00")
    sent = {"key": "s", "at": "12:01", "partition": number, "headers": [("of", "s")]}
    driver.pipe("shipments", {"carrier": "c", "weight": 1.5}, **sent)
    [response] = driver.output("tracking-subscription-response-topic")
    assert (response.key, response.partition) == ("s", number)
    [tracked] = driver.output("tracked-shipments")
    assert (tracked.key, tracked.value) == ("s", {"carrier": "c", "weight": 1.5, "name": "Ann"})
    assert tracked.headers == response.headers == (("of", b"s"),)
    with driver.micro_batch():
        driver.pipe("carriers", {"name": "Bob", "phone": "1"}, key="c", at="12:02")
        driver.pipe("shipments", None, key="s", at="12:03", partition=number)
    assert [record.value for record in driver.output("tracked-shipments")] == [None]
    assert dict(driver.store("tracked")) == dict(driver.store("tracking-subscription-store")) == {}


def test_what_an_expression_makes_passes_a_repartition_topic_or_is_a_dead_letter(drive: Drive) -> None:
    """NaN and the infinities are no numbers of JSON, and Python has no moments beyond the year 9999."""
    reading = "shop string, x double, seen struct<at: timestamp>, days array<date>"
    topology = Topology("made-test")
    made = topology.stream("readings", value=Json(reading)).map_values(
        {
            "shop": "shop",
            "x": "CASE shop WHEN 'nan' THEN sqrt(-x) WHEN 'inf' THEN x * 1e308 WHEN '-inf' THEN -x * 1e308 ELSE x END",
            "seen": "named_struct('at', IF(shop = 'late', seen.at + INTERVAL 9000 YEARS, seen.at))",
            "days": "IF(shop = 'last', array(DATE'2026-01-01', DATE'9999-12-31' + 1), days)",
        }
    )
    counted = made.group_by("shop", name="by-shop")
    counted.aggregate({"total": "sum(x)", "seen": "count(seen.at)", "days": "max(size(days))"}, store="totals")
    driver = drive(Pipeline("made", topology, "", {"readings": 2}))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for shop in ("nan", "inf", "-inf", "late", "last", "plain"):
        value = {"shop": shop, "x": 4.0, "seen": {"at": moment}, "days": [moment.date()]}
        driver.pipe("readings", value, key=shop, at="12:00")
    totals = driver.store("totals")
    assert totals.keys() == {"nan", "inf", "-inf", "plain"}
    assert {shop: repr(value["total"]) for shop, value in totals.items()} == {
        "nan": "'NaN'",
        "inf": "'Infinity'",
        "-inf": "'-Infinity'",
        "plain": "4.0",
    }
    assert {(value["seen"], value["days"]) for value in totals.values()} == {(1, 1)}
    reason = "a moment of the value is not in the years 1 to 9999"
    assert [(letter.key, letter.reason) for letter in driver.dead_letters] == [("late", reason), ("last", reason)]


def test_a_function_is_called_once_with_each_record_whatever_comes_behind_it(drive: Drive, tmp_path: Path) -> None:
    """Several outputs come of the records, and two of them are computed from one micro-batch."""
    told, shown = tmp_path / "told", tmp_path / "shown"

    def tell(file: Path) -> Callable[[Any], None]:
        def write(record: Any) -> None:
            if record.amount == 13:
                raise LookupError("an unlucky amount")
            with file.open("a") as lines:
                lines.write(f"{record.record.key} {record.shop} {record.amount}\n")

        return write

    def declare(topology: Topology, read: Any) -> None:
        seen = read.filter("amount > 0").peek(tell(told))
        seen.filter("amount > 10").to("large")
        seen.filter_not("amount > 10").to("small")
        seen.group_by_key().count(store="sales-per-key")
        read.foreach(tell(shown), on_error="reject")

    driver = drive(sales(declare, large=2, small=2))
    with driver.micro_batch():
        for amount in (5, 13, 20):
            driver.pipe("sales", {"shop": "north", "amount": amount}, key="k")
        driver.pipe("sales", b"no JSON", key="k")
    driver.pipe("sales", {"shop": "south", "amount": -1}, key="k")
    assert told.read_text().splitlines() == ["k north 5", "k north 20"]
    assert shown.read_text().splitlines() == ["k north 5", "k north 20", "k south -1"]
    assert [record.value["amount"] for record in driver.output("large")] == [13, 20]
    assert [record.value["amount"] for record in driver.output("small")] == [5]
    assert driver.store("sales-per-key")["k"] == 3
    reasons = Counter(letter.reason.partition(" raised ")[2].partition(" in ")[0] for letter in driver.dead_letters)
    assert reasons == {"LookupError": 2, "": 1}  # of peek and of foreach; and the value that is not JSON


def test_told_timestamps_are_those_of_everything_that_follows(drive: Drive) -> None:
    topology = Topology("told")
    value = Json("id string, at timestamp")
    orders = topology.stream("orders", value=value, timestamp="at")
    refunds = topology.stream("refunds", value=value, timestamp=lambda refund: refund.at)
    orders.merge(refunds).map_values({"id": "id", "time": "record.timestamp"}).to("both")
    orders.group_by_key().windowed_by(TimeWindows("1 hour")).count(store="orders-per-hour")
    pipeline = Pipeline("told", topology, "", {"orders": 1, "refunds": 1, "both": 1})
    driver = drive(pipeline)
    told = (
        ("orders", {"id": "1", "at": "2026-01-01T10:00:00Z"}),
        ("orders", {"id": "2", "at": "2026-01-01T11:30:00.1239Z"}),
        ("refunds", {"id": "3", "at": "2026-01-01T10:59:00Z"}),
        ("refunds", {"id": "4", "at": "2026-01-01T10:05:00Z"}),  # late in its topic
        *((topic, {"id": "none"}) for topic in ("orders", "refunds")),
        *((topic, {"id": "before", "at": "1969-12-31T23:59:59.999Z"}) for topic in ("orders", "refunds")),
        *((topic, None) for topic in ("orders", "refunds")),
    )
    with driver.micro_batch():
        for topic, fields in told:
            driver.pipe(topic, None if fields is None else json.dumps(fields).encode(), key="k", at="12:00")
    both = driver.output("both")
    assert [(record.value["id"], f"{record.timestamp:%H:%M:%S.%f}") for record in both] == [
        ("1", "10:00:00.000000"),
        ("3", "10:59:00.000000"),
        ("4", "10:05:00.000000"),
        ("2", "11:30:00.123000"),
    ]
    assert both[-1].value["time"] == "2026-01-01T11:30:00.123Z"
    counts = driver.store("orders-per-hour")
    assert {f"{window.start:%H:%M}": count for window, count in counts.items()} == {"10:00": 1, "11:00": 1}
    letters = Counter(
        (letter.topic, letter.reason.partition("told ")[2] or letter.reason) for letter in driver.dead_letters
    )
    assert letters == {
        ("orders", "the timestamp is missing"): 2,
        ("orders", "the timestamp -1 is negative"): 1,
        ("refunds", "no timestamp"): 2,
        ("refunds", "-1: the timestamp -1 is negative"): 1,
    }
    assert {f"{letter.timestamp:%H:%M}" for letter in driver.dead_letters} == {"12:00"}  # those of the records


def test_a_record_goes_to_its_topic_and_one_of_an_unknown_topic_is_a_dead_letter(drive: Drive) -> None:
    topology = Topology("routed")
    sales = topology.stream("sales", value=SALE)
    sales.to("concat('sales-', shop)", topics=("sales-north", "sales-south"))
    sales.filter("amount > 1").to("large")
    driver = drive(Pipeline("routed", topology, "", {"sales": 1, "sales-north": 3, "sales-south": 1, "large": 1}))
    with driver.micro_batch():
        for shop in ("north", "south", "west", None, "north"):
            driver.pipe("sales", {"shop": shop, "amount": 1}, key="k")
        driver.pipe("sales", b"no JSON", key="k")
    assert [record.value["shop"] for record in driver.output("sales-north")] == ["north", "north"]
    assert [record.value["shop"] for record in driver.output("sales-south")] == ["south"]
    assert Counter(letter.reason for letter in driver.dead_letters) == Counter(
        [
            "the topic sales-west is none of sales-north, sales-south",
            "the topic is null",
            "the value is not JSON",
        ]
    )
    assert driver.output("large") == []


def test_values_of_bytes_pass_and_are_seen_and_written(drive: Drive) -> None:
    topology = Topology("blobs")
    icons = topology.table("icons", value=Bytes(), store="icons")
    blobs = topology.stream("blobs", value=Bytes())
    blobs.filter("length(value) > 2").to("long")
    blobs.filter(lambda blob: blob.value is not None and blob.value[:1] == b"\xff").repartition(name="again").to("ff")
    blobs.map_values({"hex": "hex(value)"}).to("digits")
    blobs.map_values({"value": "substring(value, 1, 1)"}).to("firsts", value=Bytes())
    blobs.join(icons, {"icon": "hex(table.value)", "size": "length(value)"}).to("joined")
    topics = ("icons", "blobs", "long", "ff", "digits", "firsts", "joined")
    driver = drive(Pipeline("blobs", topology, "", dict.fromkeys(topics, 1)))
    driver.pipe("icons", b"\0\x01", key="k")
    for value in (b"\xff\0\x01", b"", None, b"\xfe"):
        driver.pipe("blobs", value, key="k")
    values = {topic: [record.value for record in driver.output(topic)] for topic in topics[2:]}
    assert values == {
        "long": [b"\xff\0\x01"],
        "ff": [b"\xff\0\x01"],
        "digits": [{"hex": "FF0001"}, {"hex": ""}, None, {"hex": "FE"}],
        "firsts": [b"\xff", b"", None, b"\xfe"],
        "joined": [{"icon": "0001", "size": 3}, {"icon": "0001", "size": 0}, {"icon": "0001", "size": 1}],
    }
    assert driver.store("icons")["k"] == b"\0\x01"
    assert driver.dead_letters == []


def test_a_value_that_a_serde_does_not_write_is_a_dead_letter_and_others_are_written(drive: Drive) -> None:
    def declare(topology: Topology, read: Any) -> None:
        read.map_values({"value": "shop"}).to("texts", value=String())
        read.map_values({"value": "amount"}).to("numbers", value=Long())
        read.map_values({"value": "shop"}).to("ids", value=UUID())

    driver = drive(sales(declare, texts=1, numbers=1, ids=1))
    one = "0a1b2c3d-0000-4000-8000-00000000ffff"
    driver.pipe("sales", {"shop": "nörd", "amount": -2}, key="k")
    driver.pipe("sales", {"shop": one}, key="k")
    driver.pipe("sales", None, key="k")
    values = {topic: [record.value for record in driver.output(topic)] for topic in ("texts", "numbers", "ids")}
    assert values == {"texts": ["nörd", one, None], "numbers": [-2, None, None], "ids": [one, None]}
    (letter,) = driver.dead_letters
    assert letter.reason == "the value cannot be written: 'nörd' is no UUID"


def test_a_serde_of_one_value_writes_a_field_of_any_name(drive: Drive) -> None:
    """``….count().toStream().to("counts", Produced.with(Serdes.String(), Serdes.Long()))`` has no node between."""

    def declare(topology: Topology, read: Any) -> None:
        read.map_values({"shop": "shop"}).to("texts", value=String())
        read.group_by_key().count().to_stream().filter("count > 1").to("numbers", value=Long())

    driver = drive(sales(declare, texts=1, numbers=1))
    for shop in ("a", "b"):
        driver.pipe("sales", {"shop": shop, "amount": 1}, key="k")
    driver.pipe("sales", None, key="k")
    values = {topic: [record.value for record in driver.output(topic)] for topic in ("texts", "numbers")}
    assert values == {"texts": ["a", "b", None], "numbers": [2]}


def test_a_field_of_another_type_than_a_serde_of_one_value_writes_is_refused(drive: Drive) -> None:
    with pytest.raises(Refused, match=r"amount is of type bigint, and the serde writes string\. Cast it"):
        drive(sales(lambda topology, read: read.map_values({"amount": "amount"}).to("texts", value=String()), texts=1))


@pytest.mark.parametrize(
    "split",
    [
        lambda read: read.split().branch("rand() < 0.5"),
        lambda read: read.map_values({"shop": "shop", "n": "rand()"}).filter("shop > ''").split().branch("n < 0.5"),
        lambda read: (
            read.map_values(lambda sale: {"n": sale.amount}, schema="n bigint", deterministic=False)
            .split()
            .branch("n < 5")
        ),
    ],
    ids=["a condition", "a field", "a function"],
)
def test_branches_that_could_share_a_record_are_refused(drive: Drive, split: Callable[[Any], Any]) -> None:
    with pytest.raises(Refused, match="need not give the same again"):
        drive(sales(lambda topology, read: split(read).default_branch().popitem()[1].to("rest"), rest=1))


class Alarm(Processor):
    def process(self, record: Record, store: KeyValueStore) -> list[dict[str, int]]:
        store.put({"n": 1})
        return []


def drawn(topology: Topology, read: Any, *, as_table: bool) -> None:
    low = read.map_values({"shop": "shop", "n": "rand()"}).filter("n < 0.5")
    if as_table:
        read.join(low.to_table(store="drawn"), {"n": "table.n"}).to("low")
        return
    counted = low.group_by_key().count(store="counted").to_stream()
    counted.process(Alarm, store="alarms", state="n bigint", schema="n bigint").to("low")


@pytest.mark.parametrize("as_table", [True, False], ids=["a table that is joined", "a state behind another one"])
def test_what_is_computed_for_two_states_must_be_the_same_twice(drive: Drive, as_table: bool) -> None:
    """The changelog of the first one has other records than the second one is given."""
    with pytest.raises(Refused, match="need not be the same again"):
        drive(sales(lambda topology, read: drawn(topology, read, as_table=as_table), low=1))


class Thrown(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward({"n": 1}, child=random.choice(["low", "high"]))


def thrown(read: Any, *, deterministic: bool) -> None:
    processed = read.process(Thrown, schema="n bigint", deterministic=deterministic)
    for name in ("low", "high"):
        processed.to(name, name=name)


@pytest.mark.parametrize(
    "declare",
    [
        lambda read: read.to("if(rand() < 0.5, 'low', 'high')", topics=("low", "high")),
        lambda read: read.map_values({"n": "rand()"}).to("if(n < 0.5, 'low', 'high')", topics=("low", "high")),
        lambda read: read.filter(lambda sale: True, deterministic=False).to("shop", topics=("low", "high")),
        lambda read: thrown(read, deterministic=False),
        lambda read: thrown(read.map_values({"n": "rand()"}), deterministic=True),
    ],
    ids=["a topic", "a field", "a function", "a class", "a class behind a field"],
)
def test_topics_and_children_that_could_share_a_record_are_refused(drive: Drive, declare: Callable[[Any], Any]) -> None:
    """Each output computes the records for itself: one could be in both, or in none."""
    with pytest.raises(Refused, match=r"need not (give|be) the same again"):
        drive(sales(lambda topology, read: declare(read), low=1, high=1))


def test_what_is_read_from_a_topic_is_the_same_for_all_branches(drive: Drive) -> None:
    def declare(topology: Topology, read: Any) -> None:
        drawn = read.map_values({"amount": "amount", "n": "rand()"}).repartition(name="drawn")
        for name, branch in drawn.split(name="b-").branch("n < 0.5", name="low").default_branch(name="high").items():
            branch.to(name)

    driver = drive(sales(declare, **{"b-low": 1, "b-high": 1}))
    with driver.micro_batch():
        for amount in range(40):
            driver.pipe("sales", {"shop": "north", "amount": amount}, key="k")
    low, high = ([record.value for record in driver.output(topic)] for topic in ("b-low", "b-high"))
    assert sorted(value["amount"] for value in (*low, *high)) == [*range(40)]
    assert all(value["n"] < 0.5 for value in low)
    assert all(value["n"] >= 0.5 for value in high)


def test_what_tells_a_timestamp_has_its_type(drive: Drive) -> None:
    topology = Topology("told")
    topology.stream("orders", value=Json("id string"), timestamp="concat(id, '')").to("copies")
    with pytest.raises(Refused, match=r"the timestamp concat.id, ''. is of type string"):
        drive(Pipeline("told", topology, "", {"orders": 1, "copies": 1}))


def test_a_function_for_what_it_does_may_stop_the_application(drive: Drive) -> None:
    def refuse(record: Any) -> None:
        raise LookupError("no such shop")

    driver = drive(sales(lambda topology, read: read.foreach(refuse, on_error="stop")))
    with pytest.raises(StreamplanError):
        driver.pipe("sales", {"shop": "north", "amount": 1}, key="k")


def test_a_store_is_filled_before_the_first_record(drive: Drive) -> None:
    """Counts, aggregates, windows, sessions and tables, in sub-topologies with one state and with several."""

    def declare(topology: Topology, stream: Any) -> None:
        shops = stream.group_by("shop", name="by-shop")
        shops.count(store="counts")
        windowed = shops.windowed_by(TimeWindows("1 minute", grace="1 hour"))
        windowed.aggregate({"mean": "avg(amount)"}, store="means")
        shops.windowed_by(SessionWindows("1 minute", grace="1 hour")).count(store="visits")
        rates = topology.table("rates", value=Json("rate bigint"), store="rates")
        stream.join(rates, {"amount": "amount * table.rate"}, name="rated").to("rated")

    driver = drive(sales(declare, rates=2, rated=2))
    driver.store("counts").put("x", 41)
    driver.store("means").put(("x", "12:00"), {"mean": {"sum": 10, "count": 4}})
    driver.store("visits").put(("x", "11:59:30", "11:59:40"), 3)
    driver.store("rates").put("ann", {"rate": 5}, at="11:00")
    assert driver.store("counts")["x"] == 41
    assert driver.store("means")["x", "12:00"] == {"mean": {"sum": 10, "count": 4}}
    driver.pipe("sales", {"shop": "x", "amount": 20}, key="ann", at="12:00:10")
    assert driver.store("counts") == {"x": 42}
    assert driver.store("means")["x", "12:00"] == {"mean": {"sum": 30, "count": 5}}
    assert driver.store("visits")["x", "11:59:30", "12:00:10"] == 4
    assert [record.value for record in driver.output("rated")] == [{"amount": 100}]
    with pytest.raises(Refused, match=r"put into counts: sub-topology \d has processed a record"):
        driver.store("counts").put("y", 1)


def test_the_stores_of_classes_and_functions_are_filled(drive: Drive) -> None:
    class Spent(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context, self.totals = context, context.get_state_store("totals")

        def process(self, record: Record) -> None:
            total = (self.totals.get(record.value.shop) or 0) + record.value.amount
            self.totals.put(record.value.shop, total)
            self.context.forward({"total": total, "shops": sum(1 for _ in self.totals.all())})

    def declare(topology: Topology, stream: Any) -> None:
        stores = {"totals": KeyValueStore(String(), Long())}
        stream.process(Spent, stores=stores, schema="total bigint, shops int").to("spent")
        grouped = stream.group_by("shop", name="by-shop")
        grouped.reduce(lambda old, new: old if old.amount > new.amount else new, store="largest")

    driver = drive(sales(declare, spent=2))
    driver.store("totals").put("x", 7)
    driver.store("totals").put("y", 1, partition=partition_for_key(b"ann", 2))
    driver.store("largest").put("x", {"shop": "x", "amount": 90})
    driver.pipe("sales", {"shop": "x", "amount": 20}, key="ann", partition=partition_for_key(b"x", 2))
    assert driver.store("totals")["x"] == 27
    assert driver.store("largest")["x"] == {"shop": "x", "amount": 90}


PUTS: dict[str, Callable[[TopologyTestDriver], None]] = {
    r"store 'none': expected a store of orders: .*": lambda driver: driver.store("none").put("a", 1),
    r"the value 'one': expected a number": lambda driver: driver.store(ORDERS_STORE).put("a", "one"),
    r"the key WindowedKey.*: expected a plain key": lambda driver: driver.store(ORDERS_STORE).put(("a", "12:00"), 1),
    r"partition 9 of the store .*: expected 0 to 1": lambda driver: driver.store(ORDERS_STORE).put("a", 1, partition=9),
}
ORDERS_STORE = "orders-products-quantities"


@pytest.mark.parametrize("message", PUTS)
def test_what_a_store_cannot_hold_is_refused(drive: Drive, message: str) -> None:
    with pytest.raises(Refused, match=message):
        PUTS[message](drive(ORDERS))
