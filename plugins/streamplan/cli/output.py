"""How the commands print: plain lines, aligned columns, steps with their time, and the address of Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console


def plain_console() -> Console:
    """Return a console that prints text as it is and leaves lines whole, in a terminal and in a pipe."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


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
