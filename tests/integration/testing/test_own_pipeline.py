"""The pipeline of docs/own-pipeline.md and its test, both taken from the page."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from streamplan.model.unnamed import unnamed
from streamplan.testing import TopologyTestDriver

from tests.support.page_files import module_of_page, run_tests_of_page
from tests.support.wheel import CLONE
from website.reference import parser_of_commands

PAGE = CLONE / "docs" / "own-pipeline.md"

NOON_MS = 1_767_268_800_000
"""2026-01-01T12:00:00Z"""


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the page declares, where its test imports it."""
    return module_of_page(PAGE, "payments", monkeypatch)


def test_its_topology_has_no_fault_and_names_its_stores(pipeline: ModuleType) -> None:
    assert pipeline.PIPELINE.topology.faults == ()
    assert unnamed(pipeline.PIPELINE.topology) == ()


def test_the_tests_of_the_page_pass(pipeline: ModuleType, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_tests_of_page(PAGE, "payments", spark, monkeypatch) == 2


def test_the_records_for_trials_raise_the_alarms_that_the_page_tells(pipeline: ModuleType, spark: SparkSession) -> None:
    counts: Counter[str] = Counter()
    with TopologyTestDriver(pipeline.PIPELINE, spark=spark) as driver:
        with driver.micro_batch():
            for number in range(1000):
                topic, key, value = pipeline.payment(number)
                driver.pipe(topic, value, key=key, at=NOON_MS + number)
                counts[json.loads(value)["country"]] += 1
        alarms = driver.output("alarms")
        assert [(alarm.key, alarm.value["payments"]) for alarm in sorted(alarms, key=lambda alarm: alarm.key)] == [
            (f"busy_{n}", 4) for n in range(10)
        ]
        stored = {key.key: value["payments"] for key, value in driver.store("per-country").items()}
        assert stored == counts
        assert driver.dead_letters == []
    assert f"Germany has {counts['DE']} of the\n1,000 payments" in PAGE.read_text()


def test_the_commands_of_the_page_are_understood() -> None:
    commands = re.findall(r"^    streamplan (.*)$", PAGE.read_text(), re.M)
    assert len(commands) == 5
    for command in commands:
        parser_of_commands().parse_args(shlex.split(command))
    assert "produce payments --records 1000" in commands
