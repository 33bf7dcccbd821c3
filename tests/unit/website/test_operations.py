"""Every operation of the language has a page, whose examples are run."""

from __future__ import annotations

import re

import pytest
import streamplan
from streamplan.model.words import _CLASSES, operations_of

from website import operations as module
from website.operations import CLASSES, OF_TOPOLOGY, REFUSED, SETTING, NoExample, Operation, operations, page_of, run
from website.reference import pages

OPERATIONS = operations()
REFUSED_TITLES = {f"{cls}.{name}" for cls, name in REFUSED}


def test_every_class_of_the_language_has_pages() -> None:
    assert {cls.__name__ for cls in CLASSES} == set(_CLASSES)


def test_every_public_operation_has_a_page() -> None:
    made = pages()
    for cls in CLASSES:
        for name in operations_of(cls):
            if cls is not streamplan.Topology or name in OF_TOPOLOGY:
                assert f"operations/{cls.__name__}-{name}.md" in made


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.title)
def test_a_page_has_all_arguments_and_what_its_examples_make(operation: Operation) -> None:
    page = page_of(operation)
    signature = page.split("## Signature")[1].split("```")[1]
    for argument in re.findall(r"^    (\w+):", signature, re.M):
        assert f"| `{argument}` | " in page
    assert ":meth:" not in page
    assert "``" not in page.replace("```", "")
    if operation.title not in REFUSED_TITLES:
        assert page.count("Topologies:\n   Sub-topology: 0\n") == len(operation.examples) >= 1
        for example in operation.examples:
            assert example in page


@pytest.mark.parametrize("cls", ["KGroupedStream", "CogroupedKStream"])
def test_the_signature_of_windowed_by_has_every_kind_of_windows(cls: str) -> None:
    [operation] = [each for each in OPERATIONS if each.title == f"{cls}.windowed_by"]
    signature = page_of(operation).split("## Signature")[1].split("```")[1]
    kinds = ("TimeWindows", "CalendarWindows", "CustomWindows", "SlidingWindows", "SessionWindows")
    assert re.findall(r"\w+Windows", signature) == [*kinds]


def test_an_argument_that_is_as_that_of_another_method_is_told_in_full() -> None:
    assert "A table with the same key" in page_of(Operation(streamplan.KTable, "left_join"))
    assert not [operation.title for operation in OPERATIONS if "As for" in page_of(operation).split("## What")[0]]


def test_an_example_with_an_unknown_name_is_refused() -> None:
    with pytest.raises(NoExample, match=r"KStream\.filter: unheard_of\.filter.*add the name to SETTING"):
        run(Operation(streamplan.KStream, "filter"), 'unheard_of.filter("amount > 0")')


def test_an_example_with_a_fault_is_refused() -> None:
    with pytest.raises(NoExample, match="the value has no field 'amont'"):
        run(Operation(streamplan.KStream, "filter"), 'stream.filter("amont")')


def test_an_operation_without_an_example_is_refused() -> None:
    class Language:
        def shorten(self) -> None:
            """Do something."""

    with pytest.raises(NoExample, match=r"Language\.shorten has no example"):
        page_of(Operation(Language, "shorten"))


def test_an_example_that_reads_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXAMPLES", {("Topology", "describe"): "print(topology.describe())"})
    with pytest.raises(NoExample, match="the topology reads nothing"):
        page_of(Operation(streamplan.Topology, "describe"))


def test_every_name_of_the_setting_is_used() -> None:
    code = "\n".join(example for operation in OPERATIONS for example in operation.examples) + "\n".join(
        SETTING.values()
    )
    unused = [name for name in SETTING if len(re.findall(rf"\b{name}\b", code)) < 2]
    assert unused == []
