"""Records of repartition topics are deleted once they are counted and verified, on real brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from streamplan.checks import check_named, compaction, lag, topics
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Outcome, run_check
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.kafka.brokers import Brokers
from streamplan.maintenance.purge import purge
from streamplan.model.processor_topology import TaskId
from streamplan.registry import pipeline_named
from streamplan.reports.check_context import check_context
from streamplan.settings import Settings

from tests.support.transactional_application import TransactionalApplication

SHORT = Deadline(seconds=3.0, interval=0.1)
PATIENT = {check.name: replace(check, deadline=SHORT) for check in (lag.CHECK, compaction.CHECK, topics.CHECK)}
"""What is to be waited for here comes at once or not at all."""

CHECKED = ("totals", "copartitioning", "repartition", "skew", "lag", "topics", "compaction")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})


@pytest.fixture
def app(bootstrap_servers: str) -> Iterator[TransactionalApplication]:
    application = TransactionalApplication(bootstrap_servers)
    application.create_topics()
    yield application
    application.close()


def outcomes(app: TransactionalApplication, settings: Settings, *, full: bool = False) -> dict[str, str]:
    found = {}
    for name in CHECKED:
        subject = application_of(app.pipeline)
        context = check_context(subject, settings.reports, full=full)
        result = run_check(subject, PATIENT.get(name, check_named(name)).configure(context), app.cluster)
        found[name] = "passed" if result.outcome is Outcome.PASSED else result.reason
    return found


PASSED = dict.fromkeys(CHECKED, "passed")


def starts(app: TransactionalApplication) -> dict[int, int]:
    return {partition: found.log_start for partition, found in app.cluster.offsets(app.repartition).items()}


def positions(app: TransactionalApplication) -> dict[int, int]:
    return dict(app.cluster.positions(app.group, app.repartition))


def test_what_is_verified_goes_and_every_check_stays_green(app: TransactionalApplication, settings: Settings) -> None:
    app.order_many(0, 2_000)
    app.produce(app.orders, b"order_bad", b"not JSON", partition=0)
    app.drain()
    servers = app.bootstrap_servers
    assert "no cut" in purge(app.pipeline, Brokers(servers), settings).line
    assert starts(app) == {0: 0, 1: 0}

    assert outcomes(app, settings) == PASSED
    verified = positions(app)
    app.order_many(2_000, 2_100)
    app.drain()
    done = purge(app.pipeline, Brokers(servers), settings)
    assert done.until == {app.repartition: verified}
    assert starts(app) == verified  # what was counted since is not verified
    assert positions(app) != verified

    assert outcomes(app, settings, full=True) == PASSED
    assert outcomes(app, settings) == PASSED
    assert purge(app.pipeline, Brokers(servers), settings).until == {app.repartition: positions(app)}
    assert starts(app) == positions(app)
    assert outcomes(app, settings) == PASSED
    assert "purged already" in purge(app.pipeline, Brokers(servers), settings).line
    app.order_many(2_100, 2_200)
    for partition in (0, 1):  # on their way to the second sub-topology
        app.step(TaskId(0, partition))
    assert outcomes(app, settings)["totals"] == "passed"
    purge(app.pipeline, Brokers(servers), settings)
    assert starts(app) == positions(app)
    app.drain()
    assert outcomes(app, settings, full=True) == PASSED


def test_a_wrong_total_is_found_behind_a_purge(app: TransactionalApplication, settings: Settings) -> None:
    app.order_many(0, 100)
    app.drain()
    assert outcomes(app, settings) == PASSED
    assert purge(app.pipeline, Brokers(app.bootstrap_servers), settings).until
    app.order_many(100, 101)
    app.skip_one(0)
    app.skip_one(1)
    app.drain()
    assert "expected" in outcomes(app, settings)["totals"]


def test_a_micro_batch_that_spark_would_read_again_stays(app: TransactionalApplication, settings: Settings) -> None:
    app.order_many(0, 100)
    app.drain()
    assert outcomes(app, settings) == PASSED
    ends = positions(app)
    offsets = Path(settings.checkpoints, app.group, "1-0a1b2c3d-7", "offsets")
    commits = offsets.with_name("commits")
    for directory in (offsets, commits):
        directory.mkdir(parents=True)
    for batch, until in ((0, {"0": 3, "1": 4}), (1, {str(p): end for p, end in ends.items()})):
        (offsets / str(batch)).write_text("\n".join(["v1", "{}", json.dumps({app.repartition: until})]))
    (commits / "0").write_text("v1\n{}")
    offsets.with_name("streamplan.json").write_text("{}")
    assert purge(app.pipeline, Brokers(app.bootstrap_servers), settings).until == {app.repartition: {0: 3, 1: 4}}
    (commits / "1").write_text("v1\n{}")
    assert purge(app.pipeline, Brokers(app.bootstrap_servers), settings).until == {app.repartition: ends}


def test_switched_off_and_without_a_cut_nothing_goes(app: TransactionalApplication, settings: Settings) -> None:
    app.order_many(0, 10)
    app.drain()
    assert outcomes(app, settings)["totals"] == "passed"
    kept = purge(replace(app.pipeline, purge=False), Brokers(app.bootstrap_servers), settings)
    assert kept.line.endswith("is declared with purge=False")
    assert starts(app) == {0: 0, 1: 0}
    spark = purge(pipeline_named("latest"), Brokers(app.bootstrap_servers), settings)
    assert "recounted from all records" in spark.line


def test_a_topic_that_was_made_again_is_not_purged_by_an_old_cut(
    app: TransactionalApplication, settings: Settings
) -> None:
    app.order_many(0, 100)
    app.drain()
    assert outcomes(app, settings)["totals"] == "passed"
    app.admin.delete_topics([app.repartition])[app.repartition].result(120)
    app.create_topics()
    assert "no cut" in purge(app.pipeline, Brokers(app.bootstrap_servers), settings).line
