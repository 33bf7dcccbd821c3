"""The pipeline of docs/reference-table.md and its tests, taken from the page."""

from __future__ import annotations

import re
import shlex
import sys
from functools import partial
from types import FunctionType, ModuleType

import pytest
import streamplan.testing
from pyspark.sql import SparkSession
from streamplan.model.unnamed import unnamed
from streamplan.testing import TopologyTestDriver

from tests.support.page_files import file_of_page
from tests.support.wheel import CLONE
from website.reference import parser_of_commands

PAGE = CLONE / "docs" / "reference-table.md"


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the page declares, where its tests import it."""
    module = ModuleType("my_pipelines.priced_orders")
    monkeypatch.setitem(sys.modules, "my_pipelines", ModuleType("my_pipelines"))
    monkeypatch.setitem(sys.modules, "my_pipelines.priced_orders", module)
    exec(compile(file_of_page(PAGE, "my_pipelines/priced_orders.py"), str(PAGE), "exec"), module.__dict__)
    return module


def test_its_topology_has_no_fault_and_names_its_stores(pipeline: ModuleType) -> None:
    assert pipeline.PIPELINE.topology.faults == ()
    assert unnamed(pipeline.PIPELINE.topology) == ()


def test_the_tests_of_the_page_pass(pipeline: ModuleType, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamplan.testing, "TopologyTestDriver", partial(TopologyTestDriver, spark=spark))
    namespace: dict[str, object] = {}
    exec(compile(file_of_page(PAGE, "tests/test_priced_orders.py"), str(PAGE), "exec"), namespace)
    tests = [test for name, test in namespace.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        assert isinstance(test, FunctionType)
        test()


def test_the_commands_of_the_page_are_understood() -> None:
    commands = re.findall(r"^    streamplan (.*)$", PAGE.read_text(), re.M)
    assert len(commands) == 8
    for command in commands:
        parser_of_commands().parse_args(shlex.split(command.partition(" < ")[0]))
