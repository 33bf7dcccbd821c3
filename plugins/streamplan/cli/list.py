"""The command ``list``: the registered pipelines."""

from __future__ import annotations

import argparse

from streamplan.cli.command import Commands
from streamplan.cli.output import align_columns, plain_console
from streamplan.errors import Refused
from streamplan.registry import HOW_TO_REGISTER, registered_pipelines


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    commands.add(
        "list",
        "list the registered pipelines, one on a line",
        description="Show every registered pipeline: its name, application id, topics from outside, state stores, "
        "stream tasks.",
        examples="%(prog)s",
        run=_run,
    )


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
                str(len(pipeline.tasks())) if pipeline.is_resolved else "known to the cluster",
            )
        )
    if len(rows) == 1:
        raise Refused("pipelines", expected="at least one", observed="none is registered", remedy=HOW_TO_REGISTER)
    heading, *lines = align_columns(rows)
    console = plain_console()
    console.print(heading, style="bold")
    for line in lines:
        console.print(line)
    return 0
