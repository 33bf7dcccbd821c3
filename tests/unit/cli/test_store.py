"""What `streamplan store` says of a key that is not there."""

from __future__ import annotations

import pytest
from streamplan.cli import main, observed
from streamplan.pipelines.orders import PIPELINE

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
