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
from streamplan.kafka.brokers import Brokers

_SECONDS = 120
_CONNECTIONS = ("kafka_default", "spark_default")
_PLUGIN = "streamplan"


def look_at_airflow(environment: Mapping[str, str], brokers: Brokers) -> Iterable[Finding]:
    """Look at the Airflow that an environment describes: connections, plugin, and the components that must run.

    Args:
        environment: Environment variables. Without ``AIRFLOW_HOME`` nothing is looked at, because Airflow would create
            its files in the home directory.
        brokers: The brokers that were looked at before.
    """
    home = environment.get("AIRFLOW_HOME")
    if not home or not Path(home).is_dir():
        yield not_looked(
            "Airflow",
            "AIRFLOW_HOME names no directory" if home else "AIRFLOW_HOME is not set",
            "Run this with the environment of Airflow's processes.",
        )
        return
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
        found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        yield problem("Airflow", f"no answer within {_SECONDS} s", "Does its metadata database answer?")
        return
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        yield problem("Airflow", last, "Run `airflow version` in this environment.")
        return
    yield from judge_airflow(found, brokers)


def judge_airflow(found: Mapping[str, Any], brokers: Brokers) -> Iterable[Finding]:
    """Judge what :func:`_collect` has found.

    Args:
        found: The values.
        brokers: The brokers that were looked at before.
    """
    yield ok("Airflow", f"{found['version']} with {found['executor']}, DAGs in {found['dags_folder']}")
    servers = found["connections"]["kafka_default"]
    if servers is None:
        yield problem(
            "connection kafka_default",
            "none",
            'Add it under Admin, Connections (type Kafka), with the extra {"bootstrap.servers": "host:port"}.',
        )
    elif servers != brokers.servers:
        yield warning(
            "connection kafka_default", f"its brokers are {servers or 'not named'}", f"This looked at {brokers}."
        )
    else:
        yield ok("connection kafka_default", servers)
    if found["connections"]["spark_default"] is None:
        yield problem("connection spark_default", "none", "Add it under Admin, Connections (type Spark).")
    else:
        yield ok("connection spark_default", found["connections"]["spark_default"])
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


def _collect() -> Mapping[str, Any]:
    import airflow
    from airflow import plugins_manager
    from airflow.configuration import conf
    from airflow.models.connection import Connection

    url = conf.get("api", "base_url", fallback="http://localhost:8080").rstrip("/")
    return {
        "version": airflow.__version__,
        "executor": conf.get("core", "executor"),
        "dags_folder": conf.get("core", "dags_folder"),
        "connections": {name: _connection(Connection, name) for name in _CONNECTIONS},
        "plugin": any(plugin["name"] == _PLUGIN for plugin in plugins_manager.get_plugin_info()),
        "url": url,
        "health": _health(url),
    }


def _connection(connections: Any, name: str) -> str | None:
    """The brokers of a Kafka connection, or the master of a Spark connection; no secret."""
    try:
        found = connections.get_connection_from_secrets(name)
    except Exception:  # noqa: BLE001  a secrets backend raises what it likes where there is none
        return None
    return str(found.extra_dejson.get("bootstrap.servers") or found.host or "")


def _health(url: str) -> Mapping[str, Any] | None:
    try:
        with urlopen(f"{url}/api/v2/monitor/health", timeout=10) as answer:
            return dict(json.load(answer))
    except (URLError, ValueError, OSError):
        return None


if __name__ == "__main__":
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    sys.stdout.write(json.dumps(_collect()) + "\n")
