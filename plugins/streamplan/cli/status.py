"""The command ``status``: what runs on this machine, at which address, and whether it is healthy."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from streamplan.local.stack import Stack
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "status",
        help="show what runs, at which address, and whether it is healthy",
        description="Show every process, its address and what is wrong with it. Exit status 1 when one is not healthy.",
        epilog="Example: python -m streamplan status",
    )
    parser.set_defaults(run=_run)


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
    return 1 if any(state.fault for state in states) else 0
