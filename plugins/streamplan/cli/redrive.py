"""The command ``redrive``: process dead letters again, each once."""

from __future__ import annotations

import argparse
import getpass
import socket
from uuid import uuid4

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, parsed_by
from streamplan.cli.operation import active_in_airflow, run_operation
from streamplan.cli.output import plain_console
from streamplan.maintenance.redrive_plan import Choice
from streamplan.settings import Settings
from streamplan.spark.submit import pyspark_home


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "redrive",
        "process dead letters again, under the declaration as it is now",
        description="Show what the present declaration makes of the chosen dead letters, ask, and process them again, "
        "each once. One transaction writes the results of a record and the mark that it was re-driven. "
        "Nothing is written to the topics that the application reads. The command refuses while the "
        "application runs. With --dry-run it only reads, and the application may run.",
        examples="%(prog)s orders --all --dry-run\n%(prog)s orders --reason 'ProductType is missing'",
        run=_run,
    )
    add_pipeline(parser)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--reason", metavar="TEXT", help="the open dead letters of this reason")
    choice.add_argument(
        "--letter",
        type=parsed_by(_letter),
        metavar="PARTITION@OFFSET",
        action="append",
        help="a dead letter; may be given several times",
    )
    choice.add_argument("--all", action="store_true", help="all open dead letters")
    parser.add_argument("--dry-run", action="store_true", help="only show the plan; the application may run")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_broker_options(parser)


def _letter(text: str) -> str:
    _ = Choice.of(None, [text])  # refuses what is none
    return text


def _run(options: argparse.Namespace) -> int:
    from streamplan.registry import pipeline_named

    settings = Settings.from_environment()
    pipeline = pipeline_named(options.pipeline)
    brokers = chosen_brokers(options)
    pyspark_home()  # says what to do where PySpark is missing
    from streamplan.maintenance.redrive import Redriver  # imports PySpark, which takes seconds
    from streamplan.spark.session import late_session, local_session

    with late_session(local_session(f"{pipeline.topology.application_id}-redrive")) as spark:
        return run_operation(
            Redriver(
                pipeline,
                brokers,
                settings,
                plain_console().print,
                active_in_airflow(settings),
                spark=spark,
                choice=Choice.of(options.reason, options.letter or ()),
                by=f"{getpass.getuser()}@{socket.gethostname()}",
                run=f"cli-{uuid4()}",
                looks_only=options.dry_run,
            ),
            action="the re-drive",
            purpose="process these again",
            unchanged="Nothing was written.",
            agreed=options.yes,
            dry_run=options.dry_run,
        )
