"""The command ``status``: what runs on this machine, at which address, and whether it is healthy."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from streamplan.cli.command import Commands
from streamplan.local.stack import Stack
from streamplan.programs import ExitStatus
from streamplan.settings import Settings


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    commands.add(
        "status",
        "show what runs, at which address, and whether it is healthy",
        description="Show every process, its address and what is wrong with it.",
        examples="%(prog)s",
        run=_run,
        done="everything runs and is healthy",
        wrong="something does not run or is not healthy",
    )


def _run(options: argparse.Namespace) -> int:
    console = Console(soft_wrap=True)
    settings = Settings.from_environment()
    states = Stack(settings).states()
    table = Table(title=f"Stack in {settings.home}", title_justify="left")
    for heading in ("process", "pid", "address", "state"):
        table.add_column(heading)
    for state in states:
        verdict = f"[red]{state.fault}[/red]" if state.fault else "[green]healthy[/green]"
        table.add_row(state.name, str(state.pid) if state.alive else "-", state.address, verdict)
    console.print(table)
    console.print(f"Logs: {settings.logs}")
    return ExitStatus.WRONG if any(state.fault for state in states) else ExitStatus.DONE
