"""The command line ``streamplan COMMAND PIPELINE``. Each command is a module of this package and has its name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from rich.console import Console

from streamplan import __version__
from streamplan.cli.command import Commands, HelpFormatter, take_file, with_commands
from streamplan.cli.program import Parser, as_typed, program
from streamplan.errors import StreamplanError, did_you_mean
from streamplan.programs import ExitStatus, run_program

COMMANDS = (
    "init",
    "import",
    "run",
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
    "produce",
    "topic",
    "store",
    "serve",
    "letters",
    "exporter",
    "acls",
    "redrive",
    "upgrade",
    "reset",
)
"""The commands in the order in which the help shows them. Only the module of the command that runs is imported."""

_HAD_AN_OPTION = ("demo", "doctor", "tasks", "reset")
"""Commands that named the pipeline by ``--pipeline NAME`` in 0.1. The option is taken until 0.3, and not shown."""

_EXAMPLES = """\
A command about a pipeline takes its name:
    %(prog)s COMMAND PIPELINE
For any other Kafka Streams application, `check`, `top`, `topic`, `store` and
`letters` take --application-id ID instead. `validate` and `exporter` take
several pipelines.

examples:
  run a pipeline in the foreground, without Airflow
    %(prog)s run pipeline.py --local
  deploy the pipeline `orders` on this machine, verify it, and see how it is
    %(prog)s demo orders --records 100000
    %(prog)s status
    %(prog)s tasks orders
    %(prog)s check orders
  what is missing for a first successful run
    %(prog)s doctor orders --bootstrap-servers kafka-1:9092
  look at a declaration; this needs neither Kafka nor Airflow
    %(prog)s describe orders
    %(prog)s plan orders --instances 3
    %(prog)s validate orders
  check an application that was written with Kafka Streams, and declare it
    %(prog)s check --application-id my-app --bootstrap-servers kafka-1:9092
    %(prog)s import --application-id my-app --topology my-app.txt

exit status of every command:
{statuses}
`%(prog)s COMMAND --help` explains one command.
STREAMPLAN_HOME names the directory of the deployment. By default it is
streamplan in AIRFLOW_HOME if that is set, else .streamplan here.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words of the command line; by default those of this process.

    Returns:
        The exit status, one of :class:`~streamplan.programs.ExitStatus`. What stopped the command is on stderr.
    """
    arguments = _in_words_of_today([*sys.argv[1:]] if arguments is None else [*arguments])
    parser = Parser(
        prog=program(),
        description="Kafka Streams' execution model on PySpark, deployed and checked by Airflow.",
        epilog=with_commands(_EXAMPLES.format(statuses=ExitStatus.table(wrong=ExitStatus.WRONG.meaning)), program()),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"streamplan {__version__}")
    first = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if first is not None and first.endswith(".py"):
        parser.error(f"no command {first!r}. To run the pipeline of a file: {program()} run {first}")
    if first is not None and first not in COMMANDS:
        parser.error(f"no command {first!r}. {did_you_mean(first, COMMANDS) or 'Commands: ' + ', '.join(COMMANDS)}")
    commands = Commands(parser)

    def run() -> int:
        for command in COMMANDS if first is None else [first]:  # help lists all
            import_module(f"{__name__}.{command}").register(commands)
        options, unknown = parser.parse_known_args(arguments)
        if unknown and first is not None:
            commands.refuse(first, unknown)
        take_file(options)
        return int(options.run(options))

    return run_program(run, _tell)


def _tell(error: StreamplanError) -> None:
    # Markup is off, because messages have lists in square brackets.
    Console(stderr=True).print(as_typed(str(error)), style="red", markup=False, highlight=False, soft_wrap=True)


def _in_words_of_today(arguments: list[str]) -> list[str]:
    if arguments and arguments[0] in _HAD_AN_OPTION:
        return [word.removeprefix("--pipeline=") for word in arguments if word != "--pipeline"]
    return arguments
