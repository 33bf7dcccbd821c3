"""The aggregator on secured brokers shows no secret: in its log, in Spark's event log and UI, in its processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from streamplan.kafka.test_data import produce
from streamplan.kafka.topics import apply_topics
from streamplan.registry import pipeline_named

from tests.support.aggregator_process import Aggregator
from tests.support.secrets import files_that_show, processes_that_show
from tests.support.secured_brokers import SecuredBrokers
from tests.support.soak import soak
from tests.support.waiting import DEADLINE_SECONDS, eventually

PAGES = ("environment", "jobs", "stages", "sql?details=true&planDescription=true&length=1000")


@pytest.mark.parametrize("login", ["password", *soak(["certificate"])])
def test_the_aggregator_and_its_spark_show_no_secret(
    secured_brokers: SecuredBrokers,
    spark_environment: Mapping[str, str],
    spark_jars: Path,
    tmp_path: Path,
    login: str,
) -> None:
    if login == "password":
        brokers = secured_brokers.super_user
        secret = brokers.properties["sasl.password"]
    else:
        brokers = secured_brokers.super_user_by_certificate
        secret = secured_brokers.security.key_file("streamplan").read_text().splitlines()[1]
    brokers = replace(brokers, registry={"schema.registry.url": "http://one:1", "basic.auth.user.info": f"u:{secret}"})
    pipeline = pipeline_named("orders")
    apply_topics(brokers, pipeline)
    secured_brokers.await_topics(*(spec.name for spec in pipeline.topics()))
    produce(pipeline, brokers, records=19, stop=threading.Event(), progress=lambda *_: None)

    events = tmp_path / "events"
    events.mkdir()
    handed_over = tmp_path / "run" / "orders-aggregator.kafka"
    environment = {**spark_environment, **brokers.hand_over(handed_over)}
    aggregator = Aggregator(brokers.servers, tmp_path, environment, spark_jars)
    port = free_port()
    at = aggregator.argv.index("--jars")
    aggregator.argv[at:at] = [
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events.as_uri()}"),
        *("--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}"),
    ]
    pages: dict[str, str] = {}

    def both_have_committed() -> bool:
        with suppress(httpx.HTTPError, LookupError, ValueError):
            api = f"http://127.0.0.1:{port}/api/v1/applications"
            (application,) = httpx.get(api, timeout=30).json()
            for page in PAGES:
                pages[page] = httpx.get(f"{api}/{application['id']}/{page}", timeout=30).text
            for page in ("environment", "SQL", "StreamingQuery"):
                pages[page + "/"] = httpx.get(
                    f"http://127.0.0.1:{port}/{page}/", timeout=30, follow_redirects=True
                ).text
        return aggregator.log.exists() and "kafka" in pages.get(PAGES[-1], "").lower()

    with processes_that_show(secret) as found:
        process = aggregator.start()
        try:
            eventually(both_have_committed, "Spark shows a plan", DEADLINE_SECONDS, evidence=aggregator.log.read_text)
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
            aggregator.kill()
    assert not handed_over.exists()
    assert found == set()
    assert [page for page, text in pages.items() if secret in text] == []
    assert any(file.stat().st_size for file in events.rglob("*"))
    assert files_that_show(secret, tmp_path) == set()
    assert [file for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()] == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
