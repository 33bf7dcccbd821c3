"""What a Python function returns as a key, or makes of the value of a table, and what becomes of a wrong result."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import UUID, Bytes, Double, Long
from streamplan.serdes.serde import Serde
from streamplan.testing import TopologyTestDriver

PAIR = Json("a string, n bigint")
SERDES: dict[str, Serde | None] = {
    "texts": None,
    "numbers": Long(),
    "doubles": Double(),
    "bytes": Bytes(),
    "ids": UUID(),
    "pairs": PAIR,
}

KEYS: dict[str, Any] = {
    "a text": "é",
    "a number": 17,
    "a large number": 1 << 63,
    "bytes": b"\x00\x01",
    "an id": uuid.UUID(int=5),
    "a pair": {"a": "x", "n": 1},
    "half a pair": {"a": "x"},
    "another pair": {"b": "x"},
    "a double": 0.5,
    "half a surrogate": "\ud800",
    "none": None,
}

WRITTEN = {
    "texts": ["é", str(uuid.UUID(int=5)), None],
    "numbers": [17, None],
    "doubles": [17.0, 0.5, None],
    "bytes": [b"\x00\x01", None],
    "ids": [str(uuid.UUID(int=5)), None],
    "pairs": [{"a": "x", "n": 1}, None],
}


def key_of(record: Any) -> Any:
    return KEYS[record.value]


@pytest.fixture(scope="module")
def driver(spark: SparkSession) -> Iterator[TopologyTestDriver]:
    topology = Topology("keys")
    stream = topology.stream("a", value=Json("value string"))
    for topic, serde in SERDES.items():
        stream.select_key(key_of, key_serde=serde).to(topic)
    table = topology.table("t", value=Json("n bigint"), store="t")
    table.filter(lambda value: 10 // value.n > 1).map_values(
        lambda key, value: {"m": value.n}, schema="m bigint"
    ).filter("m < 4", store="kept")
    topics = dict.fromkeys(("a", "t", *SERDES), 1)
    with TopologyTestDriver(Pipeline("keys", topology, "", topics), spark=spark) as driver:
        yield driver


def test_a_key_that_a_function_returns_has_the_type_of_its_serde(driver: TopologyTestDriver) -> None:
    with driver.micro_batch():
        for name in KEYS:
            driver.pipe("a", {"value": name}, key="k")
    assert {topic: [each.key for each in driver.output(topic)] for topic in SERDES} == WRITTEN
    reasons = [letter.reason for letter in driver.dead_letters]
    assert len(reasons) == sum(len(KEYS) - len(keys) for keys in WRITTEN.values())
    name = f"{__name__}.key_of"
    assert f"{name} returned the key 17, and String writes string" in reasons
    assert "the key has no n" in reasons


def test_a_table_keeps_the_value_before_one_at_which_its_function_fails(driver: TopologyTestDriver) -> None:
    before = len(driver.dead_letters)
    for value in ({"n": 1}, {"n": 0}, {"n": 3}, {"n": 0}):
        driver.pipe("t", value, key="k")
    assert driver.store("kept")["k"] == {"m": 3}
    driver.pipe("t", None, key="k")
    assert driver.store("kept").get("k") is None
    assert len(driver.dead_letters) == before + 2
