"""The producer's command line, progress and pace: no broker, no clock but the test's own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from streamplan.errors import Refused, StreamplanError
from streamplan.jobs import producer as job
from streamplan.kafka.test_data import Pace, Produced
from streamplan.model.pipeline import TestData, WrongTestData
from streamplan.pipelines.invoices import PIPELINE as INVOICES
from streamplan.pipelines.orders import PIPELINE
from streamplan.programs import ExitStatus
from streamplan.serdes.json import Json
from streamplan.testing.declared_schemas import DeclaredSchemas

PROJECT = Path(__file__).resolve().parents[3]
COMMON = ["--pipeline", "orders", "--bootstrap-servers", "h:1"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "one of the arguments --records --until --endless is required"),
        (["--records", "1", "--endless"], "not allowed with argument"),
        (["--records", "-4"], "argument --records: expected a whole number, 0 or more, observed '-4'"),
        (["--until", "1.5"], "argument --until: expected a whole number, 0 or more, observed '1.5'"),
        (["--endless", "--rate", "fast"], "argument --rate: expected a whole number, 0 or more, observed 'fast'"),
    ],
)
def test_wrong_arguments_say_what_was_expected(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        job.arguments(COMMON + words)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "status"),
    [(Refused("fenced"), ExitStatus.REFUSED), (StreamplanError("brokers away"), ExitStatus.FAILED)],
    ids=["refused", "failed"],
)
def test_only_a_refusal_forbids_the_retry(
    raised: StreamplanError, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def produce(*_: Any, **__: Any) -> Produced:
        raise raised

    monkeypatch.setattr(job, "produce", produce)
    assert run(monkeypatch, "--records", "1") == status
    assert capsys.readouterr().err == f"error: {raised}\n"


def test_an_unknown_pipeline_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(job, "stop_on_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["producer.py", "--pipeline", "x", "--bootstrap-servers", "h:1", "--endless"])
    assert job.main() == 78
    assert "pipeline 'x': expected orders" in capsys.readouterr().err


def test_the_summary_tells_records_time_rate_and_partitions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "produce", lambda *_, **__: Produced(10, 3010, 1.5, {1: 1400, 0: 1600}))
    assert run(monkeypatch, "--records", "3000") == 0
    assert capsys.readouterr().out == (
        "done: 3,000 records, numbers 10 to 3,010 (not included), in 1.5 s, 2,000 a second; "
        "by partition: 1,600 in 0, 1,400 in 1\n"
    )


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """``main`` without its hold on the signals of the test's process."""
    monkeypatch.setattr(job, "stop_on_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["producer.py", *COMMON, *words])
    return job.main()


def test_progress_is_of_this_run_and_at_most_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    progress = job.Progress(clock=lambda: now)
    progress(5_000, 9_000)  # where the topic ended: nothing is written yet
    now = 100.9
    progress(5_900, 9_000)
    now = 102.0
    progress(6_000, 9_000)
    now = 102.9
    progress(6_900, 9_000)
    assert capsys.readouterr().out == "record 6,000, 500 a second, 25% of 4,000, 6 s left\n"


def test_progress_without_an_end_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    progress = job.Progress(clock=lambda: now)
    progress(0, None)
    now = 104.0
    progress(4_000, None)
    assert capsys.readouterr().out == "record 4,000, 1,000 a second\n"


def test_the_pace_follows_the_clock_and_forgives_what_was_lost() -> None:
    now = 100.0
    pace = Pace(1000, clock=lambda: now)
    assert pace.delay(200) == pytest.approx(0.2)
    now = 100.15  # writing took a while: that is part of the pace
    assert pace.delay(200) == pytest.approx(0.25)
    now = 200.0  # a long halt is not made up for with a burst
    assert pace.delay(200) == 0.0
    assert pace.delay(200) == pytest.approx(0.2)
    assert Pace(0).delay(50_000) == 0.0


def test_the_pace_does_not_drift() -> None:
    now = 0.0
    pace = Pace(700, clock=lambda: now)
    for _ in range(1000):  # each transaction takes 30 ms, then the delay is waited for
        now += 0.03
        now += pace.delay(140)
    # One transaction's own time, once: the pace begins when the first of them is done.
    assert now == pytest.approx(1000 * 140 / 700 + 0.03)


_SIGNALLED = """
import os, sys
from streamplan.jobs.producer import stop_on_signals
stop = stop_on_signals()
with stop._cond:  # as for a moment within every wait
    os.kill(os.getpid(), int(sys.argv[1]))
sys.exit(0 if stop.wait(30) else 3)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_the_worst_moment_stops_and_does_not_hang(number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}"}
    argv = [sys.executable, "-c", _SIGNALLED, str(int(number))]
    done = subprocess.run(argv, env=environment, check=False, timeout=60)
    assert done.returncode == 0


def test_a_key_with_more_digits_than_a_number_may_have_is_not_ours() -> None:
    assert PIPELINE.test_data.number_of("orders", b"k", b'{"Id": "order_' + b"9" * 5000 + b'"}') is None


def test_a_function_finds_the_number_in_a_value_of_another_format() -> None:
    data = TestData(("t",), lambda n: ("t", b"k", b"%d;x" % n), lambda value: value.decode().partition(";")[0])
    assert data.number_of("t", b"k", b"17;x") == 17
    assert data.number_of("t", b"k", b"17;y") is None
    assert data.number_of("t", b"k", b"\xff") is None


def test_the_serde_of_a_topic_writes_fields_and_finds_the_number_in_them() -> None:
    pipeline = INVOICES.with_schemas(DeclaredSchemas.of(INVOICES))
    data, serdes = pipeline.test_data, pipeline.source_serdes
    topic, key, value = data.written(17, serdes)
    fields: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(serdes[topic].declared.text), None)
    assert (fields["number"], fields["total"], value[:5]) == ("invoice_17", Decimal("21.42"), b"\0\0\0\0\1")
    assert data.number_of(topic, key, value, serdes) == 17
    assert data.number_of(topic, b"another customer", value, serdes) is None
    assert data.number_of(topic, key, value[:-1] + b"\2", serdes) is None
    assert data.number_of(topic, key, value[:-1], serdes) is None


def payments_at(moment: object) -> TestData:
    return TestData(("payments",), lambda n: ("payments", b"k", {"id": f"p_{n}", "time": moment}), "id")


def test_the_moments_of_test_data_may_be_texts() -> None:
    serdes = {"payments": Json("id string, time timestamp")}
    data = payments_at("2026-01-01T12:00:01Z")
    written = data.written(7, serdes)
    assert written == ("payments", b"k", b'{"id":"p_7","time":"2026-01-01T12:00:01.000Z"}')
    assert (data.number_of(*written, serdes), data.fault(serdes)) == (7, "")


def test_a_record_that_cannot_be_written_is_refused_with_its_number_and_field() -> None:
    serdes = {"payments": Json("id string, time timestamp")}
    told = "of test_data: time: expected a datetime, or a text as '2026-01-01T12:00:00Z', observed 'noon'"
    data = payments_at("noon")
    with pytest.raises(WrongTestData, match=f"^record 7 {told}$") as refused:
        data.written(7, serdes)
    assert ExitStatus.of(refused.value) is ExitStatus.REFUSED
    assert data.fault(serdes) == f"record 0 {told}"


def test_the_fault_of_record_0_needs_no_registry() -> None:
    assert INVOICES.test_data.fault(INVOICES.source_serdes) == ""
    broken = TestData(("invoices",), lambda n: ("invoices", b"k", {"number": n}), "number")
    assert broken.fault(INVOICES.source_serdes).startswith("record 0 of test_data: ")
    failing = TestData(("orders",), lambda n: {}[n], "Id")
    assert failing.fault(PIPELINE.source_serdes) == "record 0 of test_data: KeyError: 0"


def test_what_a_schema_of_others_has_written_is_no_test_data() -> None:
    data, declared = INVOICES.test_data, INVOICES.source_serdes["invoices"].declared
    ours = INVOICES.with_schemas(DeclaredSchemas((declared,))).source_serdes
    theirs = INVOICES.with_schemas(DeclaredSchemas((declared._replace(text=declared.text + "\n"),))).source_serdes
    written = data.written(17, ours)
    assert data.number_of(*written, ours) == 17
    assert data.number_of(*written, theirs) is None  # it can be read, and ours is not registered
