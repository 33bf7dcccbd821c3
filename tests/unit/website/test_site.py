"""The site: its navigation, the lists of its pages, and the hosts from which a browser loads something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamplan.settings import PROJECT

from website.foreign_hosts import foreign_addresses
from website.markdown_lists import with_deep_items
from website.reference import pages


class Loader(yaml.SafeLoader):
    """Reads the file without the function that MkDocs is given in it."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def listed(part: Any) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [page for each in (part.values() if isinstance(part, dict) else part) for page in listed(each)]


NAVIGATION = yaml.load((PROJECT / "mkdocs.yml").read_text(), Loader)["nav"]


def test_the_kinds_of_pages_stand_apart() -> None:
    titles = [next(iter(part)) for part in NAVIGATION]
    assert titles == ["Home", "Why", "Tutorial", "How-to", "Reference", "Explanation"]


def test_every_page_has_one_place_in_the_navigation() -> None:
    written = {file.name for file in (PROJECT / "docs").glob("*.md")}
    generated = {path for path in pages() if not re.match(r"operations/\w+-", path)}
    assert sorted(listed(NAVIGATION)) == sorted(written | generated | {"contributing.md"})


def test_the_page_why_has_the_figures_that_were_measured() -> None:
    measured = (PROJECT / "docs" / "performance.md").read_text().split("\n## Results\n")[1].split("\n## ")[0]
    rows = {
        cells[0].strip(): [re.sub(r" \(.*", "", cell.strip()) for cell in cells[1:]]
        for cells in (line.strip("|").split("|") for line in measured.splitlines() if line.startswith("| "))
    }
    names = ("Streamplan", "Kafka Streams", "Flink SQL", "Quix Streams", "Spark's own sink, at-least-once")
    systems = [rows[name] for name in names]
    page = (PROJECT / "docs" / "why.md").read_text()
    for told, column in {
        "orders/s in a catch-up": 0,
        "start to the first total": 1,
        "CPU seconds per 1,000,000 orders": 3,
        "the same with the start": 4,
        "memory": 5,
        "latency at 1,000 orders/s, p50": 6,
        "latency at 1,000 orders/s, p99": 7,
        "cores at 1,000 orders/s": 8,
    }.items():
        [row] = re.findall(rf"^\| {re.escape(told)} \|(.*)\|$", page, re.M)
        assert [re.sub(r" (ms|MB|s)$", "", cell.strip()) for cell in row.split("|")] == [
            system[column] for system in systems
        ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("- one\n  more\n- two\n", "- one\n    more\n- two\n"),
        ("1. one\n   more\n\n       code\n", "1. one\n    more\n\n        code\n"),
        ("10. ten\n    more\n", "10. ten\n    more\n"),
        ("- one\n\n      code\n\nafter\n\n    code\n", "- one\n\n        code\n\nafter\n\n    code\n"),
        ("```\n- no item\n  text\n```\n", "```\n- no item\n  text\n```\n"),
        ("text - no item\n  more\n", "text - no item\n  more\n"),
        ("| a | b |\n|---|---|\n| - c | d |\n", "| a | b |\n|---|---|\n| - c | d |\n"),
    ],
)
def test_what_belongs_to_an_item_is_four_spaces_deep(written: str, read: str) -> None:
    assert with_deep_items(written) == read


def test_no_page_has_a_list_in_a_list() -> None:
    """:func:`with_deep_items` does not know it."""
    found = [
        f"{file.name}: {line}"
        for file in [*(PROJECT / "docs").glob("*.md"), PROJECT / "CONTRIBUTING.md"]
        for line in file.read_text().splitlines()
        if re.match(r" {1,3}(?:[-*]|\d+\.) ", line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://unpkg.com/a.js"></script>',
        '<script src="//unpkg.com/a.js"></script>',
        '<link rel="stylesheet" href="http://fonts.example.org/a.css">',
        '<link rel="preconnect" href="https://fonts.example.org" crossorigin>',
        '<LINK REL="Icon" HREF="HTTPS://example.org/a.png">',
        '<img src="https://example.org/a.png">',
        "<style>@import 'https://example.org/a.css';</style>",
        '<p style="background: url( https://example.org/a.png )">',
    ],
)
def test_what_a_page_loads_from_a_foreign_host_is_found(tmp_path: Path, loads: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "page.html").write_text(f"<html><body>{loads}</body></html>")
    [found] = foreign_addresses(tmp_path)
    assert found.startswith("a/page.html: ")


def test_a_font_of_a_foreign_host_in_a_style_sheet_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@font-face { src: url("https://example.org/a.woff2"); }')
    assert list(foreign_addresses(tmp_path)) == ["a.css: https://example.org/a.woff2"]


def test_links_and_files_of_the_site_itself_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<a href="https://kafka.apache.org/">Kafka</a><script src="../assets/a.js"></script>'
        '<link rel="canonical" href="https://example.org/"><img src="data:image/png;base64,AA">'
    )
    assert list(foreign_addresses(tmp_path)) == []
