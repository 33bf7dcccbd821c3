"""What each example pipeline is given, what must come of it, and the same topology with the library.

A new pipeline gets its line in ``CASES``.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import fastavro.schema
from google.protobuf.message import DecodeError
from streamplan import pipelines as examples
from streamplan.model.pipeline import Pipeline

from tests.support.kafka_streams import STREAMS
from tests.support.library_processor import TaskProcessor, as_json, moment_of, ms_of, processed
from tests.support.protobuf_messages import message_class
from tests.support.streams_library import Callback, KeyOf, Library, PartitionOf, Record, fields, order_key, raw, text

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
START_MS = int(time.time() * 1000) // HOUR_MS * HOUR_MS - 2 * HOUR_MS
"""Of the records' timestamps. Lately, since a windowed changelog forgets after days; on the hour, so that windows fall
among the records in every run alike."""

STEP_MS = 100
# -- what is produced


def numbered(pipeline: Pipeline, numbers: Iterable[int]) -> list[Record]:
    """The pipeline's own test data. Where its values name a schema, the pipeline knows the ids."""
    serdes = pipeline.source_serdes
    return [Record(*pipeline.test_data.written(n, serdes), START_MS + STEP_MS * n) for n in numbers]


def mixed_in(records: Sequence[Record], others: Sequence[tuple[str, bytes | None, bytes | None]]) -> list[Record]:
    """``others`` evenly spread, each a millisecond behind the record that it follows: no two timestamps are equal."""
    made = [
        Record(*other, records[(number + 1) * len(records) // (len(others) + 1)].timestamp + 1)
        for number, other in enumerate(others)
    ]
    return sorted([*records, *made], key=lambda record: record.timestamp)


# -- what must come of it


@dataclass
class Expected:
    """By topics, as told from the records alone.

    ``passed``   what goes through the repartition topic: the new key, and the record
    ``dead``     what goes to the dead-letter topic
    ``last``     the last value of each key
    ``every``    for a topic of single results each key's values in their order, as ``Case.read`` gives them
    """

    passed: list[tuple[bytes, Record]] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)
    last: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    every: dict[str, dict[bytes, list[dict[str, Any]]]] = field(default_factory=dict)


def regrouped(records: Iterable[Record], key_of: KeyOf) -> Expected:
    expected = Expected()
    for record in records:
        try:
            if (key := key_of(record.key, record.value)) is not None:
                expected.passed.append((key, record))
        except ValueError:
            expected.dead.append(record)
    return expected


def counts(keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """As the library's ``LongSerializer`` writes them."""
    return {key: count.to_bytes(8, "big") for key, count in Counter(keys).items()}


def counted(changelog: str, key_of: KeyOf) -> Callable[[Sequence[Record]], Expected]:
    def recount(records: Sequence[Record]) -> Expected:
        expected = regrouped(records, key_of)
        expected.last[changelog] = counts(key for key, _ in expected.passed)
        return expected

    return recount


# -- one of each for every pipeline


@dataclass(frozen=True)
class Case:
    """``declare`` is the pipeline's own file once more, with the library; ``read`` reads a value of a single result."""

    records: Callable[[Pipeline, PartitionOf], list[Record]]
    recount: Callable[[Sequence[Record]], Expected]
    declare: Callable[[Library], None]
    read: Callable[[bytes], Any] = json.loads


def declare_orders(library: Library) -> None:
    orders = library.stream("orders", Id=str, ProductType=int)
    name = "orders-products-quantities"
    library.grouped(orders, order_key, name).count(library.stored(name))


def orders(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("orders", b"bad_1", b"not JSON"),
            ("orders", b"bad_2", b'{"Id": "bad", "ProductType": "1"}'),
            ("orders", None, b'{"Id": "without a key of its own", "ProductType": 1}'),  # and needs none
            ("orders", b"bad_3", b'{"Id": "bad", "ProductType": 2}'),
            ("orders", b"bad_4", None),
            ("orders", b"bad_5", b'{"Id": "bad"}'),
            ("orders", b"bad_5", b'{"Id": "bad"}'),
        ],
    )


def country_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, country=str).get("country"))


def declare_users(library: Library) -> None:
    library.grouped(library.stream("users", id=str, country=str), country_key, None).count()


def users(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("users", b"bad_1", b'{"id": "user"'),
            ("users", b"bad_2", b'{"id": "user", "country": 49}'),
            ("users", None, b'{"id": "user", "country": "DE"}'),
            ("users", None, b'{"id": "user", "country": null}'),
            ("users", b"moved", b'{"id": "user", "country": "K\xc3\xb8benhavn"}'),
        ],
    )


def device_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, device=str, reading=int).get("device"))


def declare_latest(library: Library) -> None:
    grouped = library.grouped(library.stream("sourceTopic", id=str, device=str, reading=int), device_key, "by-device")
    later = Callback(f"{STREAMS}.kstream.Reducer", apply=lambda one, other: raw(other))
    library.to(grouped.reduce(later, library.stored("latest")).toStream(), "targetTopic")


def measurements(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Of each device those whose keys fall into one partition.

    What is latest is told by the offset in the repartition topic, and that of two records from two partitions is
    whichever task comes first.
    """
    mine: dict[bytes, int] = {}
    chosen = []
    for record in numbered(pipeline, range(6000)):
        assert record.key is not None
        partition = partition_of(record.key, pipeline.partition_counts[record.topic])
        if mine.setdefault(device_key(record.key, record.value), partition) == partition:
            chosen.append(record)
    return mixed_in(
        chosen,
        [
            ("sourceTopic", b"bad_1", b"[1]"),
            ("sourceTopic", b"bad_2", b'{"id": "bad", "device": "device_1", "reading": 0.5}'),
            ("sourceTopic", None, b'{"id": "without a key", "device": "one of its own", "reading": 1}'),
            ("sourceTopic", None, b'{"id": "bad", "reading": 1}'),
        ],
    )


def recount_latest(records: Sequence[Record]) -> Expected:
    expected = regrouped(records, device_key)
    latest = {key: record.value or b"" for key, record in expected.passed}
    expected.last = {"latest-by-device-latest-changelog": latest, "targetTopic": latest}
    return expected


def declare_enriched(library: Library) -> None:
    customers = library.builder.table("customers", library.consumed(name=str, city=str))

    def apply(purchase: Any, customer: Any) -> bytes:
        return json.dumps(enriched(json.loads(bytes(purchase)), json.loads(bytes(customer)))).encode()

    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=apply)
    library.to(library.stream("purchases", id=str, amount=int).join(customers, joiner), "enriched-purchases")


def enriched(purchase: Mapping[str, Any], customer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: purchase[name] for name in ("id", "amount")},
        **{name: customer[name] for name in ("name", "city")},
    }


def purchases(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Purchases in turn, and meanwhile customers move house, leave, and come back."""
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    for n in range(200):
        customer = b"customer_%d" % (n * 7 % 103)  # three of them are new
        row = None if n % 6 == 5 else b'{"name": "Name after %d", "city": "City %d"}' % (n, n % 9)
        changes.append(("customers", customer, row))
        if n % 10 == 0:
            changes.append(("purchases", b"customer_%d" % (100 + n % 4), b'{"id": "extra_%d", "amount": %d}' % (n, n)))
        if n % 40 == 20:
            changes += [
                ("purchases", b"customer_1", b'{"id": "bad", "amount": "1"}'),
                ("customers", b"customer_1", b"not JSON"),
                ("purchases", b"customer_2", None),
                ("purchases", None, b'{"id": "nobody\'s", "amount": 1}'),
                ("customers", b"customer_2", b'{"name": 2, "city": "Gent"}'),
            ]
    return mixed_in(numbered(pipeline, range(2500)), changes)


def recount_enriched(records: Sequence[Record]) -> Expected:
    expected = Expected()
    customers: dict[bytes, bytes] = {}
    joined: dict[bytes, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda record: record.timestamp):
        try:
            if record.topic == "customers" and record.value is None:
                customers.pop(record.key or b"", None)
            elif record.topic == "customers":
                fields(record.value, name=str, city=str)
                customers[record.key or b""] = record.value or b""
            elif record.value is not None:  # a join passes over a null value
                purchase = fields(record.value, id=str, amount=int)
                if record.key in customers:
                    joined.setdefault(record.key, []).append(enriched(purchase, json.loads(customers[record.key])))
        except ValueError:
            expected.dead.append(record)
    expected.last["purchase-enricher-customers-STATE-STORE-0000000000-changelog"] = customers
    expected.every["enriched-purchases"] = joined
    return expected


# -- two tables


def declare_profiles(library: Library) -> None:
    def join(account: Any, address: Any) -> bytes:
        return profile(json.loads(bytes(account)), json.loads(bytes(address)))

    consumed = library.consumed(street=str, city=str, name=str, plan=str)
    addresses = library.builder.table("addresses", consumed, library.stored("addresses"))
    accounts = library.builder.table("accounts", consumed, library.stored("accounts"))
    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=join)
    library.to(accounts.join(addresses, joiner, library.stored("profiles")).toStream(), "profile-updates")


def profile(account: Mapping[str, Any], address: Mapping[str, Any]) -> bytes:
    """As our writer writes it."""
    joined = {"name": account["name"], "plan": account["plan"], "city": address["city"]}
    return json.dumps(joined, separators=(",", ":")).encode()


def accounts(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Accounts and addresses in turn. Meanwhile either are deleted, come back, or come alone."""
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    for n in range(200):
        customer = b"customer_%d" % (n * 7 % 105)  # five of them are new
        if n % 3 == 0:
            value = None if n % 2 else b'{"street": "Street %d", "city": "City %d"}' % (n, n % 9)
            changes.append(("addresses", customer, value))
        else:
            value = None if n % 5 == 4 else b'{"name": "Name after %d", "plan": "basic"}' % n
            changes.append(("accounts", customer, value))
        if n % 40 == 20:
            changes += [
                ("accounts", b"customer_1", b"not JSON"),
                ("addresses", b"customer_2", b'{"street": 2, "city": "Gent"}'),
                ("addresses", b"unknown", None),
            ]
    return mixed_in(numbered(pipeline, range(2500)), changes)


def last_values(
    records: Sequence[Record], kinds: Mapping[str, Mapping[str, type]], expected: Expected
) -> dict[str, dict[bytes, bytes]]:
    """The last value of each key of tables, whose fields have these types. What cannot be read is a dead letter."""
    tables: dict[str, dict[bytes, bytes]] = {topic: {} for topic in kinds}
    for record in records:
        try:
            if record.value is None:
                tables[record.topic].pop(record.key or b"", None)
            else:
                fields(record.value, **kinds[record.topic])
                tables[record.topic][record.key or b""] = record.value
        except ValueError:
            expected.dead.append(record)
    return tables


def recount_profiles(records: Sequence[Record]) -> Expected:
    """The last values of both tables, and what they are joined to, in whatever order the records came."""
    expected = Expected()
    kinds: dict[str, dict[str, type]] = {
        "accounts": {"name": str, "plan": str},
        "addresses": {"street": str, "city": str},
    }
    tables = last_values(records, kinds, expected)
    profiles = {}
    for key, account in tables["accounts"].items():
        if key in tables["addresses"]:
            profiles[key] = profile(json.loads(account), json.loads(tables["addresses"][key]))
    expected.last = {f"profile-builder-{name}-changelog": last for name, last in tables.items()}
    expected.last |= {"profile-builder-profiles-changelog": profiles, "profile-updates": profiles}
    return expected


# -- two tables, by a foreign key


def declare_shipments(library: Library) -> None:
    def carrier_of(shipment: Any) -> bytes | None:
        carrier = json.loads(bytes(shipment)).get("carrier")
        return None if carrier is None else str(carrier).encode()

    def join(shipment: Any, carrier: Any) -> bytes:
        return tracked(json.loads(bytes(shipment)), json.loads(bytes(carrier or b"{}")))

    named = library.consumed(name=str, phone=str)
    carriers = library.builder.table("carriers", named, library.stored("carriers"))
    shipped = library.consumed(carrier=str, weight=float)
    shipments = library.builder.table("shipments", shipped, library.stored("shipments"))
    joined = library.option("TableJoined", "as", "tracking")
    extractor = Callback("java.util.function.Function", apply=carrier_of)
    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=join)
    result = shipments.leftJoin(carriers, extractor, joiner, joined, library.stored("tracked"))
    library.to(result.toStream(), "tracked-shipments")


def tracked(shipment: Mapping[str, Any], carrier: Mapping[str, Any]) -> bytes:
    """As our writer writes it."""
    joined = {name: shipment.get(name) for name in ("carrier", "weight")}
    joined |= {name: carrier.get(name) for name in ("name", "phone")}
    there = {name: value for name, value in joined.items() if value is not None}
    return json.dumps(there, separators=(",", ":")).encode()


def shipped(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Shipments and carriers. Some are deleted and come back, and some shipments name no carrier, or an unknown one."""
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    for n in range(150):
        shipment, carrier = b"shipment_%d" % (n * 13 % 205), b"carrier_%d" % (n % 14)
        if n % 3 == 0:
            value = None if n % 2 else b'{"name": "Renamed %d", "phone": "0"}' % n
            changes.append(("carriers", carrier, value))
        elif n % 3 == 1:
            changes.append(("shipments", shipment, None))
        else:
            changes.append(("shipments", shipment, b'{"weight": %d.25}' % n))
        if n % 40 == 20:
            changes += [
                ("shipments", b"shipment_1", b"not JSON"),
                ("carriers", b"carrier_2", b'{"name": 2}'),
                ("carriers", b"unknown", None),
            ]
    return mixed_in(numbered(pipeline, range(1500)), changes)


def recount_shipments(records: Sequence[Record]) -> Expected:
    """The last values of both tables, and what they are joined to, in whatever order the records came."""
    expected = Expected()
    kinds: dict[str, dict[str, type]] = {
        "shipments": {"carrier": str, "weight": float},
        "carriers": {"name": str, "phone": str},
    }
    tables = last_values(records, kinds, expected)
    results = {}
    for key, value in tables["shipments"].items():
        shipment = json.loads(value)
        carrier = tables["carriers"].get(str(shipment.get("carrier")).encode(), b"{}")
        results[key] = tracked(shipment, json.loads(carrier))
    expected.last = {f"shipment-tracker-{name}-changelog": last for name, last in tables.items()}
    expected.last |= {"shipment-tracker-tracked-changelog": results, "tracked-shipments": results}
    return expected


# -- two streams in one aggregate


def declare_activity(library: Library) -> None:
    def aggregator(stream: str) -> Callback:
        def apply(key: Any, value: Any, total: Any) -> bytes:
            return activity_after(stream, json.loads(bytes(value)), json.loads(bytes(total)))

        return Callback(f"{STREAMS}.kstream.Aggregator", apply=apply)

    checkouts = library.stream("checkouts", amount=int).groupByKey()
    clicks = library.stream("page-clicks", customer=str, page=str)
    grouped = library.grouped(clicks, customer_key, "clicks-by-customer")
    cogrouped = grouped.cogroup(aggregator("page-clicks")).cogroup(checkouts, aggregator("checkouts"))
    nothing = Callback(f"{STREAMS}.kstream.Initializer", apply=lambda: b'{"clicks":0,"orders":0}')
    library.to(cogrouped.aggregate(nothing, library.stored("activity")).toStream(), "activity-updates")


def customer_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, customer=str, page=str).get("customer"))


def activity_after(stream: str, value: Mapping[str, Any], total: Mapping[str, Any]) -> bytes:
    """As our writer writes it."""
    after = {"clicks": total["clicks"], "orders": total["orders"], "spent": total.get("spent")}
    if stream == "page-clicks":
        after["clicks"] += 1
    else:
        after["orders"] += 1
        amounts = [amount for amount in (after["spent"], value.get("amount")) if amount is not None]
        after["spent"] = sum(amounts) if amounts else None
    return json.dumps(
        {name: field for name, field in after.items() if field is not None}, separators=(",", ":")
    ).encode()


def clicks_and_checkouts(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Customers who only click, who only buy, and who buy for nothing; and what cannot be aggregated."""
    others = [
        ("checkouts", b"only_buys", b'{"amount": 5}'),
        ("checkouts", b"buys_for_nothing", b"{}"),
        ("checkouts", b"customer_1", b'{"amount": "5"}'),
        ("checkouts", b"customer_1", None),
        ("checkouts", None, b'{"amount": 1}'),
        ("page-clicks", b"visit", b'{"customer": "only_clicks"}'),
        ("page-clicks", b"visit", b'{"page": "/"}'),
        ("page-clicks", b"visit", None),
        ("page-clicks", None, b'{"customer": "customer_2", "page": "/"}'),
        ("page-clicks", b"visit", b"not JSON"),
    ]
    return mixed_in(numbered(pipeline, range(3000)), others)


def recount_activity(records: Sequence[Record]) -> Expected:
    clicks = regrouped([record for record in records if record.topic == "page-clicks"], customer_key)
    expected = Expected(clicks.passed, clicks.dead)
    given = [(key, record.topic, json.loads(record.value or b"")) for key, record in clicks.passed]
    for record in records:
        try:
            if record.topic == "checkouts" and record.value is not None:
                value = fields(record.value, amount=int)
                if record.key is None:
                    raise ValueError("the key is null")
                given.append((record.key, record.topic, value))
        except ValueError:
            expected.dead.append(record)
    last: dict[bytes, bytes] = {}
    for key, topic, value in given:
        last[key] = activity_after(topic, value, json.loads(last.get(key, b'{"clicks":0,"orders":0}')))
    expected.last = {"customer-activity-activity-changelog": last, "activity-updates": last}
    return expected


# -- two streams


def declare_payments(library: Library) -> None:
    def join(order: Any, payment: Any) -> bytes:
        return json.dumps(paid(json.loads(bytes(order)), json.loads(bytes(payment)))).encode()

    millis = library.jvm.java.time.Duration.ofMillis
    windows = library.option("JoinWindows", "ofTimeDifferenceAndGrace", millis(10 * MINUTE_MS), millis(HOUR_MS))
    options = library.option("StreamJoined", "with", library.bytes, library.bytes, library.bytes)
    payments = library.stream("payments", amount=int, method=str)
    orders = library.stream("purchase-orders", id=str, total=int)
    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=join)
    library.to(orders.join(payments, joiner, windows, options), "paid-orders")


def paid(order: Mapping[str, Any], payment: Mapping[str, Any]) -> dict[str, Any]:
    result = {
        "id": order.get("id"),
        "total": order.get("total"),
        "paid": payment.get("amount"),
        "method": payment.get("method"),
    }
    return {name: value for name, value in result.items() if value is not None}


def order_payments(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Every fiftieth is too early for the other one, and every tenth is not in order."""
    moved = [
        record._replace(timestamp=record.timestamp - MINUTE_MS * (15 * (n % 50 == 49) + 2 * (n % 10 == 5)))
        for n, record in enumerate(numbered(pipeline, range(3000)))
    ]
    others = [
        ("payments", b"order_9", b"no JSON"),
        ("payments", b"order_9", None),
        ("payments", None, b'{"amount": 1, "method": "cash"}'),
        ("purchase-orders", b"order_9", b'{"id": 9}'),
        ("purchase-orders", b"unpaid", b'{"id": "unpaid", "total": 1}'),
    ]
    return [*moved, *(Record(*other, START_MS + number) for number, other in enumerate(others))]


def recount_payments(records: Sequence[Record]) -> Expected:
    expected = Expected()
    kinds: dict[str, dict[str, type]] = {
        "purchase-orders": {"id": str, "total": int},
        "payments": {"amount": int, "method": str},
    }
    sides: dict[str, list[tuple[Record, dict[str, Any]]]] = {topic: [] for topic in kinds}
    for record in records:
        try:
            if record.value is not None:
                value = fields(record.value, **kinds[record.topic])
                if record.key is not None:
                    sides[record.topic].append((record, value))
        except ValueError:
            expected.dead.append(record)
    for topic, name in (("purchase-orders", "JOINTHIS-0000000004"), ("payments", "JOINOTHER-0000000005")):
        expected.last[f"order-payments-KSTREAM-{name}-store-changelog"] = {
            (record.key or b"") + record.timestamp.to_bytes(8, "big") + (1).to_bytes(4, "big"): record.value or b""
            for record, _ in sides[topic]
        }
    found: dict[bytes, list[dict[str, Any]]] = {}
    payments = sides["payments"]
    for record, order in sides["purchase-orders"]:
        for other, payment in payments:
            if record.key == other.key and abs(record.timestamp - other.timestamp) <= 10 * MINUTE_MS:
                found.setdefault(record.key or b"", []).append(paid(order, payment))
    expected.every["paid-orders"] = found
    return expected


# -- two streams, of which one is passed without the other


def declare_unpaid(library: Library) -> None:
    def join(order: Any, payment: Any) -> bytes | None:
        result = {**json.loads(bytes(order)), "paid": payment and json.loads(bytes(payment)).get("amount")}
        return None if result["paid"] is not None else unpaid(result)

    millis = library.jvm.java.time.Duration.ofMillis
    windows = library.option("JoinWindows", "ofTimeDifferenceAndGrace", millis(10 * MINUTE_MS), millis(MINUTE_MS))
    options = library.option("StreamJoined", "with", library.bytes, library.bytes, library.bytes)
    payments = library.stream("web-payments", amount=int)
    orders = library.stream("web-orders", id=str, total=int)
    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=join)
    joined = orders.leftJoin(payments, joiner, windows.before(millis(0)), options.withStoreName("unpaid"))
    is_unpaid = Callback(f"{STREAMS}.kstream.Predicate", test=lambda key, value: value is not None)
    library.to(joined.filter(is_unpaid), "unpaid-orders")


def unpaid(order: Mapping[str, Any]) -> bytes:
    return json.dumps({"id": order["id"], "total": order["total"]}).encode()


def web_orders(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """An hour later there is a record in each partition of both topics, by whose time all others are over."""
    records = numbered(pipeline, range(3000))
    records += [
        Record("web-payments", b"order_9", b"no JSON", START_MS),
        Record("web-orders", b"order_9", None, START_MS),
        Record("web-orders", b"late", b'{"id": "late", "total": 1}', START_MS),
    ]
    for topic, value in (("web-orders", b'{"id": "end", "total": 0}'), ("web-payments", b'{"amount": 0}')):
        keys = [b"%b_%d" % (topic.encode(), number) for number in range(100)]
        by_partition = {partition_of(key, 2): key for key in keys}
        records += [Record(topic, key, value, START_MS + HOUR_MS) for key in by_partition.values()]
    return records


def recount_unpaid(records: Sequence[Record]) -> Expected:
    expected = Expected()
    sides: dict[str, list[tuple[Record, dict[str, Any]]]] = {"web-orders": [], "web-payments": []}
    kinds: dict[str, dict[str, type]] = {"web-orders": {"id": str, "total": int}, "web-payments": {"amount": int}}
    for record in records:
        try:
            if record.value is not None:
                sides[record.topic].append((record, fields(record.value, **kinds[record.topic])))
        except ValueError:
            expected.dead.append(record)
    changelog = "unpaid-orders-finder-unpaid-%s-join-store-changelog"
    for topic, name in (("web-orders", "this"), ("web-payments", "outer-other")):
        expected.last[changelog % name] = {
            (record.key or b"") + record.timestamp.to_bytes(8, "big") + (1).to_bytes(4, "big"): record.value or b""
            for record, _ in sides[topic]
        }
    found: dict[bytes, list[dict[str, Any]]] = {}
    waiting: dict[bytes, bytes] = {}
    for record, order in sides["web-orders"]:
        key, value = record.key or b"", record.value or b""
        paid_at = [other.timestamp for other, _ in sides["web-payments"] if other.key == key]
        if any(0 <= at - record.timestamp <= 10 * MINUTE_MS for at in paid_at):
            continue
        if record.timestamp < START_MS + HOUR_MS:
            found[key] = [json.loads(unpaid(order))]
        else:
            stored = (1 + len(value)).to_bytes(4, "big") + b"\1" + value
            waiting[record.timestamp.to_bytes(8, "big") + b"\1" + key] = b"\1" + (1).to_bytes(4, "big") + stored
    expected.every["unpaid-orders"] = found
    expected.last[changelog % "left-shared"] = waiting
    return expected


# -- sessions


def declare_visits(library: Library) -> None:
    millis = library.jvm.java.time.Duration.ofMillis
    windows = library.option("SessionWindows", "ofInactivityGapAndGrace", millis(5 * MINUTE_MS), millis(HOUR_MS))
    requests = library.stream("page-requests", id=str, page=str)
    grouped = requests.groupByKey(library.option("Grouped", "with", library.bytes, library.bytes))
    counts = grouped.windowedBy(windows).count(library.stored("pages-per-visit"))
    of_sessions = library.jvm.org.apache.kafka.streams.kstream.WindowedSerdes.SessionWindowedSerde(library.bytes)
    produced = library.option("Produced", "with", of_sessions, library.serdes.Long())
    counts.toStream().to(library.output("visits"), produced)


def page_requests(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """One each second. Every fiftieth comes six minutes late, so that it begins a visit, or brings two together."""
    late = [
        record._replace(timestamp=START_MS + 1000 * n - 6 * MINUTE_MS * (n % 50 == 49))
        for n, record in enumerate(numbered(pipeline, range(3000)))
    ]
    others = [
        ("page-requests", b"visitor_1", b"no JSON"),
        ("page-requests", b"visitor_1", None),  # counted, as in a window
        ("page-requests", None, b'{"id": "request", "page": "/"}'),
    ]
    return [*late, *(Record(*other, START_MS + 1000 * 3000 + number) for number, other in enumerate(others))]


def recount_visits(records: Sequence[Record]) -> Expected:
    expected = Expected()
    times: dict[bytes, list[int]] = {}
    for record in records:
        try:
            if record.value is not None:
                fields(record.value, id=str, page=str)
            times.setdefault(text(None if record.key is None else record.key.decode()), []).append(record.timestamp)
        except ValueError:
            expected.dead.append(record)
    visits: dict[bytes, bytes] = {}
    for visitor, found in times.items():
        found.sort()
        begins = [at for at, before in zip(found, [-HOUR_MS, *found], strict=False) if at - before > 5 * MINUTE_MS]
        for begin, until in zip(begins, [*begins[1:], found[-1] + 1], strict=True):
            visit = [at for at in found if begin <= at < until]
            bounds = visit[-1].to_bytes(8, "big") + begin.to_bytes(8, "big")
            visits[visitor + bounds] = len(visit).to_bytes(8, "big")
    expected.last = {"page-visits-pages-per-visit-changelog": visits, "visits": visits}
    return expected


# -- final results


MOST_CELSIUS = 90


def declare_alerts(library: Library) -> None:
    duration, pair = library.jvm.java.time.Duration, library.jvm.org.apache.kafka.streams.KeyValue
    minutes = library.option("TimeWindows", "ofSizeAndGrace", duration.ofMinutes(1), duration.ofSeconds(10))
    readings = library.stream("sensor-temperatures", id=str, celsius=int)
    grouped = readings.groupByKey(library.option("Grouped", "with", library.bytes, library.bytes))
    windowed = grouped.windowedBy(minutes).emitStrategy(library.option("EmitStrategy", "onWindowClose"))

    def added(key: Any, value: Any, stored: Any) -> bytes:
        mean = json.loads(bytes(stored))["mean"]
        celsius = None if value is None else json.loads(bytes(value)).get("celsius")
        if celsius is not None:
            mean = {"sum": mean.get("sum", 0) + celsius, "count": mean["count"] + 1}
        return stored_mean(mean)

    def is_hot(key: Any, value: Any) -> bool:
        mean = json.loads(bytes(value))["mean"]
        return "sum" in mean and mean["sum"] / mean["count"] >= MOST_CELSIUS

    def alert(key: Any, value: Any) -> Any:
        return pair(raw(key.key()), alert_of(key.window().start(), json.loads(bytes(value))["mean"]))

    means = windowed.aggregate(
        Callback(f"{STREAMS}.kstream.Initializer", apply=lambda: b'{"mean": {"count": 0}}'),
        Callback(f"{STREAMS}.kstream.Aggregator", apply=added),
        library.stored("mean-temperatures"),
    )
    hot = means.toStream().filter(Callback(f"{STREAMS}.kstream.Predicate", test=is_hot))
    library.to(hot.map(Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=alert)), "temperature-alerts")


def stored_mean(mean: Mapping[str, int]) -> bytes:
    return json.dumps({"mean": mean}, separators=(",", ":")).encode()


def alert_of(start_ms: int, mean: Mapping[str, int]) -> bytes:
    minute = datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return json.dumps({"minute": minute, "mean": mean["sum"] / mean["count"]}, separators=(",", ":")).encode()


def temperatures(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """One each 100 ms. Every fiftieth comes nine seconds late, which the grace allows, and one comes too late."""
    readings = [
        record._replace(timestamp=record.timestamp - 9_000 * (n % 50 == 49))
        for n, record in enumerate(numbered(pipeline, range(3000)))
    ]
    sensor, value = b"sensor_0", b'{"id": "late", "celsius": 1000}'
    others = [
        Record("sensor-temperatures", sensor, value, START_MS),
        Record("sensor-temperatures", sensor, b"no JSON", START_MS + STEP_MS * 3000),
        Record("sensor-temperatures", None, value, START_MS + STEP_MS * 3000),
    ]
    return [*readings, *others]


def recount_temperatures(records: Sequence[Record]) -> Expected:
    """The last record that is late is the only one that is too late, and only one partition has it."""
    expected = Expected()
    sums: dict[tuple[bytes, int], dict[str, int]] = {}
    newest = {record.key: record.timestamp for record in sorted(records, key=lambda one: one.timestamp) if record.key}
    for record in records:
        try:
            celsius = fields(record.value, id=str, celsius=int)["celsius"]
            key = text(None if record.key is None else record.key.decode())
        except ValueError:
            expected.dead.append(record)
            continue
        if celsius == 1000:
            continue
        start = record.timestamp // MINUTE_MS * MINUTE_MS
        total = sums.setdefault((key, start), {"sum": 0, "count": 0})
        total["sum"] += celsius
        total["count"] += 1
    until = max(newest.values()) - 10_000
    changelog, alerts = {}, {}
    for (key, start), mean in sorted(sums.items()):
        changelog[key + start.to_bytes(8, "big") + bytes(4)] = stored_mean(mean)
        if start + MINUTE_MS <= until and mean["sum"] / mean["count"] >= MOST_CELSIUS:
            alerts.setdefault(key, []).append(json.loads(alert_of(start, mean)))
    expected.last["temperature-alerts-mean-temperatures-changelog"] = changelog
    expected.every["temperature-alerts"] = alerts
    return expected


# -- a class with state


class CardProcessor(TaskProcessor):
    timer = "forget"

    def on_record(self, key: bytes, value: dict[str, Any] | None, at: int) -> None:
        if value is None:
            return
        times = [ms_of(time) for time in (self.get(key) or {"times": []})["times"]]
        times = [*(time for time in times if at - time < MINUTE_MS), at]
        self.put(key, {"times": [*map(moment_of, times)], "forget": moment_of(max(times) + MINUTE_MS)})
        if len(times) > 2:
            self.forward(key, {"id": value["id"], "payments": len(times)}, at)

    def on_timer(self, key: bytes, value: dict[str, Any], at: int) -> None:
        self.delete(key)


def declare_fraud(library: Library) -> None:
    """Looks for what is to be forgotten every ten seconds. That is enough: ``on_record`` looks at the times, too."""
    payments = library.stream("card-payments", id=str, amount=int)
    store = "recent-payments"
    alarms = processed(library, payments, store, lambda: CardProcessor(library.jvm, store, 10_000))
    library.to(alarms, "alarms")


def card_payments(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """An hour later there is a payment in each partition, by whose time all others are forgotten."""
    others = [
        ("card-payments", b"bad_1", b"no JSON"),
        ("card-payments", b"card_1", None),
        ("card-payments", None, b'{"id": "of no card", "amount": 1}'),
    ]
    records = mixed_in(numbered(pipeline, range(3000)), others)
    keys = {partition_of(key, 2): key for key in (b"end_%d" % number for number in range(100))}
    value = b'{"id": "end", "amount": 1}'
    return [*records, *(Record("card-payments", key, value, START_MS + HOUR_MS) for key in keys.values())]


def recount_fraud(records: Sequence[Record]) -> Expected:
    expected = Expected()
    alarms: dict[bytes, list[dict[str, Any]]] = {}
    times: dict[bytes, list[int]] = {}
    for record in records:
        try:
            key = text(None if record.key is None else record.key.decode())
            payment = None if record.value is None else fields(record.value, id=str, amount=int)
        except ValueError:
            expected.dead.append(record)
            continue
        if payment is not None:
            of_card = times.setdefault(key, [])
            of_card.append(record.timestamp)
            recent = sum(record.timestamp - time < MINUTE_MS for time in of_card)
            if recent > 2:
                alarms.setdefault(key, []).append({"id": payment["id"], "payments": recent})
    expected.every["alarms"] = alarms
    at = START_MS + HOUR_MS
    last = as_json({"times": [moment_of(at)], "forget": moment_of(at + MINUTE_MS)})
    expected.last["card-alarms-recent-payments-changelog"] = {key: last for key in times if key.startswith(b"end_")}
    return expected


# -- Python functions


def declare_scores(library: Library) -> None:
    def scored(value: Any) -> bytes:
        try:
            return as_json(scored_transfer(bytes(value)))
        except KeyError:
            return b'{"risk": 0}'

    mapper = Callback(f"{STREAMS}.kstream.ValueMapper", apply=scored)
    is_risky = Callback(f"{STREAMS}.kstream.Predicate", test=lambda key, value: json.loads(bytes(value))["risk"] > 0.75)
    transfers = library.stream("transfers", id=str, amount=int, country=str)
    library.to(transfers.mapValues(mapper).filter(is_risky), "risky-transfers")


def scored_transfer(value: bytes) -> dict[str, Any]:
    made = json.loads(value)
    risk = min(made["amount"], 1024) / 1024
    return {"id": made["id"], "risk": risk / 2 if made["country"] in ("DE", "FR", "IT") else risk}


def transfers(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """One amount is missing, so that the function raises, and one key is no number of eight bytes."""
    others = [
        ("transfers", bytes(8), b"no JSON"),
        ("transfers", bytes(8), b'{"id": "without an amount", "country": "SE"}'),
        ("transfers", b"short", b'{"id": "without an account", "amount": 1, "country": "SE"}'),
    ]
    return mixed_in(numbered(pipeline, range(2000)), others)


def recount_scores(records: Sequence[Record]) -> Expected:
    expected = Expected()
    risky = expected.every["risky-transfers"] = {}
    for record in records:
        try:
            fields(record.value, id=str, amount=int, country=str)
            scored = scored_transfer(record.value or b"")
            if len(record.key or b"") != 8:
                raise ValueError("no number")
        except (ValueError, KeyError):
            expected.dead.append(record)
            continue
        if scored["risk"] > 0.75:
            risky.setdefault(record.key or b"", []).append(scored)
    return expected


# -- values in Avro, Protobuf and JSON Schema


FIRST, SECOND = (b"\0" + number.to_bytes(4, "big") for number in (1, 2))
"""How values begin: the source's schema is registered first, that of the output second."""

SCHEMAS = Path(examples.__file__).parent / "schemas"


@cache
def avro_schema(name: str) -> Any:
    return fastavro.schema.load_schema(SCHEMAS / name)


def invoice_of(value: bytes) -> dict[str, Any]:
    """By Avro's own library. ValueError where it is none."""
    if value[:5] != FIRST:
        raise ValueError("another schema, or none")
    data = io.BytesIO(value[5:])
    try:
        invoice: Any = fastavro.schemaless_reader(data, avro_schema("invoice.avsc"), None)
    except EOFError as error:
        raise ValueError("an end too soon") from error
    if data.read():
        raise ValueError("more than an invoice")
    return dict(invoice)


def net_of(invoice: Mapping[str, Any]) -> dict[str, Any]:
    net = {"net": invoice["total"] - invoice["tax"], "country": invoice["customer"]["country"]}
    return {"number": invoice["number"], "issued": invoice["issued"], **net}


def read_net(value: bytes) -> Any:
    assert value[:5] == SECOND
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), avro_schema("net_invoice.avsc"), None)


def revenue_with(stored: bytes, invoice: Mapping[str, Any]) -> bytes:
    """As our writer writes it."""
    before = json.loads(stored, parse_float=Decimal)
    return b'{"invoices":%d,"revenue":%b}' % (
        before["invoices"] + 1,
        str(before["revenue"] + invoice["total"]).encode(),
    )


NO_REVENUE = b'{"invoices":0,"revenue":0}'


def declare_invoices(library: Library) -> None:
    def net(value: Any) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, avro_schema("net_invoice.avsc"), net_of(invoice_of(bytes(value))))
        return SECOND + written.getvalue()

    def is_bill(key: Any, value: Any) -> bool:
        return value is not None and invoice_of(bytes(value))["total"] > 0

    def with_invoice(key: Any, value: Any, stored: Any) -> bytes:
        return revenue_with(bytes(stored), invoice_of(bytes(value)))

    invoices = library.builder.stream("invoices", library.consumed_if(invoice_of))
    bills = invoices.filter(Callback(f"{STREAMS}.kstream.Predicate", test=is_bill))
    grouped = library.grouped(
        bills, lambda key, value: invoice_of(value or b"")["customer"]["country"].encode(), "by-country"
    )
    grouped.aggregate(
        Callback(f"{STREAMS}.kstream.Initializer", apply=lambda: NO_REVENUE),
        Callback(f"{STREAMS}.kstream.Aggregator", apply=with_invoice),
        library.stored("revenue-per-country"),
    )
    library.to(bills.mapValues(Callback(f"{STREAMS}.kstream.ValueMapper", apply=net)), "net-invoices")


def invoices(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    made = numbered(pipeline, range(2500))
    value = made[1].value or b""
    others = [
        ("invoices", b"customer_1", b'{"number": "in JSON"}'),
        ("invoices", b"customer_1", None),
        ("invoices", b"customer_1", value[:-1]),
        ("invoices", b"customer_1", value + b"\0"),
        ("invoices", b"customer_1", b"\0\0\0\0\x63" + value[5:]),
    ]
    return mixed_in(made, others)


def recount_invoices(records: Sequence[Record]) -> Expected:
    expected = Expected()
    revenue: dict[bytes, bytes] = {}
    net: dict[bytes, list[dict[str, Any]]] = {}
    for record in records:
        if record.value is None:
            continue
        try:
            invoice = invoice_of(record.value)
        except ValueError:
            expected.dead.append(record)
            continue
        if invoice["total"] > 0:
            country = invoice["customer"]["country"].encode()
            expected.passed.append((country, record))
            revenue[country] = revenue_with(revenue.get(country, NO_REVENUE), invoice)
            net.setdefault(record.key or b"", []).append(net_of(invoice))
    expected.last["invoice-revenue-revenue-per-country-changelog"] = revenue
    expected.every["net-invoices"] = net
    return expected


@cache
def scan_class() -> Any:
    """As Google's compiler makes it."""
    with TemporaryDirectory() as folder:
        text = (SCHEMAS / "scan.proto").read_text()
        return message_class({"scan.proto": text}, "scan.proto", "logistics.Scan", Path(folder))


def scan_of(value: bytes) -> Any:
    """By Google's library. ValueError where it is none."""
    if value[:6] != FIRST + b"\0":
        raise ValueError("another schema or message, or none")
    try:
        scan = scan_class().FromString(value[6:])
    except DecodeError as error:
        raise ValueError("no scan") from error
    scan.Event.Name(scan.event)  # raises ValueError for a number that is not listed
    return scan


def is_damaged(value: bytes) -> bool:
    scan = scan_of(value)
    return bool(scan.Event.Name(scan.event) == "DAMAGED")


def claim_of(value: bytes) -> dict[str, Any]:
    scan = scan_of(value)
    pieces = sum(item.quantity for item in scan.items)
    return {"scan": scan.id, "depot": scan.depot, "at": scan.at.ToDatetime(UTC), "pieces": pieces}


def read_claim(value: bytes) -> dict[str, Any]:
    assert value[:5] == SECOND
    claim: dict[str, Any] = json.loads(value[5:])
    return claim | {"at": datetime.fromisoformat(claim["at"])}


def declare_parcels(library: Library) -> None:
    def claim(value: Any) -> bytes:
        return SECOND + json.dumps(claim_of(bytes(value)), default=datetime.isoformat).encode()

    def test(key: Any, value: Any) -> bool:
        return value is not None and is_damaged(bytes(value))

    scans = library.builder.stream("parcel-scans", library.consumed_if(scan_of))
    damaged = scans.filter(Callback(f"{STREAMS}.kstream.Predicate", test=test))
    grouped = library.grouped(damaged, lambda key, value: scan_of(value or b"").depot.encode(), "by-depot")
    grouped.count(library.stored("damages-per-depot"))
    library.to(damaged.mapValues(Callback(f"{STREAMS}.kstream.ValueMapper", apply=claim)), "damage-claims")


def parcel_scans(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    unknown = scan_class()(id="scan", depot="depot_1", event=7).SerializeToString()
    others = [
        ("parcel-scans", b"parcel_1", b"in text"),
        ("parcel-scans", b"parcel_1", None),
        ("parcel-scans", b"parcel_1", FIRST + b"\0\x0a\x7fshort"),
        ("parcel-scans", b"parcel_1", FIRST + b"\0" + unknown),
        ("parcel-scans", b"parcel_1", FIRST + b"\2\2" + unknown),
    ]
    return mixed_in(numbered(pipeline, range(2500)), others)


def recount_parcels(records: Sequence[Record]) -> Expected:
    expected = Expected()
    claims: dict[bytes, list[dict[str, Any]]] = {}
    for record in records:
        if record.value is None:
            continue
        try:
            if is_damaged(record.value):
                expected.passed.append((scan_of(record.value).depot.encode(), record))
                claims.setdefault(record.key or b"", []).append(claim_of(record.value))
        except ValueError:
            expected.dead.append(record)
    damages = counts(key for key, _ in expected.passed)
    expected.last["parcel-claims-damages-per-depot-changelog"] = damages
    expected.every["damage-claims"] = claims
    return expected


# -- a function on batches, and keys of several fields


SALE: dict[str, type] = {"id": str, "shop": str, "product": int, "quantity": int, "price": int, "cost": int}


def compact(value: Mapping[str, Any]) -> bytes:
    """As our writer writes it: without what is null."""
    known = {name: field for name, field in value.items() if field is not None}
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False).encode()


def with_margin(value: bytes) -> bytes:
    sale = {name: fields(value, **SALE).get(name) for name in SALE}
    parts = sale["quantity"], sale["price"], sale["cost"]
    margin = None if None in parts else parts[0] * (parts[1] - parts[2])
    return compact({name: sale[name] for name in ("shop", "product", "quantity")} | {"margin": margin})


def shop_and_product(key: bytes | None, value: bytes | None) -> bytes:
    sale = json.loads(value or b"{}")
    if "shop" not in sale or "product" not in sale:
        raise ValueError("a part of the key is missing")
    return compact({"shop": sale["shop"], "product": sale["product"]})


def margins_with(stored: bytes, sale: Mapping[str, Any]) -> bytes:
    before = json.loads(stored)
    after = {}
    for name, part in (("sold", "quantity"), ("margin", "margin")):
        amounts = [amount for amount in (before.get(name), sale.get(part)) if amount is not None]
        after[name] = sum(amounts) if amounts else None
    return compact(after)


def declare_sales(library: Library) -> None:
    def mapped(value: Any) -> bytes | None:
        return None if value is None else with_margin(bytes(value))

    def with_sale(key: Any, value: Any, stored: Any) -> bytes:
        return margins_with(bytes(stored), json.loads(bytes(value)))

    sales = library.stream("shop-sales", **SALE)
    sales = sales.mapValues(Callback(f"{STREAMS}.kstream.ValueMapper", apply=mapped))
    margins = library.grouped(sales, shop_and_product, "by-shop-and-product").aggregate(
        Callback(f"{STREAMS}.kstream.Initializer", apply=lambda: b"{}"),
        Callback(f"{STREAMS}.kstream.Aggregator", apply=with_sale),
        library.stored("margins"),
    )
    library.to(margins.toStream(), "shop-margins")


def shop_sales(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    others = [
        ("shop-sales", b"receipt", b"no JSON"),
        ("shop-sales", b"receipt", None),
        ("shop-sales", b"receipt", b'{"id": "of no shop", "product": 1, "quantity": 1, "price": 2, "cost": 1}'),
        ("shop-sales", b"receipt", b'{"id": "s", "shop": "K\xc3\xb8b"1", "product": -1, "quantity": 1, "price": 2}'),
        ("shop-sales", None, b'{"shop": "shop_1", "product": 1}'),
    ]
    return mixed_in(numbered(pipeline, range(2500)), others)


def recount_sales(records: Sequence[Record]) -> Expected:
    expected = Expected()
    margins: dict[bytes, bytes] = {}
    for record in records:
        try:
            value = with_margin(record.value or b"")
            key = shop_and_product(record.key, value)
        except ValueError:
            expected.dead.append(record)
            continue
        expected.passed.append((key, record._replace(value=value)))
        margins[key] = margins_with(margins.get(key, b"{}"), json.loads(value))
    expected.last = {"shop-margins-margins-changelog": margins, "shop-margins": margins}
    return expected


# -- others


def sensor_key(key: bytes | None, value: bytes | None) -> bytes | None:
    fields(value, id=str)
    return text(None if key is None else key.decode())


def declare_wide(library: Library) -> None:
    repartitioned = library.option("Repartitioned", "with", library.bytes, library.bytes)
    repartitioned = repartitioned.withName("wide").withNumberOfPartitions(4)
    grouped = library.stream("readings", id=str).repartition(repartitioned).groupByKey()
    grouped.count(library.stored("readings-per-sensor"))


def readings(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("readings", b"bad_1", b'"a string"'),
            ("readings", b"bad_2", b'{"id": 7}'),
            ("readings", None, b'{"id": "of no sensor"}'),
            ("readings", b"", b'{"id": "of a sensor without a name"}'),
        ],
    )


def page_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, page=str).get("page"))


def declare_skewed(library: Library) -> None:
    clicks = library.stream("clicks", id=str, page=str)
    library.grouped(clicks, page_key, "by-page").count(library.stored("clicks-by-page"))


def clicks(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("clicks", b"bad_1", b""),
            ("clicks", b"bad_2", b'{"id": "click", "page": {"name": "home"}}'),
            ("clicks", None, b'{"id": "click", "page": "home"}'),
            ("clicks", None, b'{"id": "click"}'),
        ],
    )


def view_key(key: bytes | None, value: bytes | None) -> bytes | None:
    view = fields(value, id=str, country=str, robot=bool)
    return text(view.get("country")) if view.get("robot") is False else None


def declare_pageviews(library: Library) -> None:
    def no_robot(key: Any, value: Any) -> bool:
        return value is not None and json.loads(bytes(value)).get("robot") is False

    views = library.stream("pageviews", id=str, country=str, robot=bool)
    views = views.filter(Callback(f"{STREAMS}.kstream.Predicate", test=no_robot))
    duration = library.jvm.java.time.Duration
    minutes = library.option("TimeWindows", "ofSizeAndGrace", duration.ofMinutes(1), duration.ofDays(1))
    windowed = library.grouped(views, view_key, "by-country").windowedBy(minutes)
    windowed.count(library.stored("views-per-country-and-minute"))


def views(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Every fiftieth comes one and a half minutes late."""
    late = [
        record._replace(timestamp=record.timestamp - 90_000 * (n % 50 == 49))
        for n, record in enumerate(numbered(pipeline, range(4000)))
    ]
    bad = [
        ("pageviews", b"bad_1", b"}"),
        ("pageviews", b"bad_2", b'{"id": "view", "country": "DE", "robot": "false"}'),
        ("pageviews", None, b'{"id": "view", "country": "DE", "robot": false}'),
        ("pageviews", b"bad_3", b'{"id": "view", "robot": false}'),
        ("pageviews", b"unknown", b'{"id": "view", "country": "DE"}'),  # not known to be no robot: left out
    ]
    return [*late, *(Record(*one, START_MS + number) for number, one in enumerate(bad))]


def recount_views(records: Sequence[Record]) -> Expected:
    expected = regrouped(records, view_key)
    expected.last["pageviews-per-minute-views-per-country-and-minute-changelog"] = counts(
        key + (record.timestamp // MINUTE_MS * MINUTE_MS).to_bytes(8, "big") + bytes(4)
        for key, record in expected.passed
    )
    return expected


def product_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, product=str).get("product"))


def declare_trending(library: Library) -> None:
    duration = library.jvm.java.time.Duration
    windows = library.option("TimeWindows", "ofSizeAndGrace", duration.ofMinutes(5), duration.ofDays(1))
    views = library.grouped(library.stream("product-views", id=str, product=str), product_key, "by-product")
    windowed = views.windowedBy(windows.advanceBy(duration.ofMinutes(1)))
    windowed.count(library.stored("views-in-five-minutes"))


def product_views(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Every fiftieth comes one and a half minutes late."""
    late = [
        record._replace(timestamp=record.timestamp - 90_000 * (n % 50 == 49))
        for n, record in enumerate(numbered(pipeline, range(4000)))
    ]
    bad = [("product-views", b"bad", b"}"), ("product-views", None, b'{"id": "view", "product": "boots"}')]
    return [*late, *(Record(*one, START_MS + number) for number, one in enumerate(bad))]


def recount_product_views(records: Sequence[Record]) -> Expected:
    expected = regrouped(records, product_key)
    expected.last["trending-products-views-in-five-minutes-changelog"] = counts(
        key + (record.timestamp // MINUTE_MS * MINUTE_MS - before * MINUTE_MS).to_bytes(8, "big") + bytes(4)
        for key, record in expected.passed
        for before in range(5)
    )
    return expected


def words_of(value: bytes | None) -> list[bytes]:
    """Raises ValueError where the value is not UTF-8."""
    return [] if value is None else [word.encode() for word in re.findall("[a-z]+", value.decode().lower())]


def word_value(word: bytes) -> bytes:
    return b'{"word":"%b"}' % word


def declare_words(library: Library) -> None:
    lines = library.builder.stream("text-lines", library.consumed_if(words_of))

    def apply(key: Any, value: Any) -> Any:
        words = library.jvm.java.util.ArrayList()
        for word in words_of(raw(value)):
            words.add(library.jvm.org.apache.kafka.streams.KeyValue(word, word_value(word)))
        return words

    words = lines.flatMap(Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=apply))
    grouped = words.groupByKey(library.option("Grouped", "with", "by-word", library.bytes, library.bytes))
    counts = grouped.count(library.stored("words"))
    produced = library.option("Produced", "with", library.bytes, library.serdes.Long())
    counts.toStream().to(library.output("word-counts"), produced)


def text_lines(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(2500)),
        [
            ("text-lines", b"bad", b"caf\xe9 in Latin-1"),
            ("text-lines", b"page", None),
            ("text-lines", b"page", b""),
            ("text-lines", None, "Ω, und Käse".encode()),
        ],
    )


def recount_words(records: Sequence[Record]) -> Expected:
    expected = Expected()
    for record in records:
        try:
            for word in words_of(record.value):
                expected.passed.append((word, record._replace(key=word, value=word_value(word))))
        except ValueError:
            expected.dead.append(record)
    words = counts(key for key, _ in expected.passed)
    expected.last = {"word-count-words-changelog": words, "word-counts": words}
    return expected


CASES = {
    "orders": Case(
        orders, counted("orders-aggregator-orders-products-quantities-changelog", order_key), declare_orders
    ),
    "users": Case(
        users,
        counted("users-by-country-KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog", country_key),
        declare_users,
    ),
    "latest": Case(measurements, recount_latest, declare_latest),
    "enriched": Case(purchases, recount_enriched, declare_enriched),
    "wide": Case(readings, counted("wide-counter-readings-per-sensor-changelog", sensor_key), declare_wide),
    "skewed": Case(clicks, counted("skewed-counter-clicks-by-page-changelog", page_key), declare_skewed),
    "pageviews": Case(views, recount_views, declare_pageviews),
    "trending": Case(product_views, recount_product_views, declare_trending),
    "payments": Case(order_payments, recount_payments, declare_payments),
    "visits": Case(page_requests, recount_visits, declare_visits),
    "alerts": Case(temperatures, recount_temperatures, declare_alerts),
    "unpaid_orders": Case(web_orders, recount_unpaid, declare_unpaid),
    "fraud": Case(card_payments, recount_fraud, declare_fraud),
    "profiles": Case(accounts, recount_profiles, declare_profiles),
    "shipments": Case(shipped, recount_shipments, declare_shipments),
    "scores": Case(transfers, recount_scores, declare_scores),
    "activity": Case(clicks_and_checkouts, recount_activity, declare_activity),
    "words": Case(text_lines, recount_words, declare_words),
    "invoices": Case(invoices, recount_invoices, declare_invoices, read_net),
    "parcels": Case(parcel_scans, recount_parcels, declare_parcels, read_claim),
    "sales": Case(shop_sales, recount_sales, declare_sales),
}
