"""Runs the cases of a subject in a child process, so that a native crash and a case without an end are findings."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from typing import Any

CASE_SECONDS = 60.0
"""A case that takes longer does not end."""

MOST_FINDINGS = 20
"""After so many a subject is given up."""

_NOTHING = -1


@dataclass(frozen=True)
class Finding:
    """What was wrong with one case.

    Attributes:
        case: Its number.
        text: What was wrong.
    """

    case: int
    text: str


@dataclass
class Outcome:
    """What was tried of a subject."""

    cases: int = 0
    findings: list[Finding] = field(default_factory=list)


def run(
    module: str,
    seed: int,
    seconds: float,
    *,
    first: int = 0,
    cases: int | None = None,
    case_seconds: float = CASE_SECONDS,
) -> Outcome:
    """Try cases of a subject until a time is over, or so many were tried.

    Args:
        module: The name of the subject's module.
        seed: With the number of a case it makes the case.
        seconds: For so long new cases are begun.
        first: The number of the first case.
        cases: The most cases.
        case_seconds: A case that takes longer is a finding.
    """
    outcome = Outcome()
    end = time.monotonic() + seconds
    until = None if cases is None else first + cases
    while (until is None or first < until) and (outcome.cases == 0 or time.monotonic() < end):
        first = _run_child(outcome, module, seed, end - time.monotonic(), first, until, case_seconds)
        if first == _NOTHING or len(outcome.findings) >= MOST_FINDINGS:
            break
    return outcome


def _run_child(
    outcome: Outcome, module: str, seed: int, seconds: float, first: int, until: int | None, case_seconds: float
) -> int:
    """Run cases in a process of their own. Return the case to go on with after a crash; ``_NOTHING`` without one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_try_cases, args=(theirs, module, seed, seconds, first, until), daemon=True)
    child.start()
    theirs.close()
    case: int | None = None
    try:
        while True:
            if not ours.poll(case_seconds):
                outcome.findings.append(Finding(case or first, f"does not end within {case_seconds:.0f} s"))
                return (case or first) + 1
            message = ours.recv()
            if message is None:
                return _NOTHING
            case, texts = message
            outcome.cases += texts is None
            outcome.findings += [Finding(case, text) for text in texts or ()]
            if len(outcome.findings) >= MOST_FINDINGS:
                return _NOTHING
    except EOFError:
        child.join(10)
        cause = f"signal {-child.exitcode}" if (child.exitcode or 0) < 0 else f"status {child.exitcode}"
        outcome.findings.append(Finding(first if case is None else case, f"ends its process with {cause}"))
        return (first if case is None else case) + 1
    finally:
        ours.close()
        if child.is_alive():
            child.kill()
        child.join()


def _try_cases(found: Connection, module: str, seed: int, seconds: float, first: int, until: int | None) -> None:
    """Try cases, in the child. What is sent before a case is its number, and behind it what was wrong, if anything."""
    faulthandler.enable()
    subject = importlib.import_module(module)
    end = None
    case = first
    while (until is None or case < until) and (end is None or time.monotonic() < end):
        found.send((case, None))
        texts = list(_findings(subject, Random(f"{seed} {subject.NAME} {case}")))
        if texts:
            found.send((case, texts))
        case += 1
        if end is None:
            end = time.monotonic() + seconds  # The first case imports the libraries.
    found.send(None)


def _findings(subject: Any, random: Random) -> Iterator[str]:
    try:
        yield from subject.findings(random)
    except Exception:  # noqa: BLE001  # whatever a case raises is what is looked for
        yield traceback.format_exc(limit=-6)
