"""The commands ``up``, ``down`` and ``status``: the embedded stack of this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from streamplan.local.airflow import USER
from streamplan.local.stack import Stack
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    up = commands.add_parser(
        "up",
        help="start two Kafka brokers and Airflow on this machine",
        description="Start two Kafka brokers and Airflow, or what of them does not run, and wait until all serve.",
    )
    up.set_defaults(run=_up)
    down = commands.add_parser(
        "down",
        help="stop everything that was started, jobs included",
        description="Stop Airflow, the supervised jobs and the brokers. Data are kept.",
    )
    down.set_defaults(run=_down)
    status = commands.add_parser(
        "status",
        help="what runs, where, and whether it is well",
        description="Show every process, its address and its fault. Exit status 1 when one is not well.",
    )
    status.set_defaults(run=_status)


def timed(console: Console) -> Callable[[str], None]:
    """A ``say`` that prints each step with the seconds since the first."""
    begun = time.monotonic()
    return lambda text: console.print(f"[dim]{time.monotonic() - begun:6.1f} s[/dim]  {text}", highlight=False)


def print_login(console: Console, stack: Stack) -> None:
    console.print(f"Airflow: [bold]{stack.airflow.url}[/bold]  user {USER}  password {stack.airflow.password}")


def _up(options: argparse.Namespace) -> int:
    console = Console()
    stack = Stack(Settings.from_environment(), say=timed(console))
    stack.up()
    print_login(console, stack)
    return 0


def _down(options: argparse.Namespace) -> int:
    console = Console()
    settings = Settings.from_environment()
    stopped = Stack(settings).down()
    console.print(f"Stopped: {', '.join(stopped)}." if stopped else f"Nothing of {settings.home} was running.")
    return 0


def _status(options: argparse.Namespace) -> int:
    console = Console()
    settings = Settings.from_environment()
    states = Stack(settings).states()
    table = Table(title=f"Stack in {settings.home}", title_justify="left")
    for heading in ("process", "pid", "address", "state"):
        table.add_column(heading)
    for state in states:
        verdict = f"[red]{state.fault}[/red]" if state.fault else "[green]well[/green]"
        table.add_row(state.name, str(state.pid) if state.alive else "-", state.address, verdict)
    console.print(table)
    console.print(f"Logs: {settings.logs}")
    return 1 if any(state.fault for state in states) else 0
