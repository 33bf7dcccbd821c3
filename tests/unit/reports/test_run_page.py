"""The page of a run and the index, with names and values that somebody else chose."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from streamplan.checks.framework.check import CheckResult, Observation, Outcome, not_judged
from streamplan.reports.run_page import RunView, index_page, page_content

HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)>"\' onmouseover="alert(3)'


class Tags(HTMLParser):
    """Collects the tags and attributes that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert not tags.tags & {"script", "img", "iframe", "object"}
    assert not {name for name in tags.attributes if name.startswith("on")}
    return tags


def test_topic_names_keys_and_values_are_text() -> None:
    check = {
        "name": HOSTILE,
        "title": HOSTILE,
        "outcome": "failed",
        "reason": HOSTILE,
        "at": HOSTILE,
        "healthy": HOSTILE,
        "rows": [(HOSTILE, HOSTILE, HOSTILE, HOSTILE, False)],
        "rows_left_out": 1,
    }
    page = RunView().render({"suite": f"{HOSTILE}_health", "run_name": HOSTILE, "checks": [check]})
    assert parsed(page).text.count(HOSTILE) >= 8


def test_what_is_not_judged_has_no_mark_of_health_and_stands_behind_what_is_wrong() -> None:
    rows = (Observation("counts", 1, 1), not_judged("joined", "(its result depends on time)"), Observation("sum", 2, 3))
    result = CheckResult("orders", "totals", Outcome.FAILED, "a reason", "2026-01-01T00:00:00+00:00", rows)
    page = RunView().render({"suite": "orders_health", "run_name": "r", "checks": [page_content(result)]})
    assert re.findall(r"([✓✗–])\s*(\w+)", " ".join(parsed(page).text.split()))[-3:] == [
        ("✗", "sum"),
        ("–", "joined"),
        ("✓", "counts"),
    ]


def test_the_index_links_to_pages_alone() -> None:
    path = f"{HOSTILE}/data_docs/a/b/c.html"
    result = CheckResult(HOSTILE, "totals", Outcome.FAILED, HOSTILE, "2026-01-01T00:00:00+00:00", (), path)
    assert HOSTILE in parsed(index_page(HOSTILE, [result], {path: True})).text
