"""The command ``redrive``: process dead letters again, each once."""

from __future__ import annotations

import argparse
import getpass
import socket
from typing import TYPE_CHECKING
from uuid import uuid4

from streamplan.cli.active_runs import active_runs
from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.confirmation import is_confirmed
from streamplan.cli.output import plain_console
from streamplan.maintenance.redrive_plan import REDRIVE_ALONE, Choice
from streamplan.settings import Settings
from streamplan.spark.submit import pyspark_home

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_UNCHANGED = "Nothing was written."


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "redrive",
        help="process dead letters again, under the declaration as it is now",
        description="Show what the declaration as it is now makes of the chosen dead letters, ask, and process them "
        "again, each once. What is made of a record and the mark that it was re-driven are written in one transaction. "
        "The command refuses while the application runs. Nothing is written to the topics that the application reads.",
        epilog="Example: python -m streamplan redrive orders --reason 'ProductType is missing'",
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="the name of a registered pipeline")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--reason", metavar="TEXT", help="the open dead letters of this reason")
    choice.add_argument(
        "--letter", metavar="PARTITION@OFFSET", action="append", help="a dead letter; may be given several times"
    )
    choice.add_argument("--all", action="store_true", help="all open dead letters")
    parser.add_argument("--dry-run", action="store_true", help="show the plan alone")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_broker_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from streamplan.registry import pipeline_named

    console = plain_console()
    settings = Settings.from_environment()
    pipeline = pipeline_named(options.pipeline)
    choice = Choice.of(options.reason, options.letter or ())
    brokers = chosen_brokers(options)
    runs = active_runs(pipeline.name, settings, REDRIVE_ALONE)
    pyspark_home()  # says what to do where PySpark is missing
    from streamplan.maintenance.redrive import apply_redrive, observe_redrive  # imports PySpark, which takes seconds
    from streamplan.spark.session import local_session

    with local_session(f"{pipeline.topology.application_id}-redrive") as spark:
        plan = observe_redrive(pipeline, brokers, settings, spark, choice, report=console.print, runs=runs)
        console.print(plan.text.replace("`", ""))
        if not plan.done or options.dry_run:
            return 0
        if not options.yes and not is_confirmed(
            "the re-drive", plan.application_id, purpose="process these again", unchanged=_UNCHANGED
        ):
            console.print(_UNCHANGED)
            return 1
        runs = active_runs(pipeline.name, settings, REDRIVE_ALONE)
        by, run = f"{getpass.getuser()}@{socket.gethostname()}", f"cli-{uuid4()}"
        apply_redrive(pipeline, brokers, settings, spark, plan, by=by, run=run, report=console.print, runs=runs)
    return 0
