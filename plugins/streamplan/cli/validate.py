"""The command ``validate``: faults in declarations, expressions included.

Importing a declaration finds every fault that needs no Spark, and refuses the declaration with all of them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamplan.cli.output import plain_console, quantity
from streamplan.model.unnamed import unnamed
from streamplan.registry import pipeline_named, registered_pipelines
from streamplan.spark.submit import pyspark_home

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "validate",
        help="look for faults in declarations, expressions included",
        description="Import the declarations, then ask a Spark on this machine about every expression. Every fault is "
        "shown with the line where it stands. Exit status 1 when there is one. A store or a repartition topic without "
        "a name of its own is no fault: a warning says what it leads to.",
        epilog="Example: python -m streamplan validate orders",
    )
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
    return status
