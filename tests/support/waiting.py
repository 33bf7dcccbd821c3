"""Waiting for a condition. Deadlines are generous: a busy machine must turn no test red."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

DEADLINE_SECONDS = 300.0
"""Nothing that a test waits for takes so long, unless it never comes."""


def eventually(
    condition: Callable[[], bool],
    what: str,
    seconds: float = DEADLINE_SECONDS,
    *,
    interval: float = 0.1,
    evidence: Callable[[], str] = lambda: "",
) -> None:
    """Wait until ``condition`` holds, and fail with ``what`` and ``evidence`` when it never does.

    Args:
        condition: Is asked every ``interval`` seconds.
        what: Says what is waited for.
        seconds: The deadline.
        interval: Seconds between two questions.
        evidence: Is asked when the deadline has passed, for instance for the end of a log.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}\n{evidence()}")
        time.sleep(interval)
