"""A reset on real brokers: of exactly one application, not while it runs, and right when it died halfway."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from streamplan import processes
from streamplan.checks import check_named
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Outcome, run_check
from streamplan.cli import main
from streamplan.errors import Refused, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.maintenance import reset as resetting
from streamplan.maintenance.reset import Resetter
from streamplan.maintenance.reset_plan import ResetPlan
from streamplan.reports.check_context import check_context
from streamplan.reports.results import state_files
from streamplan.settings import Settings

from tests.support.records import read_committed
from tests.support.transactional_application import TransactionalApplication

_numbers = itertools.count()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STREAMPLAN_HOME", str(tmp_path))
    return Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})


@pytest.fixture
def name() -> str:
    return f"my-app-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def app(bootstrap_servers: str, name: str, settings: Settings) -> Iterator[TransactionalApplication]:
    application = worked(bootstrap_servers, name, settings)
    yield application
    application.close()


@pytest.fixture
def other(bootstrap_servers: str, name: str, settings: Settings) -> Iterator[TransactionalApplication]:
    """Its names begin with those of ``app``."""
    application = worked(bootstrap_servers, f"{name}-v1", settings)
    yield application
    application.close()


def worked(bootstrap_servers: str, name: str, settings: Settings) -> TransactionalApplication:
    """An application that has counted 100 orders and dead-lettered one, with all that this leaves."""
    application = TransactionalApplication(bootstrap_servers, name=name)
    application.create_topics()
    application.order_many(0, 100)
    application.produce(application.orders, b"order_bad", b"not JSON")
    application.drain()
    Path(settings.checkpoints, name, "1", "offsets").mkdir(parents=True)
    Path(settings.checkpoints, name, "1", "offsets", "0").write_text("v1")
    assert totals(application, settings) is Outcome.PASSED
    return application


def totals(app: TransactionalApplication, settings: Settings) -> Outcome:
    subject = application_of(app.pipeline)
    check = check_named("totals").configure(check_context(subject, settings.reports))
    return run_check(subject, check, app.cluster).outcome


def plan_of(app: TransactionalApplication, settings: Settings) -> ResetPlan:
    return Resetter(app.pipeline, Brokers(app.bootstrap_servers), settings).observe()


def reset(app: TransactionalApplication, settings: Settings, plan: ResetPlan | None = None) -> list[str]:
    said: list[str] = []
    plan = plan or plan_of(app, settings)
    Resetter(app.pipeline, Brokers(app.bootstrap_servers), settings, said.append).apply(plan.written())
    return said


def again(app: TransactionalApplication, settings: Settings) -> TransactionalApplication:
    """The same application, started anew: it begins where the group says, and that is at the beginning."""
    assert app.cluster.committed_offsets(app.group) == {}
    fresh = TransactionalApplication(app.bootstrap_servers, name=app.group)
    fresh.create_topics()
    fresh.drain()
    return fresh


def test_it_begins_again_and_the_totals_are_those_of_one_reading(
    app: TransactionalApplication, settings: Settings
) -> None:
    plan = plan_of(app, settings)
    assert plan.topics.keys() == {app.repartition, app.changelog, app.dead_letters}
    assert all(100 <= plan.topics[topic] <= 110 for topic in (app.repartition, app.changelog))
    assert set(plan.positions) == {f"{topic}-{n}" for topic in (app.orders, app.repartition) for n in (0, 1)}
    assert plan.checkpoints == f"{settings.checkpoints}/{app.group}"
    assert plan.files == (f"{app.pipeline.name}/totals.sqlite",)
    assert plan.kept == (app.orders,)
    assert f"topic `{app.changelog}`: at most {plan.topics[app.changelog]} records" in plan.text
    assert ResetPlan.read(plan.written()) == plan
    assert ReportPaths(settings.reports, app.pipeline.name).verified_store.exists()  # a plan deletes nothing

    said = reset(app, settings, plan)
    assert any(f"+ {app.changelog} (changelog, 2 partitions)" in line for line in said)
    for topic in (app.repartition, app.changelog, app.dead_letters):
        assert read_committed(app.bootstrap_servers, topic) == []
    assert len(read_committed(app.bootstrap_servers, app.orders)) == 101
    assert not Path(settings.checkpoints, app.group).exists()
    assert state_files(settings.reports, app.pipeline.name) == []
    assert plan_of(app, settings).empty

    fresh = again(app, settings)
    assert fresh.totals == {b"0": 50, b"1": 50}
    assert len(read_committed(app.bootstrap_servers, app.dead_letters)) == 1
    assert totals(fresh, settings) is Outcome.PASSED


def test_an_application_whose_name_begins_alike_is_left_alone(
    app: TransactionalApplication, other: TransactionalApplication, settings: Settings
) -> None:
    assert other.group == f"{app.group}-v1"
    before = {
        topic: other.cluster.offsets(topic)
        for topic in (other.orders, other.repartition, other.changelog, other.dead_letters)
    }
    positions = other.cluster.committed_offsets(other.group)
    ids = other.cluster.topic_ids(list(before))
    text = plan_of(app, settings).text
    assert "-v1" not in text
    reset(app, settings)
    assert {topic: other.cluster.offsets(topic) for topic in before} == before
    assert other.cluster.committed_offsets(other.group) == positions
    assert other.cluster.topic_ids(list(before)) == ids
    assert Path(settings.checkpoints, other.group, "1", "offsets", "0").exists()
    assert totals(other, settings) is Outcome.PASSED


STEPS = ("fence", "delete_group", "delete_topics", "checkpoints.delete", "apply_topics")


# What is before any other step is behind the one before it.
@pytest.mark.parametrize(("when", "step"), [("before", STEPS[0]), *(("after", step) for step in STEPS)])
def test_died_halfway_and_run_again(
    app: TransactionalApplication, settings: Settings, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    plan = plan_of(app, settings)
    owner = resetting.checkpoints if "." in step else resetting
    done = getattr(owner, attribute := step.rpartition(".")[2])

    def dies(*arguments: object, **more: object) -> None:
        if when == "after":
            done(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, dies)
        with pytest.raises(KeyboardInterrupt):
            reset(app, settings, plan)
    reset(app, settings, plan)
    assert plan_of(app, settings).empty
    assert again(app, settings).totals == {b"0": 50, b"1": 50}


def refused(app: TransactionalApplication, settings: Settings, reason: str) -> None:
    plan = ResetPlan(app.pipeline.name, app.group, {}, {}, "", (), ())
    for attempt in (plan_of, lambda app, settings: reset(app, settings, plan)):
        with pytest.raises(Refused, match=rf"(?s){app.group} stopped.*{reason}.*Nothing was changed"):
            attempt(app, settings)
    assert len(read_committed(app.bootstrap_servers, app.changelog)) == 100


def test_refused_while_a_run_is_active(app: TransactionalApplication, settings: Settings) -> None:
    run = f"{app.pipeline.name}_aggregator"
    reset = Resetter(app.pipeline, Brokers(app.bootstrap_servers), settings, is_active=lambda dag_id: dag_id == run)
    with pytest.raises(Refused, match=f"an active run of {run}"):
        reset.observe()


def test_refused_while_a_registered_aggregator_lives(app: TransactionalApplication, settings: Settings) -> None:
    job = f"{app.pipeline.name}-aggregator"
    log = settings.logs / "job.log"
    process = processes.start(job, ["sleep", "60"], env=os.environ, log_file=log, run_dir=settings.run)
    try:
        refused(app, settings, f"the process {job}, pid {process.pid}")
    finally:
        processes.stop(process)
    reset(app, settings)


def test_refused_while_the_group_has_members(app: TransactionalApplication, settings: Settings) -> None:
    member = Consumer({"bootstrap.servers": app.bootstrap_servers, "group.id": app.group, "client.id": "of-the-jvm"})
    member.subscribe([app.orders])
    try:
        deadline = time.monotonic() + 300
        while not member.assignment():
            assert time.monotonic() < deadline
            member.poll(0.1)
        refused(app, settings, f"a member of consumer group {app.group}: of-the-jvm")
    finally:
        member.close()


def test_an_aggregator_that_was_killed_is_waited_for(
    app: TransactionalApplication, settings: Settings, tmp_path: Path
) -> None:
    """The brokers keep it as a member until its session is over."""
    joined = tmp_path / "joined"
    code = (
        f"import sys, time; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\n"
        "from streamplan.kafka.brokers import Brokers\n"
        "from streamplan.kafka.membership import GroupMember\n"
        f"member = GroupMember(Brokers({app.bootstrap_servers!r}), {app.group!r}, [{app.orders!r}], 'a-host:1:x')\n"
        "with member:\n"
        "    member.await_join(print)\n"
        f"    Path({str(joined)!r}).touch()\n"
        "    time.sleep(600)\n"
    )
    aggregator = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 300
        while not joined.exists():
            assert time.monotonic() < deadline
            assert aggregator.poll() is None
            time.sleep(0.1)
        with pytest.raises(Refused, match=f"a member of consumer group {app.group}: streamplan:a-host:1:x on"):
            plan_of(app, settings)
    finally:
        aggregator.kill()
        aggregator.wait(300)
    said: list[str] = []
    plan = Resetter(app.pipeline, Brokers(app.bootstrap_servers), settings, said.append).observe()
    assert not plan.empty
    assert "until streamplan:a-host:1:x on" in said[0]


def test_refused_when_there_is_more_than_was_approved(app: TransactionalApplication, settings: Settings) -> None:
    plan = plan_of(app, settings)
    app.order_many(100, 110)
    app.drain()
    with pytest.raises(Refused, match=rf"(?s)approved.*{app.changelog} has .* records, not .*Nothing was deleted"):
        reset(app, settings, plan)
    assert len(read_committed(app.bootstrap_servers, app.changelog)) == 110


def test_a_zombie_that_wakes_after_the_reset_is_fenced(app: TransactionalApplication, settings: Settings) -> None:
    """Its open transaction would commit a position of the life before."""
    zombie = Producer(
        {"bootstrap.servers": app.bootstrap_servers, "transactional.id": f"{app.group}-0_0", "log_level": 2}
    )
    zombie.init_transactions(120)
    zombie.begin_transaction()
    zombie.produce(app.repartition, b"late", b"0", partition=0)
    assert zombie.flush(120) == 0
    reset(app, settings)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(120)
    assert read_committed(app.bootstrap_servers, app.repartition) == []
    assert again(app, settings).totals == {b"0": 50, b"1": 50}


def test_an_application_that_never_ran(bootstrap_servers: str, name: str, settings: Settings) -> None:
    nobody = TransactionalApplication(bootstrap_servers, name=name)
    assert plan_of(nobody, settings).empty
    reset(nobody, settings)
    nobody.close()


def test_by_command(
    app: TransactionalApplication,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("streamplan.registry.pipeline_named", {app.pipeline.name: app.pipeline}.__getitem__)
    command = ["reset", app.pipeline.name, "--bootstrap-servers", app.bootstrap_servers]
    assert main(command) == 78
    printed = capsys.readouterr()
    assert f"topic {app.changelog}: at most" in printed.out
    assert "--yes" in printed.err
    monkeypatch.setattr("streamplan.cli.operation.is_confirmed", lambda *_, **__: False)
    assert main(command) == 78
    assert "Nothing was deleted" in capsys.readouterr().out
    assert not plan_of(app, settings).empty
    assert main([*command, "--yes"]) == 0
    assert "is reset" in capsys.readouterr().out
    assert main([*command, "--yes"]) == 0
    assert "nothing: there is neither" in capsys.readouterr().out


def test_brokers_away(settings: Settings) -> None:
    from streamplan.registry import pipeline_named

    with pytest.raises(StreamplanError, match=r"127\.0\.0\.1:1"):
        Resetter(pipeline_named("orders"), Brokers("127.0.0.1:1"), settings).observe()
