from __future__ import annotations

import pytest
from streamplan.errors import CouldNotLook, Refused, StreamplanError
from streamplan.programs import EX_CONFIG, run_job


def raising(error: Exception) -> None:
    raise error


def test_a_job_that_ends_has_status_0() -> None:
    assert run_job(lambda: None) == 0


@pytest.mark.parametrize(
    ("error", "status"), [(StreamplanError("brokers"), 1), (CouldNotLook("totals"), 1), (Refused("topic"), EX_CONFIG)]
)
def test_the_status_says_whether_a_retry_can_help(
    error: StreamplanError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(lambda: raising(error), refused_status=EX_CONFIG) == status
    assert run_job(lambda: raising(error)) == 1
    assert capsys.readouterr().err == f"error: {error}\n" * 2


def test_an_error_that_nobody_expected_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_job(lambda: raising(ZeroDivisionError()))
