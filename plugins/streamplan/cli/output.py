"""How the commands print: plain lines, aligned columns, steps with their time, and the address of Airflow."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from streamplan.cli.program import as_typed
from streamplan.registry import BrokenPipeline

PIPED_COLUMNS = 100_000
"""The width of a table in a pipe: each row is one line, for other programs to read."""


def table_console() -> Console:
    """Return the console for tables. In a terminal their cells fold at its width; in a pipe each row is one line.

    ``COLUMNS``, where it is set, is the width of both.
    """
    return Console(markup=False, emoji=False, highlight=False, width=table_width())


def table_width() -> int | None:
    """Return the width of tables; None for that of the terminal, or for ``COLUMNS``."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_COLUMNS


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first of them as headings. The width is that of :func:`table_console`."""
    if table_width() is not None:
        for line in align_columns(rows):
            plain_console().print(line)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for word in rows[0]:
        table.add_column(word, overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    table_console().print(table)


def folded(line: str, width: int) -> str:
    """Return a line of two columns, or of one, in lines of a width. The last column stays behind the first.

    Args:
        line: The line. Two spaces or more stand between its columns.
        width: The most characters of a line. A word that is longer stays whole.
    """
    columns = re.match(r"(\s*\S.*?\s{2,}|\s*)", line)
    behind = " " * (len(columns[0]) if columns is not None and len(columns[0]) < width // 2 else 2)
    return textwrap.fill(
        line, width, subsequent_indent=behind, replace_whitespace=False, drop_whitespace=True,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def folded_command(line: str, width: int, prog: str) -> str:
    """Return a command for a shell in lines of a width, broken before options and pipes.

    Args:
        line: The command, in which ``%(prog)s`` stands for ``prog``.
        width: The most characters of a line. A part that is longer stays whole.
        prog: The program with its command.
    """
    indent = line[: len(line) - len(line.lstrip())]
    lines: list[str] = []
    for part in re.split(r" (?=--|\| )", line):
        longer = f"{lines[-1]} {part}" if lines else part
        if lines and len(longer.replace("%(prog)s", prog)) + len(" \\") > width:
            lines[-1] += " \\"
            lines.append(f"{indent}  {part}")
        else:
            lines[-1:] = [longer]
    return line if len(line.replace("%(prog)s", prog)) <= width else "\n".join(lines)


def plain_console() -> Console:
    """Return a console that prints text as it is and leaves lines whole, in a terminal and in a pipe."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_broken(broken: Iterable[BrokenPipeline]) -> None:
    """Print on stderr which pipelines are broken. The command goes on with the others."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    for each in broken:
        console.print(as_typed(str(each)), style="red")


def timed_report(console: Console) -> Callable[[str], None]:
    """Return a function that prints one line for a step, with the seconds since this call."""
    begun = time.monotonic()
    return lambda line: console.print(f"[dim]{time.monotonic() - begun:6.1f} s[/dim]  {line}", highlight=False)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one line for each row. The cells of a column start at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 fault``, ``2 faults``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
