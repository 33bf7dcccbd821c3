"""What all commands have in common: their help with examples and exit statuses, and how they name a pipeline."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, NoReturn, TypeVar

from streamplan.cli.output import folded, folded_command
from streamplan.errors import Refused, WrongUsage, did_you_mean
from streamplan.programs import ExitStatus

if TYPE_CHECKING:
    from streamplan.model.pipeline import Pipeline

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

Value = TypeVar("Value")


_OTHER_OPTIONS = {
    **dict.fromkeys(("--broker", "--brokers", "--broker-list", "--kafka", "--server", "-b"), "--bootstrap-servers"),
    **dict.fromkeys(("--config", "--properties", "--consumer.config", "--producer.config"), "--command-config"),
    **dict.fromkeys(("--group", "--group-id", "--app-id", "--application"), "--application-id"),
    **dict.fromkeys(("-y", "--force", "--assume-yes"), "--yes"),
    **dict.fromkeys(("-K", "--property", "--reader-property"), "--key-separator"),
    "-p": "--port",
}
"""Options of other tools, and what they are called here."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Leaves options such as ``--against-cluster`` whole, which ``argparse`` breaks at their hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Commands:
    """The commands of one command line."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._subparsers: Subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        self,
        name: str,
        sentence: str,
        *,
        description: str,
        examples: str,
        run: Callable[[argparse.Namespace], int],
        done: str = "",
        wrong: str = "",
    ) -> argparse.ArgumentParser:
        """Add a command.

        Args:
            name: Its name.
            sentence: What it does, for the list of all commands.
            description: What it does, in paragraphs. A line that begins with a space stays a line.
            examples: At least one, in lines; ``%(prog)s`` stands for the program with the command.
            run: Does it, and returns the exit status.
            done: What the exit status 0 means; empty for the words that hold for all commands.
            wrong: What the exit status 1 means; empty where the command judges nothing.

        Returns:
            The parser, for the command's own arguments.
        """
        parser = self._subparsers.add_parser(
            name, help=sentence, description=_wrapped(description), formatter_class=HelpFormatter
        )
        shown = with_commands(textwrap.indent(examples.strip(), "  "), parser.prog)
        statuses = _wrapped(ExitStatus.table(done=done, wrong=wrong))
        parser.epilog = f"examples:\n{shown}\n\nexit status:\n{statuses}"
        parser.set_defaults(run=run)
        return parser

    def refuse(self, name: str, unknown: list[str]) -> NoReturn:
        """End with the usage of a command, and with what to write in place of words that it does not take."""
        parser = self._subparsers.choices[name]
        options = [option for action in parser._actions for option in action.option_strings]
        named = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        meant = _OTHER_OPTIONS.get(named, "")
        hint = f"Did you mean {meant}?" if meant in options else did_you_mean(named, options)
        if named == "--pipeline" or (named == "-p" and "--port" not in options):
            hint = f"The pipeline is named without an option: {parser.prog} PIPELINE"
        elif not hint and "--application-id" in (meant, named):
            hint = "It takes a registered pipeline. check, top, topic, store and letters take any application"
        elif not named:
            takes = any(action.metavar == "PIPELINE" for action in parser._actions)
            hint = "It takes one pipeline" if takes else "It takes no pipeline"
        parser.error(". ".join(filter(None, [f"unrecognized arguments: {' '.join(unknown)}", hint])))


def with_commands(text: str, prog: str) -> str:
    """Fit examples to the terminal: lines with ``%(prog)s`` as commands for a shell, the others as columns of text."""
    width = shutil.get_terminal_size().columns - 2
    return "\n".join(
        folded_command(line, width, prog) if "%(prog)s" in line else folded(line, width) for line in text.splitlines()
    )


def _wrapped(text: str) -> str:
    """Fit paragraphs to the terminal."""
    width = shutil.get_terminal_size().columns - 2
    parts: list[str] = []
    for is_indented, group in groupby(text.splitlines(), key=lambda line: line.startswith(" ") or not line):
        lines = list(group)
        if is_indented:
            parts += [folded(line, width) for line in lines]
        else:
            parts.append(textwrap.fill(" ".join(lines), width, break_on_hyphens=False))
    return "\n".join(parts)


def take_file(options: argparse.Namespace) -> None:
    """Register the file that stands in place of a pipeline's name, and let the options name its pipeline."""
    if not getattr(options, "takes_file", False) or ".py" not in (options.pipeline or ""):
        return
    from streamplan.registry import names_file, pipeline_of_file  # imports the language

    if names_file(options.pipeline):
        options.of_file = pipeline_of_file(options.pipeline)
        options.pipeline = options.of_file.name


def declared_pipeline(options: argparse.Namespace) -> Pipeline:
    """Return the pipeline of the file that the options name, or the registered one of that name.

    For commands that look at a declaration alone. The file may be a draft of a registered pipeline, with its name. A
    command that works on an application asks the registry, which refuses two pipelines of one name.
    """
    from streamplan.registry import pipeline_named  # imports the language

    of_file: Pipeline | None = getattr(options, "of_file", None)
    return pipeline_named(options.pipeline) if of_file is None else of_file


def add_pipeline(parser: argparse.ArgumentParser, *, default: str | None = None, optional: str = "") -> None:
    """Add the argument ``PIPELINE``, which every command has that is about one pipeline.

    Args:
        default: The pipeline without the argument.
        optional: What the command does without the argument, where it may be left out.
    """
    text = "the name of a registered pipeline, see `list`"
    text += f" (default: {default})" if default else ", or a file that declares one"
    text += f"; {optional}" if optional else ""
    nargs = "?" if default or optional else None
    parser.add_argument("pipeline", metavar="PIPELINE", nargs=nargs, default=default, help=text)
    parser.set_defaults(takes_file=default is None)  # what Airflow deploys is registered


def add_pipelines(parser: argparse.ArgumentParser) -> None:
    """Add the arguments ``PIPELINE``, of which none stands for all pipelines."""
    text = "names of registered pipelines, see `list`, or files that declare some (default: all registered)"
    parser.add_argument("pipelines", metavar="PIPELINE", nargs="*", help=text)


def at_least(minimum: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number, and not less than ``minimum``."""

    def number(text: str) -> int:
        if not (text.isascii() and text.removeprefix("-").isdecimal()) or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"expected a whole number, {minimum} or more, observed {text}")
        return int(text)

    return number


def refuse_ignored(options: argparse.Namespace, *names: str, without: str = "", beside: str = "") -> None:
    """Refuse options that would have no effect.

    Args:
        options: The options of the command. None, False and an empty list are options that were not given.
        names: The attributes of those that would have no effect.
        without: The option that they belong to, and that was not given.
        beside: The option beside which they have no effect, and that was given.

    Raises:
        WrongUsage: One of them was given.
    """
    values = {name: getattr(options, name) for name in names}
    is_given = [name for name, value in values.items() if value is not None and value is not False and value != []]
    given = ", ".join(f"--{name.replace('_', '-')}" for name in is_given)
    if given and without:
        raise WrongUsage(
            given,
            expected=f"together with {without}",
            observed="alone",
            remedy=f"Add {without}, or leave out {given}.",
        )
    if given:
        raise WrongUsage(given, expected=f"without {beside}", observed="both", remedy="Leave out one of them.")


def port(text: str) -> int:
    """The type of an option that is a TCP port."""
    if not (text.isascii() and text.isdecimal()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port, 0 to 65535, observed {text}")
    return int(text)


def parsed_by(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return the type of an option whose text is parsed by a function: what it refuses is wrong usage."""

    def value(text: str) -> Value:
        try:
            return parse(text)
        except Refused as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return value
