"""Answers Spark's question for the state variables of a query in the driver, where Spark would start processes.

Before the first micro-batch of a query, Spark asks each ``transformWithState`` of Python for its state variables. For
each it starts a Python process, which imports all that the processor needs, and waits for it: about a second for each
state. The driver has imported all of that. So the Python that Spark starts is a small program here: it hands this
question on to a thread of the driver, and becomes the real Python for everything else.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle
import shlex
import socket
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import transform_with_state_driver_worker as asked
from pyspark.util import local_connect_and_auth

from streamplan.spark import state_variables_request as request

_PROGRAM = """\
#!/bin/sh
if [ "$2" = {module} ]; then exec {python} -I -S {request} "$@"; fi
exec {python} "$@"
"""

_directories: list[TemporaryDirectory[str]] = []
"""The directories of this process, which are removed when it ends."""


def answer_in_driver(spark: SparkSession) -> None:
    """Let this process tell the state variables of all queries of a session, if Spark runs in this process's JVM alone.

    Elsewhere Spark starts Python as ever: the program would have to lie on the executors' machines, too.

    Args:
        spark: The session. A second call for its Spark does nothing.
    """
    context = spark.sparkContext
    if str(context.master).partition("[")[0] != "local" or request.SOCKET in context.environment:
        return
    directory = TemporaryDirectory(prefix="streamplan-python-")
    program, asks, address = (Path(directory.name, name) for name in ("python", "request.py", "s"))
    asks.write_text(inspect.getsource(request))  # the package may lie in an archive, which Python would open as a whole
    words = {"module": asked.__name__, "python": context.pythonExec, "request": str(asks)}
    program.write_text(_PROGRAM.format_map({name: shlex.quote(word) for name, word in words.items()}))
    program.chmod(0o700)
    if not os.access(program, os.X_OK):  # nothing in this file system can be executed
        return
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(address))
    except OSError:  # the path of the directory is too long for a socket
        listener.close()
        return
    listener.listen()
    _directories.append(directory)
    asked.pickle_ser = _Apart()
    vars(asked)["print"] = lambda *_: None  # it tells each step on the standard output
    threading.Thread(target=_serve, args=(listener,), name="state-variables", daemon=True).start()
    context.pythonExec = str(program)
    context.environment[request.SOCKET] = str(address)


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection,), name="state-variables", daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """Answer one question as Spark's worker does. The process that asked ends when its connection is closed."""
    with connection, connection.makefile("r") as lines:
        asking: Mapping[str, Any] = json.loads(lines.readline())
        file, _ = local_connect_and_auth(asking["address"], asking["secret"])
        with closing(file):
            file.write(asking["pid"].to_bytes(4, "big"))
            file.flush()
            asked.main(file, file)


class _Apart(CPickleSerializer):
    """Makes classes of its own of what is pickled by value.

    cloudpickle knows classes that this process has pickled. It would take them, and replace their methods by copies.
    """

    def loads(self, obj: bytes, encoding: str = "bytes") -> Any:
        return _ApartUnpickler(io.BytesIO(obj), encoding=encoding).load()


class _ApartUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if name in ("_make_skeleton_class", "_make_skeleton_enum"):
            *_, tracker, extra = range(found.__code__.co_argcount)
            return lambda *given: found(*given[:tracker], None, *given[extra:])
        return found
