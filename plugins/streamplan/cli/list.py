"""The command ``list``: the declared pipelines."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamplan.cli.output import align_columns, plain_console
from streamplan.registry import registered_pipelines

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "list",
        help="list the declared pipelines, one on a line",
        description="Show every declared pipeline: its name, application id, topics from outside, state stores, stream "
        "tasks.",
        epilog="Example: python -m streamplan list",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    rows = [("PIPELINE", "APPLICATION", "READS", "WRITES", "STORES", "TASKS")]
    for pipeline in registered_pipelines():
        topology = pipeline.topology
        stores = [store for subtopology in topology.subtopologies for store in subtopology.stores]
        rows.append(
            (
                pipeline.name,
                topology.application_id,
                ",".join(topology.source_topics),
                ",".join(topology.sink_topics) or "-",
                ",".join(stores) or "-",
                str(len(pipeline.tasks())),
            )
        )
    heading, *lines = align_columns(rows)
    console = plain_console()
    console.print(heading, style="bold")
    for line in lines:
        console.print(line)
    return 0
