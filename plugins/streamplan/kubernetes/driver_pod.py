"""The pod of a Spark driver: how it is named and found, what Kubernetes says about it, and the secret that it mounts.

Spark's client creates the pod with the labels and annotations of :func:`pod_configs`, so that the API server itself is
the register of who started it: no shared directory is needed.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamplan.kubernetes.api_server import AlreadyExists, ApiServer, ApiServerUnavailable, NotFound
from streamplan.processes import Owner

SECRET_DIRECTORY = "/etc/streamplan/kafka"
"""Where the driver's pod mounts its secret."""

SECRET_FILE = "client.json"
"""The file in it: the client properties of the brokers."""

_JOB = "streamplan/job"
_DAG = "streamplan/dag"
_RUN = "streamplan/run"
_CONTAINER = "spark-kubernetes-driver"
_ENDED = ("Succeeded", "Failed")

_NAME_BYTES = 40
"""The name of a pod has at most this many bytes of its job's name: a host name has at most 63."""


@dataclass(frozen=True)
class PodStatus:
    """What the API server says about a pod.

    Attributes:
        uid: Its id, which no other pod ever has.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``.
        exit_status: That of the driver; None while it runs, or where its node was lost.
        reason: Why it waits or has ended, in Kubernetes' words; may be empty.
        owner: The DAG run that started it; None where it says none.
        created: When, in the form of ISO 8601.
        is_deleted: Whether somebody has deleted it. Its driver may run until its node has ended it. On a node that is
            lost nobody does, and the pod stays as it was.
    """

    uid: str
    phase: str
    exit_status: int | None
    reason: str
    owner: Owner | None
    created: str
    is_deleted: bool

    @property
    def has_ended(self) -> bool:
        """Whether the driver has ended."""
        return self.phase in _ENDED


@dataclass(frozen=True)
class DriverPod:
    """The pod of a driver.

    Attributes:
        master: Spark's master, which is the API server: ``k8s://https://host:port``.
        namespace: The namespace of the pod.
        name: Its name. The driver's host name is the same, and stands in its member of the consumer group.
    """

    master: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def new(cls, master: str, namespace: str, job: str) -> DriverPod:
        """Name the pod of a driver that is about to be submitted."""
        return cls(master, namespace, f"{job_label(job)}-{uuid.uuid4().hex[:8]}")

    @property
    def log_command(self) -> str:
        """The command that shows its log."""
        return f"kubectl logs --namespace {self.namespace} {self.name}"

    @property
    def secret(self) -> str:
        """The name of the secret that it mounts."""
        return f"{self.name}-kafka"

    def fields(self) -> dict[str, str]:
        """Return the fields as JSON keeps them."""
        return asdict(self)

    def status(self) -> PodStatus | None:
        """Ask the API server; None where the pod was deleted.

        Raises:
            Refused: The service account may not read pods.
            ApiServerUnavailable: There was no usable answer.
        """
        try:
            return status_of(self._api.get(self._path))
        except NotFound:
            return None

    def log_tail(self, lines: int) -> str:
        """Return the last lines of the driver's log, or why there are none.

        Raises:
            Refused: The service account may not read logs.
        """
        try:
            found = self._api.text(f"{self._path}/log", container=_CONTAINER, tailLines=str(lines)).rstrip()
            return found or "(no log: the driver has written nothing)"
        except (NotFound, ApiServerUnavailable) as error:
            return f"(no log: {error.observed})"

    def delete(self) -> None:
        """Delete the pod. Kubernetes then deletes what belongs to it: its executors, its secret and its service.

        Raises:
            Refused: The service account may not delete pods.
            ApiServerUnavailable: There was no usable answer.
        """
        self._api.delete(self._path)

    def create_secret(self, status: PodStatus, content: str) -> None:
        """Create the secret that the pod mounts. Its containers wait for it, and Kubernetes deletes it with the pod.

        Args:
            status: Of the pod.
            content: What is in :data:`SECRET_FILE`.

        Raises:
            Refused: The service account may not create secrets.
            ApiServerUnavailable: There was no usable answer.
        """
        owner = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": status.uid}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.secret, "ownerReferences": [owner]},
            "type": "Opaque",
            "immutable": True,
            "data": {SECRET_FILE: base64.b64encode(content.encode()).decode()},
        }
        try:
            self._api.create(f"/api/v1/namespaces/{self.namespace}/secrets", secret)
        except AlreadyExists:
            return  # by an earlier try of the task, which ended before it had deferred

    @property
    def _api(self) -> ApiServer:
        return ApiServer.of_master(self.master)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


def pods_of(master: str, namespace: str, job: str) -> list[tuple[DriverPod, PodStatus]]:
    """Return the pods of a job, those that have ended too, in the order in which they were created.

    Raises:
        Refused: The service account may not list pods.
        ApiServerUnavailable: There was no usable answer.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = ApiServer.of_master(master).get(path, labelSelector=f"{_JOB}={job_label(job)}")
    pods = [(DriverPod(master, namespace, each["metadata"]["name"]), status_of(each)) for each in listed["items"]]
    return sorted(pods, key=lambda pod: (pod[1].created, pod[0].name))


def pod_configs(pod: DriverPod, job: str, owner: Owner, environment: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's configurations for the pod.

    spark-submit ends when the pod is created. The path of the secret is in the environment, its content nowhere.

    Args:
        job: The name of the job.
        owner: The DAG run that starts it.
        environment: Further environment variables of the driver. Everybody who may read pods sees them.
    """
    driver = "spark.kubernetes.driver"
    return {
        "spark.kubernetes.submission.waitAppCompletion": "false",
        f"{driver}.pod.name": pod.name,
        f"{driver}.label.{_JOB}": job_label(job),
        f"{driver}.annotation.{_DAG}": owner.dag_id,
        f"{driver}.annotation.{_RUN}": owner.run_id,
        f"{driver}.secrets.{pod.secret}": SECRET_DIRECTORY,
        **{f"{driver}Env.{name}": value for name, value in environment.items()},
    }


def job_label(job: str) -> str:
    """Return a job's name as the value of a label. Names that differ have labels that differ."""
    plain = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-") or "job"
    if plain == job and len(plain) <= _NAME_BYTES:
        return plain
    return f"{plain[: _NAME_BYTES - 9].strip('-')}-{hashlib.sha256(job.encode()).hexdigest()[:8]}"


def status_of(pod: Mapping[str, Any]) -> PodStatus:
    """Return what an object ``Pod`` of the API says.

    Args:
        pod: The object. Its fields are those of ``io.k8s.api.core.v1.Pod``.
    """
    metadata, status = pod["metadata"], pod.get("status", {})
    annotations = metadata.get("annotations", {})
    owner = Owner(annotations[_DAG], annotations[_RUN]) if {_DAG, _RUN} <= annotations.keys() else None
    containers = [each for each in status.get("containerStatuses", ()) if each["name"] == _CONTAINER]
    state = containers[0].get("state", {}) if containers else {}
    ended, waits = state.get("terminated", {}), state.get("waiting", {})
    reasons = [status.get("reason"), ended.get("reason"), waits.get("reason"), waits.get("message")]
    reasons += [each.get("message") for each in status.get("conditions", ()) if each.get("status") == "False"]
    return PodStatus(
        metadata["uid"],
        status.get("phase", "Unknown"),
        ended.get("exitCode"),
        ", ".join(dict.fromkeys(filter(None, reasons))),
        owner,
        metadata.get("creationTimestamp", ""),
        "deletionTimestamp" in metadata,
    )
