from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from streamplan.model.status import AggregatorState, AggregatorStatus, MicroBatchMeasures, Restoration
from streamplan.reports.status import read_status
from streamplan.spark import status as heartbeat
from streamplan.spark.status import Heartbeat


def said(file: Path) -> AggregatorStatus:
    status = read_status(file)
    assert status is not None
    return status


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "orders" / "aggregator.json"


def test_the_life_of_an_aggregator(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.0)
    with Heartbeat(file) as heart:
        assert said(file).state is AggregatorState.STARTING
        heart.record_restoration(1, Restoration(500, 2000))
        assert said(file).restorations == {1: Restoration(500, 2000)}
        assert said(file).state is AggregatorState.STARTING
        heart.beat()
        first = said(file)
        assert (first.state, first.pid, first.host) == (AggregatorState.RUNNING, os.getpid(), socket.gethostname())
        heart.record(1, 42)
        heart.measures[1] = MicroBatchMeasures(42, 7, 0.5, 0.25, 2, 1024, 9, 1)
        heart.beat()
        assert said(file).measures == {1: MicroBatchMeasures(42, 7, 0.5, 0.25, 2, 1024, 9, 1)}
        assert said(file).started <= first.at
        assert said(file).batches[1].id == 42
        assert said(file).at >= first.at
        heart.announce_stop()
        assert said(file).state is AggregatorState.STOPPED
    assert said(file).state is AggregatorState.STOPPED


def test_between_two_beats_nothing_is_written(file: Path) -> None:
    with Heartbeat(file) as heart:
        heart.beat()
        file.unlink()
        heart.beat()
        assert not file.exists()


@pytest.mark.parametrize(("told_to_stop", "state"), [(False, AggregatorState.FAILED), (True, AggregatorState.STOPPED)])
def test_a_failure(file: Path, told_to_stop: bool, state: AggregatorState) -> None:
    heart = Heartbeat(file)
    if told_to_stop:
        heart.stop.set()
    with pytest.raises(RuntimeError), heart:
        raise RuntimeError
    assert said(file).state is state


def test_without_a_place_for_it_the_aggregator_goes_on(tmp_path: Path) -> None:
    (tmp_path / "reports").touch()
    lines: list[str] = []
    with Heartbeat(tmp_path / "reports" / "aggregator.json", report=lines.append) as heart:
        heart.beat()
    assert lines
    assert all(line.startswith("no heartbeat: ") for line in lines)
    with Heartbeat() as heart:
        heart.beat()
