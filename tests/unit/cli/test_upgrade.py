"""The command ``upgrade``: which steps it does, when it asks, and its exit status. Kafka and Spark are stood in for."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from streamplan.cli import main, upgrade
from streamplan.errors import Refused
from streamplan.maintenance.upgrade_plan import Comparison, Stage, StoreComparison, UpgradePlan


class Upgrades:
    """Stands in for :class:`streamplan.maintenance.upgrade.Upgrader`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.done: list[str] = []
        self.named: dict[str, Any] = {}

    def observe(self) -> UpgradePlan:
        return UpgradePlan("orders", "new", "old", self.stage, {"orders": 7}, {"paid": "new-staging-paid"})

    def build(self, spark: Any) -> Comparison:
        self.done.append("build")
        return Comparison((StoreComparison("totals", equal=3, is_same=True),), False)

    def switch(self, spark: Any, *, accept_differences: bool) -> Comparison | None:
        self.done.append(f"switch {accept_differences}")
        return None


@pytest.fixture
def upgrades(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Upgrades:
    made = Upgrades(getattr(request, "param", Stage.NOT_BEGUN))
    monkeypatch.setattr("streamplan.maintenance.upgrade.Upgrader", lambda *_, **named: made.named.update(named) or made)
    monkeypatch.setattr("streamplan.spark.session.local_session", lambda name, **_: nullcontext())
    monkeypatch.setattr("streamplan.local.jars.require", lambda *_: Path("nowhere"))
    return made


def test_the_plan_alone(upgrades: Upgrades, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "orders", "plan"]) == 0
    said = capsys.readouterr().out
    assert "Application new takes over from old (pipeline orders)." in said
    assert "orders: at most 7 records are to be read" in said
    assert "what it writes to paid goes to new-staging-paid until it takes over" in said
    assert upgrades.done == []


def test_a_build_asks_nobody(upgrades: Upgrades, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "orders", "build", "--max-offsets", "100"]) == 0
    assert upgrades.named == {"max_offsets": 100}
    assert "store totals: 3 keys are equal, 0 differ" in capsys.readouterr().out
    assert upgrades.done == ["build"]


def test_a_switch_needs_a_person_who_agrees(
    upgrades: Upgrades, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upgrade", "orders", "switch"]) == 78
    assert "expected a person at a terminal who agrees, or --yes, observed neither" in capsys.readouterr().err
    monkeypatch.setattr(upgrade, "is_confirmed", lambda *_, **__: False)
    assert main(["upgrade", "orders"]) == 78
    assert upgrades.done == ["build"]


def test_both_steps(upgrades: Upgrades) -> None:
    assert main(["upgrade", "orders", "--yes", "--accept-differences"]) == 0
    assert upgrades.done == ["build", "switch True"]


@pytest.mark.parametrize("upgrades", [Stage.DONE], indirect=True)
def test_where_it_has_taken_over_nothing_is_done(upgrades: Upgrades, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "orders", "--yes"]) == 0
    assert "Nothing to do: new has taken over from old" in capsys.readouterr().out
    assert upgrades.done == []


@pytest.mark.parametrize("step", ["build", "switch"])
def test_spark_is_not_started_while_the_new_application_runs(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def require_stopped(*_: Any, **__: Any) -> None:
        begun.append("looked")
        raise Refused("the upgrade of orders", expected="application new stopped", observed="it runs")

    def started(*_: Any, **__: Any) -> Any:
        begun.append("Spark")
        raise AssertionError

    plan = UpgradePlan("orders", "new", "old", Stage.NOT_BEGUN, {"orders": 7}, {})
    upgrader = "streamplan.maintenance.upgrade.Upgrader"
    monkeypatch.setattr(f"{upgrader}._stage", lambda self: Stage.NOT_BEGUN)
    monkeypatch.setattr(f"{upgrader}.observe", lambda self: plan)
    monkeypatch.setattr(f"{upgrader}._old_id", "old")
    monkeypatch.setattr("streamplan.maintenance.upgrade.require_stopped", require_stopped)
    monkeypatch.setattr("streamplan.local.jars.require", lambda *_: Path("nowhere"))
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", started)
    assert main(["upgrade", "orders", step, "--yes"]) == 78
    assert "observed it runs" in capsys.readouterr().err
    assert begun == ["looked"]
