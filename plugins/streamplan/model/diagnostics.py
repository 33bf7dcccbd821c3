"""Diagnostics of a declaration: what is wrong, in which line, and a hint. All faults of a file are reported at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from streamplan.errors import Refused

MAX_NAME_LENGTH = 249
"""Of a topic (``org.apache.kafka.common.internals.Topic``) and of a ``Named``."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class SourceLocation:
    """A line of a user's file."""

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
    """The line of the nearest caller that declares something: outside of the language's own modules."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    parts = path.parts
    # From the project's directory on: what a person opens, and the same on every machine.
    shown = Path(*parts[parts.index("plugins") :]) if "plugins" in parts else path
    return SourceLocation(str(shown), frame.f_lineno)


def _is_ours(file: str) -> bool:
    # A dataclass's __init__ has no file of its own.
    return file == "<string>" or Path(file).parent == _PACKAGE


def refuse(subject: str, faults: Iterable[Diagnostic]) -> None:
    """Raise :class:`Refused` naming every fault, one a line; nothing when there is none."""
    lines = [f"\n  {fault}" for fault in sorted(faults, key=lambda fault: (fault.location.file, fault.location.line))]
    if lines:
        count = "a fault" if len(lines) == 1 else f"{len(lines)} faults"
        raise Refused(f"{subject} has {count}:{''.join(lines)}")


def name_fault(name: str) -> str | None:
    """Why Kafka takes ``name`` neither for a topic nor for a processor (``Topic.validate``); None when it does."""
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
