"""What a person sees of a pipeline: topics, totals, checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.table import Table
from rich.text import Text

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.checks.totals import Totals
from streamplan.model.topics import ObservedTopic, TopicSpec
from streamplan.model.windows import parse_stored_window

_SHOWN = 12
_COLOURS = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.COULD_NOT_LOOK: "yellow"}


def topics_text(specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic]) -> Text:
    """Every declared topic as the brokers describe it, with the configs that matter for its role."""
    text = Text("Topics\n", "bold")
    for spec in specs:
        topic = observed.get(spec.name)
        text.append(f"\n {spec.name}\n", "cyan" if topic else "red")
        if topic is None:
            text.append(f"   {spec.role}, missing\n", "red")
            continue
        text.append(
            f"   {spec.role}, {topic.partitions} partitions, replication {topic.replication_factor}\n", "default"
        )
        wanted = [*spec.configs, "min.insync.replicas"]
        text.append(f"   {'  '.join(f'{name}={topic.configs.get(name)}' for name in wanted)}\n", "dim")
    return text


def store_table(store: str, values: Mapping[str, str]) -> Table:
    """The last values of a store's keys, as its changelog holds them; of many the first ones."""
    table = table_of(f"Store {store}: {len(values):,} keys", "key", "value")
    for key in sorted(values)[:_SHOWN]:
        table.add_row(key, values[key])
    if len(values) > _SHOWN:
        table.add_row("…", "")
    return table


def read_key(key: bytes, *, windowed: bool) -> str:
    """The text of a changelog's key; of a windowed one with the window's start."""
    if not windowed:
        return key.decode("utf-8", "backslashreplace")
    window = parse_stored_window(key)
    if window is None:
        return repr(key)
    start = datetime.fromtimestamp(window.start_ms / 1000, UTC)
    return f"{window.key.decode('utf-8', 'backslashreplace')} at {start:%Y-%m-%d %H:%M:%S}"


def read_value(value: bytes, *, count: bool) -> str:
    """The text of a changelog's value."""
    return f"{int.from_bytes(value, 'big', signed=True):,}" if count else value.decode("utf-8", "backslashreplace")


def totals_table(totals: Totals) -> Table:
    """Per key the count in the source, the state store and the changelog, records still on their way added."""
    table = table_of(
        f"Totals of {totals.aggregation.store}",
        "key",
        f"counted from {totals.aggregation.source}",
        "state store",
        "changelog",
        "agree",
    )
    store = totals.store
    for key in sorted(totals.all_keys)[:_SHOWN]:
        counted = totals.counted.get(key, 0)
        changelog = totals.total(key)
        held = None if store is None else store.get(key, 0) + totals.store_waiting.get(key, 0)
        agree = counted == changelog and held in (None, counted)
        table.add_row(
            totals.aggregation.label(key).removeprefix(totals.aggregation.store),
            f"{counted:,}",
            "not read" if held is None else f"{held:,}",
            f"{changelog:,}",
            Text("yes", "green") if agree else Text("NO", "bold red"),
        )
    if totals.rejected:
        table.caption = f"{len(totals.rejected):,} records could not be aggregated and are in the dead-letter topic"
    return table


def checks_table(results: Iterable[CheckResult]) -> Table:
    table = table_of("Checks", "check", "outcome", "reason")
    for result in results:
        table.add_row(result.check, Text(result.outcome, _COLOURS[result.outcome]), result.reason)
    return table


def table_of(title: str, *columns: str, right: Collection[str] = ("state store", "changelog")) -> Table:
    """``right``: the columns of figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        figures = column in right or column.startswith("counted")
        table.add_column(column, justify="right" if figures else "left", overflow="fold")
    return table
