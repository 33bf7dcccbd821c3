"""What a person sees of a pipeline: topics, totals, checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from streamplan.checks.observation import CheckResult, Outcome
from streamplan.checks.totals import Totals
from streamplan.topics import ObservedTopic, TopicSpec

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


def totals_table(totals: Totals) -> Table:
    """Per key the count in the source, the state store and the changelog, records still on their way added."""
    table = _table(
        f"Totals of {totals.aggregation.store}",
        "key",
        f"counted from {totals.aggregation.source}",
        "state store",
        "changelog",
        "agree",
    )
    store = totals.store
    for key in sorted(totals.counted.keys() | totals.changelog.keys() | (store or {}).keys()):
        counted = totals.counted.get(key, 0)
        changelog = totals.changelog.get(key, 0) + totals.waiting.get(key, 0)
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
    table = _table("Checks", "check", "outcome", "reason")
    for result in results:
        table.add_row(result.check, Text(result.outcome, _COLOURS[result.outcome]), result.reason)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column in ("state store", "changelog") or column.startswith("counted")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table
