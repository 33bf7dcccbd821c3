"""A broken pipeline is named, and the commands go on with the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from streamplan.cli import exporter, main
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology

ORDERS, USERS = "streamplan.pipelines.orders", "streamplan.pipelines.users"


@pytest.fixture(autouse=True)
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two sound pipelines, and between them a module with a typo."""
    (tmp_path / "typo_module.py").write_text("\nfrom streamplan import Pipline\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STREAMPLAN_PIPELINES", f"{ORDERS},typo_module,{USERS}")
    return f"{tmp_path}/typo_module.py:2: ImportError: cannot import name 'Pipline'"


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()]


def test_list_shows_the_others(capsys: pytest.CaptureFixture[str], broken: str) -> None:
    assert main(["list"]) == 1
    printed = capsys.readouterr()
    assert first_words(printed.out) == ["PIPELINE", "orders", "users"]
    assert printed.err.startswith("module typo_module (STREAMPLAN_PIPELINES): ")
    assert broken in printed.err


def test_list_names_it_where_there_is_no_other(
    capsys: pytest.CaptureFixture[str], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "typo_module")
    assert main(["list"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, broken in printed.err) == ("", True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pipelines that Spark is asked about."""
    names: list[str] = []

    def find_diagnostics(pipelines: Sequence[Pipeline]) -> list[Any]:
        names.extend(pipeline.name for pipeline in pipelines)
        return []

    module = SimpleNamespace(find_diagnostics=find_diagnostics)
    monkeypatch.setitem(__import__("sys").modules, "streamplan.spark.planning.validation", module)
    return names


@pytest.mark.parametrize("words", [[], ["orders", "typo_module", "users"]])
def test_validate_judges_the_others(
    words: list[str], asked: list[str], capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    assert main(["validate", *words]) == 1
    printed = capsys.readouterr()
    assert [line for line in printed.out.splitlines() if line.endswith(": ok")] == ["orders: ok", "users: ok"]
    assert asked == ["orders", "users"]
    assert broken in printed.err


def test_a_name_that_no_pipeline_has_ends_nothing_for_the_others(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "ordres", "users"]) == 1
    assert asked == ["users"]
    assert "pipeline 'ordres': expected orders or users" in capsys.readouterr().err


def test_a_name_that_no_pipeline_has_is_refused_where_no_declaration_has_a_fault(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPLAN_PIPELINES", f"{ORDERS},{USERS}")
    assert main(["validate", "ordres", "users"]) == 78
    assert asked == ["users"]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Prometheus reads of the exporter, instead of its waiting for ever."""
    texts: list[str] = []
    serve = exporter.serve

    def serve_and_read(collector: Any, host: str, port: int) -> Any:
        port, stop = serve(collector, host, 0)
        with urlopen(f"http://{host}:{port}/metrics", timeout=120) as answer:
            texts.append(answer.read().decode())
        return port, stop

    monkeypatch.setattr(exporter, "serve", serve_and_read)
    monkeypatch.setattr(exporter, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(exporter, "Event", lambda: SimpleNamespace(wait=lambda: None))
    return texts


@pytest.mark.parametrize(
    ("words", "others", "named"),
    [
        ([], ["orders", "users"], ["typo_module"]),
        (["users", "typo_module"], ["users"], ["typo_module"]),
        (["orders"], ["orders"], []),
    ],
)
def test_the_exporter_has_the_metrics_of_the_others_and_one_of_the_broken(
    words: list[str],
    others: list[str],
    named: list[str],
    served: list[str],
    broken: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMPLAN_HOME", str(tmp_path / "home"))
    assert main(["exporter", *words, "--bootstrap-servers", "127.0.0.1:1"]) == 0
    (text,) = served
    assert re.findall(r'^streamplan_brokers_answering\{pipeline="(.*)"\}', text, re.M) == others
    assert re.findall(r'^streamplan_pipeline_broken\{pipeline="(.*)"\} 1.0', text, re.M) == named
    assert (broken in capsys.readouterr().err) == bool(named)


def test_the_exporter_of_broken_pipelines_alone_says_so_and_ends(
    served: list[str], broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exporter", "typo_module", "--bootstrap-servers", "127.0.0.1:1"]) == 78
    assert served == []
    assert broken in capsys.readouterr().err


TIMED = """
from streamplan import Json, Pipeline, TestData, Topology

topology = Topology("timed")
topology.stream("payments", value=Json("id string, time timestamp")).filter("time IS NOT NULL").to("kept")
record = lambda n: ("payments", b"k", {"id": str(n), "time": "noon"})
data = TestData(("payments",), record, "id")
PIPELINE = Pipeline("timed", topology, "", {"payments": 1}, test_data=data)
"""


def test_validate_tells_that_test_data_cannot_be_written(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "timed_module.py").write_text(TIMED)
    monkeypatch.setenv("STREAMPLAN_PIPELINES", f"{ORDERS},timed_module")
    assert main(["validate"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "warning: " not in line]
    assert lines == [
        "orders: ok",
        "timed: 1 fault",
        "  record 0 of test_data: time: expected a datetime, or a text as '2026-01-01T12:00:00Z', observed 'noon'",
    ]


FAULTY = """
from streamplan import Json, Pipeline, Topology

topology = Topology("faulty")
orders = topology.stream("orders", value=Json("id string, amount bigint"))
orders.filter("amonut").to("a")
orders.map_values(5).filter("nothing").to("b")
orders.map_values({"x": "no_function(id)"}).to("c")
PIPELINE = Pipeline("faulty", topology, "", {"orders": 1})
"""


def test_validate_tells_what_spark_finds_beside_the_faults_of_a_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the declaration tells already is told once. Nothing is judged behind a fault that makes fields unknown."""
    (tmp_path / "faulty_module.py").write_text(FAULTY)
    monkeypatch.setenv("STREAMPLAN_PIPELINES", f"{ORDERS},faulty_module")

    def find_diagnostics(pipelines: Sequence[Pipeline], unfinished: Sequence[Topology]) -> list[Diagnostic]:
        (topology,) = unfinished
        nodes = {node.location.line: node for node in topology.without_faults().processors.nodes}
        assert sorted(nodes) == [5, 6, 8]
        return [
            Diagnostic(nodes[6].location, "filter: the value has no field 'amonut'", "Write amount"),
            Diagnostic(nodes[8].location, "map_values, x: there is no function no_function", "Write another"),
        ]

    module = SimpleNamespace(find_diagnostics=find_diagnostics)
    monkeypatch.setitem(__import__("sys").modules, "streamplan.spark.planning.validation", module)
    assert main(["validate"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "orders: ok"
    heading, *lines = printed.err.splitlines()
    assert heading == "pipeline 'faulty' has 3 faults:"
    assert [line.partition(".py:")[2].partition(": ")[::2] for line in lines] == [
        ("6", "filter: the value has no field 'amonut'. It has: id, amount. Did you mean amount?"),
        (
            "7",
            "map_values: value is the number 5; it takes a mapping such as {'name': 'expression'} or a function. "
            'For example stream.map_values({"total": "price * count"})',
        ),
        ("8", "map_values, x: there is no function no_function. Write another"),
    ]
