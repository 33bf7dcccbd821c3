"""Airflow on this machine: SQLite, LocalExecutor, and its four processes, each with an entry of its own in ``run/``.

``airflow standalone`` is not used, because it leaves its children behind when a signal stops it.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from streamplan import processes
from streamplan.errors import Refused, StreamplanError
from streamplan.files import write_atomically
from streamplan.kafka.brokers import Brokers
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.jars import SPARK, require
from streamplan.local.ports import LOOPBACK, Ports
from streamplan.registry import VARIABLE
from streamplan.settings import Settings
from streamplan.spark.submit import LOCAL_MASTER, import_path, local_spark_variables

# The scheduler's and the triggerer's log servers would listen on every address, and only their ports can be set. They
# are not needed here: the API server reads the log files itself.
PROCESSES: dict[str, tuple[str, ...]] = {
    "airflow-api-server": ("api-server",),
    "airflow-scheduler": ("scheduler", "--skip-serve-logs"),
    "airflow-dag-processor": ("dag-processor",),
    "airflow-triggerer": ("triggerer", "--skip-serve-logs"),
}
API_SERVER = "airflow-api-server"
DEFAULT_PORTS = {API_SERVER: 8080}
USER = "admin"
READY_SECONDS = 300.0
MIGRATE_SECONDS = 180.0
GRACE_SECONDS = 15.0
SPARK_DEFAULT = {"conn_type": "spark", "host": LOCAL_MASTER}


class LocalAirflow:
    """Airflow of the deployment that ``settings`` describe. Its database survives ``down`` and ``up``.

    DAGs and plugins are those of the working directory: ``dags`` and ``plugins`` of a clone, or of a user's repository.
    """

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        *,
        environment: Mapping[str, str] | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._outer = os.environ if environment is None else environment
        self._report = report
        self._home = settings.home / "airflow"
        self._project = Path.cwd()
        self._variables_file = self._home / "environment.json"
        self._passwords_file = self._home / "passwords.json"
        self._connections_file = self._home / "connections.json"
        self._migrated_file = self._home / "migrated"

    @property
    def url(self) -> str:
        """The address of the UI and the API."""
        return f"http://{LOOPBACK}:{self._ports[API_SERVER]}"

    @property
    def password(self) -> str:
        """The generated password of the user ``admin``.

        Raises:
            Refused: Airflow was never started, so there is no password yet.
        """
        try:
            return str(json.loads(self._passwords_file.read_text())[USER])
        except FileNotFoundError as error:
            raise Refused(
                "Airflow's password",
                expected=f"in {self._passwords_file}",
                observed="no such file",
                remedy="Start the stack first: python -m streamplan up",
            ) from error

    def rest(self) -> AirflowRest:
        """Return a client of the REST API, logged in as ``admin`` with its first call."""
        return AirflowRest(self.url, USER, self.password)

    def log_file(self, name: str) -> Path:
        """Return the log of one of the processes."""
        return self._settings.logs / f"{name}.log"

    def running(self) -> dict[str, processes.ProcessRef]:
        """Return those of the four processes that are alive, by name."""
        registered = processes.registered(self._settings.run)
        return {ref.name: ref for ref in registered if ref.name in PROCESSES and processes.is_alive(ref)}

    def start(self, kafka: Brokers) -> None:
        """Start the processes that are not running, without waiting until they serve (:meth:`wait_until_ready`).

        When a setting has changed since the running ones were started, all are restarted.

        Args:
            kafka: The brokers of the connection ``kafka_default``.
        """
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        running = self.running()
        if API_SERVER not in running:
            self._ports.choose(API_SERVER, self._report)
        before = self._read_variables()
        variables = self._variables(before)
        if running and variables != before:
            self._report("Airflow's settings have changed: restarting it.")
            self.down()
            running = {}
        write_atomically(self._variables_file, json.dumps(variables, indent=2), mode=0o600)
        self._write_connection(kafka)
        if not self._passwords_file.exists():
            password = {USER: secrets.token_urlsafe(9)}
            write_atomically(self._passwords_file, json.dumps(password, indent=2), mode=0o600)
        environment = self.environment(variables)
        self._migrate(environment)
        for name, command in PROCESSES.items():
            if name not in running:
                processes.start(
                    name,
                    [sys.executable, "-m", "airflow", *command],
                    env=environment,
                    log_file=self.log_file(name),
                    cwd=self._project,
                    run_dir=self._settings.run,
                )

    def wait_until_ready(self, *, deadline_seconds: float = READY_SECONDS) -> None:
        """Wait until each of the four has sent a heartbeat since it was started.

        Raises:
            StreamplanError: The deadline has passed, or one of the four has ended. It names Airflow's address, the
                seconds waited and the log.
        """
        begun = time.monotonic()
        while faults := self.faults():
            waited = time.monotonic() - begun
            ended = [name for name in faults if name not in self.running()]
            if ended or waited > deadline_seconds:
                name = (ended or list(faults))[0]
                raise StreamplanError(
                    f"Airflow at {self.url}",
                    expected="api-server, scheduler, dag-processor and triggerer healthy",
                    observed=f"{'; '.join(faults.values())} after {waited:.0f} s",
                    remedy=f"See {self.log_file(name)}.",
                )
            time.sleep(0.5)

    def faults(self) -> dict[str, str]:
        """Return what is wrong now, by the name of the process; empty when all four are healthy."""
        running = self.running()
        faults = {name: f"{name} is not running" for name in PROCESSES if name not in running}
        if faults:
            return faults
        rest = self.rest()
        try:
            # This call needs our password: another Airflow that has taken the port refuses it.
            rest.import_errors()
            health = rest.health()
        except StreamplanError as error:
            return {API_SERVER: str(error)}
        finally:
            rest.close()
        for name, ref in running.items():
            component = name.removeprefix("airflow-").replace("-", "_")
            if name == API_SERVER:
                continue  # it has answered
            state = health.get(component, {})
            heartbeat = state.get(f"latest_{component}_heartbeat")
            # Airflow also counts the heartbeat of an earlier process that has just ended.
            if state.get("status") != "healthy" or datetime.fromisoformat(heartbeat).timestamp() < ref.started - 1:
                faults[name] = f"{name} has sent no heartbeat"
        return faults

    def down(self) -> list[str]:
        """Stop the four at once and return the names of those that ran. Supervised jobs go on."""
        running = self.running()
        with ThreadPoolExecutor(max_workers=len(PROCESSES)) as pool:
            list(pool.map(lambda ref: processes.stop(ref, grace_seconds=GRACE_SECONDS), running.values()))
        return list(running)

    def environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment of Airflow's processes, which its tasks and their Spark jobs inherit.

        Settings of another Airflow or Spark on this machine are left out, but Airflow's connections are not.

        Args:
            variables: What this deployment sets; by default what it set at the last start.
        """
        deployed = self._read_variables() if variables is None else variables
        inherited = {
            name: value
            for name, value in self._outer.items()
            if not name.startswith(("AIRFLOW_", "SPARK_", "PYSPARK_")) or name.startswith("AIRFLOW_CONN_")
        }
        # spark-submit is in the directory of the interpreter.
        path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}"
        no_proxy = ",".join(
            filter(None, (inherited.get("NO_PROXY") or inherited.get("no_proxy"), LOOPBACK, "localhost"))
        )
        return {**inherited, **deployed, "PATH": path, "NO_PROXY": no_proxy, "no_proxy": no_proxy}

    def _variables(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that this deployment sets. Secret keys are taken from ``before``, the last start."""

        def key(name: str) -> str:
            # Fernet needs 32 random bytes in URL-safe base64. The other keys may have the same form.
            return before.get(name) or urlsafe_b64encode(secrets.token_bytes(32)).decode()

        settings = self._settings
        logs = settings.logs / "airflow"
        return {
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._project / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self._project / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__FERNET_KEY": key("AIRFLOW__CORE__FERNET_KEY"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords_file),
            # Airflow's default asks the name server and hangs without a network.
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            # Four processes write to one file. SQLite gives up after 5 s by default when another one holds the lock.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._home / 'airflow.db'}?timeout=60",
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(self._ports[API_SERVER]),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": key("AIRFLOW__API__SECRET_KEY"),
            "AIRFLOW__API__LOG_FETCH_TIMEOUT_SEC": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": key("AIRFLOW__API_AUTH__JWT_SECRET"),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(logs),
            "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(logs / "dag_processor"),
            "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
            # A person waits in front of this machine, so Airflow looks for work, new files and lost tasks more often
            # than by default.
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
            # Seconds until another triggerer takes over the triggers of one that was killed; 30 by default.
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
            # A worker also notices the end of its task by this interval, in seconds; 5 by default.
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            # The connection to Kafka is in a private file: an environment can be listed.
            "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
            "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(self._connections_file)}),
            # A connection in the environment replaces ours: so the jobs can run on a cluster.
            "AIRFLOW_CONN_SPARK_DEFAULT": self._outer.get("AIRFLOW_CONN_SPARK_DEFAULT") or json.dumps(SPARK_DEFAULT),
            "STREAMPLAN_HOME": str(settings.home),
            # What was deployed once goes on, also when the next demonstration is of another pipeline.
            VARIABLE: ",".join(
                dict.fromkeys(
                    word
                    for words in (before.get(VARIABLE, ""), self._outer.get(VARIABLE, ""))
                    for word in words.split(",")
                    if word
                )
            ),
            "STREAMPLAN_CHECKPOINTS": settings.checkpoints,
            "STREAMPLAN_REPORTS": str(settings.reports),
            "STREAMPLAN_JARS": str(settings.jars or require(SPARK, self._outer)),
            "STREAMPLAN_INSTANCES": str(settings.instances or ""),
            "PYTHONPATH": import_path(self._outer),
            **local_spark_variables(self._outer),
            "SCARF_ANALYTICS": "false",
            "DO_NOT_TRACK": "1",
            "GX_ANALYTICS_ENABLED": "False",
        }

    def require_startable(self) -> None:
        """Refuse what would fail later.

        Raises:
            Refused: Airflow is not installed, or the working directory has no DAGs.
        """
        if find_spec("airflow") is None:
            raise Refused(
                "Airflow",
                expected="installed",
                observed="not found",
                remedy="Run `pip install 'streamplan[airflow]'`, or `make setup` in a clone.",
            )
        dags = self._project / "dags"
        if not dags.is_dir():
            raise Refused(
                f"DAG files in {dags}",
                expected="a directory",
                observed="none",
                remedy="Start Airflow from the directory of your repository.",
            )

    def _write_connection(self, kafka: Brokers) -> None:
        """Write the connection ``kafka_default`` for Airflow's secrets backend, which reads the file anew each time."""
        extra = {"bootstrap.servers": kafka.servers, **kafka.properties, **kafka.registry}
        connections = {"kafka_default": {"conn_type": "kafka", "extra": json.dumps(extra)}}
        write_atomically(self._connections_file, json.dumps(connections), mode=0o600)

    def _read_variables(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._variables_file.read_text()))
        except FileNotFoundError:
            return {}

    def _migrate(self, environment: Mapping[str, str]) -> None:
        """Create or upgrade the database, once for each version of Airflow."""
        installed = version("apache-airflow")
        migrated = self._migrated_file.read_text() if self._migrated_file.exists() else None
        if migrated == installed:
            return
        if migrated is None:
            # A first attempt that was interrupted may have left a database that cannot be upgraded.
            for leftover in self._home.glob("airflow.db*"):
                leftover.unlink()
        log_file = self.log_file("airflow-db-migrate")
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._report("Preparing Airflow's database.")
        try:
            with log_file.open("ab") as log:
                subprocess.run(
                    [sys.executable, "-m", "airflow", "db", "migrate"],
                    check=True,
                    env=dict(environment),
                    cwd=self._project,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=MIGRATE_SECONDS,
                )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise StreamplanError(
                "Airflow's database", expected="migrated", observed=str(error), remedy=f"See {log_file}."
            ) from error
        self._migrated_file.write_text(installed)
