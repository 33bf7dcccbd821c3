"""The command ``validate``: faults in declarations, expressions included.

Importing a declaration finds every fault that needs no Spark, and refuses the declaration with all of them. Where the
options name a Schema Registry, declared schemas are compared with what is registered.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from rich.console import Console

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipelines
from streamplan.cli.output import plain_console, quantity
from streamplan.errors import Refused
from streamplan.kafka.brokers import PROPERTIES_VARIABLE
from streamplan.kafka.registered_schemas import compare_with_registry, has_schemas
from streamplan.kafka.schema_registry import URL, SchemaRegistry
from streamplan.model.pipeline import Pipeline
from streamplan.model.unnamed import unnamed
from streamplan.programs import ExitStatus
from streamplan.registry import UnknownPipeline, pipeline_named, registered_pipelines
from streamplan.spark.submit import pyspark_home


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "validate",
        "look for faults in declarations, expressions included",
        description="Import the declarations, then ask a Spark on this machine about every expression. Every fault is "
        "shown with the line where it stands. Where the client properties name a Schema Registry, declared schemas are "
        "compared with those that are registered. A store or a repartition topic without a name of its own is no "
        "fault: a warning says what it leads to.",
        examples="%(prog)s orders --command-config client.properties",
        run=_run,
        done="no declaration has a fault",
        wrong="a declaration has a fault, or the registry has another schema",
    )
    add_broker_options(parser, servers="Kafka brokers, for a file of client properties that names none")
    add_pipelines(parser)


def _run(options: argparse.Namespace) -> int:
    try:
        pipelines = [pipeline_named(name) for name in dict.fromkeys(options.pipelines)] or [*registered_pipelines()]
    except UnknownPipeline:
        raise
    except Refused as error:  # what keeps a declaration from being imported is one of the faults that are looked for
        Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return ExitStatus.WRONG
    pyspark_home()  # says what to do where PySpark is missing
    from streamplan.spark.planning.validation import find_diagnostics  # imports PySpark, which takes seconds

    console = plain_console()
    remaining = find_diagnostics(pipelines)
    status = ExitStatus.WRONG if remaining else ExitStatus.DONE
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


def _compare_schemas(pipelines: Sequence[Pipeline], options: argparse.Namespace, console: Console) -> ExitStatus:
    """Compare declared schemas with the registry, where one is named. Return the exit status."""
    chosen = options.command_config or options.bootstrap_servers or os.environ.get(PROPERTIES_VARIABLE)
    with_schemas = [pipeline for pipeline in pipelines if has_schemas(pipeline)]
    if not with_schemas:
        return ExitStatus.DONE
    brokers = chosen_brokers(options) if chosen else None
    if brokers is None or not brokers.registry.get(URL):
        console.print(f"declared schemas were not compared with a registry: --command-config names no file with {URL}")
        return ExitStatus.DONE
    status = ExitStatus.DONE
    for pipeline in with_schemas:
        console.print(f"{pipeline.name}, compared with the Schema Registry at {SchemaRegistry.of(brokers).address}:")
        for finding in compare_with_registry(pipeline, SchemaRegistry.of(brokers)):
            console.print(f"  {finding.sentence}", style="red" if finding.wrong else None)
            if finding.wrong:
                status = ExitStatus.WRONG
    return status
