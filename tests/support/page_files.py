"""The files that a page of the documentation tells its reader to write."""

from __future__ import annotations

import re
import sys
import textwrap
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
import streamplan.testing
from pyspark.sql import SparkSession
from streamplan.testing import TopologyTestDriver


def file_of_page(page: Path, name: str) -> str:
    """Return the text of a file that a page has behind the words ``Write this file as``."""
    [text] = re.findall(rf"^Write this file as `{name}`:\n\n((?:    .*\n|\n(?=\n*    ))+)", page.read_text(), re.M)
    return textwrap.dedent(text)


def module_of_page(page: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module ``my_pipelines.<name>`` that a page declares, where its tests import it."""
    module = ModuleType(f"my_pipelines.{name}")
    monkeypatch.setitem(sys.modules, "my_pipelines", ModuleType("my_pipelines"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(file_of_page(page, f"my_pipelines/{name}.py"), str(page), "exec"), module.__dict__)
    return module


def run_tests_of_page(page: Path, name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the tests in the file ``tests/test_<name>.py`` of a page; return how many there are."""
    monkeypatch.setattr(streamplan.testing, "TopologyTestDriver", partial(TopologyTestDriver, spark=spark))
    namespace: dict[str, object] = {}
    exec(compile(file_of_page(page, f"tests/test_{name}.py"), str(page), "exec"), namespace)
    tests = [test for called, test in namespace.items() if called.startswith("test_")]
    for test in tests:
        assert isinstance(test, FunctionType)
        test()
    return len(tests)
