"""What a full disk, a crash or a person has left of a file: readers pass over it or name it, and writers go on."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from streamplan import processes
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import CheckResult, Observation, Outcome, run_check
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.checks.lag import CHECK as LAG
from streamplan.checks.totals import CHECK as TOTALS
from streamplan.errors import CouldNotLook
from streamplan.files import ReportPaths, append_bounded
from streamplan.model.status import AggregatorState, AggregatorStatus, TaskMigration
from streamplan.observability.sampler import Sampler
from streamplan.registry import pipeline_named
from streamplan.reports.check_context import check_context, read_state_store
from streamplan.reports.observations import RecordedObservations, reusable_recount
from streamplan.reports.results import has_history, last_pass, read_history, read_latest, write_result
from streamplan.reports.sink_offsets import read_sink_offsets
from streamplan.reports.status import append_migrations, migrations_file, read_migrations, read_status, write_status
from streamplan.reports.verified_sqlite import SqliteVerifiedStore

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = pipeline_named("orders")
PASSED = CheckResult("orders", "totals", Outcome.PASSED, "all", "2026-01-01T00:00:00+00:00", (Observation("a", 1, 1),))
STATUS = AggregatorStatus(AggregatorState.RUNNING, 4711, "host-a", "2026-01-01T00:00:00+00:00", {})

DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut short": lambda path: path.write_bytes(b'{"pipeline": "orders", "chec'),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "other bytes": lambda path: path.write_bytes(b"\xff\xfe{\x00}"),
    "another value": lambda path: path.write_bytes(b"[17]"),
    "null": lambda path: path.write_bytes(b"null"),
    "another object": lambda path: path.write_bytes(b'{"at": 12}'),
    "deep": lambda path: path.write_bytes(b"[" * 200_000),
    "a directory": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def damaged(path: Path, damage: Callable[[Path], Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    damage(path)
    return path


@every_damage
def test_a_result_that_cannot_be_read_is_a_check_that_could_not_look(tmp_path: Path, damage: Any) -> None:
    write_result(tmp_path, replace(PASSED, check="lag"))
    path = damaged(ReportPaths(tmp_path, "orders").check_result("totals"), damage)
    latest = read_latest(tmp_path, "orders")
    assert latest["lag"].outcome is Outcome.PASSED
    assert latest["totals"].outcome is Outcome.COULD_NOT_LOOK
    assert str(path) in latest["totals"].reason


def test_a_directory_of_reports_that_is_a_file_is_a_check_that_could_not_look(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("")
    assert {result.outcome for result in read_latest(tmp_path, "orders").values()} == {Outcome.COULD_NOT_LOOK}


@pytest.mark.parametrize(
    "torn", [b'{"pipeline": "orders", "check": "totals", "outc', b"\0" * 300, b"\xff\xc3", b"[]", b"{}"]
)
@pytest.mark.parametrize("ended", [True, False])
def test_a_torn_line_costs_itself_and_no_other_line(
    tmp_path: Path, torn: bytes, ended: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The pass before it and the one behind it are read, also where the disk was full in between."""
    write_result(tmp_path, PASSED)
    with ReportPaths(tmp_path, "orders").history.open("ab") as file:
        file.write(torn + b"\n" * ended)
    later = replace(PASSED, at="2026-01-01T00:10:00+00:00")
    write_result(tmp_path, later)
    with caplog.at_level(logging.WARNING):
        assert [result.at for result in read_history(tmp_path, "orders")] == [PASSED.at, later.at]
    assert "history.jsonl: lines that cannot be read and are passed over: 1" in caplog.text
    assert last_pass("totals", "orders", tmp_path) == later.at


@pytest.mark.parametrize("seed", range(50))
def test_every_whole_line_is_read_wherever_the_others_were_cut(tmp_path: Path, seed: int) -> None:
    """Plain lines, each of which may be cut at any byte, as writes to a full disk are."""
    random, whole = Random(seed), []
    file = tmp_path / "lines.jsonl"
    for number in range(40):
        line = json.dumps({"number": number, "text": "Größe" * random.randrange(4)}) + "\n"
        if random.random() < 0.3:
            with file.open("ab") as raw:
                raw.write(line.encode()[: random.randrange(1, len(line))])
        else:
            append_bounded(file, line, 1_000_000)
            whole.append(line.strip())
    # What was cut right before its end is whole in all but the end.
    found = file.read_text(errors="replace").splitlines()
    assert [line for line in found if line in whole] == whole


def test_a_history_that_cannot_be_opened_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    ReportPaths(tmp_path, "orders").history.mkdir(parents=True)
    with pytest.raises(OSError, match=r"history\.jsonl"):
        last_pass("totals", "orders", tmp_path)
    assert has_history(tmp_path, "orders")


def test_a_line_of_the_history_is_bounded_whatever_a_check_finds(tmp_path: Path) -> None:
    rows = tuple(Observation(f"row {number}", 1, 2) for number in range(100_000))
    write_result(tmp_path, replace(PASSED, outcome=Outcome.FAILED, observations=rows))
    assert ReportPaths(tmp_path, "orders").history.stat().st_size < 1_000_000
    assert len(read_latest(tmp_path, "orders")["totals"].observations) == 100_000


@every_damage
def test_a_status_that_cannot_be_read_is_a_red_row_of_lag_and_holds_up_no_other_check(
    tmp_path: Path, damage: Any
) -> None:
    path = damaged(ReportPaths(tmp_path, "orders").aggregator_status, damage)
    with pytest.raises(CouldNotLook, match=r"aggregator\.json"):
        read_status(path)
    application, cluster = application_of(ORDERS), FakeCluster()
    context = check_context(application, tmp_path)
    FakeApplication(cluster, ORDERS).order(0)
    lag = replace(LAG, deadline=Deadline(seconds=0.0, interval=0.0)).configure(context)
    result = run_check(application, lag, cluster)
    assert str(path) in result.reason
    assert result.observations[0].subject == "the status of the aggregator"


def test_a_status_is_written_over_what_cannot_be_read(tmp_path: Path) -> None:
    path = damaged(tmp_path / "aggregator.json", DAMAGES["cut short"])
    write_status(path, STATUS)
    assert read_status(path) == STATUS


@every_damage
def test_migrations_pass_over_what_cannot_be_read(tmp_path: Path, damage: Any) -> None:
    status = tmp_path / "aggregator.json"
    migration = TaskMigration("2026-01-01T00:00:00+00:00", "1_0", "a", "b", 4711)
    append_migrations(status, [migration])
    migrations_file(status).rename(tmp_path / "tasks.1.jsonl")
    damaged(migrations_file(status), damage)
    assert read_migrations(status, last=5) == [migration]
    if migrations_file(status).is_file():
        append_migrations(status, [migration])
        assert read_migrations(status, last=5) == [migration, migration]


@every_damage
def test_what_a_job_has_written_is_named_where_it_cannot_be_read(tmp_path: Path, damage: Any) -> None:
    paths = ReportPaths(tmp_path, "orders")
    application, cluster = application_of(ORDERS), FakeCluster()
    recount = damaged(paths.recount("orders_health"), damage)
    with pytest.raises(CouldNotLook, match=r"orders_health\.json"):
        RecordedObservations.read(recount)
    assert reusable_recount(recount, application, cluster) is None
    damaged(paths.state_store, damage)
    with pytest.raises(CouldNotLook, match=r"totals\.json"):
        read_state_store(tmp_path, "orders")
    damaged(paths.sink_offsets, damage)
    with pytest.raises(CouldNotLook, match=r"sinks\.json"):
        read_sink_offsets(paths.sink_offsets, cluster)


@every_damage
def test_the_entry_of_a_process_is_named_where_it_cannot_be_read(tmp_path: Path, damage: Any) -> None:
    damaged(tmp_path / "orders-aggregator.json", damage)
    with pytest.raises(CouldNotLook, match=r"orders-aggregator\.json.*remove the file"):
        processes.registered(tmp_path)


@pytest.mark.parametrize("cut", ["{", "null", "[]", '{"topics": {}}', '{"topics": {}, "source": 7}'])
def test_a_verified_cut_that_cannot_be_read_is_named(tmp_path: Path, cut: str) -> None:
    path = ReportPaths(tmp_path, "orders").verified_store
    store = SqliteVerifiedStore(path)
    assert store.cut() is None
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("insert into cut values (?)", (cut,))
    with pytest.raises(CouldNotLook, match=r"totals\.sqlite"):
        store.cut()
    result = run_check(application_of(ORDERS), replace(TOTALS, verified=store), orders_cluster())
    assert result.outcome is Outcome.COULD_NOT_LOOK


@pytest.mark.parametrize("name", ["other bytes", "a directory", "a link to itself"])
def test_a_store_that_is_no_database_is_named(tmp_path: Path, name: str) -> None:
    path = damaged(ReportPaths(tmp_path, "orders").verified_store, DAMAGES[name])
    with pytest.raises(CouldNotLook, match=r"totals\.sqlite"):
        SqliteVerifiedStore(path).cut()


def test_a_snapshot_is_taken_whatever_is_wrong_with_the_reports(tmp_path: Path) -> None:
    """The exporter and the Streams page show the other pipelines, and what Kafka says of this one."""
    paths = ReportPaths(tmp_path, "orders")
    for path in (paths.check_result("totals"), paths.aggregator_status, migrations_file(paths.aggregator_status)):
        damaged(path, DAMAGES["cut short"])
    damaged(paths.verified_store, DAMAGES["other bytes"])
    snapshot = Sampler(lambda: application_of(ORDERS), "orders", orders_cluster(), tmp_path).sample()
    assert [check.outcome for check in snapshot.checks] == [Outcome.COULD_NOT_LOOK]
    assert snapshot.verified is None
    assert [task.lag for task in snapshot.tasks]


def orders_cluster() -> FakeCluster:
    cluster = FakeCluster()
    FakeApplication(cluster, ORDERS).order(0)
    return cluster
