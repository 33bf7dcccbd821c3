"""A supervised job: the worker starts its process, the triggerer watches it, and Airflow's retries restart it.

The process holds no worker slot, survives restarts of Airflow's processes, and ends when its run is stopped in Airflow.
A triggerer in the worker's PID namespace watches and stops the process itself. Any other asks Kafka whether the job
lives, and stops it by a fence (:mod:`streamplan.kafka.remote_job`).

Where a worker ends with its task, as under the Kubernetes executor, the task does not defer but waits for the process
(:attr:`streamplan.settings.Settings.deferrable`). An aggregator whose driver is a pod needs no worker, and its task
always defers (:mod:`streamplan.airflow.driver_pods`).
"""

from __future__ import annotations

import io
import os
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import NEVER_EXPIRE

from streamplan import processes
from streamplan.airflow.connections import brokers, connection
from streamplan.airflow.driver_pods import (
    DriverCluster,
    DriverPodTrigger,
    beside_executors,
    driver_cluster,
    driver_environment,
    hand_over,
    judge_end,
    require_kubernetes_provider,
    running_pod,
    submit,
)
from streamplan.airflow.triggers import GRACE_SECONDS, ProcessTrigger
from streamplan.errors import Refused
from streamplan.files import ReportPaths, write_atomically
from streamplan.kafka.brokers import Brokers
from streamplan.kubernetes.api_server import SCHEME
from streamplan.kubernetes.driver_pod import DriverPod, pod_configs
from streamplan.processes import Owner
from streamplan.programs import ExitStatus
from streamplan.registry import pipeline_named
from streamplan.settings import PACKAGE, Settings
from streamplan.spark.submit import image_python, in_image, spark_submit_configs, submit_environment

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

DEADLINE_SECONDS = 300.0
"""The part of a deadline that does not depend on the number of records."""

RECORDS_PER_SECOND = 5_000
"""Deadlines are computed with this rate. Producer and aggregator are far faster."""

_TAIL_LINES = 20
"""The error of a process that ended shows this many of the last lines of its log."""

# Leaves the exit status in a file: the triggerer that reads it is not the parent of the process. The file also says
# whose status it is, because an earlier process elsewhere may end later and write the same file.
_WRAPPER = (
    '"$@"; status=$?; echo $status $$ $(readlink /proc/self/ns/pid) > "$0.part" && mv "$0.part" "$0"; exit $status'
)


def seconds_for(records: int, rate: int = 0) -> float:
    """Return how many seconds the test data may take.

    Args:
        records: The number of records.
        rate: The limit that was asked for, in records a second; 0 for none.
    """
    return DEADLINE_SECONDS + records / min(rate or RECORDS_PER_SECOND, RECORDS_PER_SECOND)


class SupervisedJobOperator(BaseOperator):
    """Runs :meth:`command` as a process in a process group of its own and defers until it has ended.

    Exit status 0 is a success when nothing is :meth:`unfinished`. Status 78 is a failure without a retry. Airflow
    retries after any other status, and after a kill.

    Attributes:
        pipeline: The name of the pipeline.
        job: The name of the process in the deployment's directory ``run/``. While a process of this name is alive here,
            no second one is started. The operator goes on to watch a process that this DAG run started. It stops a
            process that another DAG run left behind, because that one does other work. A process elsewhere is fenced by
            the one that is started, and ends.
        poll_seconds: How often the triggerer looks whether the process is alive.
    """

    def __init__(self, *, pipeline: str, kind: str, poll_seconds: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.job = f"{pipeline}-{kind}"
        self.poll_seconds = poll_seconds

    def command(self, context: Context, settings: Settings) -> list[str]:
        """Return the program and its arguments."""
        raise NotImplementedError

    def unfinished(self, context: Context) -> str:
        """Say what is left to do after exit status 0; a retry goes on with it. Empty when the job is done.

        Our jobs also end with status 0 when a signal stops them, and anybody may have sent the signal.
        """
        return ""

    def until(self, context: Context) -> int | None:
        """Return the first record number that the job does not write; None for a job that writes no numbers."""
        return None

    def execute(self, context: Context) -> None:
        """Start the process, unless this DAG run has started it here already, and defer."""
        settings = Settings.from_environment()
        owner = Owner(context["ti"].dag_id, context["ti"].run_id)
        process = processes.find(settings.run, self.job)
        if process is not None and process.is_elsewhere:
            self.log.warning(
                "%s was started in another PID namespace (%s). If that process still runs, the one that starts "
                "here fences it, and the old process ends.",
                self.job,
                process.namespace,
            )
            process = None
        if process is not None and process.owner == owner:
            self.log.info("%s (pid %d) is alive already. It is watched again.", self.job, process.pid)
        else:
            if process is not None:
                self.log.warning(
                    "%s (pid %d) of an earlier run is still alive. It is stopped first.", self.job, process.pid
                )
                processes.stop(process, grace_seconds=GRACE_SECONDS)
            try:
                process = self._start(context, settings, owner)
            except Refused as error:
                raise AirflowFailException(str(error)) from error
            self.log.info("%s runs as pid %d. Its log is %s", self.job, process.pid, self._log_file(settings))
        context["task_state_store"].set(
            "process", {"pid": process.pid, "started": process.started}, retention=NEVER_EXPIRE
        )
        status_file = self._status_file(settings)
        trigger = ProcessTrigger.of(process, settings.run, status_file, self.poll_seconds, self.until(context))
        if settings.deferrable:
            self.defer(trigger=trigger, method_name="resume")
        while processes.is_alive(process):
            time.sleep(self.poll_seconds)
        processes.stop(process, grace_seconds=GRACE_SECONDS)  # what a process that was killed has left
        self.resume(context, trigger.event)

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Decide on the outcome of the task when the job has ended.

        Args:
            event: The event of :class:`ProcessTrigger`.

        Raises:
            AirflowFailException: The job refused (status 78): a retry would not help.
            AirflowException: The job ended before it was done: Airflow restarts it by a retry.
        """
        settings = Settings.from_environment()
        self._properties_file(settings).unlink(missing_ok=True)  # a job that has begun its work has removed it
        log_file = self._log_file(settings)
        trigger = ProcessTrigger(**event["job"])
        process = trigger.process
        status = trigger.status() if event["status"] is None else event["status"]
        log, ending = f"{log_file} and ends:\n{_tail(log_file)}", "was killed"
        if not process.is_elsewhere:
            processes.stop(process, grace_seconds=GRACE_SECONDS)  # where Kafka saw no life of it, it may hang
        elif processes.find(settings.run, self.job) == process:
            processes.forget(process)
        elif status is None:
            log, ending = (
                f"{log_file} on its host",
                f"ended in another PID namespace ({process.namespace}), its exit status unknown here",
            )
        is_unknown = status is None and process.is_elsewhere
        remaining = self.unfinished(context) if status == 0 or is_unknown else ""
        if not remaining and (status == 0 or is_unknown):
            self.log.info("%s is done. Its log is %s", self.job, log_file)
            return
        if status is not None:
            ending = f"ended with exit status {status}"
        if remaining:
            ending += f", but {remaining}"
        message = f"{self.job} {ending}. Its log is {log}"
        raise AirflowFailException(message) if status == ExitStatus.REFUSED else AirflowException(message)

    def on_kill(self) -> None:
        """Stop the process. Airflow calls this while a worker runs the task, and the trigger's while it is deferred."""
        process = processes.find(Settings.from_environment().run, self.job)
        if process is not None and not process.is_elsewhere:
            processes.stop(process, grace_seconds=GRACE_SECONDS)

    def _start(self, context: Context, settings: Settings, owner: Owner) -> processes.ProcessRef:
        command = self.command(context, settings)
        status_file = self._status_file(settings)
        status_file.unlink(missing_ok=True)
        return processes.start(
            self.job,
            ["/bin/sh", "-c", _WRAPPER, str(status_file), *command],
            env=job_environment(brokers(self.pipeline), self._properties_file(settings)),
            log_file=self._log_file(settings),
            run_dir=settings.run,
            owner=owner,
        )

    def _status_file(self, settings: Settings) -> Path:
        return settings.run / f"{self.job}.status"

    def _properties_file(self, settings: Settings) -> Path:
        return settings.run / f"{self.job}.kafka"

    def _log_file(self, settings: Settings) -> Path:
        return settings.logs / f"{self.job}.log"


class ProducerOperator(SupervisedJobOperator):
    """Runs the producer of a pipeline's test data, up to the record that the task ``plan`` decided.

    A deployment waits for a producer with an end, so such a producer has a deadline: when it fails later than
    :func:`seconds_for` after the run began, it is not tried again. A producer that is alive goes on.
    """

    def __init__(self, *, pipeline: str, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, kind="producer", **kwargs)
        self.plan_task_id = plan_task_id

    def command(self, context: Context, settings: Settings) -> list[str]:
        """Return the call of the job ``producer``."""
        plan = context["ti"].xcom_pull(task_ids=self.plan_task_id)
        extent = ["--endless"] if plan["until"] is None else ["--until", str(plan["until"])]
        rate = ["--rate", str(plan["rate"])] if plan["rate"] else []
        return [
            *(sys.executable, job_file("producer.py"), "--pipeline", self.pipeline),
            *("--bootstrap-servers", str(brokers(self.pipeline)), *extent, *rate),
        ]

    def until(self, context: Context) -> int | None:
        """Return the first number that the task ``plan`` left out; None for a producer without end."""
        until: int | None = context["ti"].xcom_pull(task_ids=self.plan_task_id)["until"]
        return until

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Decide on the outcome; beyond the deadline there is no further try."""
        try:
            super().resume(context, event)
        except AirflowFailException:
            raise
        except AirflowException as error:
            plan = context["ti"].xcom_pull(task_ids=self.plan_task_id)
            started_at = context["dag_run"].start_date
            if plan["until"] is None or started_at is None:
                raise
            seconds = seconds_for(plan["until"] - plan["first"], plan["rate"])
            if time.time() < started_at.timestamp() + seconds:
                raise
            raise AirflowFailException(
                f"There is no further try, because the producer had to be done within {seconds:.0f} s. "
                f"Correct what its log says, then clear this task: it goes on where the topic ends. {error}"
            ) from error

    def unfinished(self, context: Context) -> str:
        """Say which records are missing in the topic."""
        from streamplan.kafka.test_data import next_number

        until = self.until(context)
        if until is None:
            return "it must run until its DAG run is stopped"
        number = next_number(pipeline_named(self.pipeline), brokers(self.pipeline))
        return f"the topic ends before record {number:,} and was to end before {until:,}" if number < until else ""


class AggregatorOperator(SupervisedJobOperator):
    """Runs the streaming aggregator of a pipeline on the Spark of its connection ``spark_conn_id``."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, kind="aggregator", **kwargs)

    def execute(self, context: Context) -> None:
        """Start the driver beside the task, or as a pod where the connection asks for that, and defer."""
        try:
            cluster = driver_cluster(pipeline_named(self.pipeline).spark_conn_id)
            pod = None if cluster is None else self._pod(context, cluster)
        except Refused as error:
            raise AirflowFailException(str(error)) from error
        if pod is None:
            super().execute(context)
            return
        self.log.info("%s runs in pod %s. Its log: %s", self.job, pod, pod.log_command)
        context["task_state_store"].set("pod", {**pod.fields()}, retention=NEVER_EXPIRE)
        # A pod needs no worker, so the task defers whatever STREAMPLAN_DEFERRABLE says of processes.
        self.defer(trigger=DriverPodTrigger(self.job, pod.fields()), method_name="resume")

    def _pod(self, context: Context, cluster: DriverCluster) -> DriverPod:
        """Return the pod of this DAG run, which is submitted where it does not run yet. It has its secret."""
        owner, servers = Owner(context["ti"].dag_id, context["ti"].run_id), brokers(self.pipeline)
        pod = running_pod(cluster, self.job, owner)
        if pod is not None:
            self.log.info("%s is alive already in pod %s. It is watched again.", self.job, pod)
        else:
            pod = DriverPod.new(cluster.master, cluster.namespace, self.job)
            configs = pod_configs(pod, self.job, owner, driver_environment(servers))
            submit(self.command(context, Settings.from_environment(), configs), os.environ, self.log.info)
        hand_over(pod, servers)
        return pod

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Decide on the outcome of the task when the driver has ended: see :meth:`SupervisedJobOperator.resume`."""
        if "pod" not in event["job"]:
            super().resume(context, event)
            return
        judge_end(self.job, DriverPodTrigger(**event["job"]).driver, self.unfinished(context))

    def command(self, context: Context, settings: Settings, pod_configs: Mapping[str, str] | None = None) -> list[str]:
        """Return the call of spark-submit.

        Args:
            settings: The directories of the deployment.
            pod_configs: Spark's configurations for a driver in a pod; None for a driver that runs beside the task.
        """
        arguments = ["--pipeline", self.pipeline, "--bootstrap-servers", str(brokers(self.pipeline))]
        arguments += ["--checkpoints", settings.checkpoints]
        arguments += ["--heartbeat", str(ReportPaths(settings.reports, self.pipeline).aggregator_status)]
        arguments += settings.aggregator_options
        hook = spark_hook(
            settings,
            self.pipeline,
            "aggregator",
            arguments,
            instances=settings.instances,
            pod_configs=pod_configs,
        )
        file = job_file("aggregator.py") if pod_configs is None else in_image(job_file("aggregator.py"))
        command: list[str] = hook._build_spark_submit_command(file)
        return [*command, "--seen", _newest_instance(self.pipeline)]

    def unfinished(self, context: Context) -> str:
        """Say that an aggregator never ends by itself."""
        return "it must run until its DAG run is stopped"

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Say to Airflow's OpenLineage provider what is read and written, and from which positions on."""
        from streamplan.airflow.lineage import aggregator_lineage

        return aggregator_lineage(pipeline_named(self.pipeline))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Say up to which positions was read and written, also where the task failed or was stopped."""
        return self.get_openlineage_facets_on_start()


def _newest_instance(pipeline: str) -> str:
    """Return what tells the stops that come while an aggregator starts from the earlier ones."""
    from streamplan.kafka.task_ownership import newest_instance
    from streamplan.kafka.topics import resolve_pipeline

    with_brokers = brokers(pipeline)
    return newest_instance(resolve_pipeline(pipeline_named(pipeline), with_brokers), with_brokers)


def spark_hook(
    settings: Settings,
    pipeline: str,
    kind: str,
    arguments: list[str],
    *,
    instances: int | None = None,
    pod_configs: Mapping[str, str] | None = None,
) -> SparkSubmitHook:
    """Make the Spark provider's hook, which reads the connection and builds the call of spark-submit.

    Args:
        settings: The directories of the deployment.
        pipeline: The name of the pipeline.
        kind: What the job does. The name of the Spark application is ``<pipeline>-<kind>``.
        instances: The number of executors, of one core each. Other cores of the cluster stay free. A local master
            ignores it.
        pod_configs: Spark's configurations for a driver in a pod; None for a driver that runs beside the task.

    Raises:
        Refused: The connection asks for a deploy mode that is not served, see
            :func:`~streamplan.airflow.driver_pods.driver_cluster`.
    """
    conn_id = pipeline_named(pipeline).spark_conn_id
    spark = connection(conn_id)
    master = spark.host or ""  # without a connection the hook would take yarn
    jars = sorted(settings.jars.glob("*.jar")) if settings.jars else []
    cluster = driver_cluster(conn_id)
    is_kubernetes = master.startswith(SCHEME)
    if is_kubernetes:
        require_kubernetes_provider()
    configs = spark_submit_configs(master)
    if pod_configs is not None:
        configs |= {**pod_configs, **image_python()}
    elif is_kubernetes:
        configs |= beside_executors()
    return SparkSubmitHook(
        conn_id=conn_id,
        conf=configs,
        jars=",".join(str(jar) if pod_configs is None else in_image(jar) for jar in jars) or None,
        py_files=str(_zipped_package(settings)) if pod_configs is None else None,
        driver_memory=settings.driver_memory,
        total_executor_cores=None if is_kubernetes else instances,
        num_executors=instances if is_kubernetes else None,
        executor_cores=None if instances is None else 1,
        name=f"{pipeline}-{kind}",
        application_args=arguments,
        # A job that ends leaves its result in a file, so its driver runs beside the task.
        deploy_mode="client" if cluster is not None and pod_configs is None else None,
    )


def job_file(name: str) -> str:
    """Return the path of a file in ``streamplan/jobs/``."""
    return str(PACKAGE / "jobs" / name)


def job_environment(brokers: Brokers, properties_file: Path) -> dict[str, str]:
    """Return the environment of a job: that of this process without Airflow's settings and secrets.

    Args:
        brokers: The brokers of the job.
        properties_file: The file in which the job finds the client properties of the brokers. The job removes it.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW_"))}
    return submit_environment({**inherited, **brokers.hand_over(properties_file)})


def _zipped_package(settings: Settings) -> Path:
    """Write the package as a zip for ``--py-files``, so that executors on other hosts run the code of this driver."""
    target = settings.run / "streamplan.zip"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):  # also the schemas that declarations name
            if file.is_file() and file.parent.name != "__pycache__":
                archive.write(file, file.relative_to(PACKAGE.parent))
    write_atomically(target, content.getvalue())
    return target


def _tail(log_file: Path) -> str:
    """Return the last lines of a log."""
    try:
        lines = log_file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(lines[-_TAIL_LINES:])
