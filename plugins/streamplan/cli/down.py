"""The command ``down``: stop everything that was started on this machine."""

from __future__ import annotations

import argparse

from rich.console import Console

from streamplan.cli.command import Commands
from streamplan.cli.output import timed_report
from streamplan.local.stack import Stack
from streamplan.settings import Settings


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    commands.add(
        "down",
        "stop everything that was started, jobs included",
        description="Stop Airflow, the supervised jobs and the brokers. Topics, checkpoints and reports are kept.",
        examples="%(prog)s",
        run=_run,
    )


def _run(options: argparse.Namespace) -> int:
    console = Console(soft_wrap=True)
    settings = Settings.from_environment()
    stopped = Stack(settings, report=timed_report(console)).down()
    console.print(f"Stopped: {', '.join(stopped)}." if stopped else f"Nothing of {settings.home} was running.")
    return 0
