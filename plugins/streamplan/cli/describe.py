"""The command ``describe``: the topology of a pipeline, in the words of Kafka Streams."""

from __future__ import annotations

import argparse
import sys

from streamplan.cli.command import Commands, add_pipeline, declared_pipeline


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "describe",
        "print the topology of a pipeline as Kafka Streams describes it",
        description="Print what Topology.describe().toString() of Kafka Streams prints, and nothing else. So diff can "
        "compare the two.",
        examples="%(prog)s orders | diff - described-by-the-old-application.txt",
        run=_run,
    )
    add_pipeline(parser)


def _run(options: argparse.Namespace) -> int:
    sys.stdout.write(declared_pipeline(options).topology.describe())
    return 0
