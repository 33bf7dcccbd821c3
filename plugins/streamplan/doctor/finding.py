"""One line of ``streamplan doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How something is.

    ``OK``: as it must be. ``WARNING``: it works, and may surprise. ``PROBLEM``: a run would fail. ``NOT_LOOKED``: it
    could not be looked at from here, and the finding says what is missing.
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_LOOKED = "not looked"


@dataclass(frozen=True)
class Finding:
    """What one look has found.

    Attributes:
        state: How it is.
        subject: What was looked at.
        observed: What was found.
        remedy: What to do; empty where nothing is to be done.
    """

    state: State
    subject: str
    observed: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """Subject, observation and remedy as one line."""
        return f"{self.subject}: {self.observed}" + (f". {self.remedy}" if self.remedy else "")


def ok(subject: str, observed: str) -> Finding:
    """Return a finding of what is as it must be."""
    return Finding(State.OK, subject, observed)


def warning(subject: str, observed: str, remedy: str) -> Finding:
    """Return a finding of what works and may surprise."""
    return Finding(State.WARNING, subject, observed, remedy)


def problem(subject: str, observed: str, remedy: str) -> Finding:
    """Return a finding of what would let a run fail."""
    return Finding(State.PROBLEM, subject, observed, remedy)


def not_looked(subject: str, observed: str, remedy: str) -> Finding:
    """Return a finding of what could not be looked at from here."""
    return Finding(State.NOT_LOOKED, subject, observed, remedy)
