"""The command ``status``: what runs on this machine, at which address, and whether it is healthy."""

from __future__ import annotations

import argparse

from rich.text import Text

from streamplan.cli.command import Commands
from streamplan.cli.output import table_console
from streamplan.cli.tables import table_of
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
    console = table_console()
    settings = Settings.from_environment()
    states = Stack(settings).states()
    table = table_of(f"Stack in {settings.home}", "process", "pid", "address", "state")
    for state in states:
        verdict = Text(state.fault, "red") if state.fault else Text("healthy", "green")
        table.add_row(state.name, str(state.pid) if state.alive else "-", state.address, verdict)
    console.print(table)
    console.print(f"Logs: {settings.logs}", soft_wrap=True)
    return ExitStatus.WRONG if any(state.fault for state in states) else ExitStatus.DONE
