from __future__ import annotations

from collections.abc import Callable

import pytest
from streamplan.errors import BrokersUnavailable, CouldNotLook, Refused, StreamplanError, WrongUsage
from streamplan.programs import ExitStatus, run_job, run_program
from streamplan.settings import PROJECT

STATUSES = [
    (StreamplanError("brokers"), 75),
    (CouldNotLook("totals"), 75),
    (BrokersUnavailable("brokers"), 75),
    (Refused("topic"), 78),
    (WrongUsage("--only"), 2),
]


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_a_job_that_ends_has_status_0() -> None:
    assert run_job(lambda: None) == 0


@pytest.mark.parametrize(("error", "status"), STATUSES)
def test_a_command_and_a_job_that_the_same_error_ends_have_the_same_status(
    error: StreamplanError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[StreamplanError] = []
    assert run_program(raising(error), told.append) == status
    assert told == [error]
    assert run_job(raising(error)) == status
    assert capsys.readouterr().err == f"error: {error}\n"


def test_ctrl_c_has_the_status_that_shells_give_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_an_error_that_nobody_expected_is_shown_and_is_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job(raising(ZeroDivisionError())) == 75
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_each_status_has_one_meaning_and_each_meaning_one_status() -> None:
    assert len({status.meaning for status in ExitStatus}) == len(ExitStatus)
    assert [int(status) for status in ExitStatus] == [0, 1, 2, 75, 78, 130]


def test_the_page_of_the_commands_has_the_statuses_of_the_code() -> None:
    page = (PROJECT / "docs" / "commands.md").read_text()
    rows = [f"| {int(status)} | {status.meaning[0].upper()}{status.meaning[1:]} |" for status in ExitStatus]
    assert "\n".join(rows) in page
