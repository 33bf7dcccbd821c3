"""Python functions on real brokers and Spark, against values worked out by hand."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.functions import arrow_batch
from streamplan.spark.recount.recount import recount

from tests.support.tried_topology import EPOCH, SALE, Tried, sale


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=True)
    yield made
    made.delete_topics()


@dataclass
class Receipt:
    shop: str
    unit: float
    at: str | None = None


def receipt_of(sale: Any) -> Receipt | None:
    if sale.amount is None:
        return None
    return Receipt(sale.shop, sale.weight / sale.amount, f"{sale.record.key} {sale.record.timestamp.timestamp():.0f}")


def is_paid(sale: Any) -> bool | None:
    paid: bool | None = sale.paid
    return paid


def letters_of(sale: Any) -> list[dict[str, Any]]:
    return [{"letter": letter, "amount": sale.amount} for letter in sale.shop]


@arrow_batch
def are_paid(sales: pa.RecordBatch) -> pa.Array:
    return sales["paid"]


@arrow_batch
def receipts_of(sales: pa.RecordBatch) -> dict[str, pa.Array]:
    if pc.any(pc.equal(sales["amount"], 0)).as_py():
        raise ZeroDivisionError("one is 0")
    seconds = pc.struct_field(sales["record"], "timestamp").cast(pa.int64())
    seconds = pc.divide(seconds, 1_000_000).cast(pa.string())
    at = pc.binary_join_element_wise(pc.struct_field(sales["record"], "key"), seconds, " ", null_handling="replace")
    return {"shop": sales["shop"], "unit": pc.divide(sales["weight"], sales["amount"]), "at": at}


def of_wrong_types(sale: Any) -> Any:
    wrong: Sequence[Any] = (
        {"amount": "4"}, {"amount": 4.5}, {"amount": True}, {"amount": 1 << 63}, {"mean": float("nan")},
        {"other": 1}, 5, {"amount": 1, "mean": 2}, {},
    )  # fmt: skip
    return wrong[sale.amount]


def test_functions_give_values_records_and_conditions(tried: Tried) -> None:
    """What raises, or returns another type, is a dead letter with the reason; a null value has no fields."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.filter(is_paid).map_values(receipt_of).to(tried.named("receipts"))
    letters = sales.filter("shop is not null").flat_map(letters_of, schema="letter string, amount bigint", key="letter")
    letters.group_by_key(name="by-letter").aggregate({"total": "sum(amount)"}, store="letters")
    tried.create_topics()
    tried.produce("sales", [("a", sale("xy", 4, 2.0), 1), ("b", sale("y", 0), 2), ("c", sale("z", 8, paid=False), 3)])
    tried.produce("sales", [("d", sale("x", None), 4), ("e", None, 5), (None, sale("", 1), 6), ("f", b"no JSON", 7)])
    tried.drain()
    line = receipt_of.__code__.co_firstlineno + 3
    raised = f"{__name__}.receipt_of raised ZeroDivisionError in line {line}: float division by zero"
    assert tried.dead_letters() == [("sales", raised), ("sales", "the value is not JSON")]
    receipts = [
        ("a", {"shop": "xy", "unit": 0.5, "at": f"a {EPOCH // 1000 + 1}"}),
        ("d", {}),  # no value was made of a record that has one
        (None, {"shop": "", "unit": 1.5, "at": f"None {EPOCH // 1000 + 6}"}),
    ]
    assert tried.records("receipts") == sorted(receipts, key=repr)
    assert tried.store("letters") == {"x": {"total": 4}, "y": {"total": 4}, "z": {"total": 8}}
    tried.produce("sales", [("g", sale("xz", 16), 8)])
    tried.drain()
    assert tried.store("letters") == {"x": {"total": 20}, "y": {"total": 4}, "z": {"total": 24}}
    cluster = KafkaCluster(Brokers(tried.bootstrap_servers))
    rows = recount(tried.spark, tried.pipeline, cluster, Brokers(tried.bootstrap_servers))
    assert [row for row in rows if not row.agrees] == []


def test_a_result_that_does_not_fit_its_schema_is_rejected(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.map_values(of_wrong_types, schema="amount bigint, mean double").to(tried.named("made"))
    tried.create_topics()
    tried.produce("sales", [("k", sale("x", number), number) for number in range(9)])
    tried.drain()
    name = f"{__name__}.of_wrong_types returned"
    assert tried.dead_letters() == sorted(
        ("sales", f"{name} {what}")
        for what in (
            "a amount of another type than its schema: '4'",
            "a amount of another type than its schema: 4.5",
            "a amount of another type than its schema: True",
            "a amount of another type than its schema: 9223372036854775808",
            "nan as mean, which is no number",
            "the field other, which its schema does not have",
            "int, and not a mapping of fields",
        )
    )
    assert tried.records("made") == sorted([("k", {"amount": 1, "mean": 2.0}), ("k", {})], key=repr)


def test_a_function_may_stop_the_application(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.map_values(receipt_of, on_error="stop").to(tried.named("receipts"))
    tried.create_topics()
    tried.produce("sales", [("b", sale("y", 0), 2)])
    with pytest.raises(StreamplanError, match="ZeroDivisionError"):
        tried.drain()
    assert tried.dead_letters() == []


@pytest.mark.soak
def test_functions_of_arrow_batches_give_what_functions_of_records_give(tried: Tried) -> None:
    """A record for which the function raises is a dead letter. The other records of its batch are not."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    receipts = sales.filter(are_paid).map_values(receipts_of, schema="shop string, unit double, at string")
    receipts.to(tried.named("receipts"))
    receipts.group_by("shop", name="by-shop").aggregate({"total": "sum(unit)"}, store="units")
    tried.create_topics()
    tried.produce("sales", [("a", sale("xy", 4, 2.0), 1), ("b", sale("y", 0), 2), ("c", sale("z", 8, paid=False), 3)])
    tried.produce("sales", [("d", sale("x", 1), 4), ("e", None, 5), (None, sale("y", 1), 6), ("f", b"no JSON", 7)])
    tried.drain()
    line = receipts_of.__code__.co_firstlineno + 3
    raised = f"{__name__}.receipts_of raised ZeroDivisionError in line {line}: one is 0"
    assert tried.dead_letters() == [("sales", raised), ("sales", "the value is not JSON")]
    seconds = EPOCH // 1000
    assert tried.records("receipts") == sorted(
        [
            ("a", {"shop": "xy", "unit": 0.5, "at": f"a {seconds + 1}"}),
            ("d", {"shop": "x", "unit": 1.5, "at": f"d {seconds + 4}"}),
            (None, {"shop": "y", "unit": 1.5, "at": f" {seconds + 6}"}),
        ],
        key=repr,
    )
    assert tried.store("units") == {"xy": {"total": 0.5}, "x": {"total": 1.5}, "y": {"total": 1.5}}
    cluster = KafkaCluster(Brokers(tried.bootstrap_servers))
    rows = recount(tried.spark, tried.pipeline, cluster, Brokers(tried.bootstrap_servers))
    assert [row for row in rows if not row.agrees] == []


@arrow_batch
def the_sum(sales: pa.RecordBatch) -> dict[str, list[Any]]:
    return {"total": [pc.sum(sales["amount"]).as_py()]}


def test_a_batch_of_results_of_another_length_stops_the_application(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.map_values(the_sum, schema="total bigint").to(tried.named("totals"))
    tried.create_topics()
    tried.produce("sales", [("k", sale("y", 1), number) for number in range(3)])
    with pytest.raises(StreamplanError, match=r"one value for each of 3 records, observed 1 values"):
        tried.drain()
    assert tried.dead_letters() == []


def spoilt(sale: Any) -> dict[str, Any]:
    """Raise what cannot be encoded, has no text, is larger than a record may be, or is no Exception."""
    match sale.shop:
        case "surrogate":
            raise ValueError("\ud800")
        case "untold":
            raise type("Untold", (Exception,), {"__str__": lambda _: 1 / 0})
        case "incompressible":
            raise ValueError(random.Random(1).randbytes(1_500_000).hex())
        case "compressible":
            raise ValueError("x" * 5_000_000)
        case "exits":
            sys.exit(3)
    return {"amount": sale.amount}


def test_whatever_a_function_raises_the_dead_letter_has_the_record_and_a_reason(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.map_values(spoilt, schema="amount bigint").to(tried.named("made"))
    tried.create_topics()
    shops = ["surrogate", "untold", "incompressible", "compressible", "exits"]
    tried.produce("sales", [("k", sale(shop, 1), n) for n, shop in enumerate([*shops, "sound"])])
    tried.drain()
    assert [(key, value["amount"]) for key, value in tried.records("made")] == [("k", 1)]
    letters = {json.loads(m.value())["shop"]: dict(m.headers()) for m in tried.read(tried.topology.dead_letter_topic)}
    assert letters.keys() == set(shops)
    reasons = {shop: headers["streamplan.reason"].decode() for shop, headers in letters.items()}
    assert reasons["surrogate"].endswith(": \\ud800")
    assert "Untold" in reasons["untold"]
    assert "SystemExit" in reasons["exits"]
    assert all(len(reason) < 4_100 for reason in reasons.values())
    assert all("streamplan.omitted" not in headers for headers in letters.values())


def test_a_dead_letter_topic_that_takes_too_little_is_named_with_its_setting(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.map_values(spoilt, schema="amount bigint").to(tried.named("made"))
    tried.create_topics()
    admin = AdminClient({"bootstrap.servers": tried.bootstrap_servers})
    topic = tried.topology.dead_letter_topic
    limit = [ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=limit)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(120)
    tried.produce("sales", [("k", sale("incompressible", 1), 0)])
    with pytest.raises(Refused, match=rf"(?s)too large.*max\.message\.bytes.*{topic}"):
        tried.drain()
