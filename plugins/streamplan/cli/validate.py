"""The command ``validate``: faults in declarations, expressions included.

Importing a declaration finds every fault that needs no Spark, and refuses the declaration with all of them. Where the
options name a Schema Registry, declared schemas are compared with what is registered.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.output import plain_console, quantity
from streamplan.kafka.brokers import PROPERTIES_VARIABLE
from streamplan.kafka.registered_schemas import compare_with_registry, has_schemas
from streamplan.kafka.schema_registry import URL, SchemaRegistry
from streamplan.model.pipeline import Pipeline
from streamplan.model.unnamed import unnamed
from streamplan.registry import pipeline_named, registered_pipelines
from streamplan.spark.submit import pyspark_home

if TYPE_CHECKING:
    from rich.console import Console

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "validate",
        help="look for faults in declarations, expressions included",
        description="Import the declarations, then ask a Spark on this machine about every expression. Every fault is "
        "shown with the line where it stands. Where the client properties name a Schema Registry, declared schemas are "
        "compared with those that are registered. Exit status 1 when there is a fault. A store or a repartition topic "
        "without a name of its own is no fault: a warning says what it leads to.",
        epilog="Example: python -m streamplan validate orders --command-config client.properties",
    )
    add_broker_options(parser, servers="Kafka brokers, for a file of client properties that names none")
    parser.add_argument("pipelines", metavar="PIPELINE", nargs="*", help="names of pipelines (default: all)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    pipelines = [pipeline_named(name) for name in dict.fromkeys(options.pipelines)] or [*registered_pipelines()]
    pyspark_home()  # says what to do where PySpark is missing
    from streamplan.spark.planning.validation import find_diagnostics  # imports PySpark, which takes seconds

    console = plain_console()
    remaining = find_diagnostics(pipelines)
    status = 1 if remaining else 0
    for pipeline in pipelines:
        lines = {node.location for node in pipeline.topology.processors.nodes}
        of_pipeline = [fault for fault in remaining if fault.location in lines]
        remaining = [fault for fault in remaining if fault.location not in lines]
        verdict, style = (quantity(len(of_pipeline), "fault"), "red") if of_pipeline else ("ok", "green")
        console.print(f"{pipeline.name}: {verdict}", style=style)
        for fault in of_pipeline:
            console.print(f"  {fault}")
        for warning in unnamed(pipeline.topology):
            console.print(f"  warning: {warning}", style="yellow")
    for fault in remaining:
        console.print(str(fault))
    return max(status, _compare_schemas(pipelines, options, console))


def _compare_schemas(pipelines: Sequence[Pipeline], options: argparse.Namespace, console: Console) -> int:
    """Compare declared schemas with the registry, where one is named. Return the exit status."""
    chosen = options.command_config or options.bootstrap_servers or os.environ.get(PROPERTIES_VARIABLE)
    with_schemas = [pipeline for pipeline in pipelines if has_schemas(pipeline)]
    if not with_schemas:
        return 0
    brokers = chosen_brokers(options) if chosen else None
    if brokers is None or not brokers.registry.get(URL):
        console.print(f"declared schemas were not compared with a registry: --command-config names no file with {URL}")
        return 0
    status = 0
    for pipeline in with_schemas:
        console.print(f"{pipeline.name}, compared with the Schema Registry at {SchemaRegistry.of(brokers).address}:")
        for finding in compare_with_registry(pipeline, SchemaRegistry.of(brokers)):
            console.print(f"  {finding.sentence}", style="red" if finding.wrong else None)
            status = max(status, int(finding.wrong))
    return status
