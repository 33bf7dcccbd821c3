"""Which instance this is, asked inside a Python worker: the id of its Spark executor, and the host.

Spark tells its Python workers no executor id. The environment that they inherit from the executor's JVM does: Spark's
``CoarseGrainedExecutorBackend`` on Kubernetes has it as a variable, and standalone and local-cluster workers (class
``ExecutorRunner``) put it into the addresses of the executor's logs.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

DRIVER = "driver"
"""Spark's own name of the one executor of ``local[n]``."""

_IN_ADDRESS = re.compile(r"[?&]executorId=([^&]+)")


@dataclass(frozen=True)
class Instance:
    """``id`` is the executor's, or ``<host>:<pid>`` of the Python daemon where it is not known."""

    id: str
    host: str


def this_instance(environment: Mapping[str, str] | None = None) -> Instance:
    """The instance on which the caller runs. A lost executor's successor has another id."""
    env = os.environ if environment is None else environment
    host = socket.gethostname()
    if own := env.get("SPARK_EXECUTOR_ID"):
        return Instance(own, host)
    for name in ("SPARK_LOG_URL_STDERR", "SPARK_LOG_URL_STDOUT"):
        if found := _IN_ADDRESS.search(env.get(name, "")):
            return Instance(found[1], host)
    # YARN's containers and other executors have a directory of their own; the JVM of local[n] has nothing of the kind.
    if any(name in env for name in ("SPARK_EXECUTOR_DIRS", "CONTAINER_ID", "SPARK_LOG_URL_STDERR")):
        return Instance(f"{host}:{os.getppid()}", host)
    return Instance(DRIVER, host)
