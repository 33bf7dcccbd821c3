"""The command ``top``: stream tasks, topics and checks of an application, as they are now."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.cli.command import Commands
from streamplan.cli.observed import add_options, observed, print_json
from streamplan.cli.output import quantity, table_console
from streamplan.cli.tables import checks_table, seconds_ago, table_of
from streamplan.model.status import AggregatorStatus
from streamplan.observability.sampler import Sampler
from streamplan.observability.snapshot import Snapshot
from streamplan.programs import ExitStatus
from streamplan.settings import Settings

REFRESH_SECONDS = 2.0

SHORT_REASONS = 2
"""At most this many reasons of dead letters are shown where the rows are few."""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "top",
        "show what an application does now: tasks, lag, rates, topics, checks",
        description="Show the stream tasks of an application with their lag in offsets and in seconds, its topics "
        "with their rates, and the last result of each check. Refresh every two seconds until Ctrl-C. "
        "Rates appear with the second look. The last line says what does not fit into the terminal. In a "
        "pipe, and with --json, the command looks twice and ends.",
        examples="%(prog)s orders\n%(prog)s --application-id my-app --bootstrap-servers kafka-1:9092 --json",
        run=_run,
    )
    add_options(parser)


def _run(options: argparse.Namespace) -> int:
    chosen = observed(options)
    sampler = Sampler(chosen.find, chosen.name, chosen.cluster, Settings.from_environment().reports)
    console = table_console()
    first = sampler.sample()
    if options.json or not console.is_terminal:
        time.sleep(0 if first.problem else REFRESH_SECONDS)
        snapshot = sampler.sample()
        print_json(snapshot) if options.json else console.print(screen(snapshot))
        return ExitStatus.FAILED if snapshot.problem else ExitStatus.DONE
    with Live(fitted(first, console), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_SECONDS)
            live.update(fitted(sampler.sample(), console), refresh=True)


@dataclass(frozen=True)
class _Parts:
    """What is shown of a snapshot.

    Attributes:
        whole: Whether texts fold and each check has a row. Otherwise texts are cut, and a line counts the checks.
        micro_batches: Whether the last micro-batches are shown.
        topics: Whether the topics are shown.
        tasks: The most stream tasks, those with the greatest lag first; None for all, in their order.
    """

    whole: bool = True
    micro_batches: bool = True
    topics: bool = True
    tasks: int | None = None


_FORMS = (
    _Parts(),
    _Parts(whole=False),
    _Parts(whole=False, micro_batches=False),
    _Parts(whole=False, micro_batches=False, topics=False),
)
"""The forms that are tried in a terminal, until one fits."""


def fitted(snapshot: Snapshot, console: Console) -> Group:
    """Return what a terminal shows of a snapshot, in at most as many rows as it has.

    The last row says what is left out.

    Args:
        snapshot: The snapshot.
        console: That of the terminal.
    """
    rows = console.height - 1  # the cursor stands in the last one
    shortest = range(min(len(snapshot.tasks), rows), -1, -1)
    shown = Group()
    for parts in (*_FORMS, *(replace(_FORMS[-1], tasks=tasks) for tasks in shortest)):
        if parts.tasks is None and len(snapshot.tasks) >= rows:
            continue
        shown = screen(snapshot, parts)
        if len(console.render_lines(shown)) <= rows:
            break
    return shown


def screen(snapshot: Snapshot, parts: _Parts = _FORMS[0]) -> Group:
    """Return what is shown of a snapshot: everything, where nothing else is said."""
    shown: list[Text | Table] = [_heading(snapshot, whole=parts.whole)]
    if snapshot.problem:  # there are no tasks and no topics
        return Group(*shown, *([_checks(snapshot.checks)] if snapshot.checks else []))
    shown.append(_tasks(snapshot, parts))
    left_out = []
    if parts.tasks is not None:
        left_out.append(quantity(len(snapshot.tasks) - parts.tasks, "stream task"))
    if snapshot.aggregator is not None and snapshot.aggregator.measures:
        if parts.micro_batches:
            shown.append(_micro_batches(snapshot.aggregator, whole=parts.whole))
        else:
            left_out.append("the last micro-batches")
    if parts.topics:
        shown.append(_topics(snapshot, whole=parts.whole))
    else:
        left_out.append(quantity(len(snapshot.topics), "topic"))
    if snapshot.checks:
        shown.append(checks_table(snapshot.checks, with_age=True) if parts.whole else _checks(snapshot.checks))
    if left_out:
        shown.append(_cut(f"A larger terminal also shows {', '.join(left_out)}.", "dim"))
    return Group(*shown)


def _heading(snapshot: Snapshot, *, whole: bool) -> Text:
    heading = Text(f"{snapshot.pipeline}  ", "bold") if whole else _cut(f"{snapshot.pipeline}  ", "bold")
    if snapshot.problem:
        heading.append(snapshot.problem, "red")
    elif snapshot.members is None:
        heading.append("its members cannot be seen, because the protocol of its group is streams", "yellow")
    elif snapshot.members:
        heading.append(f"runs: {', '.join(snapshot.members)}", "green")
    else:
        heading.append(f"does not run: group {snapshot.application_id} has no member", "yellow")
    if snapshot.aggregator is not None:
        heading.append(
            f"  {snapshot.aggregator.state}, last heartbeat {seconds_ago(snapshot.aggregator.at)}",
            "red" if snapshot.silent else "dim",
        )
    reasons = list(snapshot.dead_letters.items())
    shown = reasons if whole else reasons[:SHORT_REASONS]
    for reason, records in shown:
        heading.append(f"\n{records:,} dead-lettered: {reason}", "yellow")
    if more := reasons[len(shown) :]:
        records = sum(number for _, number in more)
        heading.append(f"\n{records:,} dead-lettered for {quantity(len(more), 'other reason')}", "yellow")
    return heading


def _cut(text: str, style: str = "") -> Text:
    """A text that is cut where a line ends."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _checks(results: Sequence[CheckResult]) -> Text:
    """The checks in a line, those that passed before the last run in a line, and those that did not in a line each."""
    passed = [result for result in results if result.outcome is Outcome.PASSED]
    last = max(results, key=lambda result: result.at)
    text = _cut(f"Checks: {len(passed)} of {len(results)} passed, the last run {seconds_ago(last.at)}")
    before = {result.check: seconds_ago(result.at) for result in results if result.data_docs != last.data_docs}
    if older := [f"{result.check} {before[result.check]}" for result in passed if result.check in before]:
        text.append(f"\nPassed in an earlier run: {', '.join(older)}", "dim")
    for result in results:
        if result.outcome is not Outcome.PASSED:
            colour = "red" if result.outcome is Outcome.FAILED else "yellow"
            age = f", {before[result.check]}" if result.check in before else ""
            text.append(f"\n{result.check} {result.outcome}{age}: {' '.join(result.reason.split())}", colour)
    return text


def _tasks(snapshot: Snapshot, parts: _Parts) -> Table:
    right = ("records/s", "lag", "oldest waits")
    table = table_of("Stream tasks", "task", *right, "instance", "last commit", "reads", right=right)
    tasks = snapshot.tasks
    if parts.tasks is not None:  # one without a position has never committed
        tasks = sorted(tasks, key=lambda task: inf if task.lag is None else task.lag, reverse=True)[: parts.tasks]
    text = Text if parts.whole else _cut
    for task in tasks:
        table.add_row(
            task.task,
            _number(task.records_per_second),
            _number(task.lag),
            "-" if task.lag_seconds is None else f"{task.lag_seconds:,.1f} s",
            text("-" if task.instance is None else f"{task.instance} on {task.host}"),
            text("-" if task.last_commit is None else seconds_ago(task.last_commit)),
            text(", ".join(f"{each.topic}-{each.partition}" for each in task.inputs)),
            style="yellow" if task.lag else None,
        )
    return table


def _micro_batches(aggregator: AggregatorStatus, *, whole: bool) -> Table:
    text = Text if whole else _cut
    right = ("records", "lasted", "Spark job", "state rows", "written", "dead-lettered")
    table = table_of("Last micro-batches", "sub-topology", "ended", *right, right=right)
    for number, each in aggregator.measures.items():
        batch = aggregator.batches.get(number)
        table.add_row(
            text(str(number)),
            text("-" if batch is None else seconds_ago(batch.at)),
            f"{each.records:,}",
            f"{each.seconds * 1000:,.0f} ms",
            f"{each.write_seconds * 1000:,.0f} ms",
            f"{each.state_rows:,}",
            f"{each.written:,}",
            f"{each.dead_lettered:,}",
        )
    return table


def _topics(snapshot: Snapshot, *, whole: bool) -> Table:
    text = Text if whole else _cut
    right = ("partitions", "offsets", "records/s")
    table = table_of("Topics", "topic", "role", *right, right=right)
    for topic in snapshot.topics:
        partitions = "does not exist" if topic.partitions is None else str(topic.partitions)
        table.add_row(
            text(topic.name), topic.role, partitions, _number(topic.offsets), _number(topic.records_per_second)
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"
