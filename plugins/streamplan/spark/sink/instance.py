"""Tells a Python worker which instance it belongs to: the id of its Spark executor, and the host.

Spark does not tell its Python workers the executor id. The environment that they inherit from the executor's JVM has
it: ``CoarseGrainedExecutorBackend`` on Kubernetes has it as a variable, and standalone and local-cluster workers (class
``ExecutorRunner``) put it into the addresses of the executor's logs.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

DRIVER = "driver"
"""The name that Spark gives to the one executor of ``local[n]``."""

_IN_ADDRESS = re.compile(r"[?&]executorId=([^&]+)")


@dataclass(frozen=True)
class Instance:
    """An instance. ``id`` is the executor's, or ``<host>:<pid>`` of the Python daemon where it is not known."""

    id: str
    host: str


def this_instance(environment: Mapping[str, str] | None = None) -> Instance:
    """Return the instance on which the caller runs. A lost executor's successor has another id.

    Args:
        environment: The worker's environment variables; None takes those of this process.
    """
    env = os.environ if environment is None else environment
    host = socket.gethostname()
    if executor_id := env.get("SPARK_EXECUTOR_ID"):
        return Instance(executor_id, host)
    for name in ("SPARK_LOG_URL_STDERR", "SPARK_LOG_URL_STDOUT"):
        if address := _IN_ADDRESS.search(env.get(name, "")):
            return Instance(address[1], host)
    # YARN's containers and other executors have a directory of their own. The JVM of local[n] has none.
    if any(name in env for name in ("SPARK_EXECUTOR_DIRS", "CONTAINER_ID", "SPARK_LOG_URL_STDERR")):
        return Instance(f"{host}:{os.getppid()}", host)
    return Instance(DRIVER, host)
