"""The command ``list``: the registered pipelines."""

from __future__ import annotations

import argparse

from streamplan.cli.command import Commands
from streamplan.cli.output import print_broken, print_columns, table_width
from streamplan.errors import Refused
from streamplan.programs import ExitStatus
from streamplan.registry import HOW_TO_REGISTER, chosen_pipelines


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    commands.add(
        "list",
        "list the registered pipelines, one on a line",
        description="Show every registered pipeline: its name, application id, source and sink topics, state stores "
        "and stream tasks. Name on stderr what is registered and broken.",
        examples="%(prog)s",
        run=_run,
        done="every registered pipeline is listed",
        wrong="something registered is broken; what can be used is listed",
    )


def _run(options: argparse.Namespace) -> int:
    rows = [("PIPELINE", "APPLICATION", "READS", "WRITES", "STORES", "TASKS")]
    pipelines, broken = chosen_pipelines(())
    separator = ", " if table_width() is None else ","  # a terminal breaks the line behind it
    for pipeline in pipelines:
        topology = pipeline.topology
        stores = [store for subtopology in topology.subtopologies for store in subtopology.stores]
        rows.append(
            (
                pipeline.name,
                topology.application_id,
                separator.join(topology.source_topics),
                separator.join(topology.sink_topics) or "-",
                separator.join(stores) or "-",
                str(len(pipeline.tasks())) if pipeline.is_resolved else "known to the cluster",
            )
        )
    print_broken(broken)
    if broken and not pipelines:
        return ExitStatus.WRONG
    if not pipelines:
        raise Refused("pipelines", expected="at least one", observed="none is registered", remedy=HOW_TO_REGISTER)
    print_columns(rows)
    return ExitStatus.WRONG if broken else ExitStatus.DONE
