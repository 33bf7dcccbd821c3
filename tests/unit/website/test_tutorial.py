"""The tutorial's commands are understood, and what it shows is what the code says. Brokers are not started here."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamplan.checks import compaction
from streamplan.checks.framework.advice import Advice
from streamplan.cli import check as check_command
from streamplan.cli import main
from streamplan.model.topics import resolve_configs
from streamplan.registry import pipeline_named
from streamplan.settings import PROJECT

from tests.support.fake_cluster import FakeCluster
from website.reference import parser_of_commands

PAGE = (PROJECT / "docs" / "tutorial.md").read_text()
BLOCKS = [
    "\n".join(line[4:] for line in block.splitlines()) for block in re.findall(r"(?:^(?:    .*)?\n)+", PAGE, re.M)
]
COMMANDS = [
    line.removeprefix("begin/bin/")
    for block in BLOCKS
    for line in block.splitlines()
    if re.match(r"(?:begin/bin/)?streamplan (?!0)", line)
]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """What ``init`` writes, registered."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my-pipelines"]) == 0
    capsys.readouterr()
    monkeypatch.syspath_prepend(str(tmp_path / "my-pipelines"))
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "my_pipelines")
    yield tmp_path / "my-pipelines"
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_pipelines"]:
        del sys.modules[name]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_understood(command: str) -> None:
    words = shlex.split(command)[1:]
    if words == ["--version"]:
        return
    parser_of_commands().parse_args(words)


def test_the_way_is_from_a_new_repository_to_a_red_check_and_its_end() -> None:
    words = [shlex.split(command)[1] for command in COMMANDS]
    assert [word for n, word in enumerate(words) if word not in words[:n]] == [
        "--version", "init", "run", "produce", "store", "list", "plan", "validate", "demo", "check", "down",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["list", "plan visits"])
def test_the_output_of_a_command_is_shown_as_it_is(
    repository: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main(command.split()) == 0
    printed = capsys.readouterr().out
    shown = [block.strip() for block in BLOCKS if block.strip().startswith(printed.splitlines()[0])]
    assert len(shown) == 1
    assert printed.startswith(shown[0])


def test_the_declaration_is_that_of_the_new_repository(repository: Path) -> None:
    [declared] = [block.strip() for block in BLOCKS if block.strip().startswith("topology = ")]
    written = (repository / "my_pipelines" / "visits.py").read_text()
    assert declared in written
    lines = written.splitlines()
    assert re.search(r"visits\.py:(\d+): filter: ", PAGE)[1] == str(  # type: ignore[index]
        next(n for n, line in enumerate(lines, 1) if ".filter(" in line)
    )


def test_the_counts_are_those_of_the_records_for_trials(repository: Path) -> None:
    from my_pipelines.visits import visit  # type: ignore[import-not-found]

    for records, expected in ((1000, 300), (2000, 600)):
        values = [visit(number)[2] for number in range(records)]
        counted = Counter(re.search(rb'"page": "(.*?)"', value)[1] for value in values if b'"robot": false' in value)  # type: ignore[index]
        assert set(counted.values()) == {expected}
        assert len(counted) == 3
        assert f"{expected} visits" in PAGE


def drained() -> FakeCluster:
    """The visits of step 7, as the pipeline leaves them in Kafka."""
    from my_pipelines.visits import visit

    cluster = FakeCluster()
    pipeline = pipeline_named("visits")
    for spec in pipeline.topics():
        cluster.create(spec.name, spec.partitions, {"retention.bytes": "-1"} | resolve_configs(spec, 1))
    repartition, changelog = "visits-per-page-by-page-repartition", "visits-per-page-visits-per-page-changelog"
    counts: Counter[bytes] = Counter()
    for number in range(2000):
        _, key, value = visit(number)
        cluster.produce("visits", key, value)
        if b'"robot": false' in value:
            page = re.search(rb'"page": "(.*?)"', value)[1]  # type: ignore[index]
            cluster.produce(repartition, page, value)
            counts[page] += 1
            cluster.produce(changelog, page, counts[page].to_bytes(8, "big"))
    for topic in ("visits", repartition):
        ends = {number: partition.end for number, partition in enumerate(cluster.existing[topic].partitions)}
        cluster.committed["visits-per-page", topic] = ends
    return cluster


def test_the_table_of_the_checks_is_the_one_that_the_command_prints(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = drained()
    monkeypatch.setattr(check_command, "KafkaCluster", lambda servers: cluster)
    monkeypatch.setattr(check_command, "require_reachable", lambda servers: None)
    monkeypatch.setenv("STREAMPLAN_HOME", str(repository))
    status = main(["check", "visits"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    [shown] = [block for block in BLOCKS if block.strip().startswith("visits-per-page: 1 source")]
    rows = [[re.split(r" {2,}", line.strip()) for line in text.splitlines()] for text in (shown, printed)]
    shown_rows, printed_rows = [[row for row in lines if len(row) == 3][1:] for lines in rows]
    assert [row[:2] for row in shown_rows] == [row[:2] for row in printed_rows]
    for (_, _, reason), (_, _, found) in zip(shown_rows, printed_rows, strict=True):
        assert reason in ("…", found)


def test_the_red_check_says_these_words() -> None:
    consequence = compaction._CONSEQUENCES["cleanup.policy"]
    assert f"cleanup.policy: expected compact, observed delete ({consequence})\n" in PAGE
    assert f"compaction: next: {Advice.COMPACTION}\n" in PAGE


def test_the_script_that_breaks_the_topic_is_python() -> None:
    [script] = [block for block in BLOCKS if "incremental_alter_configs" in block]
    ast.parse(script)
