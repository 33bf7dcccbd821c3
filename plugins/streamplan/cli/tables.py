"""How a pipeline's topics, totals and check results are shown in a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.table import Table
from rich.text import Text

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.checks.recount.totals import Totals
from streamplan.model.topics import ObservedTopic, TopicSpec

_MAX_ROWS = 12
_COLOURS = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.COULD_NOT_LOOK: "yellow"}


def topics_text(specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic]) -> Text:
    """Return each declared topic as the brokers describe it, with the configs that its role needs."""
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
        names = [*spec.configs, "min.insync.replicas"]
        text.append(f"   {'  '.join(f'{name}={topic.configs.get(name)}' for name in names)}\n", "dim")
    return text


def store_table(store: str, values: Mapping[str, str]) -> Table:
    """Return a table of the first keys of a store with their last values."""
    table = table_of(f"Store {store}: {len(values):,} keys", "key", "value")
    for key in sorted(values)[:_MAX_ROWS]:
        table.add_row(key, values[key])
    if len(values) > _MAX_ROWS:
        table.add_row("…", "")
    return table


def read_value(value: bytes, *, count: bool) -> str:
    """Return a changelog's value as text. A count is shown as a number."""
    return f"{int.from_bytes(value, 'big', signed=True):,}" if count else value.decode("utf-8", "backslashreplace")


def totals_table(totals: Totals) -> Table:
    """Return a table with the count of each key in the source, the state store and the changelog.

    Records that are not processed yet are added to the counts of state store and changelog.
    """
    table = table_of(
        f"Totals of {totals.aggregation.store}",
        "key",
        f"counted from {totals.aggregation.source}",
        "state store",
        "changelog",
        "agree",
    )
    store = totals.store
    for key in sorted(totals.all_keys)[:_MAX_ROWS]:
        counted = totals.counted.get(key, 0)
        changelog = totals.total(key)
        held = None if store is None else store.get(key, 0) + totals.store_in_flight.get(key, 0)
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


def checks_table(results: Iterable[CheckResult], *, with_age: bool = False) -> Table:
    """Return a table of check results.

    Args:
        with_age: Whether a column says how old each result is. The results may be of several runs.
    """
    table = table_of("Checks", "check", "outcome", *(["looked"] if with_age else []), "reason")
    for result in results:
        age = [seconds_ago(result.at)] if with_age else []
        table.add_row(result.check, Text(result.outcome, _COLOURS[result.outcome]), *age, result.reason)
    return table


def table_of(title: str, *columns: str, right: Collection[str] = ("state store", "changelog")) -> Table:
    """Return an empty table. The columns named in ``right`` have numbers, which are aligned on the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        figures = column in right or column.startswith("counted")
        # Figures are never cut: texts fold in their place.
        table.add_column(column, justify="right" if figures else "left", overflow="fold", no_wrap=figures)
    return table


def seconds_ago(at: str) -> str:
    """Return how long ago a time was: ``3.0 s ago``, ``5 min ago``, ``2 h ago`` or ``4 days ago``.

    Args:
        at: ISO 8601 with a time zone.
    """
    seconds = max((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds(), 0.0)
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:  # two of a unit, so that what was left out is at most a third
            return f"{seconds // length:,.0f} {unit} ago"
    return f"{seconds:,.1f} s ago"
