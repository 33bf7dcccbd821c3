"""What is registered from outside, and what is said about a registration that is wrong."""

from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from streamplan import registry
from streamplan.errors import Refused
from streamplan.pipelines import PIPELINES
from streamplan.registry import pipeline_named, registered_pipelines

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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", r"broken_module.py:\d+: ZeroDivisionError: division by zero. Correct the module"),
        ("import not_here", "No module named 'not_here'. The module imports not_here: install that"),
        ("def wrong(:", r"SyntaxError: .*broken_module.py, line \d+"),
        ("", "expected a Pipeline, or a tuple of them, in PIPELINES or PIPELINE, observed no such name"),
        ("PIPELINE = 'orders'", "expected a Pipeline, or a tuple of them, in PIPELINE, observed str"),
    ],
)
def test_a_broken_module_is_named_with_what_to_do(theirs: Theirs, code: str, said: str) -> None:
    theirs.write("broken_module", code)
    theirs.variable("broken_module")
    with pytest.raises(Refused, match=said) as refused:
        registered_pipelines()
    assert str(refused.value).startswith("module broken_module (STREAMPLAN_PIPELINES): expected")


@pytest.mark.parametrize("reference", ["not_here", "not_here.below", "not_here:PIPELINE"])
def test_a_module_that_is_not_installed_says_where_it_belongs(theirs: Theirs, reference: str) -> None:
    theirs.entry_points(team=reference)
    with pytest.raises(Refused, match=r"entry point 'team'.*Install the distribution that has it"):
        registered_pipelines()


def test_a_broken_module_hides_no_other_pipeline(theirs: Theirs) -> None:
    """One Airflow may have the pipelines of several teams."""
    theirs.write("broken_module", "1 / 0")
    theirs.write("sound_module", "PIPELINE = declare('sound')")
    theirs.variable("broken_module", "sound_module")
    assert pipeline_named("sound").name == "sound"
    with pytest.raises(Refused, match=r"expected sound\. (.|\n)*module broken_module"):
        pipeline_named("another")


def test_two_pipelines_of_one_name_are_refused_with_both_places(theirs: Theirs) -> None:
    theirs.write("one_module", "PIPELINE = declare('same')")
    theirs.write("other_module", "PIPELINE = declare('same')")
    theirs.variable("one_module", "other_module")
    for ask in (registered_pipelines, lambda: pipeline_named("same")):
        with pytest.raises(Refused, match=r"two of that name, in one_module .* and other_module"):
            ask()


def test_a_declaration_with_faults_keeps_its_own_error(theirs: Theirs) -> None:
    theirs.write("faulty_module", "PIPELINE = declare('not a name')")
    theirs.variable("faulty_module")
    with pytest.raises(Refused, match=r"faulty_module.py:\d+: the name 'not a name' contains ' '"):
        registered_pipelines()


def test_the_page_of_quick_starts_lists_every_example() -> None:
    page = (Path(__file__).parents[2] / "docs" / "quick-starts.md").read_text()
    section = page.split("\n## The examples of this repository\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.M)) == sorted(each.name for each in PIPELINES)
