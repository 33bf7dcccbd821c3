"""What `streamplan store` says of a key that is not there, and of a key with a window."""

from __future__ import annotations

import json

import pytest
from streamplan.cli import main, observed, store
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.windows import SessionWindows, TimeWindows, stored_session_key, stored_window_key
from streamplan.observability.observed import Observed
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.json import Json

from tests.support.fake_cluster import FakeApplication, FakeCluster


@pytest.mark.parametrize(
    ("named", "name"), [(["orders"], "orders"), (["--application-id", "orders-aggregator"], "orders-aggregator")]
)
def test_a_key_that_is_not_there_may_still_come(
    named: list[str], name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    application.order(0)
    application.drain()
    monkeypatch.setattr(observed, "KafkaCluster", lambda servers: cluster)
    assert main(["store", *named, "--bootstrap-servers", "127.0.0.1:1", "--key", "7"]) == 1
    assert capsys.readouterr().out.replace("python -m streamplan", "streamplan") == (
        f"No changelog of {name} has the key 7 yet. Records may still be on their way: "
        f"`streamplan top {' '.join(named)}` shows the lag of each stream task.\n"
    )


@pytest.fixture
def windowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of ann's records from noon to a minute later, and one of her session."""
    noon = 1_767_268_800_000  # 2026-01-01T12:00:00Z
    topology, cluster = Topology("windowed"), FakeCluster()
    stream = topology.stream("payments", value=Json("amount double")).group_by_key()
    stream.windowed_by(TimeWindows("1 minute")).count(store="counts")
    stream.windowed_by(SessionWindows("5 minutes", grace="1 minute")).count(store="visits")
    pipeline = Pipeline("windowed", topology, "", {"payments": 1})
    for spec in pipeline.topics():
        cluster.create(spec.name, spec.partitions)
    cluster.produce("windowed-counts-changelog", stored_window_key(b"ann", noon), b"\0\0\0\0\0\0\0\3")
    cluster.produce("windowed-visits-changelog", stored_session_key(b"ann", noon, noon + 5), b"\0\0\0\0\0\0\0\4")
    monkeypatch.setattr(store, "observed", lambda options: Observed("windowed", cluster, pipeline))  # type: ignore[arg-type]


@pytest.mark.usefixtures("windowed")
def test_a_key_with_a_window_is_shown_as_the_command_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "windowed", "--key", "ann"]) == 0
    shown = capsys.readouterr().out
    for key in ("ann at 2026-01-01T12:00:00Z", "ann at 2026-01-01T12:00:00Z/2026-01-01T12:00:00.005Z"):
        assert f"  {key}  " in shown
        assert main(["store", "windowed", "--key", key]) == 0
        assert f"  {key}  " in capsys.readouterr().out


@pytest.mark.usefixtures("windowed")
def test_in_json_a_key_with_a_window_also_has_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "windowed", "--key", "ann", "--json"]) == 0
    counted, visited = json.loads(capsys.readouterr().out)
    start = "2026-01-01T12:00:00Z"
    assert (counted["key"], counted["window"]) == (f"ann at {start}", {"key": "ann", "start": start, "end": None})
    end = "2026-01-01T12:00:00.005Z"
    assert (visited["key"], visited["window"]) == (f"ann at {start}/{end}", {"key": "ann", "start": start, "end": end})
