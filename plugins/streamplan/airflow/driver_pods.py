"""The aggregator's driver as a pod: how it is submitted, watched, stopped and judged.

The connection asks for it: master ``k8s://…`` and deploy mode ``cluster``. Then no process of Airflow lives as long as
the driver. The worker submits the pod and gives it its secret. Kafka tells the triggerer whether the driver lives,
because it is a member of its consumer group. The API server tells more, where the triggerer may ask it: that the
driver has ended, with which exit status, and its log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import TriggerEvent

from streamplan.airflow.connections import connection
from streamplan.airflow.triggers import RemoteTrigger, await_silence, settle
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import PROPERTIES_VARIABLE, Brokers
from streamplan.kafka.connection_properties import TOKEN_CALLBACK
from streamplan.kafka.mechanisms import CALLBACKS_VARIABLE
from streamplan.kubernetes.api_server import SCHEME, ApiServerUnavailable
from streamplan.kubernetes.driver_pod import SECRET_DIRECTORY, SECRET_FILE, DriverPod, PodStatus, pods_of
from streamplan.processes import Owner
from streamplan.programs import ExitStatus
from streamplan.spark.submit import submit_environment

if TYPE_CHECKING:
    from streamplan.kafka.remote_job import RemoteJob

log = logging.getLogger(__name__)

SUBMIT_SECONDS = 300.0
"""spark-submit creates five objects and ends. It takes some 10 s."""

POD_START_SECONDS = 900.0
"""A driver in a pod has so long to join its group: a node may have to be added, and the image has to be pulled."""

STOP_ASK_SECONDS = 5.0
"""Where the positions do not take a request to stop in so long, the pod is deleted."""

_TAIL_LINES = 20

_PASSED = ("STREAMPLAN_PIPELINES", "STREAMPLAN_DEAD_LETTER")
"""The settings that the driver needs, too. None of them is a secret."""


@dataclass(frozen=True)
class DriverCluster:
    """Where drivers run as pods.

    Attributes:
        master: Spark's master, ``k8s://https://host:port``.
        namespace: The namespace of the pods.
    """

    master: str
    namespace: str

    def pods(self, job: str) -> list[tuple[DriverPod, PodStatus]]:
        """Return the pods of a job: see :func:`~streamplan.kubernetes.driver_pod.pods_of`."""
        return pods_of(self.master, self.namespace, job)


def driver_cluster(conn_id: str) -> DriverCluster | None:
    """Return where a Spark connection runs its drivers; None where they run beside the task.

    Raises:
        Refused: It asks for the deploy mode "cluster" where the driver could be neither given its secrets nor watched,
            or names no namespace. There is no such connection.
    """
    spark = connection(conn_id)
    mode = spark.extra_dejson.get("deploy-mode") or "client"
    master = f"{spark.host}:{spark.port}" if spark.port else spark.host or ""
    if mode == "client":
        return None
    if mode != "cluster" or not master.startswith(SCHEME):
        raise Refused(
            f"deploy-mode of connection {conn_id}",
            expected=f"client, or cluster with a master {SCHEME}…",
            observed=f"{mode} with the master {master or 'yarn'}",
            remedy="Set deploy-mode to client in the connection, or remove it. Standalone clusters take no Python "
            "application in cluster mode. On YARN nobody would hand the driver the brokers' properties.",
        )
    namespace = spark.extra_dejson.get("namespace")
    if not namespace:
        raise Refused(
            f"connection {conn_id}",
            expected='"namespace" in its extra, the namespace of the drivers',
            observed="none",
            remedy=f"Write {{'deploy-mode': 'cluster', 'namespace': '…'}} into the extra of {conn_id}.",
        )
    return DriverCluster(master, namespace)


def require_kubernetes_provider() -> None:
    """Refuse where Airflow's Spark provider cannot submit to Kubernetes.

    Raises:
        Refused: Its module has no client of Kubernetes, and would end with a ``NameError``.
    """
    if getattr(spark_submit, "kube_client", None) is None:
        raise Refused(
            f"Spark's master {SCHEME}…",
            expected="apache-airflow-providers-cncf-kubernetes, which the Spark provider imports",
            observed="not installed",
            remedy="Install it in the environment of Airflow's processes.",
        )


def beside_executors() -> dict[str, str]:
    """Return Spark's configurations for a driver in this pod whose executors are pods.

    Their network knows the address of a pod, and not its host name.
    """
    return {"spark.driver.host": socket.gethostbyname(socket.gethostname())}


def driver_environment(brokers: Brokers) -> dict[str, str]:
    """Return the environment variables of a driver in a pod. None of them is a secret.

    Args:
        brokers: The brokers of the job. A token callback of theirs was permitted here, so it is permitted there.
    """
    callback = brokers.properties.get(TOKEN_CALLBACK)
    return {
        PROPERTIES_VARIABLE: f"{SECRET_DIRECTORY}/{SECRET_FILE}",
        **{name: os.environ[name] for name in _PASSED if os.environ.get(name)},
        **({CALLBACKS_VARIABLE: callback} if callback else {}),
    }


def running_pod(cluster: DriverCluster, job: str, owner: Owner) -> DriverPod | None:
    """Return the pod of a job that this DAG run started and that runs. Nobody has deleted it.

    Drivers that other DAG runs left behind are stopped, because they do other work. Of the pods that have ended, the
    last one is kept for its log.

    Args:
        cluster: Where the pods are.
        job: The name of the job.
        owner: The DAG run.

    Raises:
        StreamplanError: A driver did not stop, or the API server did not answer.
    """
    mine: DriverPod | None = None
    ended = []
    for pod, status in cluster.pods(job):
        if status.is_deleted:
            continue  # its node ends it, or is lost. Who starts next fences what is left of it
        if status.has_ended:
            ended.append(pod)
        elif status.owner == owner and mine is None:
            mine = pod
        else:
            log.warning("%s of an earlier run is still alive in pod %s. It is stopped first.", job, pod)
            pod.delete()
    for pod in ended[:-1]:
        pod.delete()
    return mine


def submit(command: list[str], environment: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Let spark-submit create the pod.

    Args:
        command: The call of spark-submit.
        environment: The environment of this process; Airflow's settings and the brokers' properties stay here.
        report: Is told what spark-submit writes.

    Raises:
        AirflowException: It did not create the pod. A retry may.
    """
    hidden = ("AIRFLOW_", "_AIRFLOW_", PROPERTIES_VARIABLE)
    variables = {name: value for name, value in environment.items() if not name.startswith(hidden)}
    try:
        done = subprocess.run(
            command,
            env=submit_environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SUBMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AirflowException(f"spark-submit created no driver: {error}") from error
    for line in done.stdout.splitlines():
        report(line)
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if not line.startswith("\tat ")]  # without Java's stacks
        raise AirflowException(
            f"spark-submit created no driver. It ended with status {done.returncode}, and its last lines are:\n"
            + "\n".join(said[-_TAIL_LINES:])
        )


def hand_over(pod: DriverPod, brokers: Brokers) -> None:
    """Give a pod the client properties of its brokers, as a secret that it waits for.

    Raises:
        StreamplanError: The pod is gone, or the API server did not take the secret.
    """
    status = pod.status()
    if status is None:
        raise StreamplanError(
            f"pod {pod}",
            expected="there, because it was just created",
            observed="gone",
            remedy="Who has deleted it? A retry submits another one.",
        )
    pod.create_secret(status, brokers.property_text)


def stop_driver(pod: DriverPod, job: RemoteJob) -> None:
    """Stop a driver: by a request in Kafka, which it obeys within seconds, else by the deletion of its pod.

    A driver that ends by itself keeps its log. The pod is deleted where the request cannot be held, as before the first
    positions, and where the driver does not obey.

    Args:
        job: The job, as Kafka shows it.

    Raises:
        StreamplanError: The pod could not be deleted.
    """
    try:
        job.stop(STOP_ASK_SECONDS)
    except StreamplanError as error:
        log.warning("The pod %s is deleted, because its driver could not be asked to stop: %s", pod, error)
        pod.delete()


def stop_drivers_of(job: str, owner: Owner, brokers: Callable[[str], Brokers]) -> None:
    """Stop the drivers in pods that a DAG run started and that still run.

    Args:
        job: The name of the job.
        owner: The DAG run.
        brokers: Returns the brokers of a pipeline.

    Raises:
        StreamplanError: A driver could not be stopped.
    """
    from streamplan.kafka.remote_job import pipeline_of, remote_job

    pipeline = pipeline_of(job)
    cluster = driver_cluster(pipeline.spark_conn_id)
    for pod, status in cluster.pods(job) if cluster is not None else ():
        if status.owner == owner and not status.has_ended:
            stop_driver(pod, remote_job(job, brokers(pipeline.name)))


class DriverPodTrigger(RemoteTrigger):
    """Fires when the driver in a pod has ended. When the task is stopped, the trigger stops the driver.

    Kafka is asked whether the driver lives, and the API server whether its pod has ended. Where the triggerer may not
    ask the API server, Kafka alone decides.

    The event has the arguments of the trigger. Whoever resumes the task asks the API server for the exit status.
    """

    def __init__(self, name: str, pod: Mapping[str, str]) -> None:
        super().__init__()
        self.name = name
        self.pod = dict(pod)
        self._is_told = False

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow keeps of the trigger: its class and the arguments to make it again."""
        return f"{__name__}.{type(self).__name__}", {"name": self.name, "pod": self.pod}

    @property
    def driver(self) -> DriverPod:
        """The pod that is watched."""
        return DriverPod(**self.pod)

    @property
    def event(self) -> dict[str, Any]:
        """What the trigger fires with."""
        return {"job": self.serialize()[1]}

    def has_ended(self) -> bool:
        """Whether the API server says that the driver has ended or its pod is gone."""
        try:
            status = self.driver.status()
        except (Refused, ApiServerUnavailable) as error:
            if not self._is_told:
                log.warning("Kafka alone is asked whether %s lives: %s", self.name, error)
            self._is_told = True
            return False
        return status is None or status.has_ended

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the driver has ended."""
        await settle()
        log.info("%s runs in pod %s. Its log: %s", self.name, self.driver, self.driver.log_command)
        job = await self.remote_job(self.name)
        await await_silence(self.name, job, self.has_ended, start_seconds=POD_START_SECONDS)
        yield TriggerEvent(self.event)

    async def stop(self) -> None:
        """Stop the driver."""
        await asyncio.to_thread(stop_driver, self.driver, await self.remote_job(self.name))


def judge_end(job: str, pod: DriverPod, remaining: str) -> None:
    """Raise how the driver in a pod has ended. One that hangs is deleted.

    Args:
        job: The name of the job.
        remaining: What is left to do after exit status 0.

    Raises:
        AirflowFailException: The job refused (status 78): a retry would not help.
        AirflowException: The job ended before it was done: Airflow restarts it by a retry.
    """
    where = f"Its pod is {pod}"
    try:
        status = pod.status()
        if status is None:
            raise AirflowException(f"{job} was ended: its pod {pod} was deleted, and its log with it.")
        where = f"{where}, and `{pod.log_command}` ends:\n{pod.log_tail(_TAIL_LINES)}"
        if not status.has_ended:
            pod.delete()
    except (Refused, ApiServerUnavailable) as error:
        raise AirflowException(
            f"{job} showed no life in Kafka any more. How it ended is unknown. {where}. {error}"
        ) from error
    because = f" ({status.reason})" if status.reason else ""
    if not status.has_ended:
        raise AirflowException(
            f"{job} showed no life in Kafka, phase {status.phase}{because}, and was deleted. {where}"
        )
    ending = f"ended with exit status {status.exit_status}" if status.exit_status is not None else "was killed"
    if status.exit_status == 0:
        ending += f", but {remaining}"
    message = f"{job} {ending}{because}. {where}"
    raise AirflowFailException(message) if status.exit_status == ExitStatus.REFUSED else AirflowException(message)
