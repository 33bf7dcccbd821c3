"""The declarations of docs/quick-starts.md, taken from the page. They compute what it says, in as few lines."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.model.pipeline import Pipeline
from streamplan.model.unnamed import unnamed
from streamplan.pipelines import fraud
from streamplan.queries.answers import OPERATIONS
from streamplan.queries.store_form import changelogs_of, forms_of
from streamplan.testing import TopologyTestDriver

from tests.support.wheel import CLONE

PAGE = CLONE / "docs" / "quick-starts.md"

BLOCK = re.compile(r"^    (?:import \w+\n\n    )?from streamplan import .*\n(?:    .*\n|\n(?=    |\n))*", re.M)
ROW = re.compile(r"^\| \[(.+)]\(#.+\) \| (\d+) \| (\d+) \|$", re.M)

WORD_COUNT = "Kafka Streams: word count"
PROCESSOR = "Kafka Streams: word count with a processor"
QUERIES = "Kafka Streams: interactive queries"
PAGE_VIEWS = "Faust: page views"
SPLIT = "Quix Streams: split messages"
ANOMALIES = "Quix Streams: anomaly detection"
PURCHASES = "Quix Streams: purchase filtering"
TITLES = (WORD_COUNT, PROCESSOR, QUERIES, PAGE_VIEWS, SPLIT, ANOMALIES, PURCHASES)

NOON_MS = 1_767_268_800_000
"""2026-01-01T12:00:00Z"""

Drive = Callable[[str], TopologyTestDriver]


def declarations() -> dict[str, str]:
    """The Python text of each section of the page that has one, by the section's title."""
    sections = [section.split("\n", 1) for section in PAGE.read_text().split("\n## ")[1:]]
    return {title: textwrap.dedent(found[0]) for title, text in sections if (found := BLOCK.findall(text))}


def pipeline_of(title: str) -> Pipeline:
    """The pipeline that a section declares."""
    namespace: dict[str, Any] = {"__name__": "quick_start"}
    exec(compile(declarations()[title], str(PAGE), "exec"), namespace)
    pipeline = namespace["PIPELINE"]
    assert isinstance(pipeline, Pipeline)
    return pipeline


@pytest.fixture
def drive(spark: SparkSession) -> Iterator[Drive]:
    """Makes a driver of a section's pipeline."""
    with ExitStack() as drivers:
        yield lambda title: drivers.enter_context(TopologyTestDriver(pipeline_of(title), spark=spark))


def test_the_page_declares_what_is_tested_here_and_counts_its_lines() -> None:
    counted = {
        title: sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
        for title, text in declarations().items()
    }
    rows = {title: (int(there), int(here)) for title, there, here in ROW.findall(PAGE.read_text())}
    assert tuple(counted) == tuple(rows) == TITLES
    assert {title: here for title, (_, here) in rows.items()} == counted
    assert [title for title, (there, here) in rows.items() if here > there] == []


def test_the_declarations_name_their_stores_and_repartition_topics() -> None:
    assert {title: unnamed(pipeline_of(title).topology) for title in TITLES} == dict.fromkeys(TITLES, ())


def test_word_count(drive: Drive) -> None:
    driver = drive(WORD_COUNT)
    counts: Counter[str] = Counter()
    for line in ("all streams lead to kafka", "hello kafka streams", " Join Kafka's summit, KAFKA_2!"):
        driver.pipe("streams-plaintext-input", line)
        words = re.findall(r"\w+", line.lower(), re.ASCII)
        counts.update(words)
        updates = [(record.key, record.value) for record in driver.output("streams-wordcount-output")]
        assert sorted(updates) == sorted((word, counts[word]) for word in {*words})
    assert driver.store("counts") == counts
    assert driver.dead_letters == []


def test_word_count_with_a_processor(drive: Drive) -> None:
    """The first record and those that reach a second call the punctuator, which has the words of the record."""
    driver = drive(PROCESSOR)
    counts: Counter[str] = Counter()
    for milliseconds, line in ((0, "hello kafka"), (400, "kafka streams"), (1_100, "all streams"), (1_900, "all")):
        driver.pipe("streams-plaintext-input", line, at=NOON_MS + milliseconds)
        counts.update(line.split())
        written = [(record.key, record.value) for record in driver.output("streams-wordcount-processor-output")]
        is_called = milliseconds in (0, 1_100)
        assert written == ([(word, str(counts[word])) for word in sorted(counts)] if is_called else [])
    assert driver.store("Counts") == counts


def test_interactive_queries(drive: Drive) -> None:
    """The words of each minute are in both stores, which can be asked with the operations that the page names."""
    driver = drive(QUERIES)
    counts, by_minute = Counter[str](), Counter[tuple[str, int]]()
    with driver.micro_batch():
        for minute, line in enumerate(("hello kafka streams", "all streams lead to kafka", "join kafka summit")):
            driver.pipe("TextLinesTopic", line, at=NOON_MS + minute * 60_000)
            counts.update(line.split())
            by_minute.update((word, minute) for word in line.split())
    assert driver.store("word-count") == counts
    windows = {(key.key, (key.start.timestamp() * 1000 - NOON_MS) // 60_000): n for key, n in stored(driver)}
    assert windows == by_minute
    forms = forms_of(pipeline_of(QUERIES), dict.fromkeys(changelogs_of(pipeline_of(QUERIES)).values(), 3))
    section = PAGE.read_text().split(f"## {QUERIES}")[1].split("\n## ")[0]
    asked = re.findall(r"`/stores/([a-z-]+)/([a-z_]+)", section)
    assert len(asked) == 5
    assert all(operation in OPERATIONS[forms[store].kind] for store, operation in asked if operation != "partition")


def stored(driver: TopologyTestDriver) -> list[tuple[Any, int]]:
    return [*driver.store("windowed-word-count").items()]


def test_page_views(drive: Drive) -> None:
    driver = drive(PAGE_VIEWS)
    views = [{"id": page, "user": user} for user in ("bar", "baz") for page in ("foo", "foo", "index")]
    with driver.micro_batch():
        for view in views:
            driver.pipe("page_views", view)
    expected = Counter(view["id"] for view in views)
    changes = {record.key: record.value for record in driver.output("page_views-page_views-changelog")}
    assert changes == driver.store("page_views") == expected
    assert driver.dead_letters == []


def test_split_messages(drive: Drive) -> None:
    driver = drive(SPLIT)
    messages = [("id1", "Lorem ipsum dolor sit amet"), ("id2", "  Consectetur\tadipiscing "), ("id1", "")]
    with driver.micro_batch():
        for chat, text in messages:
            driver.pipe("messages", {"chat_id": chat, "text": text}, key=chat)
    expected = [(chat, {"text": word, "length": len(word)}) for chat, text in messages for word in text.split()]
    assert [(record.key, record.value) for record in driver.output("words")] == expected
    assert driver.dead_letters == []


def test_card_alarms(spark: SparkSession) -> None:
    """The test that the page has for the pipeline ``fraud``, word by word."""
    (text,) = re.findall(r"^ {7}with TopologyTestDriver.*\n(?: {11}.*\n)+", PAGE.read_text(), re.M)
    driver_of = partial(TopologyTestDriver, spark=spark)
    exec(textwrap.dedent(text), {"TopologyTestDriver": driver_of, "PIPELINE": fraud.PIPELINE})


def test_temperature_alerts(drive: Drive) -> None:
    """Machines 0 and 1 are well, and machine 2 becomes too hot, as in the tutorial."""
    driver = drive(ANOMALIES)
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    alerted: set[str] = set()
    for second, temperatures in enumerate(((66, 58, 88), (67, 95, 91), (66, 57, 95))):
        expected: list[tuple[str, float]] = []
        with driver.micro_batch():
            for machine, temperature in zip("012", temperatures, strict=True):
                at = NOON_MS + second * 1000 + 200 * int(machine)
                driver.pipe("temperature-readings", {"Temperature_C": temperature}, key=machine, at=at)
                for start in range(at // 1000 * 1000 - 4000, at + 1, 1000):
                    readings = windows[machine, start]
                    readings.append(temperature)
                    mean = round(float(Fraction(sum(readings), len(readings))), 2)
                    if mean >= 90:
                        expected.append((machine, mean))
        alerts = [(record.key, record.value["mean"]) for record in driver.output("temperature_alerts")]
        assert sorted(alerts) == sorted(expected), second
        alerted.update(machine for machine, _ in alerts)
    assert alerted == {"1", "2"}  # one reading of machine 1 is alone in the window that begins with it
    assert driver.dead_letters == []


def test_purchase_filtering(drive: Drive) -> None:
    driver = drive(PURCHASES)
    customers = [
        ("Jane", "Doe", "Gold", [(13.99, 1), (12.59, 2)]),
        ("Rob", "Roe", "Bronze", [(13.99, 13)]),
        ("How", "Dat", "Silver", [(3.14, 7), (7.77, 13)]),
        ("The", "Reaper", "Gold", [(7.77, 99)]),
        ("No", "Body", "Gold", []),
    ]
    expected = []
    with driver.micro_batch():
        for number, (first, last, membership, items) in enumerate(customers):
            purchase = {
                "First Name": first,
                "Last Name": last,
                "Email": f"{first.lower()}@mail.test",
                "Membership Type": membership,
                "Purchases": [
                    {"Item ID": f"item{n}", "Price": price, "Quantity": quantity}
                    for n, (price, quantity) in enumerate(items)
                ],
            }
            key = f"CUSTOMER_ID{number}"
            driver.pipe("customer-purchases", json.dumps(purchase).encode(), key=key)
            if membership in ("Silver", "Gold") and sum(price * quantity for price, quantity in items) * 1.1 >= 100:
                expected.append((key, {"FullName": f"{first} {last}", "Email": purchase["Email"]}))
        driver.pipe("customer-purchases", b'{"Membership Type": "Gold", "Purchases": [{"Price": "much"}]}', key="dead")
        driver.pipe("customer-purchases", b'{"Membership Type": "Gold", "Purchases": [{"Quantity": 500}]}', key="free")
    assert len(expected) == 2
    records = driver.output("customers_coupon_qualified")
    assert [(record.key, record.value) for record in records] == expected
    [letter] = driver.dead_letters
    assert (letter.key, letter.reason) == ("dead", "Purchases[0].Price is not of type double")
