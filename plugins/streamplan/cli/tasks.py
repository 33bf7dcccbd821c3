"""The command ``tasks``: which instance does which stream task, how far it is, and how tasks moved."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamplan.cli.check import embedded_brokers
from streamplan.cli.tables import table_of
from streamplan.errors import Refused, StreamplanError
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import TaskId
from streamplan.model.status import HEARTBEAT_TIMEOUT_SECONDS, AggregatorStatus, TaskMigration
from streamplan.pipelines import PIPELINES, pipeline_named
from streamplan.reports.status import read_migrations, read_status, status_file
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

WATCH_SECONDS = 2.0


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "tasks",
        help="which instance does which stream task, and how far it is",
        description="Show every stream task of a pipeline: the instance (Spark executor) and host that committed last, "
        "the records that it wrote since the aggregator started, its lag as Kafka has it, and its last commit. Works "
        "while the aggregator runs and after it has ended.",
        epilog="Example: python -m streamplan tasks --pipeline orders --history 20",
    )
    names = ", ".join(pipeline.name for pipeline in PIPELINES)
    parser.add_argument("--pipeline", required=True, help=f"one of: {names}")
    parser.add_argument("--history", type=int, default=0, metavar="N", help="also the last N moves between instances")
    parser.add_argument("--watch", action="store_true", help="show it anew every two seconds, until Ctrl-C")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help="Kafka brokers (default: those that `python -m streamplan up` starts)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    pipeline = pipeline_named(options.pipeline)
    if options.history < 0:
        raise Refused("--history", expected="0 or more", observed=str(options.history))
    file = status_file(Settings.from_environment().reports, pipeline.name)
    console = Console(markup=False, emoji=False, highlight=False)
    ask = _lags(pipeline, options.bootstrap_servers or embedded_brokers())

    def shown() -> Group:
        status = read_status(file)
        if status is None:
            raise StreamplanError(
                f"the aggregator of {pipeline.name}",
                expected=f"what it says of itself in {file}",
                observed="no such file",
                remedy=f"It has never run here: {pipeline.name}_aggregator starts it. STREAMPLAN_REPORTS names the "
                "directory of reports.",
            )
        try:
            lags, fault = ask(), ""
        except StreamplanError as error:  # what the aggregator says is worth showing all the same
            lags, fault = {}, " ".join(str(error).split())
        parts: list[RenderableType] = [heading(pipeline, status), tasks_table(pipeline, status, lags)]
        parts += [Text(f"Lag unknown: {fault}", "yellow")] if fault else []
        for migration in read_migrations(file, last=options.history):
            parts.append(Text(f"{migration.at}  {_line(migration)}  (aggregator pid {migration.pid})", "dim"))
        return Group(*parts)

    if not options.watch:
        console.print(shown())
        return 0
    with Live(shown(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_SECONDS)
            live.update(shown(), refresh=True)


def tasks_table(pipeline: Pipeline, status: AggregatorStatus, lags: Mapping[TaskId, int | None]) -> Table:
    """One row a stream task of the pipeline, also one that has committed nothing yet."""
    table = table_of(
        "Stream tasks", "task", "instance", "host", "records", "lag", "last commit", right=("records", "lag")
    )
    for task in pipeline.tasks():
        placed = status.tasks.get(str(task))
        lag = lags.get(task)
        table.add_row(
            str(task),
            placed.instance if placed else "-",
            placed.host if placed else "-",
            f"{placed.records:,}" if placed else "-",
            "-" if lag is None else f"{lag:,}",
            _seconds_ago(placed.at) if placed else "-",
        )
    return table


def _lags(pipeline: Pipeline, bootstrap_servers: str) -> Callable[[], Mapping[TaskId, int | None]]:
    """Asks the brokers: offsets from the committed position to the last stable offset, of all that a task reads."""
    from streamplan.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(bootstrap_servers)
    group = pipeline.topology.application_id

    def ask() -> Mapping[TaskId, int | None]:
        lags: dict[TaskId, int | None] = dict.fromkeys(pipeline.tasks(), 0)
        for subtopology in pipeline.topology.subtopologies:
            for topic in pipeline.source_topics(subtopology):
                positions = cluster.positions(group, topic)
                for partition, offsets in cluster.offsets(topic).items():
                    task = TaskId(subtopology.id, partition)
                    position, before = positions.get(partition), lags.get(task)
                    known = position is not None and before is not None
                    lags[task] = before + max(offsets.stable - position, 0) if known else None  # type: ignore[operator]
        return lags

    return ask


def heading(pipeline: Pipeline, status: AggregatorStatus) -> Text:
    """Whether the aggregator runs, by what it said last."""
    age = _age(status.at)
    text = Text(f"{pipeline.name}  ", "bold")
    if status.state.is_live and age <= HEARTBEAT_TIMEOUT_SECONDS:
        return text.append(f"the aggregator is {status.state}, pid {status.pid} on {status.host}", "green")
    if status.state.is_live:
        return text.append(
            f"the aggregator, pid {status.pid} on {status.host}, has been silent for {age:,.0f} s: it was killed or "
            "hangs. This is where its tasks were.",
            "red",
        )
    return text.append(
        f"the aggregator has ended ({status.state}) {age:,.0f} s ago. This is where its tasks were.", "yellow"
    )


def _line(migration: TaskMigration) -> str:
    before = f"instance {migration.before} -> " if migration.before else ""
    return f"task {migration.task}: {before}instance {migration.instance}"


def _age(at: str) -> float:
    return max((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds(), 0.0)


def _seconds_ago(at: str) -> str:
    return f"{_age(at):,.1f} s ago"
