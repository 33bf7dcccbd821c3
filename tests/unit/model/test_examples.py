"""The examples of the documentation that editors show are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import streamplan
from streamplan.model import expressions
from streamplan.model.expressions import plain
from streamplan.model.words import operations_of

REFUSED = ("through",)
"""Words of the JVM's DSL that are answered with what to write."""

LANGUAGE = [
    streamplan.BranchedKStream, streamplan.CogroupedKStream, streamplan.Expression, streamplan.KGroupedStream,
    streamplan.KGroupedTable, streamplan.KStream, streamplan.KTable, streamplan.WindowedCogroupedKStream,
    streamplan.WindowedKStream,
]  # fmt: skip

BEFORE = """
import pyarrow as pa
import pyarrow.compute as pc
from dataclasses import dataclass
from datetime import datetime, timedelta
from streamplan import *

ORDER = Json('''id string, amount bigint, price double, count int, line string, customer string, country string,
    city string, paid boolean, product int, active boolean, address struct<city: string>, `at` timestamp,
    tags array<string>''')
before, topology = Topology("before"), Topology("example")
stream = orders = events = before.stream("orders", value=ORDER)
purchases = orders.map_values({"id": "id"}).select_key("id")
web_orders, shop_orders = orders.filter("amount > 0"), orders.filter("amount < 0")
payments = before.stream("payments", value=Json("id string, amount bigint"))
table = customers = before.table("customers", value=Json("name string, city string"))
addresses = before.table("addresses", value=Json("city string"))
products = before.global_table("products", value=Json("name string, price double"))
balances = before.table("balances", value=Json("country string, amount double"))
accounts = before.table("accounts", value=Json("name string"))
grouped = orders.group_by_key()
windowed, sessions = (grouped.windowed_by(each) for each in (TimeWindows("1 minute"), SessionWindows("1 minute")))
clicks = before.stream("clicks", value=Json("page string")).group_by_key()
cogrouped = clicks.cogroup({"clicks": "count(*)"})
counts = orders.group_by("country", name="per-country").count()
windowed = grouped.windowed_by(TimeWindows("1 minute"))

class Detector(Processor):
    def process(self, record, store): ...

class Copies(Processor):
    def process(self, record): ...

@dataclass
class Order:
    id: str

@dataclass
class Score:
    risk: float

def score(order) -> Score: ...
def notify(order): ...
def nothing_spent(): ...
def add_order(key, order, spent): ...
def add_click(key, click, spent): ...
def both_spent(key, one, other): ...
def plus(so_far, balance): ...
def minus(so_far, balance): ...
def nothing(): ...
def add(key, balance, totals): ...
def take(key, balance, totals): ...
"""


class Example(NamedTuple):
    name: str
    code: str


def documented() -> Iterator[tuple[str, str]]:
    """The public names and the operations of the language, each with its documentation."""
    for name in streamplan.__all__:
        if name not in ("F", "STREAM_TIME", "WALL_CLOCK_TIME"):
            yield name, getattr(streamplan, name).__doc__
    for cls in LANGUAGE:
        for name in operations_of(cls):
            if name not in REFUSED:
                yield f"{cls.__name__}.{name}", getattr(cls, name).__doc__
    for name in ("stream", "table", "global_table", "describe"):
        yield f"Topology.{name}", getattr(streamplan.Topology, name).__doc__
    text = Path(expressions.__file__).read_text()
    yield "F", text.partition("\nF: Final")[2].split('"""')[1]


def examples_of(text: str) -> Iterator[str]:
    """What stands between ticks behind "Example:", and the indented lines behind "Example::"."""
    text = f"{cleandoc(text)}\n"
    for found in re.finditer(r"Examples?: (``.+?``(?:,\s+``.+?``)*)", text, re.DOTALL):
        for code in re.findall(r"``(.+?)``", found[1], re.DOTALL):
            yield " ".join(code.split())
    for found in re.finditer(r"::\n\n((?: {4}.*\n|\n)+)", text):
        yield dedent(found[1])


EXAMPLES = [Example(name, code) for name, text in documented() for code in examples_of(text)]


def test_every_public_name_and_operation_has_an_example() -> None:
    assert [name for name, text in documented() if not [*examples_of(text)]] == []


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that examples name."""
    (tmp_path / "order.avsc").write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'
    )
    (tmp_path / "order.proto").write_text('syntax = "proto3";\nmessage Order { string id = 1; }\n')
    (tmp_path / "order.schema.json").write_text('{"type": "object", "properties": {"id": {"type": "string"}}}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "streamplan.pipelines")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
@pytest.mark.usefixtures("files")
def test_an_example_is_a_declaration_without_faults(example: Example) -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(BEFORE, "before.py", "exec", dont_inherit=True), names)
    if example.name == "Pipeline":
        names["topology"].stream("orders", value=names["ORDER"])
    exec(compile(example.code, "example.py", "exec", dont_inherit=True), names)
    assert [str(fault) for topology in (names["before"], names["topology"]) for fault in topology.faults] == []


def section_of(page: Path, title: str) -> str:
    """The code of a section of a page."""
    text = page.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return "\n".join(dedent(block) for block in re.findall(r"(?:^ {4}.*\n|^\n)+", text, re.MULTILINE))


@pytest.mark.parametrize("title", ["Fields without texts", "Records as dataclasses"])
def test_the_code_of_the_page_is_a_declaration_without_faults(title: str) -> None:
    code = section_of(Path(__file__).parents[3] / "docs" / "language.md", title)
    names: dict[str, Any] = {"__name__": __name__}
    imports = "from datetime import datetime\nfrom decimal import Decimal\nfrom enum import IntEnum\n"
    exec(compile(f"{imports}from typing import Annotated\n{BEFORE}", "before.py", "exec", dont_inherit=True), names)
    assert "streamplan" in code or "topology" in code
    exec(compile(code, "language.py", "exec", dont_inherit=True), names)
    assert names["before"].faults == names["topology"].faults == ()


def test_the_table_of_the_page_has_the_text_of_each_expression() -> None:
    text = (Path(__file__).parents[3] / "docs" / "language.md").read_text()
    table = text.partition("| Python | Spark SQL |\n|---|---|\n")[2].partition("\n\n")[0]
    compared = 0
    for row in table.splitlines():
        python, sql = (re.findall(r"(`+) ?(.+?) ?\1", part) for part in row.strip("| ").split(" | "))
        for (_, code), (_, written) in zip(python, sql, strict=False):
            if code.startswith(("F", "(F", "~F")):
                assert plain(eval(code.replace("\\|", "|"), {"F": streamplan.F})) == written
                compared += 1
    assert compared > 15
