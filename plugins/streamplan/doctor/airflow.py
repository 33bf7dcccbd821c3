"""Airflow's settings. They are read in a process of its own, because Airflow reads them when it is imported.

Run as a module, it prints what it finds as one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from streamplan.doctor.finding import Finding, not_looked, ok, problem, warning
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.connection_properties import TOKEN_CALLBACK

_SECONDS = 120
_PLUGIN = "streamplan"


def ask_airflow(environment: Mapping[str, str], kafka_conn_id: str, spark_conn_id: str) -> Mapping[str, Any] | Finding:
    """Ask the Airflow that an environment describes for its settings, its connections and its components.

    Args:
        environment: Environment variables. Without ``AIRFLOW_HOME`` nothing is asked, because Airflow would create its
            files in the home directory.
        kafka_conn_id: The connection to the brokers.
        spark_conn_id: The connection to Spark.

    Returns:
        What :func:`judge_airflow` judges; a finding where there was no answer.
    """
    home = environment.get("AIRFLOW_HOME")
    if not home or not Path(home).is_dir():
        return not_looked(
            "Airflow",
            "AIRFLOW_HOME names no directory" if home else "AIRFLOW_HOME is not set",
            "Run this with the environment of Airflow's processes.",
        )
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, kafka_conn_id, spark_conn_id],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return problem("Airflow", f"no answer within {_SECONDS} s", "Look whether its metadata database answers.")
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return problem("Airflow", last, "Run `airflow version` in this environment.")


def brokers_of(found: Mapping[str, Any]) -> Brokers | None:
    """Return the brokers of the connection to Kafka; None where Airflow has no such connection that can be followed.

    Args:
        found: What :func:`ask_airflow` has found.
    """
    if found["kafka"] is None:
        return None
    # Airflow has judged the token callback, by settings of its own.
    permitted = [str(found["kafka"].get(TOKEN_CALLBACK))]
    return Brokers.from_connection(found["kafka"], name=found["conn_ids"][0], token_callbacks=permitted)


def judge_airflow(found: Mapping[str, Any], brokers: Brokers) -> Iterable[Finding]:
    """Judge what :func:`_collect` has found.

    Args:
        found: What :func:`ask_airflow` has found.
        brokers: The brokers that were looked at before.
    """
    yield ok("Airflow", f"{found['version']} with {found['executor']}, DAGs in {found['dags_folder']}")
    kafka_conn_id, spark_conn_id = found["conn_ids"]
    servers = None if found["kafka"] is None else found["kafka"].get("bootstrap.servers")
    if failure := found.get("backend_failure"):
        yield problem("secrets backend", failure, "Correct it: the connections that it has are not found.")
    if found["refused"]:
        yield problem(f"connection {kafka_conn_id}", *found["refused"])
    elif found["kafka"] is None:
        yield problem(
            f"connection {kafka_conn_id}",
            "none",
            'Add it under Admin, Connections (type Kafka), with the extra {"bootstrap.servers": "host:port"}.',
        )
    elif servers != brokers.servers:
        yield warning(
            f"connection {kafka_conn_id}",
            f"its brokers are {servers or 'not named'}",
            f"This command looked at {brokers}. Without --bootstrap-servers and --command-config it looks at those of "
            "the connection.",
        )
    else:
        yield ok(f"connection {kafka_conn_id}", servers)
    if found["spark"] is None:
        yield problem(f"connection {spark_conn_id}", "none", "Add it under Admin, Connections (type Spark).")
    else:
        yield ok(f"connection {spark_conn_id}", found["spark"])
    if found["plugin"]:
        yield ok("plugin", "Airflow finds it")
    else:
        yield problem("plugin", "Airflow does not find it", "Install streamplan where Airflow's processes run.")
    if found["health"] is None:
        yield not_looked("Airflow's components", f"{found['url']} does not answer", "Start `airflow api-server`.")
        return
    for component in ("scheduler", "dag_processor", "triggerer"):
        status = (found["health"].get(component) or {}).get("status")
        if status == "healthy":
            yield ok(component, "healthy")
        else:
            yield problem(component, str(status or "never seen"), f"Start `airflow {component.replace('_', '-')}`.")


def _collect(kafka_conn_id: str, spark_conn_id: str) -> Mapping[str, Any]:
    import airflow
    from airflow import plugins_manager
    from airflow.configuration import conf
    from airflow.models.connection import Connection

    from streamplan.airflow.connections import backend_failure, brokers_in

    url = conf.get("api", "base_url", fallback="http://localhost:8080").rstrip("/")
    kafka, spark = (_connection(Connection, name) for name in (kafka_conn_id, spark_conn_id))
    followed, refused = None, None
    if kafka is not None:
        try:
            brokers = brokers_in(kafka_conn_id, kafka)
            followed = {"bootstrap.servers": brokers.servers, **brokers.properties}
        except Refused as error:
            refused = (error.observed or str(error), error.remedy)
    return {
        "version": airflow.__version__,
        "executor": conf.get("core", "executor"),
        "dags_folder": conf.get("core", "dags_folder"),
        "conn_ids": (kafka_conn_id, spark_conn_id),
        "kafka": followed,  # with its secrets, which our parent alone reads
        "refused": refused,
        "backend_failure": backend_failure(kafka_conn_id),
        "spark": spark and (spark.host or ""),
        "plugin": any(plugin["name"] == _PLUGIN for plugin in plugins_manager.get_plugin_info()),
        "url": url,
        "health": _health(url),
    }


def _connection(connections: Any, name: str) -> Any:
    try:
        return connections.get_connection_from_secrets(name)
    except Exception:  # noqa: BLE001  a secrets backend raises what it likes where there is none
        return None


def _health(url: str) -> Mapping[str, Any] | None:
    try:
        with urlopen(f"{url}/api/v2/monitor/health", timeout=10) as answer:
            return dict(json.load(answer))
    except (URLError, ValueError, OSError):
        return None


if __name__ == "__main__":
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    sys.stdout.write(json.dumps(_collect(*sys.argv[1:])) + "\n")
