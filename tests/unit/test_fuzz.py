"""A short run of the fuzzers, and what they find: an exception, a crash, and a case without an end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.fuzz.__main__ import SUBJECTS, main
from tests.fuzz.runner import run

NAME = "faulty"


def findings(random: Random) -> Iterator[str]:
    match random.randrange(40):
        case 0:
            yield "a wrong value"
        case 1:
            raise KeyError("of a library")
        case 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 3:
            time.sleep(3600)


@pytest.mark.parametrize("module", SUBJECTS)
def test_no_value_makes_a_serde_do_what_it_must_not(module: str) -> None:
    outcome = run(module, seed=38, seconds=2, cases=60)
    assert outcome.findings == []
    assert outcome.cases > 0


@pytest.mark.parametrize(
    ("kind", "text", "seconds"),
    [(0, "a wrong value", 60), (1, "KeyError: 'of a library'", 60), (2, "signal 11", 60), (3, "does not end", 5)],
)
def test_exceptions_crashes_and_endless_cases_are_found(kind: int, text: str, seconds: float) -> None:
    case = case_of(kind)
    (finding,) = run(__name__, seed=1, seconds=60, first=case, cases=1, case_seconds=seconds).findings
    assert finding.case == case
    assert text in finding.text


def test_a_finding_is_told_with_the_command_that_makes_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of(0)
    assert main(["--seed", "1", "--case", str(case)], (__name__,)) == 1
    assert f"again: python -m tests.fuzz --serde {NAME} --seed 1 --case {case}\n" in capsys.readouterr().out


def case_of(kind: int) -> int:
    """The first case of seed 1 in which this goes wrong."""
    return next(case for case in range(1000) if Random(f"1 {NAME} {case}").randrange(40) == kind)
