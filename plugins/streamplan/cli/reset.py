"""The command ``reset``: bring an application back to the start of its input."""

from __future__ import annotations

import argparse

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline
from streamplan.cli.operation import active_in_airflow, run_operation
from streamplan.cli.output import plain_console
from streamplan.settings import Settings


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "reset",
        "delete everything that a pipeline has made from its input",
        description="Show what a reset of the pipeline deletes (committed offsets, internal topics, checkpoints), "
        "ask, and delete it. Source and sink topics stay. The command refuses while the application runs.",
        examples="%(prog)s orders",
        run=_run,
    )
    add_pipeline(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_broker_options(parser)


def _run(options: argparse.Namespace) -> int:
    from streamplan.maintenance.reset import Resetter
    from streamplan.registry import pipeline_named

    settings = Settings.from_environment()
    return run_operation(
        Resetter(
            pipeline_named(options.pipeline),
            chosen_brokers(options),
            settings,
            plain_console().print,
            active_in_airflow(settings),
        ),
        action="the reset",
        purpose="delete this",
        unchanged="Nothing was deleted.",
        agreed=options.yes,
    )
