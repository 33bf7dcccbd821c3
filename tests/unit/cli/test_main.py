from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from streamplan import __version__, registry
from streamplan.cli import COMMANDS, main
from streamplan.errors import Refused
from streamplan.model.diagnostics import Diagnostic, SourceLocation
from streamplan.model.pipeline import Pipeline
from streamplan.registry import pipeline_named
from streamplan.settings import PROJECT

from tests.support.examples import PIPELINES


def fake_validation(monkeypatch: pytest.MonkeyPatch, *found: Diagnostic) -> list[list[str]]:
    """Stands for the module that asks Spark; gives the names of the pipelines of each call."""
    asked: list[list[str]] = []

    def find_diagnostics(pipelines: Sequence[Pipeline]) -> list[Diagnostic]:
        asked.append([pipeline.name for pipeline in pipelines])
        return [*found]

    module = ModuleType("streamplan.spark.planning.validation")
    module.find_diagnostics = find_diagnostics  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


def test_list_gives_each_pipeline_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["PIPELINE", "APPLICATION", "READS", "WRITES", "STORES", "TASKS"]
    assert [line.split()[0] for line in lines] == [pipeline.name for pipeline in PIPELINES]
    assert lines[0].split() == ["orders", "orders-aggregator", "orders", "-", "orders-products-quantities", "4"]


def test_describe_prints_the_description_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    for pipeline in PIPELINES:
        assert main(["describe", pipeline.name]) == 0
        printed = capsys.readouterr()
        assert printed.out == pipeline.topology.describe()
        assert printed.err == ""


def test_a_name_that_is_not_declared_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["describe"], ["plan"], ["validate"], ["check"], ["top"], ["reset", "--yes"], ["redrive", "--all"]):
        assert main([words[0], "order", *words[1:]]) == 78
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("pipeline 'order': expected orders")
        assert "Did you mean orders?" in printed.err


def test_plan_shows_what_a_pipeline_consists_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "orders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders  application orders-aggregator"
    repartition = "orders-aggregator-orders-products-quantities-repartition"
    for line in (
        "     reads   orders (2)",
        f"     writes  {repartition} (2)",
        f"     reads   {repartition} (2)",
        "     store   orders-products-quantities, changelog orders-aggregator-orders-products-quantities-changelog",
        "     source, 2 partitions",
        "     cleanup.policy=compact  message.timestamp.type=CreateTime",
        "Dead letters",
        "  0  a re-drive",
        "  1  no re-drive, because it has state (orders-products-quantities): a reset processes it again",
        "  instance-1  0_0  1_0*",
        "  instance-2  0_1  1_1*",
    ):
        assert line in lines
    assert any(line.endswith(" of 1,048,588 bytes with 4 instances") for line in lines)
    assert any(line.endswith(" with 4 instances, each with an application.server of 27 characters") for line in lines)
    assert not any("example.org" in line for line in lines)
    assert not any("Load" in line for line in lines)


def test_without_brokers_the_counts_of_others_are_left_open(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = replace(PIPELINES[0], topic_partitions={}, test_data=None)
    monkeypatch.setattr("streamplan.pipelines.PIPELINES", (others,))
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("known to the cluster")
    assert main(["describe", "orders"]) == 0
    assert capsys.readouterr().out == others.topology.describe()
    assert main(["plan", "orders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "     external source, as many partitions as the cluster has" in lines
    assert lines[-1].startswith("orders: as many partitions as the cluster has. With --bootstrap-servers")
    assert main(["plan", "orders", "--load", "0_0=1"]) == 78
    assert "the partition counts of orders" in capsys.readouterr().err


def test_plan_names_idle_instances(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "orders", "--instances", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  instance-5  idle" in lines
    assert "  Idle, because there are not enough stream tasks: instance-5, instance-6" in lines


def test_plan_shows_how_a_hot_partition_makes_equal_numbers_unequal_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "orders", "--load", "1_0=60", "--load", "0_0=30", "--load", "0_1=10"]) == 0
    said = capsys.readouterr().out
    assert "Load, 100 in all\n" in said
    by_number, by_load = said.split("  as Kafka Streams assigns the tasks: by their number\n")[1].split(
        "  if they were assigned by load"
    )
    assert [line.split()[:3] for line in by_number.splitlines()] == [
        ["instance-1", "90%", "90"],
        ["instance-2", "10%", "10"],
    ]
    assert "     instance-1   60%  60  1_0\n" in by_load
    assert "     instance-2   40%  40  0_0  0_1  1_1\n" in by_load
    assert "Stream task 1_0 alone is 60%" in by_load


@pytest.mark.parametrize("load", ["2_0=1", "1_0", "1_0=", "1_0=-1", "1_0=1.5", "=1", "1_0=²", f"1_0={10**18}"])
def test_a_load_that_is_none_is_refused(load: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "orders", "--load", load]) == 2
    said = capsys.readouterr().err
    assert "expected TASK=RECORDS, a task being one of 0_0, 0_1, 1_0, 1_1. For example --load 0_0=90000" in said


def test_without_instances_there_is_no_plan(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "orders", "--instances", "0"])
    assert ended.value.code == 2
    assert "argument --instances: expected a whole number, 1 or more, observed 0\n" in capsys.readouterr().err


def test_where_nothing_is_registered_nothing_is_validated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake_validation(monkeypatch)
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "")
    assert main(["validate"]) == 78
    assert "expected at least one, observed none is registered. Name the module" in capsys.readouterr().err
    assert asked == []


def test_validate_asks_once_about_all_pipelines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake_validation(monkeypatch)
    assert main(["validate"]) == 0
    assert asked == [[pipeline.name for pipeline in PIPELINES]]
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "  warning: " not in line] == [f"{pipeline.name}: ok" for pipeline in PIPELINES]
    assert last.startswith("declared schemas were not compared with a registry")
    assert main(["validate", "users", "orders", "users"]) == 0
    assert asked[1:] == [["users", "orders"]]


def test_what_spark_warns_of_is_no_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    location = pipeline_named("orders").topology.processors.nodes[1].location
    fake_validation(monkeypatch, Diagnostic(location, "'a = b' reads b", "Write try_cast(b as int)", is_warning=True))
    assert main(["validate", "orders"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"orders: ok\n  warning: {location}: 'a = b' reads b. Write try_cast(b as int)")


def test_validate_tells_every_fault_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    location = pipeline_named("orders").topology.processors.nodes[0].location
    fake_validation(
        monkeypatch,
        Diagnostic(location, "no function [sun]", "Did you mean sum?"),
        Diagnostic(SourceLocation("elsewhere.py", 7), "no field 'x'", "It has: y"),
    )
    assert main(["validate", "orders", "words"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "orders: 1 fault",
        f"  {location}: no function [sun]. Did you mean sum?",
        "words: ok",
        "elsewhere.py:7: no field 'x'. It has: y",
    ]


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_a_store_without_a_name_is_warned_about(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_validation(monkeypatch)
    assert main([command, "users"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "arning: " in line]
    (warning,) = [line for line in told if "nobody reads" not in line]
    assert len(told) == (2 if command == "validate" else 1)
    assert "users.py:10: the store 'KSTREAM-AGGREGATE-STATE-STORE-0000000002' and its repartition topic" in warning
    assert "store='KSTREAM-AGGREGATE-STATE-STORE-0000000002'" in warning
    assert main([command, "orders"]) == 0
    assert "arning" not in capsys.readouterr().out


def test_a_declaration_with_faults_is_refused_with_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> tuple[Pipeline, ...]:
        raise Refused("pipeline 'x' has a fault:\n  plugins/x.py:3: wrong. Right")

    pipelines = ModuleType("streamplan.pipelines")
    pipelines.__getattr__ = broken  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "streamplan.pipelines", pipelines)
    for command in ("list", "validate"):
        monkeypatch.delitem(sys.modules, f"streamplan.cli.{command}", raising=False)
        assert main([command]) == 1
        assert capsys.readouterr().err == "pipeline 'x' has a fault:\n  plugins/x.py:3: wrong. Right\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example_and_the_exit_statuses(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    examples, statuses = help_text.split("\nexamples:\n")[1].split("\nexit status:\n")
    assert f"  python -m streamplan {command}" in examples
    assert [line.split()[0] for line in statuses.splitlines() if line[2].isdigit() and line.split()[0] != "1"] == [
        "0",
        "2",
        "75",
        "78",
        "130",
    ]
    assert "--pipeline" not in help_text
    # What stands under usage and examples is to be copied.
    told = help_text.split("\nexamples:\n")[0].split("\n\n", 1)[1] + statuses
    assert [line for line in told.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("command", [["list"], ["describe", "orders"], ["plan", "orders"]])
def test_commands_that_need_no_cluster_import_neither_spark_nor_airflow(command: list[str]) -> None:
    code = (
        "import sys; from streamplan.cli import main; status = main(sys.argv[1:]); "
        "heavy = {'pyspark', 'airflow', 'confluent_kafka', 'great_expectations'} & sys.modules.keys(); "
        "assert not heavy, heavy; sys.exit(status)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "plugins")}
    argv = [sys.executable, "-c", code, *command]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_help_shows_every_command_with_a_sentence_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for command in COMMANDS:
        [line] = [line for line in lines if line.startswith(f"    {command} ")]
        assert len(line.split()) > 3
    assert "    python -m streamplan demo orders --records 100000" in lines
    assert "  130  ended by Ctrl-C" in lines


@pytest.mark.parametrize(("word", "near"), [("tsks", "tasks"), ("vaildate", "validate"), ("re-drive", "redrive")])
def test_an_unknown_command_is_answered_with_the_nearest(
    word: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word, "orders"])
    assert ended.value.code == 2
    assert f"no command {word!r}. Did you mean {near}?\n" in capsys.readouterr().err


def test_a_word_that_is_near_to_no_command_is_answered_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["xyz"])
    assert f"no command 'xyz'. Commands: {', '.join(COMMANDS)}\n" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"streamplan {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["tasks", "--pipeline", "words", "--history", "2"],
        ["tasks", "--history", "2", "--pipeline", "words"],
        ["tasks", "--history", "2", "--pipeline=words"],
        ["doctor", "--role", "producer", "--pipeline", "words"],
        ["demo", "--records", "7", "--pipeline", "words"],
        ["demo", "--pipeline=words", "--secure"],
        ["reset", "--pipeline", "words", "--yes"],
    ],
    ids=" ".join,
)
def test_what_scripts_wrote_before_goes_on_working(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def run(options: Namespace) -> int:
        asked.append(options.pipeline)
        return 0

    monkeypatch.setattr(import_module(f"streamplan.cli.{arguments[0]}"), "_run", run)
    assert main(arguments) == 0
    now = [word for word in arguments if not word.startswith("--pipeline") and word != "words"]
    assert main([now[0], "words", *now[1:]]) == 0
    assert asked == ["words", "words"]
    assert capsys.readouterr().err == ""


def test_the_page_of_the_commands_has_every_command_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    page = (PROJECT / "docs" / "commands.md").read_text()
    rows = [row.split(" | ") for row in page.split("## Exit statuses")[0].splitlines() if row.startswith("| `")]
    assert tuple(row[0].removeprefix("| `").rstrip("`").split()[0] for row in rows) == COMMANDS
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = " ".join(capsys.readouterr().out.split())
    for command, (_, told) in zip(COMMANDS, rows, strict=True):
        sentence = told.removesuffix(" |")
        assert f" {command} {sentence[0].lower()}{sentence[1:]} " in listed


def test_a_size_that_only_the_jvm_could_not_run_is_a_warning_of_plan_and_validate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    large = replace(PIPELINES[0], topic_partitions={"orders": 1_288})
    monkeypatch.setattr("streamplan.pipelines.PIPELINES", (large,))
    fake_validation(monkeypatch)
    assert main(["plan", "orders"]) == 0
    assert "Warning: plugins/streamplan/pipelines/orders.py:" in (said := capsys.readouterr().out)
    assert "with the JVM library, orders-aggregator could not have " in said
    assert main(["validate", "orders"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("orders: ok\n  warning: plugins/streamplan/pipelines/orders.py:")
    assert "with the JVM library" in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["run", "flow.py", "--brokers", "k:9092"], "Did you mean --bootstrap-servers?"),
        (["run", "flow.py", "--config", "client.properties"], "Did you mean --command-config?"),
        (["run", "--pipeline", "flow.py"], "The pipeline is named without an option: "),
        (["serve", "orders", "-p", "80"], "Did you mean --port?"),
        (["serve", "orders", "--port", "99999"], "expected a port, 0 to 65535, observed 99999"),
        (["list", "orders"], "unrecognized arguments: orders. It takes no pipeline"),
        (["describe", "orders", "visits"], "unrecognized arguments: visits. It takes one pipeline"),
        (["tasks", "--application-id", "x", "orders"], "check, top, topic, store and letters take any application"),
        (["tasks", "orders", "--group=x"], "It takes a registered pipeline. check, top, topic, store and letters take"),
        (["produce", "orders", "--lines", "--property", "parse.key=true"], "Did you mean --key-separator?"),
        (["produce", "orders", "--lines", "-K", ":"], "Did you mean --key-separator?"),
        (["flow.py"], "no command 'flow.py'. To run the pipeline of a file: "),
    ],
)
def test_wrong_words_are_answered_with_what_to_write(
    words: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert answer in capsys.readouterr().err


def test_empty_brokers_are_not_those_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "orders", "--bootstrap-servers", ""]) == 2
    assert "observed an empty text. Is the variable of the shell set?" in capsys.readouterr().err


def test_run_tells_what_is_meant_by_a_path_that_is_no_file_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "one.py").touch()
    (tmp_path / "two.py").touch()
    monkeypatch.chdir(tmp_path)
    told = []
    for name in ("flows", "two", "flows/three.py"):
        assert main(["run", name, "--bootstrap-servers", "localhost:1"]) == 78
        told.append(capsys.readouterr().err)
    assert "observed a directory. Did you mean flows/one.py?" in told[0]
    assert "Did you mean two.py?" in told[1]
    assert "observed no such file" in told[2]


TWO = """
from streamplan import Json, Pipeline, Topology

def declare(name):
    topology = Topology(f"{name}-app")
    topology.stream(name, value=Json("id string")).to("out")
    return Pipeline(name, topology, "", {name: 1, "out": 1})

PIPELINES = (declare("first"), declare("second"))
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with two pipelines, in the working directory. What commands change of the process is taken back."""
    (tmp_path / "two_pipelines.py").write_text(TWO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "two_pipelines", raising=False)
    for variable in ("STREAMPLAN_PIPELINES", "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    return "two_pipelines.py"


def test_a_command_about_a_pipeline_takes_its_file(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", f"{two}:second"]) == 0
    assert "(topics: [second])" in capsys.readouterr().out
    assert main(["plan", two]) == 78
    told = capsys.readouterr().err
    assert told.startswith(f"the pipeline of {two}: expected {two}:first or {two}:second, observed {two}")
    assert main(["plan", "one.py"]) == 78
    assert "expected a Python file that declares a pipeline, observed no such file" in capsys.readouterr().err


def test_the_draft_of_a_registered_pipeline_is_looked_at_and_nothing_is_done_with_it(
    two: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The distribution that is installed has the same pipeline, with another topic."""
    deployed = Path("deployed_pipelines.py")
    deployed.write_text(TWO.replace('.to("out")', '.to("deployed")').replace('"out": 1', '"deployed": 1'))
    monkeypatch.setattr(
        registry, "installed", lambda: (EntryPoint("installed", "deployed_pipelines", "streamplan.pipelines"),)
    )
    for command in (["describe"], ["plan"], ["acls"]):
        assert main([command[0], f"{two}:second", *command[1:]]) == 0
        told = capsys.readouterr().out
        assert "out" in told
        assert "deployed" not in told
    fake_validation(monkeypatch)
    assert main(["validate", f"{two}:second"]) == 0
    capsys.readouterr()
    assert main(["reset", f"{two}:second", "--yes"]) == 78
    assert "pipeline 'second': expected a name that no other pipeline has, observed two" in capsys.readouterr().err


def test_tasks_ends_with_another_status_where_kafka_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tasks", "orders", "--bootstrap-servers", "127.0.0.1:1"]) == 75
    assert " 0_0    -          -            -" in capsys.readouterr().out


def test_validate_takes_files(two: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = fake_validation(monkeypatch)
    Path("broken_pipeline.py").write_text("PIPELINE = 1 +")
    assert main(["validate", two]) == 0
    assert main(["validate", f"{two}:second", "broken_pipeline.py"]) == 1
    assert "broken_pipeline.py:1: SyntaxError: invalid syntax" in capsys.readouterr().err
    assert main(["validate", "no_such.py"]) == 78
    assert asked == [["first", "second"], ["second"]]
