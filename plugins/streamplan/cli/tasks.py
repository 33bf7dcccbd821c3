"""The command ``tasks``: which instance runs which stream task, its lag, and how tasks moved between instances."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, at_least
from streamplan.cli.output import table_console
from streamplan.cli.tables import seconds_ago, table_of
from streamplan.errors import CouldNotLook, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import members
from streamplan.kafka.task_ownership import committed_generation
from streamplan.kafka.topics import resolve_pipeline
from streamplan.model.generation import Generation
from streamplan.model.group_member import Member
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import TaskId
from streamplan.model.status import AggregatorStatus, TaskMigration
from streamplan.programs import ExitStatus
from streamplan.registry import pipeline_named
from streamplan.reports.status import read_migrations, read_status
from streamplan.settings import Settings

WATCH_SECONDS = 2.0


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "tasks",
        "show which instance runs which stream task, and its lag",
        description="Show every stream task of a pipeline: the instance (Spark executor) and host that committed "
        "last, the records that it has written since the aggregator started, its lag as Kafka has it, and "
        "its last commit. The command works while the aggregator runs, and after it has ended.",
        examples="%(prog)s orders --history 20",
        run=_run,
    )
    add_pipeline(parser)
    parser.add_argument(
        "--history", type=at_least(0), default=0, metavar="N", help="also show the last N moves between instances"
    )
    parser.add_argument("--watch", action="store_true", help="refresh every two seconds until Ctrl-C")
    add_broker_options(parser)


def _run(options: argparse.Namespace) -> int:
    pipeline = pipeline_named(options.pipeline)
    settings = Settings.from_environment()
    file = ReportPaths(settings.reports, pipeline.name).aggregator_status
    console = table_console()
    brokers = chosen_brokers(options)
    pipeline = resolve_pipeline(pipeline, brokers)
    cluster = KafkaCluster(brokers)

    def render() -> tuple[Group, ExitStatus]:
        exit_status = ExitStatus.DONE
        status, unknown = None, f"there is no file {file}. STREAMPLAN_REPORTS names its directory."
        try:
            status = read_status(file)
        except CouldNotLook as error:
            unknown = str(error)
        lags: Mapping[TaskId, int | None] = {}
        try:
            running = [member for member in members(brokers, pipeline.topology.application_id) if member.instance]
            parts = [heading(pipeline, running, committed_generation(pipeline, brokers))]
            lags = _observe_lags(pipeline, cluster)
        except StreamplanError as error:  # the aggregator's status is worth showing without what Kafka says
            exit_status = ExitStatus.of(error)
            parts = [Text(f"{pipeline.name}  {' '.join(str(error).split())}", "yellow")]
        if status is None:
            parts.append(Text(f"The instances are not known: {unknown}", "yellow"))
        migrations = [
            Text(f"{migration.at}  {_migration_line(migration)}  (aggregator pid {migration.pid})", "dim")
            for migration in read_migrations(file, last=options.history)
        ]
        return Group(*parts, tasks_table(pipeline, status, lags), *migrations), exit_status

    shown, exit_status = render()
    if not options.watch:
        console.print(shown)
        return exit_status
    with Live(shown, console=console, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_SECONDS)
            live.update(render()[0], refresh=True)


def tasks_table(pipeline: Pipeline, status: AggregatorStatus | None, lags: Mapping[TaskId, int | None]) -> Table:
    """Return a table with one row for each stream task, also for one that has committed nothing yet.

    Args:
        pipeline: The pipeline whose tasks are shown.
        status: What the aggregator last said about itself; None where it has said nothing here.
        lags: The lag of each task in records; a task without a known lag is missing or None.
    """
    table = table_of(
        "Stream tasks", "task", "instance", "host", "records", "lag", "last commit", right=("records", "lag")
    )
    for task in pipeline.tasks():
        placement = status.tasks.get(str(task)) if status else None
        lag = lags.get(task)
        table.add_row(
            str(task),
            placement.instance if placement else "-",
            placement.host if placement else "-",
            f"{placement.records:,}" if placement else "-",
            "-" if lag is None else f"{lag:,}",
            seconds_ago(placement.at) if placement else "-",
        )
    return table


def _observe_lags(pipeline: Pipeline, cluster: KafkaCluster) -> dict[TaskId, int | None]:
    """Ask the brokers for the lag of each stream task: the offsets from its committed ones to the last stable ones.

    A task's lag is None when it has committed nothing yet for a partition that it reads.
    """
    group = pipeline.topology.application_id
    lags: dict[TaskId, int | None] = dict.fromkeys(pipeline.tasks(), 0)
    for subtopology in pipeline.topology.subtopologies:
        for topic in pipeline.source_topics(subtopology):
            committed = cluster.positions(group, topic)
            for partition, offsets in cluster.offsets(topic).items():
                task = TaskId(subtopology.id, partition)
                lag = lags.get(task)
                if partition not in committed:
                    lags[task] = None
                elif lag is not None:
                    lags[task] = lag + max(offsets.last_stable - committed[partition], 0)
    return lags


def heading(pipeline: Pipeline, running: Sequence[Member], generation: Generation | None) -> Text:
    """Return a line that says whether the aggregator runs, and where, as Kafka has it.

    Args:
        running: The members of the consumer group that are aggregators.
        generation: The newest generation that has committed a position.
    """
    group = pipeline.topology.application_id
    text = Text(f"{pipeline.name}  ", "bold")
    last = f"The newest positions are those of {generation}." if generation else "It has no positions."
    if running:
        return text.append(f"the aggregator runs: {', '.join(map(str, running))} is in group {group}. {last}", "green")
    return text.append(f"no aggregator runs: group {group} has none as a member. {last}", "yellow")


def _migration_line(migration: TaskMigration) -> str:
    before = f"instance {migration.before} -> " if migration.before else ""
    return f"task {migration.task}: {before}instance {migration.instance}"
