"""The command ``redrive``: what it shows, when it asks, and its exit status. Kafka and Spark are stood in for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.cli import main
from streamplan.errors import Refused
from streamplan.maintenance.redrive import Redriver
from streamplan.maintenance.redrive_plan import Choice, Group, Judged, Letter, RedrivePlan, Verdict
from streamplan.model.dead_letters import LetterPlace, Origin


class Redrives:
    """Stands in for :class:`streamplan.maintenance.redrive.Redriver`."""

    def __init__(self, verdict: Verdict) -> None:
        self.groups = (Group("old", verdict, "", 2, ("0@1", "1@4")),)
        self.chosen: list[Choice] = []
        self.applied: list[tuple[RedrivePlan, str]] = []

    def observe(self, redriver: Redriver) -> RedrivePlan:
        self.chosen.append(redriver.choice)
        return RedrivePlan("orders", "orders-aggregator", redriver.choice, self.groups)

    def apply(self, redriver: Redriver, approved: Mapping[str, Any]) -> None:
        self.applied.append((RedrivePlan.read(approved), redriver.by))


@pytest.fixture
def redrives(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Redrives:
    made = Redrives(getattr(request, "param", Verdict.PROCESSED))
    monkeypatch.setattr(Redriver, "observe", lambda self: made.observe(self))
    monkeypatch.setattr(Redriver, "apply", lambda self, approved: made.apply(self, approved))
    monkeypatch.setattr("streamplan.spark.session.local_session", lambda name: nullcontext())
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    return made


def test_without_a_choice_nothing_is_done(redrives: Redrives) -> None:
    with pytest.raises(SystemExit) as usage:
        main(["redrive", "orders"])
    assert usage.value.code == 2
    assert redrives.chosen == []


def test_a_dry_run_shows_the_plan_alone(redrives: Redrives, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redrive", "orders", "--reason", "old", "--dry-run", "--yes"]) == 0
    assert "- 2 × old: processed again (0@1, 1@4)" in capsys.readouterr().out
    assert redrives.chosen == [Choice("old")]
    assert redrives.applied == []


def test_nobody_is_there_to_agree(redrives: Redrives, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redrive", "orders", "--all"]) == 78
    assert "expected a person at a terminal who agrees, or --yes, observed neither" in capsys.readouterr().err
    assert redrives.applied == []


def test_a_person_who_does_not_agree(redrives: Redrives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamplan.cli.operation.is_confirmed", lambda *_, **__: False)
    assert main(["redrive", "orders", "--all"]) == 78
    assert redrives.applied == []


def test_what_was_shown_is_done_in_the_name_of_the_user(redrives: Redrives) -> None:
    assert main(["redrive", "orders", "--letter", "0@1", "--letter", "1@4", "--yes"]) == 0
    ((plan, by),) = redrives.applied
    assert [str(place) for place in plan.choice.places] == ["0@1", "1@4"]
    assert by.startswith("ann@")


@pytest.mark.parametrize("redrives", [Verdict.REJECTED], indirect=True)
def test_where_nothing_can_be_processed_again_nobody_is_asked(redrives: Redrives) -> None:
    assert main(["redrive", "orders", "--all"]) == 0
    assert redrives.applied == []


def test_spark_is_not_started_while_the_application_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a person is told at once needs no JVM."""
    begun: list[str] = []

    def require_stopped(*_: Any, **__: Any) -> None:
        begun.append("looked")
        raise Refused("the re-drive of orders", expected="application orders-aggregator stopped", observed="it runs")

    def started(*_: Any, **__: Any) -> Any:
        begun.append("Spark")
        raise AssertionError

    monkeypatch.setattr("streamplan.maintenance.redrive.resolve_pipeline", lambda pipeline, brokers: pipeline)
    monkeypatch.setattr("streamplan.maintenance.redrive.require_stopped", require_stopped)
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", started)
    assert main(["redrive", "orders", "--all"]) == 78
    assert "observed it runs" in capsys.readouterr().err
    assert begun == ["looked"]


def test_a_dry_run_does_not_ask_whether_the_application_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It only reads."""
    there = SimpleNamespace(names=lambda: ["orders-aggregator-dead-letter"])

    def require_stopped(*_: Any, **__: Any) -> None:
        raise AssertionError

    class Judge:
        def __init__(self, *_: object) -> None: ...

        def judge(self, letters: Sequence[Letter]) -> list[Judged]:
            return [Judged(letter, Verdict.PROCESSED) for letter in letters]

    monkeypatch.setattr("streamplan.maintenance.redrive.resolve_pipeline", lambda pipeline, brokers: pipeline)
    monkeypatch.setattr("streamplan.maintenance.redrive.require_stopped", require_stopped)
    monkeypatch.setattr("streamplan.maintenance.redrive.refuse_unfinished_repartition", lambda brokers, pipeline: None)
    monkeypatch.setattr("streamplan.maintenance.redrive.KafkaCluster", lambda brokers: there)
    monkeypatch.setattr(
        "streamplan.maintenance.redrive.read_letters",
        lambda cluster, topic: [Letter(LetterPlace(0, 1), 0, Origin("orders", 0, 7), "old")],
    )
    monkeypatch.setattr("streamplan.maintenance.redrive.Judge", Judge)
    monkeypatch.setattr("streamplan.spark.session.local_session", lambda name: nullcontext())
    assert main(["redrive", "orders", "--all", "--dry-run"]) == 0
    assert "- 1 × old: processed again (0@1)" in capsys.readouterr().out
