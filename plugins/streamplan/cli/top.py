"""The command ``top``: stream tasks, topics and checks of an application, as they are now."""

from __future__ import annotations

import argparse
import time

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamplan.cli.command import Commands
from streamplan.cli.observed import add_options, observed, print_json
from streamplan.cli.output import table_console
from streamplan.cli.tables import checks_table, seconds_ago, table_of
from streamplan.model.status import AggregatorStatus
from streamplan.observability.sampler import Sampler
from streamplan.observability.snapshot import Snapshot
from streamplan.programs import ExitStatus
from streamplan.settings import Settings

REFRESH_SECONDS = 2.0


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "top",
        "show what an application does now: tasks, lag, rates, topics, checks",
        description="Show the stream tasks of an application with their lag in offsets and in seconds, its topics with "
        "their rates, and the last result of each check, and refresh it every two seconds until Ctrl-C. Rates appear "
        "with the second look. In a pipe, and with --json, it looks twice and ends.",
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
    with Live(screen(first), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_SECONDS)
            live.update(screen(sampler.sample()), refresh=True)


def screen(snapshot: Snapshot) -> Group:
    """Return what the terminal shows of a snapshot."""
    heading = Text(f"{snapshot.pipeline}  ", "bold")
    if snapshot.problem:
        heading.append(snapshot.problem, "red")
    elif snapshot.members is None:
        heading.append("its members cannot be seen, for the protocol of its group is streams", "yellow")
    elif snapshot.members:
        heading.append(f"runs: {', '.join(snapshot.members)}", "green")
    else:
        heading.append(f"does not run: group {snapshot.application_id} has no member", "yellow")
    if snapshot.aggregator is not None:
        heading.append(
            f"  {snapshot.aggregator.state}, last heartbeat {seconds_ago(snapshot.aggregator.at)}",
            "red" if snapshot.silent else "dim",
        )
    for reason, records in snapshot.dead_letters.items():
        heading.append(f"\n{records:,} dead-lettered: {reason}", "yellow")
    tables = [_tasks(snapshot), _topics(snapshot)]
    if snapshot.checks:
        tables.append(checks_table(snapshot.checks))
    if snapshot.aggregator is not None and snapshot.aggregator.measures:
        tables.insert(1, _micro_batches(snapshot.aggregator))
    return Group(heading, *tables)


def _tasks(snapshot: Snapshot) -> Table:
    right = ("records/s", "lag", "oldest waits")
    table = table_of("Stream tasks", "task", *right, "instance", "last commit", "reads", right=right)
    for task in snapshot.tasks:
        table.add_row(
            task.task,
            _number(task.records_per_second),
            _number(task.lag),
            "-" if task.lag_seconds is None else f"{task.lag_seconds:,.1f} s",
            "-" if task.instance is None else f"{task.instance} on {task.host}",
            "-" if task.last_commit is None else seconds_ago(task.last_commit),
            ", ".join(f"{each.topic}-{each.partition}" for each in task.inputs),
            style="yellow" if task.lag else None,
        )
    return table


def _micro_batches(aggregator: AggregatorStatus) -> Table:
    right = ("records", "lasted", "Spark job", "state rows", "written", "dead-lettered")
    table = table_of("Last micro-batches", "sub-topology", "ended", *right, right=right)
    for number, each in aggregator.measures.items():
        batch = aggregator.batches.get(number)
        table.add_row(
            str(number),
            "-" if batch is None else seconds_ago(batch.at),
            f"{each.records:,}",
            f"{each.seconds * 1000:,.0f} ms",
            f"{each.write_seconds * 1000:,.0f} ms",
            f"{each.state_rows:,}",
            f"{each.written:,}",
            f"{each.dead_lettered:,}",
        )
    return table


def _topics(snapshot: Snapshot) -> Table:
    right = ("partitions", "offsets", "records/s")
    table = table_of("Topics", "topic", "role", *right, right=right)
    for topic in snapshot.topics:
        partitions = "does not exist" if topic.partitions is None else str(topic.partitions)
        table.add_row(topic.name, topic.role, partitions, _number(topic.offsets), _number(topic.records_per_second))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"
