"""The generated pages of the reference have everything that the code has."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import streamplan
from streamplan.checks import CHECKS
from streamplan.cli import COMMANDS
from streamplan.observability.metrics import METRICS
from streamplan.observability.prometheus import prometheus_name
from streamplan.settings import Settings

from website import reference
from website.operations import CLASSES
from website.reference import pages, write_pages

PAGES = pages()
NOT_DECLARED = {"partitions_of_others"}


@pytest.mark.parametrize("cls", [streamplan.Pipeline, streamplan.Limits, streamplan.TestData])
def test_every_field_of_a_pipeline_is_told(cls: type) -> None:
    section = PAGES["reference/pipeline.md"].split(f"\n## {cls.__name__}\n")[1].split("\n## ")[0]
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    assert {name for name in fields if f"| `{name}` | " in section} == fields - NOT_DECLARED


def test_a_field_that_a_constructor_requires_has_no_default() -> None:
    section = PAGES["reference/windows.md"].split("\n## CustomWindows\n")[1].split("\n## ")[0]
    assert "| `function` | required | " in section
    assert "| `size` | required | " in section
    assert "| `grace` | `'1 day'` | " in section


def test_a_page_is_the_same_in_each_build() -> None:
    """The address of an object is another one in each process."""
    assert [path for path, text in PAGES.items() if " at 0x" in text] == []


def test_every_name_that_a_declaration_imports_is_told() -> None:
    told = {
        *reference.PIPELINE_CLASSES,
        *reference.WINDOW_CLASSES,
        *reference.SERDE_CLASSES,
        *reference.FUNCTION_CLASSES,
        *(cls.__name__ for cls in CLASSES),
    }
    # Annotations, programs that run pipelines, and what docs/language.md explains by examples.
    times = {"STREAM_TIME", "WALL_CLOCK_TIME"}  # of ProcessorContext.schedule
    others = {"Serde", "pipeline_named", "registered_pipelines", "Expression", "F", *times}
    assert sorted(set(streamplan.__all__) - told - others) == []


def test_the_help_of_every_command_is_told() -> None:
    page = PAGES["reference/command-line.md"]
    for command in COMMANDS:
        section = page.split(f"\n## {command}\n")[1].split("\n## ")[0]
        assert f"usage: streamplan {command}" in section
        assert "examples:" in section
        assert "exit status:" in section


def test_every_setting_metric_and_check_is_told() -> None:
    for field in dataclasses.fields(Settings):
        assert f"| `{field.name}` | " in PAGES["reference/settings.md"]
    for metric in METRICS:
        assert f"| `{prometheus_name(metric)}` | `{metric.name}` | " in PAGES["reference/metrics.md"]
    for check in CHECKS:
        assert f"## {check.name}\n\n**{check.title}.** {check.healthy}" in PAGES["reference/checks.md"]


def test_pages_of_an_earlier_build_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "KStream-gone.md").write_text("# gone\n")
    assert write_pages(tmp_path) == sorted(file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.md"))
    assert not (tmp_path / "operations" / "KStream-gone.md").exists()
