"""Nested values, timestamps, dates and decimals: what Spark writes is read again, and a store is restored exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.functions import PythonFunction
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.spark.planning.python_functions import map_by
from streamplan.spark.planning.records import RecordFrame, read_external
from streamplan.spark.recount.recount import recount
from streamplan.spark.sources import RAW

from tests.support.soak import soak
from tests.support.tried_topology import Tried

VALUE = Json(
    "id string, at timestamp, day date, price decimal(38,10), small decimal(8,7), x double, paid boolean,"
    " customer struct<name: string, since: timestamp, address: struct<city: string, `zip code`: int>>,"
    " lines array<struct<sku: string, price: decimal(6,2), seen: array<timestamp>>>,"
    " rates map<string, decimal(6,2)>, opened map<string, timestamp>"
)

WRITTEN = [
    '{"id":"whole ms","at":"2026-11-24T20:38:34.120Z","day":"2026-11-24","price":0.1000000000,"small":1E-7}',
    '{"id":"finer","at":"2026-11-24T20:38:34.120000Z","customer":{"since":"2026-11-24T20:38:34.000001Z"}}',
    '{"lines":[{"sku":"a","price":1.50,"seen":["2026-11-24T20:38:34.123000Z",null]},null,{}],"opened":{"a":null,'
    '"b":"2026-11-24T20:38:34.123456Z"}}',
    '{"lines":[{"seen":["2026-11-24T20:38:34.123Z"]},{"seen":[]}],"opened":{"b":"1969-12-31T23:59:59.999Z"}}',
    '{"customer":{},"lines":[],"rates":{}}',
    '{"customer":{"name":"\\"é\\"","address":{}},"rates":{"EUR":1.25,"a\\"b":null}}',
    '{"at":"0001-01-01T00:00:00.000Z","day":"0001-01-01","price":-9999999999999999999999999999.9999999999}',
    '{"at":"9999-12-31T23:59:59.999999Z","day":"9999-12-31","price":9999999999999999999999999999.9999999999}',
    # In New York this hour came twice, and the second was an hour of the time that was lost in spring.
    '{"at":"2026-11-01T05:30:00.000Z"}',
    '{"at":"2026-11-01T06:30:00.000Z"}',
    '{"at":"2026-03-08T07:30:00.000Z"}',
]
"""As Spark writes them, by the rules of docs/language.md."""


def read(spark: SparkSession, values: list[bytes]) -> RecordFrame:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(None, bytearray(value), "topic", 0, place, now, None) for place, value in enumerate(values)]
    return read_external(spark.createDataFrame(rows, RAW), VALUE, STRING)


@pytest.mark.parametrize("time_zone", ["America/New_York", *soak(["UTC"])])
def test_what_spark_writes_is_what_was_read_whatever_its_time_zone(spark: SparkSession, time_zone: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", time_zone)
    session.conf.set("spark.sql.caseSensitive", "true")
    frame = read(session, [text.encode() for text in WRITTEN])
    assert frame.rejected().count() == 0
    changed = frame.select([(name, f"`{name}`") for name in frame.fields])
    written = [value for _, value in written_values(changed)]
    assert written == WRITTEN
    assert changed.schema.fields == VALUE.fields
    assert [VALUE.encode(VALUE.decode(text.encode())).decode() for text in written] == WRITTEN


def test_expressions_see_parts_of_a_value(spark: SparkSession) -> None:
    value = (
        '{"id":"1","at":1764016714123,"day":"2026-11-24","price":"2.5","customer":{"address":{"city":"Rome",'
        '"zip code":7}},"lines":[{"sku":"a","price":1.5},{"sku":"b","price":2}],"rates":{"EUR":1.25}}'
    )
    expressions = {
        "city": "customer.address.city",
        "zip": "customer.address.`zip code`",
        "first": "lines[0].sku",
        "none": "get(lines, 7).sku",
        "total": "aggregate(lines, cast(0 as decimal(10,2)), (sum, line) -> cast(sum + line.price as decimal(10,2)))",
        "rate": "rates['EUR']",
        "price": "price * 2",
        "hour": "date_trunc('HOUR', at)",
        "weekday": "date_format(day, 'EEEE')",
        "names": "transform(lines, line -> line.sku)",
    }
    (row,) = read(spark, [value.encode()]).select(list(expressions.items())).data.drop("record").collect()
    found = row.asDict()
    assert found.pop("hour").astimezone(UTC) == datetime(2025, 11, 24, 20, tzinfo=UTC)
    assert found == {
        "city": "Rome",
        "zip": 7,
        "first": "a",
        "none": None,
        "total": Decimal("3.50"),
        "rate": Decimal("1.25"),
        "price": Decimal("5.0000000000"),
        "weekday": "Tuesday",
        "names": ["a", "b"],
    }


def refunded(order: Any) -> dict[str, Any]:
    lines = [{"sku": line.sku, "price": -line.price, "seen": [order.at]} for line in order.lines]
    since = order.customer.since.astimezone(timezone(timedelta(hours=1)))
    customer = {"since": since, "address": order.customer.address}
    return {"at": order.at, "day": order.day, "customer": customer, "lines": lines, "rates": order.rates}


WRONG: Sequence[tuple[str, Any]] = (
    ("at", datetime(2026, 1, 1)),
    ("at", 5),
    ("day", datetime(2026, 1, 1, tzinfo=UTC)),
    ("lines[0].price", Decimal("1.234")),
    ("lines[0].price", 1.5),
    ("customer.address.zip code", 1.5),
    ("rates['EUR']", "x"),
    ("customer.name", 5),
)


def wrong(order: Any) -> dict[str, Any]:
    path, item = WRONG[order.record.offset]
    made = {"at": item, "day": item, "rates": {"EUR": item}, "customer": {"name": item}}
    if path.startswith("lines"):
        return {"lines": [{"price": item}]}
    if path.startswith("customer.address"):
        return {"customer": {"address": {"zip code": item}}}
    name = path.partition("[")[0].partition(".")[0]
    return {name: made[name]}


def test_a_python_function_sees_and_returns_parts_of_a_value(spark: SparkSession) -> None:
    value = (
        b'{"at":"2026-11-24T20:38:34.123456Z","day":"2026-11-24","lines":[{"sku":"a","price":1.5}],"rates":{"EUR":1.25},'
        b'"customer":{"since":"2026-11-24T20:38:34Z","address":{"city":"Rome","zip code":7}}}'
    )
    (row,) = written_values(map_by(read(spark, [value]), function_of(refunded), VALUE.fields))
    assert row == (
        None,
        '{"at":"2026-11-24T20:38:34.123456Z","day":"2026-11-24","customer":{"since":"2026-11-24T20:38:34.000000Z","address":'
        '{"city":"Rome","zip code":7}},"lines":[{"sku":"a","price":-1.50,"seen":["2026-11-24T20:38:34.123456Z"]}],'
        '"rates":{"EUR":1.25}}',
    )
    rejected = written_values(map_by(read(spark, [value] * len(WRONG)), function_of(wrong), VALUE.fields))
    expected = [f"returned a {path} of another type than its schema: {item!r}" for path, item in WRONG]
    assert [str(reason).partition("wrong ")[2] for reason, _ in rejected] == expected


def function_of(function: Any) -> PythonFunction:
    return PythonFunction(function.__name__, function)


def written_values(frame: RecordFrame) -> list[tuple[str | None, str]]:
    """Reason and value of each record, in the order of offsets."""
    columns = [F.col("record.offset").alias("offset"), F.col("record.reason").alias("reason")]
    rows = frame.data.select(*columns, frame.value.alias("written")).collect()
    return [(row["reason"], bytes(row["written"]).decode()) for row in sorted(rows, key=lambda row: row["offset"])]


def test_streams_with_other_types_are_merged_in_the_wider_type(spark: SparkSession) -> None:
    """The serde of one would reject what only the other takes."""
    narrow, wide = (replace(read(spark, [b"{}"]), serde=Json(f"price {of}")) for of in ("decimal(4,2)", "decimal(6,3)"))
    frames = [
        replace(frame, data=frame.data.selectExpr(f"cast(price as {of}) as price", "record"))
        for frame, of in ((narrow, "decimal(4,2)"), (wide, "decimal(6,3)"))
    ]
    assert frames[0].union(frames[1]).schema.fields == {"price": "decimal(6,3)"}


def test_what_jackson_writes_of_moments_days_and_decimals_is_read(spark: SparkSession) -> None:
    """The JVM library's users mostly write JSON with it."""
    java: Any = spark._jvm
    jackson = java.com.fasterxml.jackson
    as_numbers = jackson.databind.SerializationFeature.WRITE_DATES_AS_TIMESTAMPS
    mapper = jackson.databind.ObjectMapper().registerModule(jackson.datatype.jsr310.JavaTimeModule())
    moment = java.java.time.Instant.ofEpochMilli(1764016714123).plusNanos(456789)
    berlin = moment.atZone(java.java.time.ZoneId.of("Europe/Berlin"))

    def read_again(field_type: str, value: Any) -> Any:
        written = java.java.util.HashMap()
        written.put("x", value)
        return Json(f"x {field_type}").decode(mapper.writeValueAsString(written).encode())["x"]

    expected = datetime(2025, 11, 24, 20, 38, 34, 123456, UTC)
    date = java.java.util.Date(1764016714123)
    assert read_again("timestamp", date) == expected.replace(microsecond=123000)
    assert read_again("decimal(20,9)", moment) == Decimal("1764016714.123456789")
    mapper.configure(as_numbers, False)
    assert read_again("timestamp", date) == expected.replace(microsecond=123000)
    for each in (moment, berlin, berlin.toOffsetDateTime()):
        assert read_again("timestamp", each) == expected
    assert read_again("date", berlin.toLocalDate()).isoformat() == "2025-11-24"
    for number in ("0.1", "-123456789012345678901234567.1234567890", "1E+3", "1E-10"):
        assert read_again("decimal(38,10)", java.java.math.BigDecimal(number)) == Decimal(number)


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    """All local state is deleted before each drain."""
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=True)
    yield made
    made.delete_topics()


ORDER = Json(
    "id string, at timestamp, day date, customer struct<name: string, address: struct<city: string>>,"
    " lines array<struct<sku: string, price: decimal(10,2)>>, notes map<string, string>"
)
CUSTOMER = Json(
    "name string, since timestamp, born date, limits array<struct<`up to`: decimal(10,2), from: timestamp>>"
)

BIG = Decimal("99999999.98")
"""The greatest but one that has ten digits, and the mean of what is sold: three of them have more digits."""


def order(number: int, city: str | None, at: Any, day: str, *prices: Any, **more: Any) -> dict[str, Any]:
    lines = [{"sku": f"s{place}", "price": price} for place, price in enumerate(prices)]
    customer = {"name": f"c{number}", "address": {"city": city}}
    return {"id": str(number), "at": at, "day": day, "customer": customer, "lines": lines, **more}


@pytest.mark.soak
def test_nested_values_pass_topics_stores_and_a_restoration_exactly(tried: Tried, spark: SparkSession) -> None:
    topology, named = tried.topology, tried.named
    orders = topology.stream(named("orders"), value=ORDER, key="customer")
    customers = topology.table(named("customers"), value=CUSTOMER, key="customer")
    sold = orders.flat_map(
        "lines", key="element.sku", value={"price": "element.price", "at": "at", "day": "day", "notes": "notes"}
    )
    folded = {
        "total": "sum(price)",
        "mean": "avg(price)",
        "most": "max(price)",
        "first": "min(at)",
        "last": "max(at)",
        "day": "max(day)",
        "dearest": "max_by(notes, price)",
        "earliest": "min_by(price, at)",
    }
    sold.group_by_key(name="by-sku").aggregate(folded, store="sold").to_stream().to(named("sold"))
    by_city = orders.group_by("customer.address.city", name="by-city")
    by_city.reduce(max_by="at", store="latest")
    joined = {
        "id": "id",
        "at": "at",
        "since": "table.since",
        "born": "table.born",
        "limit": "get(table.limits, 0).`up to`",
        "limits": "table.limits",
        "lines": "lines",
    }
    orders.join(customers, joined).to(named("joined"))
    tried.create_topics()
    since = {
        "name": "Ann",
        "since": "2026-03-29T01:30:00.000001Z",
        "born": "0999-01-01",
        "limits": [{"up to": 5, "from": 0}],
    }
    tried.produce("customers", [("a", since, 0)])
    notes = {"x": "1", "y": None}
    tried.produce("orders", [("a", order(1, "Rome", 1764016714123, "2026-11-24", 99999999.99, "0.01", notes=notes), 1)])
    tried.produce("orders", [("a", order(2, "Rome", "2026-11-24T20:38:34.000001Z", "2026-11-23", 99999999.98), 2)])
    tried.produce("orders", [("a", {"customer": {"address": {"city": 5}}}, 3), ("a", {"lines": [{"price": 1.234}]}, 4)])
    tried.drain()
    tried.produce("orders", [("a", order(3, "Oslo", 1764016714122, "2026-11-25", 99999999.97, None), 5)])
    tried.drain()
    assert tried.dead_letters() == [
        ("orders", "customer.address.city is not of type string"),
        ("orders", "lines[0].price is not of type decimal(10,2): the number has more digits"),
    ]
    first, finer = "2025-11-24T20:38:34.122000Z", "2026-11-24T20:38:34.000001Z"
    stores = {m.key(): m.value().decode() for m in tried.read(topology.changelog_topic("sold"))}
    assert stores[b"s0"] == (
        f'{{"total":{3 * BIG},"mean":{{"sum":{3 * BIG},"count":3}},"most":99999999.99,"first":"{first}",'
        f'"last":"{finer}",'
        '"day":"2026-11-25","dearest":{"value":{"x":"1","y":null},"by":99999999.99},'
        f'"earliest":{{"value":99999999.97,"by":"{first}"}}}}'
    )
    assert json.loads(stores[b"s1"], parse_float=Decimal)["total"] == Decimal("0.01")
    shown = {m.key(): m.value() for m in tried.read(named("sold"))}[b"s0"]
    assert json.loads(shown, parse_float=Decimal)["mean"] == BIG
    latest = tried.store("latest")
    assert {city: value["id"] for city, value in latest.items()} == {"Rome": "2", "Oslo": "3"}
    written = sorted(m.value().decode() for m in tried.read(named("joined")))
    table = '"since":"2026-03-29T01:30:00.000001Z","born":"0999-01-01","limit":5.00,"limits":[{"up to":5.00,"from":'
    assert written[0].startswith(
        f'{{"id":"1","at":"2025-11-24T20:38:34.123000Z",{table}"1970-01-01T00:00:00.000000Z"}}]'
    )
    assert written[1].startswith(f'{{"id":"2","at":"{finer}",{table}')
    assert written[2].startswith(f'{{"id":"3","at":"{first}",{table}')
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []
    assert {str(row.subject).split(":")[0].removeprefix(f"{tried.name}-") for row in rows} >= {"sold", "sold-changelog"}
