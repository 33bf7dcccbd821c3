"""The command line ``python -m streamplan``. A module of this package adds its commands through ``register``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from rich.console import Console

from streamplan.errors import StreamplanError

MODULES = {
    "demo": ("demo",),
    "stack": ("up", "down", "status"),
    "check": ("check",),
    "tasks": ("tasks",),
    "reset": ("reset",),
    "pipelines": ("list", "describe", "validate", "plan"),
}
"""The commands of each module. Some import Airflow, which takes a second; only the one that is needed is imported."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed (the reason on stderr), 2 wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m streamplan",
        description="Kafka Streams' execution model on PySpark, deployed and checked by Airflow.",
        epilog="STREAMPLAN_HOME names the directory of the deployment (default: .streamplan in the project).",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    needed = [module for module, names in MODULES.items() if arguments and arguments[0] in names]
    try:
        for module in needed or MODULES:  # help lists the commands of all
            import_module(f"{__name__}.{module}").register(commands)
        options = parser.parse_args(arguments)
        return int(options.run(options))
    except StreamplanError as fault:
        # markup off: messages carry lists in square brackets
        Console(stderr=True).print(str(fault), style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
