"""The command ``describe``: the topology of a pipeline, in the words of Kafka Streams."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from streamplan.registry import pipeline_named

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "describe",
        help="print the topology of a pipeline as Kafka Streams describes it",
        description="Print what Topology.describe().toString() of Kafka Streams prints, and nothing else, so that diff "
        "can compare the two.",
        epilog="Example: python -m streamplan describe orders | diff - described-by-the-old-application.txt",
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="the name of a declared pipeline")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    sys.stdout.write(pipeline_named(options.pipeline).topology.describe())
    return 0
