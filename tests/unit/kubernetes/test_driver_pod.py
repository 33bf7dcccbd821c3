"""The pod of a driver, as the API server tells of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.kubernetes import api_server
from streamplan.kubernetes.api_server import AlreadyExists, ApiServer, ApiServerUnavailable, NotFound
from streamplan.kubernetes.driver_pod import DriverPod, job_label, pods_of, status_of
from streamplan.processes import Owner

from tests.support.kubernetes_api import FakeApiServer, fake_api_server

LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""A value of a label that is also a name of a pod and a host name (RFC 1123)."""


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api_server() as server:
        yield server


@pytest.mark.parametrize(
    ("master", "url"),
    [
        ("k8s://https://10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("k8s://https://kubernetes.default.svc/", "https://kubernetes.default.svc"),
        ("k8s://api.example:443", "https://api.example:443"),
        ("k8s://http://127.0.0.1:8001", "http://127.0.0.1:8001"),
    ],
)
def test_the_address_is_taken_from_the_master_as_spark_takes_it(master: str, url: str) -> None:
    assert ApiServer.of_master(master).url == url


@pytest.mark.parametrize("master", ["", "yarn", "k8s://", "spark://a:7077"])
def test_another_master_is_refused(master: str) -> None:
    with pytest.raises(Refused, match="k8s://https://host:port"):
        ApiServer.of_master(master)


def test_each_answer_has_its_error(api: FakeApiServer) -> None:
    server, path = ApiServer(api.url), "/api/v1/namespaces/streams/secrets"
    server.create(path, {"kind": "Secret", "metadata": {"name": "a"}})
    with pytest.raises(AlreadyExists, match="409"):
        server.create(path, {"kind": "Secret", "metadata": {"name": "a"}})
    with pytest.raises(NotFound, match="404"):
        server.get(f"{path}/b")
    api.forbidden.add(("POST", "secrets"))
    with pytest.raises(Refused, match=r"403 .*is forbidden.*roles\.yaml"):
        server.create(path, {"kind": "Secret", "metadata": {"name": "c"}})
    server.delete(f"{path}/a")
    server.delete(f"{path}/a")
    assert api.objects == {}


def test_a_server_that_nobody_reaches_may_answer_later() -> None:
    with pytest.raises(ApiServerUnavailable, match="NetworkPolicy"):
        ApiServer("http://127.0.0.1:1").get("/api/v1")


def test_the_token_of_the_service_account_is_sent_over_tls_alone(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api_server, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("s3cret\n")
    ApiServer(api.url).delete("/api/v1/namespaces/streams/pods/a")
    assert [request.authorization for request in api.requests] == [None]
    assert api_server._authorization("https://host") == {"Authorization": "Bearer s3cret"}
    (tmp_path / "token").write_text("renewed")
    assert api_server._authorization("https://host") == {"Authorization": "Bearer renewed"}


@pytest.mark.parametrize("job", ["orders-aggregator", "Orders_2-aggregator", "a" * 100 + "-aggregator", "_", "ü" * 50])
def test_a_job_of_any_name_has_a_valid_label_and_a_pod_whose_name_is_its_host_name(job: str) -> None:
    assert LABEL.fullmatch(job_label(job))
    assert LABEL.fullmatch(DriverPod.new("k8s://https://a", "streams", job).name)
    assert LABEL.fullmatch(DriverPod.new("k8s://https://a", "streams", job).secret[:63])


def test_jobs_that_differ_have_labels_that_differ() -> None:
    jobs = ["a-b", "a_b", "A-b", "a.b", "a" * 60, "a" * 61, "a" * 100, "_", "__"]
    assert len({job_label(job) for job in jobs}) == len(jobs)


def pod(**status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"uid": "1", "name": "a"}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {
        "containerStatuses": [{"name": "sidecar", "state": {}}, {"name": "spark-kubernetes-driver", "state": state}]
    }


@pytest.mark.parametrize(
    ("found", "exit_status", "has_ended", "reason"),
    [
        (pod(phase="Pending"), None, False, ""),
        (pod(phase="Running", **container(running={"startedAt": "x"})), None, False, ""),
        (pod(phase="Succeeded", **container(terminated={"exitCode": 0, "reason": "Completed"})), 0, True, "Completed"),
        (pod(phase="Failed", **container(terminated={"exitCode": 137, "reason": "OOMKilled"})), 137, True, "OOMKilled"),
        (pod(phase="Failed", reason="Evicted"), None, True, "Evicted"),
        (
            pod(phase="Pending", **container(waiting={"reason": "ImagePullBackOff", "message": "no such image"})),
            None,
            False,
            "ImagePullBackOff, no such image",
        ),
        (
            pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}]),
            None,
            False,
            "0/3 nodes fit",
        ),
    ],
)
def test_a_pod_tells_how_its_driver_is(found: Any, exit_status: int | None, has_ended: bool, reason: str) -> None:
    status = status_of(found)
    assert (status.exit_status, status.has_ended, status.reason) == (exit_status, has_ended, reason)


def test_a_pod_that_waits_for_its_node_to_end_it_says_so() -> None:
    deleted = pod(phase="Running")
    assert not status_of(deleted).is_deleted
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert status_of(deleted).is_deleted
    assert not status_of(deleted).has_ended


def test_the_pods_of_a_job_are_found_with_who_started_them_in_their_order(api: FakeApiServer) -> None:
    for name, job, started_by in (
        ("b", "orders-aggregator", {"streamplan/dag": "d", "streamplan/run": "r:1+2"}),
        ("a", "orders-aggregator", {}),
        ("c", "sales-aggregator", {}),
    ):
        metadata = {"name": name, "labels": {"streamplan/job": job}, "annotations": started_by}
        ApiServer(api.url).create("/api/v1/namespaces/streams/pods", {"kind": "Pod", "metadata": metadata})
    found = pods_of(api.master, "streams", "orders-aggregator")
    assert [(pod.name, status.owner) for pod, status in found] == [("b", Owner("d", "r:1+2")), ("a", None)]


def test_the_log_of_a_driver_that_has_none_yet_says_why(api: FakeApiServer) -> None:
    driver, path = DriverPod(api.master, "streams", "a"), "/api/v1/namespaces/streams/pods"
    assert "404" in driver.log_tail(3)
    pod: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "a"}}
    ApiServer(api.url).create(path, pod)
    assert driver.log_tail(3) == "(no log: the driver has written nothing)"  # no node has the pod yet
    api.objects[f"{path}/a"]["spec"] = {"nodeName": "node"}
    assert "waiting to start" in driver.log_tail(3)
    api.end("a", 1, "one\ntwo\n")
    assert driver.log_tail(3) == "one\ntwo"
    assert api.requests[-1].query == {"container": ["spark-kubernetes-driver"], "tailLines": ["3"]}
