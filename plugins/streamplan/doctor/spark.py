"""The executors of a Spark cluster: their Python, their way to the brokers, the checkpoints, their clocks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamplan.doctor.finding import Finding, ok, problem, warning
from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.settings import Settings
from streamplan.spark.submit import submit_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTORS_SECONDS = 90.0
_SKEW_SECONDS = 2.0
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
_PACKAGES = ("pyspark", "confluent-kafka", "pyarrow", "numpy")
"""What the Python workers import."""


def look_at_spark(master: str, brokers: Brokers, settings: Settings) -> Iterable[Finding]:
    """Run one small task on each core of a Spark cluster, and compare what it finds with this process.

    Args:
        master: The URL of the cluster, as in ``spark.master``.
        brokers: The brokers that the executors must reach.
        settings: The deployment, whose checkpoints they must reach.
    """
    try:
        os.environ.update(submit_environment(os.environ, local=master.startswith("local")))
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("streamplan doctor").master(master)
        for name, value in _QUIET.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except (StreamplanError, RuntimeError, OSError) as error:
        remedy = "Look whether the driver finds Java and reaches the cluster."
        yield problem(f"Spark {master}", str(error).splitlines()[0], remedy)
        return
    try:
        rows = _ask_executors(spark, brokers, settings.checkpoints)
    except TimeoutError:
        yield problem(
            f"Spark {master}",
            f"no executor within {_EXECUTORS_SECONDS:g} s",
            "Has the cluster free cores and memory, and can its workers reach the driver's host and ports "
            "(spark.driver.host, spark.driver.port)?",
        )
    except Exception as error:  # noqa: BLE001  whatever a Python worker dies of is what is looked for
        remedy = "Install the driver's version of Python on each worker."
        yield problem(f"Python on the executors of {master}", _cause(error), remedy)
    else:
        yield from compare_executors(master, rows, settings.checkpoints)
    finally:
        spark.stop()


def compare_executors(master: str, rows: Sequence[Mapping[str, Any]], checkpoints: str) -> Iterable[Finding]:
    """Compare what the executors have found with this process.

    Args:
        master: The URL of the cluster.
        rows: What :func:`_look` gave on each of them.
        checkpoints: The path or URI of the checkpoints.
    """
    hosts = sorted({row["host"] for row in rows})
    yield ok(f"Spark {master}", f"{len(rows)} tasks ran on {', '.join(hosts)}")
    own = own_versions()
    for part, version in own.items():
        others = {row["host"]: row["versions"].get(part) for row in rows if row["versions"].get(part) != version}
        if others:
            listed = ", ".join(f"{found or 'none'} on {host}" for host, found in sorted(others.items()))
            yield problem(
                f"{part} on the executors", f"{listed}; {version} here", "Install the driver's version there."
            )
    if all(row["versions"] == own for row in rows):
        yield ok("Python on the executors", ", ".join(f"{part} {version}" for part, version in own.items()))
    unreachable = {
        f"{address} from {row['host']}: {reason}"
        for row in rows
        for address, reason in row["brokers"].items()
        if reason
    }
    if unreachable:
        yield problem(
            "brokers from the executors",
            "; ".join(sorted(unreachable)),
            "Each executor connects to the advertised listeners of the brokers: open these ports.",
        )
    else:
        yield ok("brokers from the executors", "every address accepts connections from every host")
    local = urlsplit(checkpoints).scheme in ("", "file")
    without = sorted({row["host"] for row in rows if row["checkpoints"] is False})
    if local and without:
        yield problem(
            "checkpoints",
            f"{checkpoints} does not exist on {', '.join(without)}",
            "Every executor must reach the checkpoints: mount one directory everywhere, or set STREAMPLAN_CHECKPOINTS "
            "to a URI of a shared file system.",
        )
    elif local and len(hosts) > 1:
        yield warning(
            "checkpoints",
            f"{checkpoints} exists on {len(hosts)} hosts; whether it is one directory cannot be seen",
            "It must be: a shared mount, or a URI of a shared file system in STREAMPLAN_CHECKPOINTS.",
        )
    else:
        yield ok("checkpoints", f"{checkpoints} can be reached")
    skew = max((abs(row["skew"]) for row in rows), default=0.0)
    if skew > _SKEW_SECONDS:
        yield warning("clocks", f"up to {skew:.1f} s apart", "Let every host take its time from one source (NTP).")
    else:
        yield ok("clocks", "executors and driver agree")


def _ask_executors(spark: SparkSession, brokers: Brokers, checkpoints: str) -> Sequence[Mapping[str, Any]]:
    """Look twice: the second time no worker has to start, so that its clock can be compared closely."""
    context = spark.sparkContext
    slots = max(context.defaultParallelism, 1)
    look = _look(brokers.addresses, checkpoints)
    found: list[Any] = []

    def ask() -> None:
        try:
            context.parallelize(range(slots), slots).mapPartitions(look).collect()
            before = time.time()
            rows = context.parallelize(range(slots), slots).mapPartitions(look).collect()
            after = time.time()
            found.append(
                [{**row, "skew": min(row["time"] - before, 0.0) + max(row["time"] - after, 0.0)} for row in rows]
            )
        except Exception as error:  # noqa: BLE001  it is raised again below
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_EXECUTORS_SECONDS)
    if not found:
        context.cancelAllJobs()
        raise TimeoutError
    if isinstance(found[0], Exception):
        raise found[0]
    return list(found[0])


def _look(addresses: Sequence[str], checkpoints: str) -> Callable[[Iterable[int]], Iterable[Mapping[str, Any]]]:
    """Return what a Python worker runs. It is sent whole: a worker may lack the package ``streamplan``."""
    packages = _PACKAGES

    def look(partition: Iterable[int]) -> Iterable[Mapping[str, Any]]:
        import os
        import platform
        import socket
        import time
        from importlib import metadata
        from urllib.parse import urlsplit

        versions = {"python": platform.python_version()}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        reached: dict[str, str] = {}
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), 5).close()
                reached[address] = ""
            except (OSError, ValueError) as error:
                reached[address] = str(error)
        path = urlsplit(checkpoints)
        yield {
            "host": socket.gethostname(),
            "versions": versions,
            "brokers": reached,
            "checkpoints": os.path.isdir(path.path) if path.scheme in ("", "file") else None,
            "time": time.time(),
        }

    return look


def own_versions() -> Mapping[str, str]:
    """Return the versions of Python and its packages here, as the same look finds them."""
    (here,) = _look((), "")(())
    return dict(here["versions"])


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "[PYTHON" in line]
    return (told or lines or [type(error).__name__])[-1]
