"""The pipeline of docs/reference-table.md and its tests, taken from the page."""

from __future__ import annotations

import re
import shlex
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from streamplan.model.unnamed import unnamed

from tests.support.page_files import module_of_page, run_tests_of_page
from tests.support.wheel import CLONE
from website.reference import parser_of_commands

PAGE = CLONE / "docs" / "reference-table.md"


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the page declares, where its tests import it."""
    return module_of_page(PAGE, "priced_orders", monkeypatch)


def test_its_topology_has_no_fault_and_names_its_stores(pipeline: ModuleType) -> None:
    assert pipeline.PIPELINE.topology.faults == ()
    assert unnamed(pipeline.PIPELINE.topology) == ()


def test_the_tests_of_the_page_pass(pipeline: ModuleType, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_tests_of_page(PAGE, "priced_orders", spark, monkeypatch) == 3


def test_the_commands_of_the_page_are_understood() -> None:
    commands = re.findall(r"^    streamplan (.*)$", PAGE.read_text(), re.M)
    assert len(commands) == 8
    for command in commands:
        parser_of_commands().parse_args(shlex.split(command.partition(" < ")[0]))
