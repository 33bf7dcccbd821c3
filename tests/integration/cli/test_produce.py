"""The command ``produce``: what a plain consumer reads afterwards."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from streamplan.cli import main

from tests.integration.conftest import NewTopicFactory
from tests.support.records import read_committed

DECLARED = """
from streamplan import Json, Long, Pipeline, Topology

topology = Topology("{visits}")
visits = topology.stream("{visits}", value=Json("page string"), key_serde=Long())
limits = topology.table("{limits}", value=Long(), store="limits")
visits.group_by_key().count(store="counts")
PIPELINE = Pipeline("{visits}", topology, "Counts visits.", topic_partitions={{"{visits}": 3, "{limits}": 1}})
"""


@pytest.fixture(autouse=True)
def taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command with a file changes of the process is taken back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for variable in ("STREAMPLAN_PIPELINES", "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))


def test_records_of_ones_own_are_written(
    bootstrap_servers: str,
    new_topic: NewTopicFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    visits, limits = new_topic(partitions=3), new_topic()
    file = tmp_path / "given_visits.py"
    file.write_text(DECLARED.format(visits=visits, limits=limits))

    def produce(*options: str) -> int:
        return main(["produce", str(file), *options, "--bootstrap-servers", bootstrap_servers])

    def written(topic: str) -> set[tuple[bytes | None, bytes | None]]:
        return {(record.key(), record.value()) for record in read_committed(bootstrap_servers, topic)}

    assert produce("--topic", visits, "--key", "7", "--value", '{"page": "/docs"}') == 0
    assert capsys.readouterr().out == f"1 record written to {visits}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO('{"page": "/"}\nno JSON\n'))
    assert produce("--topic", visits, "--lines") == 0
    assert capsys.readouterr().out == f"2 records written to {visits}\n"
    seven = (7).to_bytes(8, "big")
    assert written(visits) == {(seven, b'{"page": "/docs"}'), (None, b'{"page": "/"}'), (None, b"no JSON")}
    monkeypatch.setattr("sys.stdin", io.StringIO('8:{"page": "/a"}\n9:{"page": "/b"}\n'))
    assert produce("--topic", visits, "--lines", "--key-separator", ":") == 0
    eight, nine = (8).to_bytes(8, "big"), (9).to_bytes(8, "big")
    assert written(visits) >= {(eight, b'{"page": "/a"}'), (nine, b'{"page": "/b"}')}
    assert produce("--topic", limits, "--key", "a", "--value", "5") == 0
    assert produce("--topic", limits, "--key", "b", "--null") == 0
    assert written(limits) == {(b"a", (5).to_bytes(8, "big")), (b"b", None)}

    capsys.readouterr()
    assert produce("--value", "{}") == 78
    told = " ".join(capsys.readouterr().err.split())
    assert f"--topic: expected a source topic of {visits}: " in told
    assert "observed none, and there are several" in told
    assert produce("--topic", limits, "--value", "many") == 78
    assert "the value many" in capsys.readouterr().err
    assert produce("--topic", visits, "--key", "ann", "--value", "{}") == 78
    assert "--key ann: expected a key of" in capsys.readouterr().err


def test_a_topic_that_does_not_exist_is_told(
    bootstrap_servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "given_missing.py"
    file.write_text(DECLARED.format(visits="never-created", limits="never-created-either"))
    given = ["--topic", "never-created", "--value", "{}", "--bootstrap-servers", bootstrap_servers]
    assert main(["produce", str(file), *given]) == 78
    assert "topic never-created: expected to exist at" in " ".join(capsys.readouterr().err.split())
