"""The command ``up``: start Kafka and Airflow on this machine."""

from __future__ import annotations

import argparse

from rich.console import Console

from streamplan.cli.brokers import add_secure_option
from streamplan.cli.command import Commands
from streamplan.cli.output import timed_report
from streamplan.errors import Refused
from streamplan.kafka.registered_schemas import has_schemas
from streamplan.local.airflow import USER
from streamplan.local.stack import Stack
from streamplan.registry import registered_pipelines
from streamplan.settings import Settings


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "up",
        "start two Kafka brokers and Airflow on this machine",
        description="Start two Kafka brokers and Airflow, and a stand-in for a Schema Registry if a registered "
        "pipeline needs one. Wait until all of them serve. What already runs goes on.",
        examples="%(prog)s",
        run=_run,
    )
    add_secure_option(parser)


def _needs_registry() -> bool:
    """Whether a registered pipeline has values that name a schema."""
    try:
        return any(map(has_schemas, registered_pipelines()))
    except Refused:  # Airflow's page shows a declaration that cannot be imported. The others go on.
        return False


def _run(options: argparse.Namespace) -> int:
    console = Console()
    stack = Stack(
        Settings.from_environment(),
        report=timed_report(console),
        secure=options.secure,
        with_registry=_needs_registry(),
    )
    stack.up()
    console.print(f"Airflow: [bold]{stack.airflow.url}[/bold]  user {USER}  password {stack.airflow.password}")
    return 0
