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


def topics_table(specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic]) -> Table:
    """Every declared topic as the brokers describe it, with the configs that matter for its role."""
    table = _table("Topics", "name", "role", "partitions", "replication", "configs that matter")
    for spec in specs:
        topic = observed.get(spec.name)
        if topic is None:
            table.add_row(spec.name, spec.role, "-", "-", Text("missing", "red"))
            continue
        wanted = [*spec.configs, "min.insync.replicas"]
        configs = "\n".join(f"{name}={topic.configs.get(name, '?')}" for name in wanted)
        table.add_row(spec.name, spec.role, str(topic.partitions), str(topic.replication_factor), configs)
    return table


def totals_table(totals: Totals) -> Table:
    """Per key the count in the source, the state store and the changelog, records still on their way added."""
    table = _table("Totals", "key", f"counted from {totals.aggregation.source}", "state store", "changelog", "agree")
    store = totals.store
    for key in sorted(totals.counted.keys() | totals.changelog.keys() | (store or {}).keys()):
        counted = totals.counted.get(key, 0)
        changelog = totals.changelog.get(key, 0) + totals.waiting.get(key, 0)
        held = None if store is None else store.get(key, 0) + totals.store_waiting.get(key, 0)
        agree = counted == changelog and held in (None, counted)
        table.add_row(
            totals.aggregation.label(key),
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
        right = column in ("partitions", "replication", "state store", "changelog") or column.startswith("counted")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table
