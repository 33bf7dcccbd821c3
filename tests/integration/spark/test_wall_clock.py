"""Windows that close by the wall clock, while no record comes: ``OnWindowClose(idle=…)``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.windows import OnWindowClose, SessionWindows, TimeWindows
from streamplan.spark.recount.recount import recount

from tests.support.checkpoints import checkpoint_of
from tests.support.running_tried import kill_when_written, running
from tests.support.soak import soak
from tests.support.tried_topology import EPOCH, SALE, Tried, sale
from tests.support.waiting import eventually

WINDOWS = TimeWindows("2 seconds", grace="1 second")

Result = tuple[bytes, int]
"""A key with its window in bytes, and the count."""


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=False)
    yield made
    made.delete_topics()


def results(tried: Tried) -> list[Result]:
    return sorted((m.key(), int.from_bytes(m.value(), "big")) for m in tried.read(tried.named("out")))


def of_window(key: bytes, start_ms: int, count: int) -> Result:
    return key + start_ms.to_bytes(8, "big"), count


def sell_now(tried: Tried, key: str) -> Result:
    """Produce a record of this moment. Return the result of its window."""
    second = time.time_ns() // 1_000_000_000 - EPOCH // 1000
    tried.produce("sales", [(key, sale("shop", 1), second)])
    return of_window(key.encode(), EPOCH + second // 2 * 2000, 1)


def begin_an_hour_later(checkpoint: Path) -> None:
    """As where the clock is an hour behind the one of before: Spark counts ticks from the time in a file."""
    for file in checkpoint.glob("sources/*/0"):
        version, _, begun = file.read_text().partition("\n")
        if begun.isdigit():
            file.write_text(f"{version}\n{int(begun) + 3_600_000}")
            file.with_name(".0.crc").unlink(missing_ok=True)
            return
    raise AssertionError("the checkpoint has no source of ticks")


@pytest.mark.parametrize("restored", [False, *soak([True])], ids=["checkpoint", "restored"])
def test_an_idle_stream_closes_its_windows_once(tried: Tried, monkeypatch: pytest.MonkeyPatch, restored: bool) -> None:
    """The application dies when a result by the clock is committed to Kafka, and not by Spark. Then it goes on."""
    minutes = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key().windowed_by(WINDOWS)
    counts = minutes.emit_strategy(OnWindowClose(idle="2 seconds")).count(store="counts")
    counts.to_stream().to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [(key, sale("shop", 1), second) for key, second in (("x", 0), ("x", 1), ("y", 1))])
    first = [of_window(b"x", EPOCH, 2), of_window(b"y", EPOCH, 1)]
    failures: list[Exception] = []
    with monkeypatch.context() as patched:
        kill_when_written(patched, 2)  # the records, which write the changelog, and what the clock closes
        with running(tried, failures):
            eventually(lambda: bool(failures), "the kill", 120, evidence=lambda: "\n".join(tried.lines))
    assert "Killed" in str(failures[0])
    assert results(tried) == first

    if restored:
        shutil.rmtree(tried.checkpoints)
    else:
        begin_an_hour_later(checkpoint_of(tried.checkpoints, tried.name, 0))
    tried.produce("sales", [("x", sale("shop", 1), 1), ("y", sale("shop", 1), 0)])  # their windows are closed
    later, failures = sell_now(tried, "x"), []
    with running(tried, failures):
        eventually(lambda: len(results(tried)) > 2 or bool(failures), "a further result", 120)
    assert failures == []
    assert results(tried) == sorted([*first, later])


@pytest.mark.soak
def test_sessions_behind_a_repartition_topic_close_and_are_recounted(tried: Tried) -> None:
    """The totals are verified as long as no record was late by the clock alone. Then it cannot be decided."""
    shops = tried.topology.stream(tried.named("sales"), value=SALE).group_by("shop", name="by-shop")
    sessions = shops.windowed_by(SessionWindows("2 seconds", grace="1 second"))
    counts = sessions.emit_strategy(OnWindowClose(idle="3 seconds")).count(store="counts")
    counts.to_stream().to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("k", sale(shop, 1), second) for shop, second in (("x", 0), ("x", 1), ("y", 1))])
    brokers, failures = Brokers(tried.bootstrap_servers), list[Exception]()

    def of_session(key: bytes, start: int, end: int, count: int) -> Result:
        times = (EPOCH + 1000 * second for second in (end, start))
        return key + b"".join(time.to_bytes(8, "big") for time in times), count

    first = [of_session(b"x", 0, 1, 2), of_session(b"y", 1, 1, 1)]
    with running(tried, failures):
        eventually(lambda: len(results(tried)) == 2 or bool(failures), "the results", 120)
    assert failures == []
    assert results(tried) == first
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []
    assert any(row.subject.startswith(tried.named("out")) and row.expected == 2 for row in rows)

    tried.produce("sales", [("k", sale("x", 1), 2)])
    tried.drain()
    assert results(tried) == first
    with pytest.raises(CouldNotLook, match="the wall clock has closed windows"):
        recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
