"""The command ``up``: start Kafka and Airflow on this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from streamplan.cli.brokers import add_secure_option
from streamplan.cli.output import timed_report
from streamplan.local.airflow import USER
from streamplan.local.stack import Stack
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "up",
        help="start two Kafka brokers and Airflow on this machine",
        description="Start two Kafka brokers and Airflow, and wait until all of them serve. What already runs is left "
        "alone.",
        epilog="Example: python -m streamplan up",
    )
    add_secure_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    console = Console()
    stack = Stack(Settings.from_environment(), report=timed_report(console), secure=options.secure)
    stack.up()
    console.print(f"Airflow: [bold]{stack.airflow.url}[/bold]  user {USER}  password {stack.airflow.password}")
    return 0
