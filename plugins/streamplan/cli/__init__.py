"""The command line ``python -m streamplan``. Each command is a module of this package and has its name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from rich.console import Console

from streamplan.errors import StreamplanError

COMMANDS = (
    "init",
    "import",
    "demo",
    "up",
    "down",
    "status",
    "doctor",
    "list",
    "describe",
    "plan",
    "validate",
    "check",
    "tasks",
    "top",
    "topic",
    "store",
    "letters",
    "exporter",
    "acls",
    "redrive",
    "upgrade",
    "reset",
)
"""The commands in the order in which the help shows them. Only the module of the command that runs is imported."""

_EXAMPLES = """\
examples:
  deploy the pipeline `orders` on this machine, verify it, and see how it is
    python -m streamplan demo --pipeline orders --records 100000
    python -m streamplan status
    python -m streamplan tasks --pipeline orders
    python -m streamplan check orders
  what is missing for a first successful run
    python -m streamplan doctor --pipeline orders --bootstrap-servers kafka-1:9092
  look at a declaration; this needs neither Kafka nor Airflow
    python -m streamplan describe orders
    python -m streamplan plan orders --instances 3
    python -m streamplan validate orders
  check an application that was written with Kafka Streams, and declare its topology
    python -m streamplan check --bootstrap-servers kafka-1:9092 --application-id my-app
    python -m streamplan import --application-id my-app --topology my-app.txt

`python -m streamplan COMMAND --help` explains one command.
STREAMPLAN_HOME names the directory of the deployment. By default it is streamplan in AIRFLOW_HOME if that is set,
and otherwise .streamplan in the working directory.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words of the command line; by default those of this process.

    Returns:
        The exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong usage, 130 interrupted. The command
        ``check`` gives 2 a second meaning, see its help.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m streamplan",
        description="Kafka Streams' execution model on PySpark, deployed and checked by Airflow.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    try:
        # Help, and the error for an unknown word, list all commands.
        for command in arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS:
            import_module(f"{__name__}.{command}").register(commands)
        options = parser.parse_args(arguments)
        return int(options.run(options))
    except StreamplanError as error:
        # Markup is off, because messages have lists in square brackets.
        Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
