"""The command ``serve``, as far as it goes without brokers."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from streamplan.cli import main
from streamplan.kafka.cluster import KafkaCluster
from streamplan.queries import queries
from streamplan.settings import PROJECT


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


IN_MEMORY = """
import sys
from streamplan.cli import main, serve
from tests.support.queried import Queried, visits

serve.pipeline_named = visits
serve.open_queries = lambda *arguments, **options: Queried().open()
sys.exit(main(["serve", "orders", "--port", "0", "--bootstrap-servers", "127.0.0.1:1"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    """With stores in memory: the process, its address and its end."""
    command = [sys.executable, "-c", IN_MEMORY]
    path = {"PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}"}
    with subprocess.Popen(command, env=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = ""
            for line in process.stdout:
                if "http://" in line:
                    address = line.partition("http://")[2].partition(". Ctrl-C")[0]
                    break
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request("GET", "/health")
            assert json.loads(connection.getresponse().read()) == {"status": "ok", "lag": 0}
            process.send_signal(number)
            output, errors = process.communicate(timeout=60)
            assert (process.returncode, output, errors) == (0, "", "")
        finally:
            process.kill()
