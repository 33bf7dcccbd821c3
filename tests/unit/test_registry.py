"""What is registered from outside, and what is said about a registration that is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from streamplan import registry
from streamplan.errors import Refused
from streamplan.registry import broken_pipelines, pipeline_named, registered_pipelines

from tests.support.examples import PIPELINES

DECLARATION = """
from streamplan import Json, Pipeline, TestData, Topology

def declare(name):
    topology = Topology(f"{name}-counter")
    topology.stream(name, value=Json("Id string")).group_by("Id", name="by-id").count(store="counts")
    data = TestData((name,), record=lambda n: (name, b"", b"{}"), number="Id")
    return Pipeline(name=name, topology=topology, description="", topic_partitions={name: 1}, test_data=data)
"""


class Theirs:
    """A directory of modules beside the library, and what registers them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch
        monkeypatch.syspath_prepend(str(directory))
        monkeypatch.delenv("STREAMPLAN_PIPELINES")

    def write(self, module: str, code: str) -> None:
        self.monkeypatch.delitem(sys.modules, module, raising=False)
        (self.directory / f"{module}.py").write_text(DECLARATION + code)

    def variable(self, *references: str) -> None:
        self.monkeypatch.setenv("STREAMPLAN_PIPELINES", ", ".join(references))

    def entry_points(self, **values: str) -> None:
        points = tuple(EntryPoint(name, value, "streamplan.pipelines") for name, value in values.items())
        self.monkeypatch.setattr(registry, "installed", lambda: points)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Theirs:
    return Theirs(tmp_path, monkeypatch)


def names() -> list[str]:
    return [pipeline.name for pipeline in registered_pipelines()]


def test_the_library_registers_none_itself(theirs: Theirs) -> None:
    assert names() == []
    with pytest.raises(Refused, match=r"STREAMPLAN_PIPELINES=streamplan.pipelines registers the examples"):
        pipeline_named("orders")


def test_the_examples_are_registered_when_they_are_asked_for(theirs: Theirs) -> None:
    theirs.variable("streamplan.pipelines.orders")
    assert names() == ["orders"]
    theirs.variable("streamplan.pipelines.orders", "streamplan.pipelines")
    assert registered_pipelines() == PIPELINES


def test_a_module_names_one_pipeline_or_several_or_an_object_does(theirs: Theirs) -> None:
    theirs.write("one_module", "PIPELINE = declare('one')")
    theirs.write("several_module", "PIPELINES = (declare('two'), declare('three'))")
    theirs.write("object_module", "four = declare('four')\nfive = [declare('five')]")
    theirs.variable("one_module", "several_module", "object_module:four", "object_module:five", "")
    assert names() == ["one", "two", "three", "four", "five"]
    assert pipeline_named("four").topology.application_id == "four-counter"


def test_entry_points_come_first_and_nothing_is_there_twice(theirs: Theirs) -> None:
    theirs.write("pointed_module", "PIPELINE = declare('pointed')")
    theirs.write("named_module", "PIPELINE = declare('named')")
    theirs.entry_points(team="pointed_module")
    theirs.variable("named_module", "pointed_module", "pointed_module:PIPELINE")
    assert names() == ["pointed", "named"]


BREAKS = {
    "1 / 0": r"broken_module.py:\d+: ZeroDivisionError: division by zero. Correct the module",
    "import not_here": r"broken_module.py:9: ModuleNotFoundError: .*'not_here'. The module imports not_here",
    "from streamplan import NotThere": r"broken_module.py:9: ImportError: cannot import name 'NotThere'",
    "def wrong(:": r"/broken_module.py:9: SyntaxError: invalid syntax",
    "  indented = 1": r"/broken_module.py:9: IndentationError: unindent does not match",
    "raise SystemExit(3)": r"broken_module.py:9: SystemExit: 3",
    "import sys; sys.exit()": r"broken_module.py:9: SystemExit\. Correct",
    "def again(): again()\nagain()": r"broken_module.py:9: RecursionError",
    "import json; json.loads('{')": r"broken_module.py:9: JSONDecodeError",  # the user's line, not the library's
    "Json('id').fields": r"broken_module.py:9: ValueError",
    "": r"a Pipeline, or a tuple of them or of modules' names, in PIPELINES or PIPELINE, observed no such name",
    "PIPELINE = 'orders'": r"in PIPELINE, observed the text 'orders'",
    "PIPELINES = (declare('one'), 2)": r"in PIPELINES, observed a tuple",
    "PIPELINE = declare('one')\nPIPELINE = declare('two')": r"in the lines 9 and 10, .* write PIPELINES =",
    "def __getattr__(name): raise KeyError(name)": r"broken_module.py:9: KeyError",
}
"""The last lines of a module, and what is said about it."""


@pytest.mark.parametrize("code", BREAKS)
def test_a_broken_module_is_named_with_what_to_do_and_hides_no_other(theirs: Theirs, code: str) -> None:
    theirs.write("broken_module", code)
    theirs.write("sound_module", "PIPELINE = declare('sound')")
    theirs.variable("broken_module", "sound_module")
    assert names() == ["sound"]
    assert pipeline_named("sound").name == "sound"
    (broken,) = broken_pipelines()
    assert broken.name == "broken_module"
    assert re.search(BREAKS[code], str(broken.error))


@pytest.mark.parametrize("reference", ["not_here", "not_here.below", "not_here:PIPELINE"])
def test_a_module_that_is_not_installed_says_where_it_belongs(theirs: Theirs, reference: str) -> None:
    theirs.entry_points(team=reference)
    assert names() == []
    (broken,) = broken_pipelines()
    assert re.search(r"entry point 'team'.*Install the distribution that has it", str(broken))


def test_a_name_that_no_pipeline_has_is_answered_with_those_there_are_and_what_is_broken(theirs: Theirs) -> None:
    theirs.write("broken_module", "1 / 0")
    theirs.write("sound_module", "PIPELINE = declare('sound')")
    theirs.variable("broken_module", "sound_module")
    with pytest.raises(Refused, match=r"expected sound\. (.|\n)*module broken_module"):
        pipeline_named("another")
    with pytest.raises(Refused, match=r"^module broken_module .*ZeroDivisionError"):
        pipeline_named("broken_module")


def test_a_package_names_its_modules_so_that_a_broken_one_hides_no_other(theirs: Theirs) -> None:
    theirs.write("their_sound", "PIPELINE = declare('sound')")
    theirs.write("their_broken", "1 / 0")
    theirs.write("their_two", "PIPELINES = [declare('two'), 'their_three:three', 'their_package']")
    theirs.write("their_three", "three = declare('three')")
    theirs.write("their_package", "PIPELINES = ('their_broken', 'their_sound', declare('own'), 'their_two')")
    theirs.write("their_last", "PIPELINE = declare('last')")
    theirs.variable("their_package", "their_last", "their_sound")
    assert sorted(names()) == ["last", "own", "sound", "three", "two"]
    assert [broken.name for broken in broken_pipelines()] == ["their_broken"]


def test_a_broken_module_of_the_examples_hides_no_other_example(
    theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs.variable("streamplan.pipelines")
    monkeypatch.setitem(sys.modules, "streamplan.pipelines.users", None)  # importing it raises
    assert names() == [pipeline.name for pipeline in PIPELINES if pipeline.name != "users"]
    assert [broken.name for broken in broken_pipelines()] == ["streamplan.pipelines.users"]


def test_two_pipelines_of_one_name_are_refused_with_both_places_and_hide_no_other(theirs: Theirs) -> None:
    theirs.write("one_module", "PIPELINE = declare('same')")
    theirs.write("other_module", "PIPELINES = (declare('same'), declare('sound'))")
    theirs.variable("one_module", "other_module")
    assert names() == ["sound"]
    (broken,) = broken_pipelines()
    assert broken.name == "same"
    with pytest.raises(Refused, match=r"two of that name, in one_module .* and other_module"):
        pipeline_named("same")


def test_a_declaration_with_faults_keeps_its_own_error(theirs: Theirs) -> None:
    theirs.write("faulty_module", "PIPELINE = declare('not a name')")
    theirs.variable("faulty_module")
    (broken,) = broken_pipelines()
    assert re.search(r"faulty_module.py:\d+: the name 'not a name' contains ' '", str(broken))


def test_the_page_of_quick_starts_lists_every_example() -> None:
    page = (Path(__file__).parents[2] / "docs" / "quick-starts.md").read_text()
    section = page.split("\n## The examples of this repository\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.M)) == sorted(each.name for each in PIPELINES)


MISTAKES = {
    # What stands behind PIPELINE = declare("own"), and what is said of it.
    "Topology('x').stream('orders', value=Json('id string')).filter('amont').groupBy('id')": [
        ":10: 'KStream' object has no attribute 'groupBy'. Write group_by(…)",
        ":10: filter: the value has no field 'amont'. It has: id",
    ],
    "Pipeline('p', Topology(5))": [
        ":10: Pipeline: the argument description is missing. For example Pipeline(",
        ":10: Topology: application_id is the number 5; it takes a text. For example Topology(",
    ],
    "from streamplan import StreamsBuilder": [
        ":10: ImportError: cannot import name 'StreamsBuilder' from 'streamplan'",
        "Write Topology('application-id').",
    ],
    "from streamplan import F; F.amount > 0 and F.paid": [
        ":10: amount > 0: an expression is true or false for a record, and not here. Write & for 'and'",
    ],
    "from streamplan import Timewindows": ["Did you mean TimeWindows?"],
    "1 / 0": [":10: ZeroDivisionError: division by zero. Correct the module"],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_the_line_of_the_declaration_and_none_of_ours(theirs: Theirs, mistake: str) -> None:
    theirs.write("mistaken", f"PIPELINE = declare('own')\n{mistake}\n")
    theirs.variable("mistaken")
    (broken,) = broken_pipelines()
    told = str(broken.error)
    for part in MISTAKES[mistake]:
        assert part in told
    assert "streamplan/model" not in told
    assert "streamplan/judged.py" not in told


def test_a_pipeline_s_name_that_is_misspelt_is_guessed(theirs: Theirs) -> None:
    theirs.write("mine", "PIPELINE = declare('payments')\n")
    theirs.variable("mine")
    with pytest.raises(Refused, match=r"pipeline 'paymnets': expected payments\. Did you mean payments\?"):
        pipeline_named("paymnets")


PIPELINE_FILE = """\
from streamplan import Json, Pipeline, Topology
topology = Topology("in-a-file")
topology.stream("a", value=Json("n int")).to("b")
PIPELINE = Pipeline("in-a-file", topology, description="Copies.", topic_partitions={"a": 1, "b": 1})
"""


def test_the_pipelines_of_a_file_are_found_by_this_process_and_those_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "streamplan.pipelines")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    package = tmp_path / "of_a_test_of_files"
    package.mkdir()
    (package / "__init__.py").touch()
    for file in (package / "declared.py", tmp_path / "declared_alone.py"):
        file.write_text(PIPELINE_FILE)
        assert [pipeline.name for pipeline in registry.pipelines_of_file(file)] == ["in-a-file"]
        assert [pipeline.name for pipeline in registry.registered_pipelines()] == ["in-a-file"]
        words = [sys.executable, "-m", "streamplan", "list"]
        assert "in-a-file" in subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("json.py", PIPELINE_FILE, "expected a name that no other module has, observed .*json/__init__.py"),
        ("no_pipeline_of_a_test.py", "", "expected a Pipeline, or a tuple of them"),
        ("broken_file_of_a_test.py", "1 / 0", r"broken_file_of_a_test.py:1: ZeroDivisionError"),
        ("missing_file_of_a_test.py", None, "observed no such file"),
        ("dotted.file_of_a_test.py", PIPELINE_FILE, "expected a name without a further dot, .* Give the file another"),
        ("__init__.py", PIPELINE_FILE, "expected a file of its own beside __init__.py, observed __init__.py"),
        ("a:b/file_of_a_test.py", PIPELINE_FILE, "expected a folder without ':', which separates the folders of"),
    ],
)
def test_a_file_without_a_pipeline_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, message: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for variable in ("STREAMPLAN_PIPELINES", "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    if text is not None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(Refused, match=message):
        registry.pipelines_of_file(tmp_path / name)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("pipeline = declare('one')", "It has a Pipeline in pipeline. Write PIPELINE = pipeline."),
        ("a, b = declare('one'), declare('two')", "It has Pipelines in a and b. Write PIPELINES = (a, b)."),
        (
            "from streamplan import Pipeline\ndef make(name='x') -> Pipeline: ...",
            "It has the function make. Write PIPELINE = make().",
        ),
        ("def make(): ...\nPIPELINE = make", "Call it: PIPELINE = make()."),
        (
            "from pyspark.sql import functions as F\nF.col('a')",
            "AssertionError. A declaration runs without Spark. Write ",
        ),
        ("from streamplan import Topology\nPIPELINE = Topology('x')", "Write PIPELINE = Pipeline(name='…', topology="),
        ("W = JoinWindows", "Write from streamplan import JoinWindows."),
        ("KafkaStreams()", "Write Pipeline(name='…', topology=topology, description='…')."),
        ("from streamplan.kstream import KStream", "A declaration imports from streamplan alone"),
        ("import streamplan\nstreamplan.kstream", "observed .*has no attribute 'kstream'. Did you mean KStream?"),
        ("import itself_module", "Two modules import each other."),
        ("def f(record): ...\nf()", "Where the function itself is meant, write f without parentheses."),
        (
            'from streamplan import TimeWindows\nTimeWindows("5 minutes").grace("1 minute")',
            "grace is an argument: TimeWindows('5 minutes', advance='1 minute', grace='10 seconds').",
        ),
        (
            'from streamplan import JoinWindows\n(\n  JoinWindows("5 minutes")\n  .before("1 minute")\n)',
            "before is an argument: JoinWindows('5 minutes', before='1 minute', after='5 minutes', "
            "grace='10 seconds').",
        ),
        (
            'large, small = {"by-large": 1, "by-small": 2}\nlarge.to("out")',
            "The branches of split() are a mapping by their names: branches",
        ),
        ('text = "a"\ntext("b")', "Correct the module, or remove it from the registration."),
    ],
)
def test_a_mistake_of_python_is_answered_with_what_to_write(theirs: Theirs, code: str, remedy: str) -> None:
    theirs.write("itself_module", "from broken_module import PIPELINE")
    theirs.write("broken_module", code)
    theirs.variable("broken_module")
    (broken,) = broken_pipelines()
    assert re.search(remedy.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?"), str(broken.error))


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [
        ("sound_modul", "Did you mean sound_module?"),
        ("sound-package", "Did you mean sound_package?"),
        ("inside", "Did you mean sound_package.inside?"),
        ("sound_package.insid", "Did you mean sound_package.inside?"),
        ("sound_package.inside.PIPELINE", "inside.py: sound_package.inside:PIPELINE."),
        (".inside", "Write the whole name of the module, with its package: my_pipelines.inside."),
        (":PIPELINE", "Name a module, as my_pipelines.orders."),
        ("one;other", "Separate modules with commas: STREAMPLAN_PIPELINES=one,other."),
        ("/pipelines/one.py", "Write the module: STREAMPLAN_PIPELINES=one, and its directory: PYTHONPATH=/pipelines."),
        ("sound_module:pipeline", "Write sound_module in the registration, without what is behind the colon."),
    ],
)
def test_a_wrong_registration_is_answered_with_the_right_one(theirs: Theirs, variable: str, remedy: str) -> None:
    theirs.write("sound_module", "PIPELINE = declare('sound')")
    (theirs.directory / "sound_package").mkdir()
    theirs.write("sound_package/__init__", "")
    theirs.write("sound_package/inside", "PIPELINE = declare('inside')")
    theirs.variable(variable)
    (broken,) = broken_pipelines()
    assert broken.error.remedy.endswith(remedy)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("PIPELINES = ('one')", "Write PIPELINES = ('one',): a tuple with one module has a comma."),
        ("PIPELINES = {'one'}", "Write a tuple, in parentheses: PIPELINES = (…,)."),
        ("import json\nPIPELINES = (json,)", "Write the name of the module, and do not import it: 'json'."),
        ("PIPELINE = declare('one')\nPIPELINE.run()", "A declaration starts nothing: streamplan run FILE runs its"),
        ("PIPELINE = declare('one')\nPIPELINE.name = 'two'", "A declaration is not changed afterwards: give Pipeline("),
        ("from .shared import topology", "The file is in no package. Put an __init__.py beside it, or import without"),
    ],
)
def test_a_layout_that_python_does_not_take_is_answered_with_one_that_it_takes(
    theirs: Theirs, code: str, remedy: str
) -> None:
    theirs.write("wrong_layout", code)
    theirs.variable("wrong_layout")
    (broken,) = broken_pipelines()
    assert remedy in broken.error.remedy


def test_a_folder_in_place_of_a_module_is_answered_with_its_package(theirs: Theirs) -> None:
    (theirs.directory / "repository" / "my_pipelines").mkdir(parents=True)
    (theirs.directory / "repository" / "my_pipelines" / "__init__.py").touch()
    theirs.variable(str(theirs.directory / "repository"))
    (broken,) = broken_pipelines()
    assert f"STREAMPLAN_PIPELINES=my_pipelines, and its directory: PYTHONPATH={theirs.directory}" in broken.error.remedy


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("flows/orders", "Did you mean the file flows/orders.py?"),
        ("flows.orders", "Did you mean the file flows/orders.py?"),
        ("flows", "flows is a folder. Name a file of it: flows/orders.py."),
    ],
)
def test_a_path_in_place_of_a_pipeline_is_answered_with_the_file(theirs: Theirs, name: str, remedy: str) -> None:
    theirs.monkeypatch.chdir(theirs.directory)
    Path("flows").mkdir()
    Path("flows/orders.py").touch()
    with pytest.raises(Refused) as refused:
        registry.pipeline_named(name)
    assert remedy in str(refused.value)


def test_a_file_in_place_of_a_pipeline_is_told(theirs: Theirs) -> None:
    with pytest.raises(
        Refused, match=r"observed a file\. Register its module, PYTHONPATH=flows STREAMPLAN_PIPELINES=good"
    ):
        pipeline_named("flows/good.py")
