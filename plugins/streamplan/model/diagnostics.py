"""Diagnostics of a declaration: what is wrong, in which line, and a hint. All faults of a file are reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from streamplan.errors import Refused
from streamplan.judged import Diagnostic, SourceLocation, caller_location

__all__ = [
    "MAX_NAME_LENGTH",
    "Diagnostic",
    "Faulty",
    "SourceLocation",
    "caller_location",
    "legal_name",
    "name_fault",
    "refuse",
]

MAX_NAME_LENGTH = 249
"""The most characters of a topic (``org.apache.kafka.common.internals.Topic``) and of a ``Named``."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class Faulty(Refused):
    """A declaration that is refused, with its faults.

    Attributes:
        faults: What is wrong with it.
        topology: The topology, whose other expressions can be judged; None where there is none.
    """

    faults: tuple[Diagnostic, ...] = ()
    topology: Any = None


def refuse(subject: str, faults: Iterable[Diagnostic], topology: object = None) -> None:
    """Refuse a declaration that has faults.

    Args:
        subject: What is refused, as ``pipeline 'orders'``.
        faults: What is wrong with it.
        topology: The topology, whose other expressions Spark can judge.

    Raises:
        Faulty: There is a fault. The error has a line for each.
    """
    faults = tuple(faults)
    lines = [f"\n  {fault}" for fault in sorted(faults, key=lambda fault: (fault.location.file, fault.location.line))]
    if lines:
        count = "a fault" if len(lines) == 1 else f"{len(lines)} faults"
        error = Faulty(f"{subject} has {count}:{''.join(lines)}")
        error.faults, error.topology = faults, topology
        raise error


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


def legal_name(name: str) -> str:
    """Return what to write in place of a name that Kafka refuses."""
    legal = "-".join(_LEGAL.findall(name)).strip("-")
    if len(legal) > MAX_NAME_LENGTH:
        return f"Choose one of at most {MAX_NAME_LENGTH} characters"
    return f"Write {legal!r}" if legal.strip(".") else "For example 'orders'"
