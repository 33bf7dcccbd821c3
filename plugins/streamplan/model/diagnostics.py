"""Diagnostics of a declaration: what is wrong, in which line, and a hint. All faults of a file are reported at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from streamplan.errors import Refused

MAX_NAME_LENGTH = 249
"""The most characters of a topic (``org.apache.kafka.common.internals.Topic``) and of a ``Named``."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class SourceLocation:
    """A line of a declaration's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """A fault of a declaration: the ``message`` says what is wrong, the ``hint`` what to write."""

    location: SourceLocation
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}. {self.hint}"


def caller_location() -> SourceLocation:
    """The line of the nearest caller outside of this package, which is the line that declares something."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_in_this_package(frame.f_code.co_filename):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    parts = path.parts
    # The path from plugins/ on is the same on every machine, and a person can open it.
    shown = Path(*parts[parts.index("plugins") :]) if "plugins" in parts else path
    return SourceLocation(str(shown), frame.f_lineno)


def _is_in_this_package(file: str) -> bool:
    # The generated __init__ of a dataclass has no file.
    return file == "<string>" or Path(file).parent == _PACKAGE


def refuse(subject: str, faults: Iterable[Diagnostic]) -> None:
    """Refuse a declaration that has faults.

    Args:
        subject: What is refused, as ``pipeline 'orders'``.
        faults: What is wrong with it.

    Raises:
        Refused: There is a fault. The error has a line for each.
    """
    lines = [f"\n  {fault}" for fault in sorted(faults, key=lambda fault: (fault.location.file, fault.location.line))]
    if lines:
        count = "a fault" if len(lines) == 1 else f"{len(lines)} faults"
        raise Refused(f"{subject} has {count}:{''.join(lines)}")


def name_fault(name: str) -> str | None:
    """The reason why Kafka refuses ``name`` for a topic or a processor (``Topic.validate``); None for a legal name."""
    if not name:
        return "a name cannot be empty"
    if name in (".", ".."):
        return f"a name cannot be {name!r}"
    if not _LEGAL.fullmatch(name):
        wrong = sorted({character for character in name if not _LEGAL.fullmatch(character)})
        return (
            f"the name {name!r} contains {', '.join(map(repr, wrong))}; "
            "legal are ASCII letters and digits, '.', '_' and '-'"
        )
    if len(name) > MAX_NAME_LENGTH:
        return f"the name {name!r} has {len(name)} characters; the limit is {MAX_NAME_LENGTH}"
    return None
