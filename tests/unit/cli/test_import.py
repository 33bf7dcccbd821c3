from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from streamplan.cli import main
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the description of the orders, in the working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "orders.txt"
    file.write_text(PIPELINE.topology.describe())
    return file


def imported(*more: str) -> int:
    return main(["import", "--application-id", "orders-aggregator", "--topology", "orders.txt", *more])


def test_the_file_is_written_and_what_is_missing_is_listed(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert imported() == 0
    assert capsys.readouterr().out.splitlines() == [
        "orders_aggregator.py is written.",
        "Verified: its description is that in orders.txt, byte for byte.",
        "No brokers were asked. With --bootstrap-servers they tell partition counts, fields and counts.",
        "",
        "Not known from the description (3):",
        "  KSTREAM-SOURCE-0000000000     the fields of orders",
        "  orders-products-quantities    the key that it gives",
        "  KSTREAM-AGGREGATE-0000000002  what it computes: count() or aggregate(), and whether it has windows",
        "",
        "Next: replace each TODO in orders_aggregator.py, run `streamplan validate orders_aggregator.py`, and read "
        "docs/take-over.md.",
    ]
    assert 'topology = Topology("orders-aggregator")' in (topology.parent / "orders_aggregator.py").read_text()


def test_a_file_that_exists_is_not_overwritten(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = topology.parent / "mine.py"
    mine.write_text("mine")
    assert imported("--output", "mine.py") == 78
    assert "file mine.py: expected a file that does not exist yet" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert imported("--output", "no/such/directory.py") == 78
    assert "--output no/such/directory.py: expected a file that can be written" in capsys.readouterr().err


def test_a_description_that_is_none_writes_nothing(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology.write_text("no topology")
    assert imported() == 78
    assert "expected the text of Topology.describe()" in capsys.readouterr().err
    topology.unlink()
    assert imported() == 2
    assert "--topology orders.txt: expected a text file" in capsys.readouterr().err
    assert not (topology.parent / "orders_aggregator.py").exists()


def test_a_description_can_come_through_a_pipe(
    topology: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(topology.read_bytes())))
    assert main(["import", "--application-id", "orders-aggregator", "--topology", "-", "--output", "piped.py"]) == 0
    assert "piped.py is written." in capsys.readouterr().out


def test_what_cannot_be_read_is_told_in_words(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("picture.png").write_bytes(b"\x89PNG\xff")
    for file, observed in (("no.txt", "No such file or directory"), ("picture.png", "bytes that are no text")):
        assert main(["import", "--application-id", "x", "--topology", file]) == 2
        assert capsys.readouterr().err == f"--topology {file}: expected a text file, observed {observed}\n"


def test_another_topology_is_told_by_the_exit_status(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology.write_text(topology.read_text().replace("topics: [orders]", "topics: orders."))  # a pattern
    assert imported() == 1
    said = capsys.readouterr().out
    assert "Not verified: its description differs from orders.txt (-: given, +: declared).\n" in said
    assert "  -Source: KSTREAM-SOURCE-0000000000 (topics: orders.)\n" in said
    assert "  +Source: KSTREAM-SOURCE-0000000000 (topics: [orders.])\n" in said
    assert "Sub-topologies, topics or state stores differ" in said
    assert (topology.parent / "orders_aggregator.py").exists()


def test_brokers_tell_more(topology: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda brokers: cluster)
    monkeypatch.setattr("streamplan.kafka.requests.require_reachable", lambda brokers: None)
    assert imported("--bootstrap-servers", "127.0.0.1:1") == 0
    text = (topology.parent / "orders_aggregator.py").read_text()
    assert (
        """\
(
    # orders has 2 partitions.
    topology.stream("orders", value=Json("Id string, ProductType bigint"))
    .group_by("TODO: the key that orders-products-quantities gives", name="orders-products-quantities")
    # It looks like a count: the values of its changelog have 8 bytes.
    .count(store="orders-products-quantities")
)
"""
        in text
    )
    said = capsys.readouterr().out
    assert "Not known from the description (1):\n  orders-products-quantities  the key that it gives\n" in said
    assert "No brokers were asked" not in said


def test_brokers_that_do_not_answer_are_told_and_nothing_is_written(
    topology: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported("--bootstrap-servers", "127.0.0.1:1") == 75
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert not (topology.parent / "orders_aggregator.py").exists()
