"""A long process, supervised: started by the worker, watched by the triggerer, restarted by Airflow's retries.

It holds no worker slot, survives restarts of Airflow's processes, and ends when its run is stopped in the UI.
The triggerer watches pids, so it must see the worker's processes (one machine, or one PID namespace); and so should the
API server, which stops them when nobody watches (see strays).
"""

from __future__ import annotations

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
from streamplan.airflow.connections import SPARK_CONNECTION, brokers, connection
from streamplan.airflow.triggers import GRACE_SECONDS, ProcessTrigger
from streamplan.errors import Refused
from streamplan.jobs import EX_CONFIG
from streamplan.processes import Owner
from streamplan.registry import pipeline_named
from streamplan.reports.status import status_file
from streamplan.settings import PROJECT, Settings
from streamplan.spark.submit import spark_submit_configs, submit_environment

if TYPE_CHECKING:
    from airflow.sdk import Context

DEADLINE_SECONDS = 300.0
RECORDS_PER_SECOND = 5_000
"""Far below what producer and aggregator do; only deadlines are reckoned with it."""

_TAIL_LINES = 20

# Leaves the exit status in a file: the triggerer that reads it is not the parent of the process.
_WRAPPER = '"$@"; status=$?; echo $status > "$0.part" && mv "$0.part" "$0"; exit $status'


def seconds_for(records: int, rate: int = 0) -> float:
    """How long so many records may take; ``rate`` is the limit in records a second that was asked for, 0 for none."""
    return DEADLINE_SECONDS + records / min(rate or RECORDS_PER_SECOND, RECORDS_PER_SECOND)


class SupervisedJobOperator(BaseOperator):
    """Runs :meth:`command` as a process in a process group of its own and defers until it has ended.

    Exit status 0 is success when nothing is :meth:`unfinished`, 78 a failure without retry, anything else (a kill too)
    a failure that Airflow retries.
    ``job`` names the process in the deployment's ``run/``: while one of that name is alive no second is started. One
    that this dag run started is watched on; one that another left behind is stopped first, for it does other work.
    """

    def __init__(self, *, job: str, poll_seconds: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.poll_seconds = poll_seconds

    def command(self, context: Context, settings: Settings) -> list[str]:
        """The program and its arguments."""
        raise NotImplementedError

    def unfinished(self, context: Context) -> str:
        """What is left to do after exit status 0, for a retry to go on with; empty when the job is done.

        Our jobs end with 0 when a signal stops them, too, and a signal may come from anybody.
        """
        return ""

    def execute(self, context: Context) -> None:
        settings = Settings.from_environment()
        owner = Owner(context["ti"].dag_id, context["ti"].run_id)
        process = processes.find(settings.run, self.job)
        if process is not None and process.owner == owner:
            self.log.info("%s is alive already (pid %d): watching it", self.job, process.pid)
        else:
            if process is not None:
                self.log.warning("%s of an earlier run is still alive (pid %d): stopping it", self.job, process.pid)
                processes.stop(process, grace_seconds=GRACE_SECONDS)
            try:
                process = self._start(context, settings, owner)
            except Refused as error:
                raise AirflowFailException(str(error)) from error
            self.log.info("%s runs as pid %d; its log is %s", self.job, process.pid, self._log_file(settings))
        context["task_state_store"].set(
            "process", {"pid": process.pid, "started": process.started}, retention=NEVER_EXPIRE
        )
        self.defer(
            trigger=ProcessTrigger(
                name=process.name,
                pid=process.pid,
                started=process.started,
                run_dir=str(settings.run),
                status_file=str(self._status_file(settings)),
                poll_seconds=self.poll_seconds,
            ),
            method_name="resume",
        )

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Called when the process has ended."""
        log_file = self._log_file(Settings.from_environment())
        status = event["status"]
        left = self.unfinished(context) if status == 0 else ""
        if status == 0 and not left:
            self.log.info("%s is done; its log is %s", self.job, log_file)
            return
        how = "was killed" if status is None else f"ended with exit status {status}"
        if left:
            how += f", but {left}"
        message = f"{self.job} {how}. Its log is {log_file} and ends:\n{_tail(log_file)}"
        raise AirflowFailException(message) if status == EX_CONFIG else AirflowException(message)

    def on_kill(self) -> None:
        """Called while the task runs on a worker; once it is deferred the trigger's own is."""
        process = processes.find(Settings.from_environment().run, self.job)
        if process is not None:
            processes.stop(process, grace_seconds=GRACE_SECONDS)

    def _start(self, context: Context, settings: Settings, owner: Owner) -> processes.ProcessRef:
        command = self.command(context, settings)
        status_file = self._status_file(settings)
        status_file.unlink(missing_ok=True)
        return processes.start(
            self.job,
            ["/bin/sh", "-c", _WRAPPER, str(status_file), *command],
            env=job_environment(),
            log_file=self._log_file(settings),
            run_dir=settings.run,
            owner=owner,
        )

    def _status_file(self, settings: Settings) -> Path:
        return settings.run / f"{self.job}.status"

    def _log_file(self, settings: Settings) -> Path:
        return settings.logs / f"{self.job}.log"


class ProducerOperator(SupervisedJobOperator):
    """The producer of a pipeline's test data, as far as the task ``plan`` says.

    What has an end has a deadline, too, for a deployment waits for it: a producer that fails later than
    :func:`seconds_for` after the run began is not tried again. One that is alive goes on.
    """

    def __init__(self, *, pipeline: str, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(job=f"{pipeline}-producer", **kwargs)
        self.pipeline = pipeline
        self.plan_task_id = plan_task_id

    def command(self, context: Context, settings: Settings) -> list[str]:
        plan = context["ti"].xcom_pull(task_ids=self.plan_task_id)
        extent = ["--endless"] if plan["until"] is None else ["--until", str(plan["until"])]
        rate = ["--rate", str(plan["rate"])] if plan["rate"] else []
        return [
            *(sys.executable, job_file("producer.py"), "--pipeline", self.pipeline),
            *("--bootstrap-servers", str(brokers()), *extent, *rate),
        ]

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        try:
            super().resume(context, event)
        except AirflowFailException:
            raise
        except AirflowException as error:
            plan = context["ti"].xcom_pull(task_ids=self.plan_task_id)
            began = context["dag_run"].start_date
            if plan["until"] is None or began is None:
                raise
            seconds = seconds_for(plan["until"] - plan["first"], plan["rate"])
            if time.time() < began.timestamp() + seconds:
                raise
            raise AirflowFailException(
                f"Not tried again, for it was to be done within {seconds:.0f} s. "
                f"Mend what the log tells and clear this task: it goes on where the topic ends. {error}"
            ) from error

    def unfinished(self, context: Context) -> str:
        from streamplan.kafka.test_data import next_number

        until = context["ti"].xcom_pull(task_ids=self.plan_task_id)["until"]
        if until is None:
            return "it was to go on without end"
        number = next_number(pipeline_named(self.pipeline), brokers())
        return f"the topic ends before record {number:,} and was to end before {until:,}" if number < until else ""


class AggregatorOperator(SupervisedJobOperator):
    """The streaming aggregator of a pipeline, submitted to the Spark of the connection ``spark_default``."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(job=f"{pipeline}-aggregator", **kwargs)
        self.pipeline = pipeline

    def command(self, context: Context, settings: Settings) -> list[str]:
        arguments = ["--pipeline", self.pipeline, "--bootstrap-servers", str(brokers())]
        arguments += ["--checkpoints", settings.checkpoints]
        arguments += ["--heartbeat", str(status_file(settings.reports, self.pipeline))]
        arguments += settings.aggregator_options
        hook = spark_hook(settings, self.job, arguments, instances=settings.instances)
        return hook._build_spark_submit_command(job_file("aggregator.py"))

    def unfinished(self, context: Context) -> str:
        return "it was to go on without end"


def spark_hook(settings: Settings, name: str, arguments: list[str], *, instances: int | None = None) -> SparkSubmitHook:
    """The Spark provider's hook: it resolves the connection and builds the spark-submit call.

    ``instances``  executors of one core each; cores of the cluster beyond them stay free. A master that is no cluster
                   takes no notice of it.
    """
    master = connection(SPARK_CONNECTION).host or ""  # the hook takes yarn for a connection that is missing
    jars = sorted(settings.jars.glob("*.jar")) if settings.jars else []
    return SparkSubmitHook(
        conn_id=SPARK_CONNECTION,
        conf=spark_submit_configs(master),
        jars=",".join(map(str, jars)) or None,
        py_files=str(_zipped_package(settings)),
        driver_memory="1g",
        total_executor_cores=instances,
        executor_cores=None if instances is None else 1,
        name=name,
        application_args=arguments,
    )


def job_file(name: str) -> str:
    """The path of a file in ``jobs/``."""
    return str(PROJECT / "jobs" / name)


def job_environment() -> dict[str, str]:
    """Return the environment of a job: that of this process without Airflow's settings and secrets.

    The client properties of the brokers travel here and never on a command line.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW_"))}
    return submit_environment({**inherited, **brokers().environment()})


def _zipped_package(settings: Settings) -> Path:
    """The package as a zip for ``--py-files``, so that executors elsewhere run the code of this driver."""
    target = settings.run / "streamplan.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{os.getpid()}-{target.name}")
    package = PROJECT / "plugins" / "streamplan"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*.py")):
            archive.write(file, file.relative_to(package.parent))
    part.replace(target)
    return target


def _tail(log_file: Path) -> str:
    try:
        lines = log_file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(lines[-_TAIL_LINES:])
