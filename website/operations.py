"""The pages of the operations: one for each operation of each class of the language.

The text, the arguments and the examples are those of the docstring. The examples are run: the page shows the topics
that they make, and what ``describe()`` says of them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import streamplan
from streamplan import (
    BranchedKStream,
    CogroupedKStream,
    GlobalKTable,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Pipeline,
    Topology,
    WindowedCogroupedKStream,
    WindowedKStream,
)
from streamplan.errors import Refused
from streamplan.model.topics import TopicRole
from streamplan.model.words import operations_of

from website.docstrings import arguments_of, parse

CLASSES: tuple[type, ...] = (
    Topology,
    KStream,
    BranchedKStream,
    KGroupedStream,
    WindowedKStream,
    CogroupedKStream,
    WindowedCogroupedKStream,
    KTable,
    GlobalKTable,
    KGroupedTable,
)
"""The classes of the language, in the order in which a declaration meets them."""

OF_TOPOLOGY = ("stream", "table", "global_table", "describe")
"""The operations of a topology. Its other methods are for the parts of Streamplan that run it."""

REFUSED = {("KStream", "through")}
"""Words of the JVM library that are there to say what to write instead."""

APPLICATION_ID = "my-app"

_ORDER = 'Json("id string, country string, customer string, price double, count int, amount double, line string")'

SETTING: Mapping[str, str] = {
    "topology": f'topology = Topology("{APPLICATION_ID}")',
    "stream": f'stream = topology.stream("orders", value={_ORDER}, key="customer")',
    "orders": 'orders = topology.stream("orders", value=Json("id string, product string, amount double"), '
    'key="customer")',
    "payments": 'payments = topology.stream("payments", value=Json("id string, amount double"), key="customer")',
    "purchases": 'purchases = topology.stream("purchases", value=Json("id string, amount double"), key="customer")',
    "clicks": 'clicks = topology.stream("clicks", value=Json("page string"), key="customer").group_by_key()',
    "events": 'events = topology.stream("events", value=Json("country string, active boolean"), key="user")',
    "web_orders": 'web_orders = topology.stream("web-orders", value=Json("id string"))',
    "shop_orders": 'shop_orders = topology.stream("shop-orders", value=Json("id string"))',
    "customers": 'customers = topology.table("customers", value=Json("name string, city string"), key="customer")',
    "accounts": 'accounts = topology.table("accounts", value=Json("name string"), key="customer")',
    "balances": 'balances = topology.table("balances", value=Json("country string, amount double"), key="customer")',
    "addresses": 'addresses = topology.table("addresses", value=Json("city string"), key="customer")',
    "products": 'products = topology.global_table("products", value=Json("name string, price double"))',
    "table": 'table = topology.table("scores", value=Json("total bigint"))',
    "grouped": "grouped = stream.group_by_key()",
    "counts": 'counts = topology.table("counts", value=Json("count bigint"))',
    "cogrouped": 'cogrouped = stream.group_by_key().cogroup({"spent": "sum(amount)"})',
    "windowed": 'windowed = stream.group_by_key().windowed_by(TimeWindows("1 minute"))',
    "sessions": 'sessions = stream.group_by_key().windowed_by(SessionWindows("5 minutes"))',
    "score": 'def score(record):\n    return {"risk": record.amount / 1000}',
    "notify": "def notify(record):\n    ...  # sends a message",
    "nothing_spent": 'def nothing_spent():\n    return {"total": 0.0, "orders": 0}',
    "add_order": "def add_order(key, value, spent):\n"
    '    return {"total": spent.total + value.amount, "orders": spent.orders + 1}',
    "add_click": "def add_click(key, value, spent):\n    return spent",
    "both_spent": "def both_spent(key, one, other):\n"
    '    return {"total": one.total + other.total, "orders": one.orders + other.orders}',
    "plus": "def plus(so_far, balance):\n"
    '    return {"country": balance.country, "amount": so_far.amount + balance.amount}',
    "minus": "def minus(so_far, balance):\n"
    '    return {"country": balance.country, "amount": so_far.amount - balance.amount}',
    "nothing": 'def nothing():\n    return {"total": 0.0}',
    "add": 'def add(key, balance, totals):\n    return {"total": totals.total + balance.amount}',
    "take": 'def take(key, balance, totals):\n    return {"total": totals.total - balance.amount}',
    "Detector": "class Detector(Processor):\n"
    "    def process(self, record, store):\n"
    "        seen = store.get()\n"
    '        store.put({"count": seen.count + 1 if seen else 1})\n'
    '        yield {"alarm": store.get().count > 2}',
    "Copies": "class Copies(Processor):\n"
    "    def init(self, context):\n"
    "        self.context = context\n\n"
    "    def process(self, record):\n"
    "        for copy in (1, 2):\n"
    '            self.context.forward({"id": record.value.id}, key=f"{record.key}-{copy}")',
}
"""What the names in the examples are. A line may use the names of lines before it."""

_OTHERWISE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("KGroupedStream", "cogroup"): {
        "orders": 'orders = topology.stream("orders", value=Json("amount double"), key="customer").group_by_key()'
    },
    ("KTable", "join"): {
        "customers": 'customers = topology.table("customers", value=Json("name string"), key="customer")'
    },
}
"""Names that are something else in the examples of one operation."""

EXAMPLES: Mapping[tuple[str, str], str] = {
    ("Topology", "global_table"): 'prices = topology.global_table("prices", value=Json("price double"))\n'
    'orders.join(prices, {"id": "id", "price": "table.price"}, key="product").to("priced-orders")',
    ("Topology", "describe"): 'stream.filter("amount > 0").to("paid-orders")\nprint(topology.describe())',
    ("WindowedKStream", "count"): 'windowed.count(store="orders-per-minute")',
    ("WindowedCogroupedKStream", "aggregate"): 'cogrouped.windowed_by(TimeWindows("1 minute")).aggregate('
    'store="per-minute")',
    ("BranchedKStream", "no_default_branch"): 'branches = stream.split(name="orders-").branch("amount > 100", '
    'name="large").no_default_branch()\nbranches["orders-large"].to("large-orders")',
}
"""Examples of operations whose docstring has none that is a declaration by itself."""

READ_ON: Mapping[str, tuple[str, str]] = {
    "filter KTable": ("Operations of tables", "operations-of-tables"),
    "filter_not KTable": ("Operations of tables", "operations-of-tables"),
    "map_values KTable": ("Operations of tables", "operations-of-tables"),
    "group_by KTable": ("Operations of tables", "operations-of-tables"),
    "count KGroupedTable": ("Operations of tables", "operations-of-tables"),
    "reduce KGroupedTable": ("Operations of tables", "operations-of-tables"),
    "aggregate KGroupedTable": ("Operations of tables", "operations-of-tables"),
    "join KTable": ("Two tables", "two-tables"),
    "left_join KTable": ("Two tables", "two-tables"),
    "outer_join KTable": ("Two tables", "two-tables"),
    "join": ("Two streams", "two-streams"),
    "left_join": ("Two streams", "two-streams"),
    "outer_join": ("Two streams", "two-streams"),
    "stream": ("Records", "records"),
    "table": ("Records", "records"),
    "global_table": ("Global tables", "global-tables"),
    "to_table": ("Operations of tables", "operations-of-tables"),
    "split": ("Branches", "branches"),
    "branch": ("Branches", "branches"),
    "default_branch": ("Branches", "branches"),
    "no_default_branch": ("Branches", "branches"),
    "to": ("Topics of records", "topics-of-records"),
    "cogroup": ("Several streams in one aggregate", "several-streams-in-one-aggregate"),
    "aggregate CogroupedKStream": ("Several streams in one aggregate", "several-streams-in-one-aggregate"),
    "aggregate WindowedCogroupedKStream": ("Several streams in one aggregate", "several-streams-in-one-aggregate"),
    "emit_strategy": ("Final results", "final-results"),
    "suppress": ("Final results", "final-results"),
    "process": ("Python classes with state", "python-classes-with-state"),
    "process_values": ("Python classes without a store", "python-classes-without-a-store"),
    "filter": ("Python functions", "python-functions"),
    "filter_not": ("Python functions", "python-functions"),
    "map_values": ("Python functions", "python-functions"),
    "map": ("Python functions", "python-functions"),
    "flat_map": ("Python functions", "python-functions"),
    "flat_map_values": ("Python functions", "python-functions"),
    "peek": ("Functions for what they do", "functions-for-what-they-do"),
    "foreach": ("Functions for what they do", "functions-for-what-they-do"),
    "print": ("Functions for what they do", "functions-for-what-they-do"),
    "group_by": ("Keys", "keys"),
    "select_key": ("Keys", "keys"),
    "aggregate": ("Aggregates of Python functions", "aggregates-of-python-functions"),
    "reduce": ("Aggregates of Python functions", "aggregates-of-python-functions"),
}
"""The section of the page on the language that says more: by operation and class, or by operation."""

_ROLES = {
    TopicRole.SOURCE: "it is read",
    TopicRole.REPARTITION: "repartition topic",
    TopicRole.CHANGELOG: "changelog of a store",
    TopicRole.SINK: "it is written",
    TopicRole.DEAD_LETTER: "dead letters",
}


class NoExample(Exception):
    """An example that cannot be run: its operation, and what to correct."""


@dataclass(frozen=True)
class Operation:
    """An operation of a class of the language."""

    cls: type
    name: str

    @property
    def path(self) -> str:
        """The file of its page, below the folder of generated pages."""
        return f"operations/{self.cls.__name__}-{self.name}.md"

    @property
    def title(self) -> str:
        """What its page is called."""
        return f"{self.cls.__name__}.{self.name}"

    @property
    def examples(self) -> tuple[str, ...]:
        """The code of its examples."""
        own = EXAMPLES.get((self.cls.__name__, self.name))
        return (own,) if own else parse(getattr(self.cls, self.name)).examples


def operations() -> list[Operation]:
    """Return every public operation."""
    return [
        Operation(cls, name)
        for cls in CLASSES
        for name in operations_of(cls)
        if cls is not Topology or name in OF_TOPOLOGY
    ]


def page_of(operation: Operation) -> str:
    """Return the page of an operation, in Markdown.

    Args:
        operation: The operation.

    Raises:
        NoExample: An example cannot be run, or there is none.
    """
    method = getattr(operation.cls, operation.name)
    docstring = parse(method)
    lines: list[str] = [f"# {operation.title}", ""]
    if (operation.cls.__name__, operation.name) not in REFUSED:
        for example in operation.examples:
            lines += [*_code(example), ""]
    lines += [docstring.text, "", "## Signature", "", *_code(_signature(operation.name, method)), ""]
    if arguments := arguments_of(operation.cls, operation.name):
        lines += ["| Argument | Default | |", "|---|---|---|"]
        defaults = inspect.signature(method).parameters
        lines += [f"| `{name}` | {_default(defaults[name])} | {_cell(text)} |" for name, text in arguments.items()]
        lines.append("")
    if docstring.returns:
        lines += [f"**Returns** {docstring.returns}", ""]
    if (operation.cls.__name__, operation.name) not in REFUSED:
        lines += _of_examples(operation)
    if section := READ_ON.get(f"{operation.name} {operation.cls.__name__}", READ_ON.get(operation.name)):
        lines += [f"Read on: [{section[0]}](../language.md#{section[1]}).", ""]
    return "\n".join(lines)


def index_page() -> str:
    """Return the page that lists all operations with their first sentence."""
    lines = ["# Operations", "", "The words of the language, by the class that has them.", ""]
    for cls in CLASSES:
        lines += [f"## {cls.__name__}", "", parse(cls).text.partition("\n")[0], ""]
        if not operations_of(cls):
            continue
        lines += ["| Operation | |", "|---|---|"]
        for operation in operations():
            if operation.cls is cls:
                first = parse(getattr(cls, operation.name)).text.partition("\n")[0]
                file = operation.path.partition("/")[2]
                lines.append(f"| [`{operation.name}`]({file}) | {_cell(first)} |")
        lines.append("")
    return "\n".join(lines)


def run(operation: Operation, example: str) -> tuple[str, Topology]:
    """Run an example.

    Args:
        operation: The operation that it is of.
        example: The code of the example.

    Returns:
        The code that had to be before it, and the topology.

    Raises:
        NoExample: It uses a name that :data:`SETTING` does not have, or its declaration has faults.
    """
    known = {**SETTING, **_OTHERWISE.get((operation.cls.__name__, operation.name), {})}
    before: list[str] = []

    def need(code: str) -> None:
        for name in sorted({node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}):
            if name in known and known[name] not in (*before, code):
                need(known[name])
                before.append(known[name])

    need(example)
    lines = list(known.values())
    before = sorted({known["topology"], *before}, key=lines.index)
    namespace: dict[str, Any] = {name: getattr(streamplan, name) for name in streamplan.__all__}
    namespace["print"] = lambda *given: None
    try:
        exec("\n".join([*before, example]), namespace)
    except (NameError, AttributeError, TypeError, ValueError, SyntaxError) as error:
        raise NoExample(f"{operation.title}: {example}: {error}. Correct it, or add the name to SETTING") from error
    topology: Topology = namespace["topology"]
    if topology.faults:
        raise NoExample(f"{operation.title}: {example}: {'; '.join(map(str, topology.faults))}")
    return _blocks(before), topology


def _of_examples(operation: Operation) -> Iterator[str]:
    if not operation.examples:
        raise NoExample(f"{operation.title} has no example. Write one into its docstring")
    for number, example in enumerate(operation.examples, 1):
        heading = "## What the example makes" if len(operation.examples) == 1 else f"## What example {number} makes"
        before, topology = run(operation, example)
        yield from [heading, "", *_code(f"{before}\n\n{example}"), ""]
        partitions = dict.fromkeys(topology.source_topics, 2)
        try:
            pipeline = Pipeline("my-pipeline", topology, "An example.", topic_partitions=partitions)
        except Refused as error:
            raise NoExample(f"{operation.title}: {example}: {error}. Write an example into EXAMPLES") from error
        yield from ["| Topic | |", "|---|---|"]
        for topic in pipeline.topics():
            yield f"| `{topic.name}` | {_ROLES.get(topic.role, str(topic.role))} |"
        yield from ["", "`describe()` says:", "", *_code(topology.describe().rstrip(), ""), ""]


def _blocks(parts: list[str]) -> str:
    """Join lines, with blank lines around what takes several of them."""
    text = "\n".join(f"\n{part}\n" if "\n" in part else part for part in parts)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _signature(name: str, method: Any) -> str:
    parameters = list(inspect.signature(method).parameters.values())[1:]
    lines, keywords = [f"{name}("], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            lines.append("    *,")
            keywords = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    returns = inspect.signature(method).return_annotation
    return "\n".join([*lines, f") -> {returns}"]) if parameters else f"{name}() -> {returns}"


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is parameter.empty else f"`{parameter.default!r}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str, language: str = "python") -> list[str]:
    return [f"```{language}", *text.splitlines(), "```"]
