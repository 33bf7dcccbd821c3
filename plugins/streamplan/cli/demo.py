"""The command ``demo``: deploy a pipeline on this machine through Airflow, follow it, and show its results."""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from streamplan.checks import CHECKS
from streamplan.checks.framework.application import aggregations
from streamplan.checks.framework.check import Outcome
from streamplan.checks.recount.reader import TotalsReader
from streamplan.cli.brokers import add_secure_option
from streamplan.cli.command import Commands, add_pipeline, at_least
from streamplan.cli.output import table_width, timed_report
from streamplan.cli.program import AS_MODULE, as_typed
from streamplan.cli.tables import checks_table, read_value, store_table, topics_text, totals_table
from streamplan.errors import BrokersUnavailable, CouldNotLook, Refused, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.registered_schemas import has_schemas
from streamplan.kafka.topics import resolve_pipeline
from streamplan.kafka_port import records_of
from streamplan.local.airflow import USER
from streamplan.local.airflow_rest import AirflowRest, StillRuns
from streamplan.local.stack import Stack
from streamplan.model.operations import Count, TableCount
from streamplan.model.pipeline import Pipeline
from streamplan.programs import ExitStatus
from streamplan.registry import pipeline_named
from streamplan.reports.check_context import read_state_store
from streamplan.reports.results import read_latest
from streamplan.reports.verified_sqlite import SqliteVerifiedStore
from streamplan.serdes.subscriptions import Subscription, sent_in
from streamplan.settings import PROJECT, Settings

DEMO_RECORDS = 100_000
"""The number of records of test data without ``--records``."""

DEPLOY_SECONDS = 300.0
"""How long a deployment may take, besides the time for its records."""

RECORDS_PER_SECOND = 2_000
"""Any machine is faster. Only the deadline is computed with it."""

_SYMBOLS = {"success": "✔", "failed": "✘", "upstream_failed": "✘", "running": "…", "deferred": "…", "skipped": "-"}


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "demo",
        "deploy a pipeline on this machine, verify it, and leave it running",
        description="Start Kafka and Airflow on this machine, and a stand-in for a Schema Registry if the pipeline "
        "needs one. Trigger the DAG <pipeline>_deploy, and show its progress and its results. Everything "
        "goes on running. A second call deploys onto what runs.",
        examples="%(prog)s orders --records 100000",
        run=_run,
        done="deployed, and every check has passed",
        wrong="the run or a check has not succeeded",
    )
    add_pipeline(parser, default="orders")
    parser.add_argument(
        "--records", type=at_least(0), help="records to produce (default 100000, none without test data)"
    )
    add_secure_option(parser)


def _run(options: argparse.Namespace) -> int:
    pipeline = pipeline_named(options.pipeline)
    records = options.records
    if records is None:
        records = DEMO_RECORDS if pipeline.test_data else 0
    if records:
        pipeline.require_test_data()
    console = Console(width=table_width())
    began = time.monotonic()
    stack = Stack(
        Settings.from_environment(),
        report=timed_report(console),
        secure=options.secure,
        with_registry=has_schemas(pipeline),
    )
    stack.up()
    status = demo(stack, pipeline, records, console)
    console.print(f"{time.monotonic() - began:.0f} s in all.")
    return status


def demo(stack: Stack, pipeline: Pipeline, records: int, console: Console) -> int:
    """Deploy a pipeline, follow the run and show its results.

    Args:
        stack: The stack of this machine, which must run.
        records: How many records to produce.
        console: Where everything is shown.

    Returns:
        The exit status.
    """
    rest, deploy = stack.airflow.rest(), f"{pipeline.name}_deploy"
    needed = ("deploy", *(["producer"] if pipeline.test_data else []), "aggregator", "health")
    for suffix in needed:
        rest.wait_for_dag(f"{pipeline.name}_{suffix}", deadline_seconds=120)
    for file, error in rest.import_errors().items():  # of other pipelines: the DAGs of this one are there
        console.print(f"Airflow cannot import {file}:\n{error.rstrip()}", style="yellow", markup=False)
    for suffix in needed:  # no DAG is created paused, but somebody may have paused it since
        rest.unpause(f"{pipeline.name}_{suffix}")
    run_id = rest.trigger(deploy, {"records": records} if records else {})
    console.print(f"Deploying {pipeline.name}: {rest.run_url(deploy, run_id)}", highlight=False, soft_wrap=True)
    state = _follow(stack, rest, pipeline, run_id, records, console)
    console.print()
    console.print(pipeline.topology.describe().rstrip(), highlight=False, markup=False, soft_wrap=True)
    if state != "success":
        _print_failures(rest, deploy, run_id, console)
    try:
        _print_results(stack, pipeline, console)
    except (BrokersUnavailable, CouldNotLook, Refused) as error:
        console.print(f"Could not read the results: {error}", style="yellow")
        return ExitStatus.FAILED if state == "success" else ExitStatus.WRONG
    results = read_latest(stack.settings.reports, pipeline.name)
    console.print(checks_table(results[check.name] for check in CHECKS if check.name in results))
    console.print(f"Airflow UI  {rest.url}  user {USER}  password {stack.airflow.password}", highlight=False)
    docs = ReportPaths(stack.settings.reports, pipeline.name).data_docs / "index.html"
    console.print(f"Data Docs   {docs.as_uri()}", highlight=False, soft_wrap=True)
    console.print(f"Logs        {stack.settings.logs}", highlight=False, soft_wrap=True)
    if others := others_that_run(rest, pipeline):
        console.print(others, highlight=False, soft_wrap=True)
    console.print(how_to_stop())
    green = state == "success" and all(result.outcome is Outcome.PASSED for result in results.values())
    console.print("[green]Deployed and verified.[/]" if green else "[red]The run or a check has not succeeded.[/]")
    return ExitStatus.DONE if green else ExitStatus.WRONG


def others_that_run(rest: AirflowRest, pipeline: Pipeline) -> str | None:
    """Return which other pipelines run, as after an earlier demonstration, and how to end one; None without any."""
    running = (dag_id.removesuffix("_aggregator") for dag_id in rest.running_dags() if dag_id.endswith("_aggregator"))
    others = sorted(set(running) - {pipeline.name})
    if not others:
        return None
    return (
        f"Other pipelines go on, too: {', '.join(others)}. To end one, mark the run of its DAG, such as "
        f"{others[0]}_aggregator, as failed in Airflow."
    )


def how_to_stop() -> str:
    """Return the last word of a demonstration: in a clone, and where the wheel is installed."""
    down = "make down" if (PROJECT / "Makefile").is_file() else as_typed("python -m streamplan down")
    return f"The pipeline goes on running. `{down}` stops everything."


def _follow(stack: Stack, rest: AirflowRest, pipeline: Pipeline, run_id: str, records: int, console: Console) -> str:
    """Show a bar for the records produced, one for the records processed, and a line for each task that ends.

    Returns:
        The state of the run.

    Raises:
        StreamplanError: The run takes too long. It goes on.
    """
    cluster = KafkaCluster(stack.kafka.brokers)
    before: tuple[int, int] | None = None
    deadline = DEPLOY_SECONDS + records / RECORDS_PER_SECOND
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        produced = progress.add_task("produced", total=records)
        processed = progress.add_task("processed", total=records)
        reported: set[str] = set()

        def report(states: dict[str, str | None]) -> None:
            nonlocal before
            for task, state in states.items():
                if (
                    state in ("success", "failed", "upstream_failed", "up_for_retry")
                    and f"{task} {state}" not in reported
                ):
                    reported.add(f"{task} {state}")
                    progress.console.print(f"  {_SYMBOLS.get(state, '!')} {task}: {state.replace('_', ' ')}")
            if states.get("topics") != "success":
                return
            now = _records(pipeline, cluster)
            before = before or now
            # Offsets count transaction markers, too: there are a few more than records.
            progress.update(produced, completed=min(records, now[0] - before[0]))
            progress.update(processed, completed=min(records, now[1] - before[1]))

        deploy = f"{pipeline.name}_deploy"
        try:
            state = rest.wait(deploy, run_id, deadline_seconds=deadline, on_poll=report)
        except StillRuns as error:
            raise StreamplanError(
                error.subject,
                expected=error.expected,
                observed=error.observed,
                remedy="The run goes on in Airflow. Follow it at "
                f"{rest.run_url(deploy, run_id)} (user {USER}, password {stack.airflow.password}). "
                f"`{AS_MODULE} status` shows what runs. When the run has succeeded, the pipeline is "
                "deployed and verified.",
            ) from error
        if state == "success":
            progress.update(produced, completed=records)
            progress.update(processed, completed=records)
    return state


def _records(pipeline: Pipeline, cluster: KafkaCluster) -> tuple[int, int]:
    """Return how many offsets were written to the sources, and how many the last sub-topology has processed."""
    topology = pipeline.topology
    written = sum(
        offsets.last_stable for topic in topology.source_topics for offsets in cluster.offsets(topic).values()
    )
    read = [aggregation.repartition for aggregation in aggregations(pipeline)] or topology.source_topics
    processed = sum(
        position for topic in read for position in cluster.positions(topology.application_id, topic).values()
    )
    return written, processed


def _print_results(stack: Stack, pipeline: Pipeline, console: Console) -> None:
    cluster = KafkaCluster(stack.kafka.brokers)
    pipeline = resolve_pipeline(pipeline, stack.kafka.brokers)
    console.print(f"\nStream tasks: {', '.join(map(str, pipeline.tasks()))}\n")
    specs = pipeline.topics()
    console.print(topics_text(specs, cluster.topics([spec.name for spec in specs])), soft_wrap=True)
    store = read_state_store(stack.settings.reports, pipeline.name)
    counted = aggregations(pipeline)
    for aggregation in counted:
        verified = SqliteVerifiedStore(ReportPaths(stack.settings.reports, pipeline.name).verified_store)
        reader = TotalsReader(aggregation, cluster, verified, store=store)
        console.print(totals_table(reader.totals()))
    if not counted:
        _print_stores(pipeline, cluster, console)


def _print_stores(pipeline: Pipeline, cluster: KafkaCluster, console: Console) -> None:
    """Print the stores' last values as their changelogs have them. They are not verified here."""
    for _, node in pipeline.stores:
        topic = pipeline.topology.changelog_topic(node.store or "")
        spec = next(spec for spec in pipeline.topics() if spec.name == topic)
        values: dict[str, str] = {}
        ranges = {
            partition: (offsets.log_start, offsets.last_stable) for partition, offsets in cluster.offsets(topic).items()
        }
        for batch in cluster.read(topic, ranges):
            for record in records_of(batch):
                key = spec.key_text(record.key or b"", quoted=False)
                if record.value is None:
                    values.pop(key, None)
                elif isinstance(sent := sent_in(topic, record.value), Subscription):
                    values[key] = str(sent)
                else:
                    values[key] = read_value(record.value, count=isinstance(node.operation, Count | TableCount))
        console.print(store_table(node.store or "", values))


def _print_failures(rest: AirflowRest, dag_id: str, run_id: str, console: Console) -> None:
    """Print the failed tasks of the run with the last lines of their logs."""
    for task in rest.task_instances(dag_id, run_id):
        if task["state"] != "failed":
            continue
        try:
            log = rest.task_log(dag_id, run_id, task["task_id"], try_number=max(1, task["try_number"]))
        except StreamplanError as error:
            log = [str(error)]
        console.print(f"✘ {task['task_id']}", style="red")
        for line in [line for line in log if line.strip()][-8:]:
            console.print(f"    {line}", highlight=False, markup=False)
