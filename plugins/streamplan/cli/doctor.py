"""The command ``doctor``: everything between here and a first green run, one line each with what to do."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Mapping

from rich.text import Text

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, refuse_ignored
from streamplan.cli.output import folded, plain_console, quantity, table_width
from streamplan.cli.roles import add_role_option
from streamplan.doctor.finding import Finding, State, problem
from streamplan.errors import StreamplanError
from streamplan.model.acls import Role
from streamplan.model.pipeline import Pipeline
from streamplan.programs import ExitStatus
from streamplan.registry import pipeline_named
from streamplan.settings import Settings

_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red", State.NOT_LOOKED: "dim"}


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "doctor",
        "look at everything that a first run needs, and say what to do",
        description="Look at Python, Java, the connector, the brokers, what this client may do there, the topics of a "
        "pipeline, the executors of a Spark cluster and Airflow's settings. Print one line for each, with what to "
        "do. Change nothing.",
        examples="%(prog)s orders --bootstrap-servers kafka-1:9092 --spark-master spark://spark:7077",
        run=_run,
        done="nothing would make a run fail",
        wrong="something would make a run fail",
    )
    add_pipeline(parser, optional="its topics and ACLs are looked at, too")
    add_role_option(parser, "compare what this client may do with the ACLs of this role")
    add_broker_options(
        parser,
        servers="Kafka brokers (default: those of Airflow's connection, with its client properties)",
    )
    parser.add_argument(
        "--spark-master", metavar="URL", help="run a small task on each core of this Spark cluster (default: none)"
    )


def _run(options: argparse.Namespace) -> int:
    if not options.pipeline:
        refuse_ignored(options, "role", without="PIPELINE")
    settings = Settings.from_environment()
    pipeline = pipeline_named(options.pipeline) if options.pipeline else None
    console = plain_console()
    counts: Counter[State] = Counter()
    for finding in _look(options, settings, pipeline):
        counts[finding.state] += 1
        line = f"{finding.state:12}{finding.text}"
        text = Text(line if table_width() is not None else folded(line, console.width))
        text.stylize(_COLOURS[finding.state], 0, len(finding.state))
        console.print(text)
    problems, warnings = counts[State.PROBLEM], counts[State.WARNING]
    console.print(f"{quantity(problems, 'problem')}, {quantity(warnings, 'warning')}.", style="bold")
    return ExitStatus.WRONG if problems else ExitStatus.DONE


def _look(options: argparse.Namespace, settings: Settings, pipeline: Pipeline | None) -> Iterable[Finding]:
    from streamplan.doctor.airflow import ask_airflow, brokers_of, judge_airflow
    from streamplan.doctor.brokers import look_at_acls, look_at_brokers, look_at_topics
    from streamplan.doctor.machine import look_at_files, look_at_java, look_at_python, look_at_spark_submit

    environment = _environment(settings)
    settings = Settings.from_environment(environment)
    yield from look_at_python()
    yield from look_at_java(environment)
    yield from look_at_spark_submit(environment)
    yield from look_at_files(settings)
    connections = ("kafka_default", "spark_default")
    if pipeline is not None:
        connections = (pipeline.kafka_conn_id, pipeline.spark_conn_id)
    airflow = ask_airflow(environment, *connections)
    brokers = None
    if not (options.bootstrap_servers or options.command_config or isinstance(airflow, Finding)):
        brokers = brokers_of(airflow)
    if brokers is None:
        brokers = chosen_brokers(options)
    reached = True
    for finding in look_at_brokers(brokers):
        reached = reached and finding.state is not State.PROBLEM
        yield finding
    if reached and pipeline is not None:
        try:
            yield from look_at_topics(pipeline, brokers)
            yield from look_at_acls(pipeline, brokers, options.role or list(Role))
        except StreamplanError as error:
            yield problem(f"topics of {pipeline.name}", error.observed or str(error), error.remedy)
    if options.spark_master:
        from streamplan.doctor.spark import look_at_spark

        yield from look_at_spark(options.spark_master, brokers, settings)
    if isinstance(airflow, Finding):
        yield airflow
    else:
        yield from judge_airflow(airflow, brokers)


def _environment(settings: Settings) -> Mapping[str, str]:
    """Return the environment of Airflow's processes on this machine, where they were started; else this process's."""
    if "AIRFLOW_HOME" in os.environ:
        return os.environ
    from streamplan.local.stack import Stack

    started = Stack(settings).airflow.environment()
    return started if "AIRFLOW_HOME" in started else os.environ
