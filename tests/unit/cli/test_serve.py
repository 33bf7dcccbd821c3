"""The command ``serve``, as far as it goes without brokers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from streamplan.cli import main
from streamplan.kafka.cluster import KafkaCluster
from streamplan.queries import queries


@pytest.mark.parametrize("partitions", ["", "a", "0,", "-1", "0;1"])
def test_partitions_that_are_no_numbers_are_wrong_usage(partitions: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "orders", f"--partitions={partitions}"])
    assert ended.value.code == 2
    assert "expected numbers with commas between them" in capsys.readouterr().err


def test_another_address_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "orders", "--host", "0.0.0.0", "--bootstrap-servers", "127.0.0.1:1"]) == 78
    assert "--token-file" in capsys.readouterr().err


def test_a_token_file_that_cannot_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "orders", "--token-file", str(tmp_path / "none")]) == 78
    assert "expected a readable file" in capsys.readouterr().err


def test_a_port_that_is_not_free_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "orders", "--port", port, "--bootstrap-servers", "127.0.0.1:1"]) == 78
    assert "Give another one with --port" in capsys.readouterr().err


def test_brokers_that_are_away_may_be_there_later(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        queries, "KafkaCluster", lambda brokers, deadline_seconds: KafkaCluster(brokers, deadline_seconds=0.2)
    )
    assert main(["serve", "orders", "--port", "0", "--bootstrap-servers", "127.0.0.1:1"]) == 75
    assert "127.0.0.1:1" in capsys.readouterr().err
