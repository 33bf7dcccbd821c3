from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import Process
from pathlib import Path

import pytest
from streamplan.checks.framework.check import CheckResult, Observation, Outcome, explain
from streamplan.checks.framework.verified import StateStoreTotals
from streamplan.files import ReportPaths
from streamplan.model.status import AggregatorState, AggregatorStatus, MicroBatch
from streamplan.reports.check_context import read_state_store
from streamplan.reports.results import read_history, read_latest, write_result
from streamplan.reports.status import read_status, write_status

GOOD, BAD = Observation("a topic: partitions", 2, 2), Observation("the other: policy", "compact", "delete")
RESULT = CheckResult(
    pipeline="orders",
    check="totals",
    outcome=Outcome.FAILED,
    reason="1 of 2 wrong: …",
    at="2026-01-01T00:00:00+00:00",
    observations=(GOOD, BAD),
    data_docs="orders/data_docs/index.html",
)


def test_the_last_result_of_each_check(tmp_path: Path) -> None:
    write_result(tmp_path, RESULT)
    later = replace(RESULT, outcome=Outcome.PASSED, observations=(GOOD,), at="2026-01-01T00:10:00+00:00")
    write_result(tmp_path, later)
    other = replace(RESULT, check="compaction", outcome=Outcome.COULD_NOT_LOOK, observations=(), data_docs=None)
    write_result(tmp_path, other)
    write_result(tmp_path, replace(RESULT, pipeline="another"))
    assert read_latest(tmp_path, "orders") == {"totals": later, "compaction": other}


def test_the_history_has_every_result_with_what_was_wrong(tmp_path: Path) -> None:
    for minute in range(5):
        write_result(tmp_path, replace(RESULT, at=f"2026-01-01T00:0{minute}:00+00:00"))
    history = read_history(tmp_path, "orders", last=3)
    assert [result.at[14:16] for result in history] == ["02", "03", "04"]
    assert history[0].observations == (BAD,)
    assert sorted(path.name for path in (tmp_path / "orders").iterdir()) == [
        "data_docs",
        "history.jsonl",
        "totals.json",
    ]


def test_the_history_of_one_check_is_read_however_many_results_of_others_are_between(tmp_path: Path) -> None:
    """The lines are longer than what is read of the file at once."""
    wrong = tuple(Observation(f"row {number} of lag: Größe", 1, 2) for number in range(400))
    for hour in range(12):
        write_result(tmp_path, replace(RESULT, at=f"2026-01-01T{hour:02}:00:00+00:00"))
        for minute in range(1, 4):
            other = replace(RESULT, check="lag", at=f"2026-01-01T{hour:02}:0{minute}:00+00:00", observations=wrong)
            write_result(tmp_path, other)
    assert (tmp_path / "orders" / "history.jsonl").stat().st_size > 3 * (1 << 18)
    totals = read_history(tmp_path, "orders", check="totals")
    assert [result.at[11:13] for result in totals] == [f"{hour:02}" for hour in range(12)]
    since = read_history(tmp_path, "orders", check="totals", since=datetime(2026, 1, 1, 10, tzinfo=UTC))
    assert [result.at[11:13] for result in since] == ["10", "11"]
    assert len(read_history(tmp_path, "orders", last=1_000)) == 48
    assert [result.observations for result in read_history(tmp_path, "orders", last=2)] == [wrong, wrong]


def test_the_history_is_bounded_and_the_last_results_are_read_from_both_files(tmp_path: Path) -> None:
    for number in range(60):
        write_result(tmp_path, replace(RESULT, at=f"2026-01-01T00:{number:02}:00+00:00"), limit=4_000)
    files = [tmp_path / "orders" / name for name in ("history.jsonl", "history.1.jsonl")]
    assert sum(file.stat().st_size for file in files if file.exists()) < 2 * 4_500
    assert [result.at[14:16] for result in read_history(tmp_path, "orders", last=9)] == [str(n) for n in range(51, 60)]


def write_many(reports: Path, number: int) -> None:
    for minute in range(60):
        result = replace(RESULT, check=f"check{number}", at=f"2026-01-01T00:{minute:02}:00+00:00")
        write_result(reports, result, limit=100_000)


def test_checks_that_end_at_the_same_time_lose_no_line_when_the_history_is_renamed(tmp_path: Path) -> None:
    """All lines fit into two files, so each of them must still be there."""
    writers = [Process(target=write_many, args=(tmp_path, number)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert (tmp_path / "orders" / "history.1.jsonl").exists()
    assert len(read_history(tmp_path, "orders", last=1_000)) == 6 * 60


def test_the_history_keeps_the_figures_of_rows_that_agree(tmp_path: Path) -> None:
    write_result(tmp_path, replace(RESULT, figures={"lag_records": 12, "lag_seconds": 3.5}))
    assert read_history(tmp_path, "orders")[0].figures == {"lag_records": 12, "lag_seconds": 3.5}


def test_a_history_without_figures_is_read(tmp_path: Path) -> None:
    """A line as the versions before this one wrote it."""
    history = ReportPaths(tmp_path, "orders").history
    history.parent.mkdir(parents=True)
    history.write_text(
        '{"pipeline": "orders", "check": "totals", "outcome": "failed", "reason": "1 of 2 wrong: …",'
        ' "at": "2026-01-01T00:00:00+00:00", "observations": [{"subject": "the other: policy", "expected": "compact",'
        ' "observed": "delete", "where": ""}], "data_docs": "orders/data_docs/index.html"}\n'
    )
    assert read_history(tmp_path, "orders") == [replace(RESULT, observations=(BAD,))]


def test_the_state_store_beside_the_results(tmp_path: Path) -> None:
    write_result(tmp_path, RESULT)
    content = '{"batch": 7, "positions": {"0": 12, "1": 9}, "totals": {"0": 10, "1": 9}}'
    path = ReportPaths(tmp_path, "orders").state_store
    path.parent.mkdir()
    path.write_text(content)
    assert read_state_store(tmp_path, "orders") == StateStoreTotals({0: 12, 1: 9}, {b"0": 10, b"1": 9})
    assert list(read_latest(tmp_path, "orders")) == ["totals"]


def test_nothing_has_run_yet(tmp_path: Path) -> None:
    assert read_state_store(tmp_path, "orders") is None
    assert read_latest(tmp_path, "orders") == {}
    assert read_history(tmp_path, "orders") == []


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ((GOOD, BAD, BAD), "2 of 3 wrong: the other: policy: expected compact, observed delete"),
        ((GOOD,), "1 of 1 as expected"),
        ((), "nothing to look at: the check found no rows"),
    ],
)
def test_the_reason_is_one_line(rows: tuple[Observation, ...], line: str) -> None:
    assert explain(rows) == line


def test_the_status_of_an_aggregator(tmp_path: Path) -> None:
    path = ReportPaths(tmp_path, "orders").aggregator_status
    assert read_status(path) is None
    for state in AggregatorState:
        batches = {0: MicroBatch(3, "2026-01-01T00:00:00Z")}
        status = AggregatorStatus(state, 4711, "host-a", "2026-01-01T00:00:00+00:00", batches)
        write_status(path, status)
        assert read_status(path) == status
    assert [found.name for found in path.parent.iterdir()] == ["aggregator.json"]
    assert read_latest(tmp_path, "orders") == {}
