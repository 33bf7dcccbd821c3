"""The command ``status``: what runs on this machine, at which address, and whether it is healthy."""

from __future__ import annotations

import argparse

from rich.text import Text

from streamplan import processes
from streamplan.cli.command import Commands
from streamplan.cli.output import table_console
from streamplan.cli.program import AS_MODULE, as_typed
from streamplan.cli.tables import table_of
from streamplan.local.stack import Stack
from streamplan.programs import ExitStatus
from streamplan.settings import Settings


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    commands.add(
        "status",
        "show what runs, at which address, and whether it is healthy",
        description="Show every process, its address and what is wrong with it. The command looks only at this "
        "machine or container. It does not show a stack that was never started there.",
        examples="%(prog)s",
        run=_run,
        done="everything runs and is healthy",
        wrong="something does not run or is not healthy, or nothing runs here",
    )


def _run(options: argparse.Namespace) -> int:
    console = table_console()
    settings = Settings.from_environment()
    states = Stack(settings).states()
    if states:
        table = table_of(f"Processes of {settings.home}", "process", "pid", "address", "state")
        for state in states:
            verdict = Text(state.fault, "red") if state.fault else Text("healthy", "green")
            table.add_row(state.name, str(state.pid) if state.alive else "-", state.address, verdict)
        console.print(table)
        console.print(f"Logs: {settings.logs}", soft_wrap=True)
    shown = {state.name for state in states}
    for ref in processes.registered(settings.run):
        if ref.is_elsewhere and ref.name not in shown:
            console.print(
                f"{ref.name} was started in another PID namespace ({ref.namespace}). Whether it runs is not seen here.",
                soft_wrap=True,
            )
    if not states:
        text = (
            f"Nothing runs here, and no stack was started in {settings.home}. `{AS_MODULE} up` starts one. What runs"
            f" elsewhere, also in other containers, is not shown: `{AS_MODULE} doctor` asks the Airflow and the brokers"
            " of this environment."
        )
        console.print(as_typed(text), soft_wrap=True)
    return ExitStatus.DONE if states and not any(state.fault for state in states) else ExitStatus.WRONG
