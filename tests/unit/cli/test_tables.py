"""Tables in a terminal and in a pipe."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from streamplan.checks import CHECKS
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.cli import main
from streamplan.cli.output import folded, print_columns, table_console
from streamplan.cli.tables import seconds_ago
from streamplan.cli.top import fitted, screen
from streamplan.model.status import AggregatorState, AggregatorStatus, MicroBatch, MicroBatchMeasures
from streamplan.model.topics import TopicRole
from streamplan.observability.snapshot import InputSnapshot, Snapshot, TaskSnapshot, TopicSnapshot

LONG = "a-topic-of-another-team-with-a-name-that-is-much-longer-than-a-column-of-eighty-could-ever-be"


def snapshot_of_long_names() -> Snapshot:
    """Everything that `top` shows, with long names and large figures."""
    at = "2026-01-01T12:00:00+00:00"
    place = InputSnapshot(LONG, 0, 1_234_567, 9_876_543, 8_641_976)
    task = TaskSnapshot("0_0", "tasks", [place], 8_641_976, 12_345.6, 123_456.7, "driver-0123456789", "host-1", at)
    topic = TopicSnapshot(LONG, TopicRole.SOURCE, 128, 9_876_543, 9_876_543, 123_456.7)
    check = CheckResult("orders", "totals", Outcome.FAILED, f"1 of 2 wrong: {LONG} and more words", at, ())
    return Snapshot(
        pipeline="orders",
        application_id="orders-aggregator",
        at=at,
        problem="",
        members=["streamplan:7@host"],
        aggregator=None,
        silent=False,
        tasks=[task],
        migrations=[],
        topics=[topic],
        dead_letters={},
        checks=[check],
        verified=None,
    )


def test_at_eighty_columns_no_line_is_longer_and_no_figure_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table_console().print(screen(snapshot_of_long_names()))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for figure in ("8,641,976", "123,456.7", "12,345.6 s", "9,876,543", "128"):
        assert figure in text


def snapshot_of_orders(tasks: int = 4, outcome: Outcome = Outcome.PASSED) -> Snapshot:
    """The demo: four stream tasks, four topics, micro-batches and eight checks."""
    at = datetime.now(UTC).isoformat()
    names = ("orders", "orders-aggregator-orders-products-quantities-repartition")
    return replace(
        snapshot_of_long_names(),
        aggregator=AggregatorStatus(
            AggregatorState.RUNNING,
            7,
            "host",
            at,
            {number: MicroBatch(3, at) for number in (0, 1)},
            measures={number: MicroBatchMeasures(3, 1_000, 0.3, 0.2, 2, 4_096, 1_000, 0) for number in (0, 1)},
        ),
        tasks=[
            TaskSnapshot(
                f"{n // 2}_{n % 2}", "", [InputSnapshot(names[n % 2], n, 1, 1, n)], n, 0.0, 1.0, "driver", "host", at
            )
            for n in range(tasks)
        ],
        topics=[TopicSnapshot(name, TopicRole.SOURCE, 2, 100, 100, 1.0) for name in (*names, "changelog", "dead")],
        checks=[
            CheckResult("orders", check.name, outcome, "2 of 9 wrong: " + "words " * 40, at, ()) for check in CHECKS
        ],
    )


@pytest.mark.parametrize(
    ("snapshot", "rows", "left_out"),
    [
        (snapshot_of_orders(), 60, ""),
        (snapshot_of_orders(), 24, "the last micro-batches"),
        (snapshot_of_orders(outcome=Outcome.FAILED), 24, "the last micro-batches, 4 topics"),
        (snapshot_of_orders(tasks=200), 24, r"\d+ stream tasks, the last micro-batches, 4 topics"),
        (snapshot_of_orders(tasks=200), 10, r"\d+ stream tasks, the last micro-batches, 4 topics"),
    ],
    ids=["60 rows", "24 rows", "all checks failed", "200 tasks", "10 rows"],
)
def test_top_fits_the_rows_of_the_terminal_and_says_what_is_left_out(
    snapshot: Snapshot, rows: int, left_out: str
) -> None:
    console = Console(width=80, height=rows, file=StringIO())
    console.print(fitted(snapshot, console))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < rows
    assert lines[0].startswith("orders  runs")
    said = re.search(r"A larger terminal also shows (.*)\.", " ".join(lines))
    assert re.fullmatch(left_out, said[1] if said else "")


def test_where_not_all_tasks_fit_those_with_the_greatest_lag_are_shown() -> None:
    console = Console(width=120, height=16, file=StringIO())
    console.print(fitted(snapshot_of_orders(tasks=50), console))
    assert isinstance(console.file, StringIO)
    shown = re.findall(r"^ (\d+_\d) ", console.file.getvalue(), re.MULTILINE)
    assert 0 < len(shown) < 50
    assert shown == [f"{n // 2}_{n % 2}" for n in range(49, 49 - len(shown), -1)]


@pytest.mark.parametrize("rows", [60, 24])
def test_top_says_how_old_a_result_is_that_is_not_of_the_last_run(rows: int) -> None:
    snapshot = snapshot_of_orders()
    earlier = (datetime.now(UTC) - timedelta(minutes=45)).isoformat()
    old = {"totals": Outcome.PASSED, "compaction": Outcome.COULD_NOT_LOOK}
    checks = [
        replace(each, at=earlier, data_docs="earlier.html", outcome=old[each.check], reason="brokers away")
        if each.check in old
        else replace(each, data_docs="last.html", reason="1 of 1 as expected")
        for each in snapshot.checks
    ]
    console = Console(width=100, height=rows, file=StringIO())
    console.print(fitted(replace(snapshot, checks=checks), console))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    if rows == 24:
        assert "Passed in an earlier run: totals 45 min ago" in text
        assert "compaction could not look, 45 min ago: brokers away" in text
        assert "lag 0" not in text
    else:
        assert re.search(r"totals +passed +45 min ago +brokers away", text)
        assert re.search(r"lag +passed +0\.\d s ago", text)


def test_where_kafka_cannot_be_asked_the_reason_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = replace(snapshot_of_long_names(), problem="Kafka gave no answer", tasks=[], topics=[], checks=[])
    table_console().print(screen(snapshot))
    assert capsys.readouterr().out == "orders  Kafka gave no answer\n"


def test_in_a_pipe_each_row_is_one_line_with_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    table_console().print(screen(snapshot_of_long_names()))
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if LONG in line]) == 3  # its task, the topic, and the check


@pytest.mark.parametrize("columns", ["80", "60"])
def test_columns_fold_in_a_terminal_and_keep_every_character(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_columns([("TOPIC", "CONFIG"), (LONG, "x"), ("short", "y" * 200)])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= int(columns)
    folded = "".join(line.split()[0] for line in text.splitlines()[2:])
    assert folded.startswith(LONG.replace(" ", "")[:10])
    assert text.count("y") - text.count("by") >= 200


def test_columns_in_a_pipe_are_one_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns([("TOPIC", "CONFIG"), (LONG, "x")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["TOPIC", "CONFIG"], [LONG, "x"]]


def test_list_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_status_shows_a_fault_with_brackets_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = SimpleNamespace(name="kafka-1", pid=7, alive=True, address="127.0.0.1:9092", fault="no answer [red] at all")
    monkeypatch.setattr("streamplan.cli.status.Stack", lambda settings: SimpleNamespace(states=lambda: [state]))
    monkeypatch.setenv("STREAMPLAN_HOME", str(tmp_path))
    assert main(["status"]) == 1
    assert "no answer [red] at all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (timedelta(seconds=3), r"3\.\d s ago"),
        (timedelta(seconds=100), r"100\.\d s ago"),
        (timedelta(minutes=2), "2 min ago"),
        (timedelta(minutes=119), "119 min ago"),
        (timedelta(hours=2), "2 h ago"),
        (timedelta(hours=47), "47 h ago"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(days=4_000), "4,000 days ago"),
        (timedelta(days=-1), r"0\.0 s ago"),  # by the clock of another host
    ],
)
def test_times_are_said_as_people_say_them(ago: timedelta, said: str) -> None:
    assert re.fullmatch(said, seconds_ago((datetime.now(UTC) - ago).isoformat()))


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("short", ["short"]),
        (
            "ok          a sentence of seven words is told",
            ["ok          a sentence of", "            seven words is", "            told"],
        ),
        ("  --key  a key that is long", ["  --key  a key that is long"]),
        ("one column of words, without a second", ["one column of words, without", "a second"]),
        ("a/word/that/is/longer/than/the/width", ["a/word/that/is/longer/than/the/width"]),
    ],
)  # fmt: skip
def test_a_line_folds_behind_its_first_column_and_keeps_every_word(line: str, lines: list[str]) -> None:
    assert folded(line, 28).splitlines() == lines
    assert folded(line, 28).split() == line.split()
