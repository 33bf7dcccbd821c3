"""The command ``run``: a pipeline in a file, in the foreground, beside what a plain client reads."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.waiting import DEADLINE_SECONDS, eventually

TOPICS = (
    *("clicks-of-run", "counts-of-run", "run-in-foreground-by-page-repartition"),
    *("run-in-foreground-by-page-changelog", "run-in-foreground-dead-letter"),
)
FILE = """\
from streamplan import Json, Pipeline, Topology

topology = Topology("run-in-foreground")
clicks = topology.stream("clicks-of-run", value=Json("page string"))
clicks.group_by("page", name="by-page").count(store="by-page").to_stream().to("counts-of-run")
PIPELINE = Pipeline(
    "clicks", topology, description="Counts.", topic_partitions={"clicks-of-run": 2, "counts-of-run": 2}
)
"""


class Run:
    """``streamplan run`` as a person starts it, in an empty directory with one file."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = {**environment, "COLUMNS": "200"}
        self.environment.pop("STREAMPLAN_PIPELINES", None)
        self.process: subprocess.Popen[bytes] | None = None
        self.printed = directory / "printed"
        (directory / "page_counts.py").write_text(FILE)

    def start(self, *words: str, terminal: int | None = None) -> subprocess.Popen[bytes]:
        with self.printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamplan", "run", "page_counts.py", *words],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=printed if terminal is None else terminal,
                stderr=subprocess.STDOUT,
            )
        return self.process

    def text(self) -> str:
        return self.printed.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.directory) in word for word in process.info["cmdline"] or ()):
                found.append(process)
        return found


@pytest.fixture
def run(tmp_path: Path, spark_environment: Mapping[str, str], bootstrap_servers: str) -> Iterator[Run]:
    started = Run(tmp_path, spark_environment)
    yield started
    if started.process is not None and started.process.poll() is None:
        started.process.terminate()
        started.process.wait(DEADLINE_SECONDS)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([*TOPICS]).values():
        future.exception(120)


def click(bootstrap_servers: str, pages: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for page in pages:
        producer.produce("clicks-of-run", f'{{"page":"{page}"}}'.encode())
    assert producer.flush(120) == 0


def counts(bootstrap_servers: str) -> dict[str, int]:
    """The last value of each key in the sink."""
    found: dict[str, int] = {}
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "of-the-test", "isolation.level": "read_committed"}
    with closing(Consumer({**config, "enable.partition.eof": True})) as consumer:
        consumer.assign([TopicPartition("counts-of-run", partition, 0) for partition in range(2)])
        ended: set[int] = set()
        while len(ended) < 2:
            message = consumer.poll(120)
            assert message is not None
            if message.error():
                ended.add(message.partition())
            else:
                found[message.key().decode()] = int.from_bytes(message.value(), "big")
    return found


def test_a_pipeline_in_a_file_runs_until_ctrl_c_and_goes_on_where_it_was(run: Run, bootstrap_servers: str) -> None:
    servers = ("--bootstrap-servers", bootstrap_servers)
    assert run.start(*servers).wait(DEADLINE_SECONDS) == 78
    assert "a person at a terminal who agrees, or --yes" in run.text()
    assert "clicks-of-run (source, 2 partitions)" in run.text()
    assert not set(TOPICS) & set(AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=60).topics)

    ours, theirs = pty.openpty()
    first = run.start(*servers, terminal=theirs)
    os.close(theirs)
    shown = ""

    def shows(words: str) -> bool:
        nonlocal shown
        shown += os.read(ours, 65536).decode(errors="replace")
        return words in shown

    eventually(lambda: shows("Create them? [y/N]"), "the question", evidence=lambda: shown)
    os.write(ours, b"y\n")
    eventually(lambda: shows("runs: streamplan:"), "the table of the aggregator", evidence=lambda: shown)
    click(bootstrap_servers, "aab")
    eventually(lambda: shows("1_1") and counts(bootstrap_servers) == {"a": 2, "b": 1}, "counts", evidence=lambda: shown)
    first.send_signal(signal.SIGINT)
    eventually(lambda: shows("The same command goes on"), "the end", evidence=lambda: shown)
    assert first.wait(DEADLINE_SECONDS) == 0
    os.close(ours)
    assert not run.processes()


@pytest.mark.soak
def test_it_brings_brokers_and_goes_on_where_it_was(run: Run) -> None:
    expected: Counter[str] = Counter()
    for pages in ("aab", "bc"):
        process = run.start("--local")
        eventually(
            lambda: "sub-topologies 0 and 1 read clicks-of-run" in run.text(), "the aggregator", evidence=run.text
        )
        servers = re.search(r"Kafka is ready at (\S+?)\.$", run.text(), re.MULTILINE)
        assert servers is not None
        click(servers[1], pages)
        expected.update(pages)
        eventually(lambda servers=servers: counts(servers[1]) == expected, "counts", evidence=run.text)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0
        assert "sub-topology 1: " in run.text()
        assert " INFO " not in run.text()
        assert " WARN " not in run.text()
        assert not run.processes()
