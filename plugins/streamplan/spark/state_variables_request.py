"""Hands the question for a query's state variables on to the driver; see :mod:`streamplan.spark.state_variables`.

Spark waits for this process. So it imports next to nothing, and no package.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "STREAMPLAN_STATE_VARIABLES"
"""The environment variable with the path of the driver's socket."""


def _ask() -> None:
    variables = os.environ
    path = variables.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    question = {
        "address": path or int(variables["PYTHON_WORKER_FACTORY_PORT"]),
        "secret": variables.get("PYTHON_WORKER_FACTORY_SECRET"),
        "pid": os.getpid(),
    }
    with socket.socket(socket.AF_UNIX) as driver:
        driver.connect(variables[SOCKET])
        driver.sendall(f"{json.dumps(question)}\n".encode())
        driver.recv(1)  # until the driver has answered Spark


if __name__ == "__main__":
    try:
        _ask()
    except OSError:  # the driver does not listen any more
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
