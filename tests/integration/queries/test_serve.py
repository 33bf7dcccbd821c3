"""``streamplan serve`` as a process."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.model.partitioner import partition_for_key
from streamplan.settings import PROJECT

from tests.support.brokers import await_topics
from tests.support.changelog_writer import ChangelogWriter
from tests.support.queried import PARTITIONS, visits
from tests.support.waiting import DEADLINE_SECONDS, eventually

_numbers = itertools.count()

DECLARATION = """\
from tests.support.queried import visits

PIPELINE = visits({name!r})
"""


class Serving:
    """A service, its address and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    @property
    def address(self) -> str:
        def ended_or_listens() -> bool:
            return self.process.poll() is not None or bool(re.search(r"http://\S+:\d+", self.log.read_text()))

        eventually(ended_or_listens, "the service listens", evidence=self.log.read_text)
        found = re.search(r"http://(\S+:\d+)\.", self.log.read_text())
        assert found is not None, self.log.read_text()
        return found[1]

    def ask(self, path: str, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=DEADLINE_SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)


@pytest.fixture
def name() -> str:
    return f"served-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def deployed(brokers: Brokers, name: str) -> Iterator[ChangelogWriter]:
    pipeline = visits(name)
    apply_topics(brokers, pipeline, deadline_seconds=DEADLINE_SECONDS)
    topics = [spec.name for spec in pipeline.topics()]
    await_topics(brokers.servers, *topics)
    yield ChangelogWriter(brokers.servers, PARTITIONS)
    for future in AdminClient({"bootstrap.servers": brokers.servers}).delete_topics(topics).values():
        future.exception(120)


@pytest.fixture
def serve(brokers: Brokers, name: str, tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    (tmp_path / "served_pipeline.py").write_text(DECLARATION.format(name=name))
    path = os.pathsep.join(map(str, (tmp_path, PROJECT / "plugins", PROJECT)))
    environment = {**os.environ, "PYTHONPATH": path, "STREAMPLAN_PIPELINES": "served_pipeline"}
    started: list[Serving] = []

    def start(*options: str) -> Serving:
        log = tmp_path / f"serve-{len(started)}.log"
        command = [sys.executable, "-m", "streamplan", "serve", name, "--port", "0"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--bootstrap-servers", brokers.servers, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(Serving(process, log))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(DEADLINE_SECONDS)


def changelog(name: str) -> str:
    return visits(name).topology.changelog_topic("totals")


def write(deployed: ChangelogWriter, name: str, **counts: int) -> None:
    with deployed.transaction():
        for key, count in counts.items():
            deployed.put(changelog(name), key.encode(), count.to_bytes(8, "big"), at=1_000)


def test_a_service_answers_follows_and_ends_with_a_signal(
    serve: Callable[..., Serving], deployed: ChangelogWriter, name: str
) -> None:
    write(deployed, name, ann=1, bob=2)
    service = serve()
    status, answer = service.ask("/stores/totals/get?key=ann")
    assert (status, answer["value"], answer["timestamp"]) == (200, 1, "1970-01-01T00:00:01.000+00:00")
    write(deployed, name, ann=3)
    eventually(lambda: service.ask("/stores/totals/get?key=ann")[1]["value"] == 3, "the update is served")
    assert [each["key"] for each in service.ask("/stores/totals/all")[1]["entries"]] == ["ann", "bob"]
    assert service.ask("/health")[0] == 200
    assert service.end() == 0
    again = serve()
    assert again.ask("/stores/totals/get?key=ann")[1]["value"] == 3
    assert again.end(signal.SIGINT) == 0
    assert "Traceback" not in service.log.read_text() + again.log.read_text()


def test_two_services_share_the_partitions_and_a_token_protects_them(
    serve: Callable[..., Serving], deployed: ChangelogWriter, name: str, tmp_path: Path
) -> None:
    write(deployed, name, ann=1)
    place = partition_for_key(b"ann", PARTITIONS)
    others = ",".join(str(number) for number in range(PARTITIONS) if number != place)
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    bearer = {"Authorization": "Bearer a-token-of-some-length"}
    one = serve("--partitions", str(place), "--store", "totals", "--token-file", str(token))
    other = serve("--partitions", others, "--token-file", str(token), "--host", "0.0.0.0")
    assert one.ask("/stores/totals/get?key=ann", **bearer)[1]["value"] == 1
    assert one.ask("/stores/users/get?key=ann", **bearer)[0] == 404
    status, answer = other.ask("/stores/totals/get?key=ann", **bearer)
    assert (status, answer["partition"]) == (421, place)
    assert other.ask("/stores/totals/get?key=ann")[0] == 401
    assert (one.end(), other.end()) == (0, 0)


def test_what_cannot_be_served_is_told(
    serve: Callable[..., Serving], deployed: ChangelogWriter, name: str, brokers: Brokers
) -> None:
    refused = serve("--host", "0.0.0.0")
    assert refused.process.wait(DEADLINE_SECONDS) == 78
    assert "--token-file" in refused.log.read_text()
    service = serve()
    assert service.ask("/health")[0] == 200
    topic = changelog(name)
    admin = AdminClient({"bootstrap.servers": brokers.servers})  # it must live until the answer has come
    admin.delete_topics([topic])[topic].result(120)
    assert service.process.wait(DEADLINE_SECONDS) == 75
    assert f"changelog {topic}: expected the topic that was read" in " ".join(service.log.read_text().split())
