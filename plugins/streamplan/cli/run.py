"""The command ``run``: run a pipeline in the foreground, without Airflow."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from streamplan import processes
from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands
from streamplan.cli.output import plain_console, table_console, timed_report
from streamplan.cli.top import REFRESH_SECONDS, screen
from streamplan.errors import Refused, WrongUsage
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import members
from streamplan.kafka.membership import SESSION_SECONDS
from streamplan.kafka.registered_schemas import has_schemas
from streamplan.kafka.topics import apply_topics, format_plan
from streamplan.local.brokers import READY_SECONDS
from streamplan.local.jars import SPARK, fetch_missing, require
from streamplan.local.stack import Stack
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import TopicPlan
from streamplan.observability.observed import Observed
from streamplan.observability.sampler import Sampler
from streamplan.processes import ProcessRef
from streamplan.programs import ExitStatus
from streamplan.registry import names_file, pipeline_named, pipeline_of_file
from streamplan.settings import Settings
from streamplan.spark.submit import local_submit, pyspark_home, submit_environment

GRACE_SECONDS = 20.0
"""The aggregator has so long to end its micro-batches after Ctrl-C."""

_SPARK_LINE = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d |%\d\|\d+|\tat |WARNING: |Using Spark's default log4j|Setting def"
)
"""How lines of Spark, of its JVM and of Kafka's clients begin, which stay in the log."""

_SHOWN_AT_END = 12


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "run",
        "run a pipeline in the foreground, without Airflow",
        description="Create the topics of a pipeline after a question, and run its aggregator with a Spark on this "
        "machine. Show its stream tasks, lag and dead letters until Ctrl-C. In a pipe, print what the "
        "aggregator says. The directory of the deployment keeps the state, so the same command goes on "
        "where it stopped. With --local two Kafka brokers run on this machine as long as the pipeline "
        "does. Their topics are kept, too.",
        examples="%(prog)s pipeline.py --bootstrap-servers kafka-1:9092\n%(prog)s pipeline.py --local",
        run=_run,
        done="the pipeline was ended by Ctrl-C or SIGTERM, and nothing is lost",
    )
    parser.add_argument(
        "pipeline",
        metavar="PIPELINE",
        help="a file that declares a pipeline, such as pipeline.py; pipeline.py:NAME where it declares several; or the "
        "name of a registered pipeline",
    )
    parser.add_argument("--local", action="store_true", help="start Kafka on this machine, and stop it at the end")
    parser.add_argument("--yes", action="store_true", help="create the topics without a question")
    add_broker_options(parser)


def _run(options: argparse.Namespace) -> int:
    if options.local and (options.bootstrap_servers or options.command_config):
        raise WrongUsage("the brokers", expected="--local or --bootstrap-servers", observed="both")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = Settings.from_environment()
    named = options.pipeline
    pipeline = pipeline_of_file(named) if names_file(named) else _registered(named)
    pyspark_home()  # says what to do where PySpark is missing
    report = timed_report(Console())
    if settings.jars is None:
        fetch_missing([SPARK], os.environ, settings.logs, report)
    with _brokers(options, settings, pipeline, report) as brokers:
        apply_topics(
            brokers,
            pipeline,
            approve=lambda plan: _agree(plan, pipeline, agreed=options.yes or options.local),
            # Brokers that have just begun are slow on a machine that also starts Spark.
            deadline_seconds=READY_SECONDS if options.local else ANSWER_SECONDS,
        )
        _await_no_aggregator(pipeline, brokers, report)
        with _aggregator(pipeline, brokers, settings) as aggregator:
            return _show(aggregator, pipeline, brokers, settings)


def _registered(name: str) -> Pipeline:
    """Return the registered pipeline of a name, where a file may have been meant.

    Raises:
        Refused: There is none.
    """
    path = Path(name)
    if path.exists() or path.with_suffix(".py").is_file() or os.sep in name:
        files = sorted(map(str, path.glob("*.py"))) if path.is_dir() else [f"{name.rstrip('.')}.py"]
        files = [each for each in files if Path(each).is_file()]
        try:
            return pipeline_named(name)
        except Refused as error:
            raise Refused(
                f"the pipeline {name}",
                expected="a file that declares one, whose name ends in .py, or the name of a registered pipeline",
                observed="a directory" if path.is_dir() else "neither",
                remedy=f"Did you mean {' or '.join(files[:3])}?" if files else "",
            ) from error
    return pipeline_named(name)


@contextmanager
def _brokers(
    options: argparse.Namespace, settings: Settings, pipeline: Pipeline, report: Callable[[str], None]
) -> Iterator[Brokers]:
    if not options.local:
        yield chosen_brokers(options)
        return
    stack = Stack(settings, report=report, with_registry=has_schemas(pipeline))
    with stack.brokers_up():
        yield stack.kafka.brokers


def _agree(plan: TopicPlan, pipeline: Pipeline, *, agreed: bool) -> None:
    """Ask a person whether the topics may be created, where there are any."""
    if agreed or not plan.create:
        return
    console = plain_console()
    console.print(format_plan(plan))
    if sys.stdin.isatty():
        sys.stdout.write("Create them? [y/N] ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise Refused(
        f"the topics of {pipeline.name}",
        expected="a person at a terminal who agrees, or --yes",
        observed="neither",
        remedy="Nothing was created. Run it again, or create these topics yourself.",
    )


def _await_no_aggregator(pipeline: Pipeline, brokers: Brokers, report: Callable[[str], None]) -> None:
    """Wait until an aggregator that was killed is no member any more.

    Raises:
        Refused: One runs. This command would take its stream tasks over.
    """
    group = pipeline.topology.application_id
    deadline = time.monotonic() + SESSION_SECONDS + 5.0
    told = False
    while running := [member for member in members(brokers, group) if member.instance is not None]:
        if time.monotonic() > deadline:
            raise Refused(
                f"the aggregator of {group}",
                expected="none that runs",
                observed=", ".join(map(str, running)),
                remedy="End it first: by Ctrl-C where it runs, or by its run in Airflow.",
            )
        if not told:
            report(f"Waiting up to {SESSION_SECONDS:g} s for {', '.join(map(str, running))} to leave group {group}.")
            told = True
        time.sleep(0.5)


@contextmanager
def _aggregator(pipeline: Pipeline, brokers: Brokers, settings: Settings) -> Iterator[ProcessRef]:
    """Run the aggregator while the block runs."""
    name = f"{pipeline.name}-aggregator"
    properties = settings.run / f"{name}.kafka"
    arguments = ["--pipeline", pipeline.name, "--bootstrap-servers", str(brokers)]
    arguments += ["--checkpoints", settings.checkpoints]
    arguments += ["--heartbeat", str(ReportPaths(settings.reports, pipeline.name).aggregator_status)]
    arguments += settings.aggregator_options
    log_file = settings.logs / f"{name}.log"
    log_file.unlink(missing_ok=True)
    aggregator = processes.start(
        name,
        local_submit("aggregator.py", arguments, settings.jars or require(SPARK, os.environ)),
        env=submit_environment({**os.environ, **brokers.hand_over(properties)}, local=True),
        log_file=log_file,
        run_dir=settings.run,
    )
    try:
        yield aggregator
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave the aggregator behind
        processes.stop(aggregator, grace_seconds=GRACE_SECONDS)
        properties.unlink(missing_ok=True)


def _show(aggregator: ProcessRef, pipeline: Pipeline, brokers: Brokers, settings: Settings) -> int:
    """Show what the pipeline does until it has ended, by itself or by Ctrl-C. Return the exit status."""
    log = _Log(settings.logs / f"{aggregator.name}.log")
    console = table_console()
    try:
        if console.is_terminal:
            _show_tables(aggregator, pipeline, brokers, settings, console)
        else:
            while processes.is_alive(aggregator):
                log.print_new()
                time.sleep(0.2)
    except KeyboardInterrupt:
        processes.stop(aggregator, grace_seconds=GRACE_SECONDS)
        log.print_new(last=None if not console.is_terminal else 1)
        plain_console().print(f"Ended. The same command goes on with the state in {settings.home}.")
        return ExitStatus.DONE
    log.print_new(last=_SHOWN_AT_END)
    status = processes.exit_status(aggregator)
    plain_console().print(f"The aggregator has ended with exit status {status}. Its log is {log.file}.", style="red")
    return ExitStatus.REFUSED if status == ExitStatus.REFUSED else ExitStatus.FAILED


def _show_tables(
    aggregator: ProcessRef, pipeline: Pipeline, brokers: Brokers, settings: Settings, console: Console
) -> None:
    observed = Observed(pipeline.name, KafkaCluster(brokers), pipeline)
    sampler = Sampler(observed.find, observed.name, observed.cluster, settings.reports)
    foot = f"Ctrl-C ends it. Its log is {settings.logs / f'{aggregator.name}.log'}."
    with Live(Text("Starting Spark."), console=console, auto_refresh=False) as live:
        while processes.is_alive(aggregator):
            snapshot = sampler.sample()
            starts = "" if snapshot.members else "Spark is starting. "
            live.update(Group(screen(snapshot), Text(starts + foot, "dim")), refresh=True)
            time.sleep(REFRESH_SECONDS)


@dataclass
class _Log:
    """The log of the aggregator, of which a person is shown what the aggregator itself says."""

    file: Path
    _read: int = 0

    def print_new(self, *, last: int | None = None) -> None:
        """Print the lines that have come since the last call, or the last ones of all."""
        with self.file.open(errors="replace") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        lines = [line for line in text.splitlines() if line.strip() and not _SPARK_LINE.match(line)]
        console = plain_console()
        for line in lines if last is None else lines[-last:]:
            console.print(line)
