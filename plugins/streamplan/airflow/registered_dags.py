"""The DAGs of all registered pipelines, where a broken pipeline hides no other.

Airflow shows import errors by file, and hides every DAG of a file that has one, also those that the file has declared
before. So two files of ``dags/`` share the work: one declares the DAGs of the pipelines that can be used, and the other
has no DAG and raises what is wrong with the rest.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from streamplan.airflow.dags import declare_dags
from streamplan.errors import Refused, StreamplanError
from streamplan.registry import BrokenPipeline, broken_pipelines, registered_pipelines


def declare_registered_dags(**options: Any) -> dict[str, DAG]:
    """Make the DAGs of every registered pipeline that can be used.

    Args:
        **options: Keyword arguments of :func:`streamplan.airflow.dags.declare_dags`, such as ``notifiers``.

    Returns:
        The DAGs by their ids.

    Raises:
        Exception: No pipeline can be declared with these options. It is that of the first.
    """
    dags, faults = _declare(options)
    if faults and not dags:
        raise faults[0][1]
    return dags


def refuse_broken_pipelines() -> None:
    """Raise what is wrong with registered pipelines, for Airflow's list of import errors.

    Raises:
        Refused: A pipeline cannot be used. The error has all of them, with the lines where they are declared.
    """
    broken = [*broken_pipelines()]
    for name, error in _declare({})[1]:
        told = error if isinstance(error, StreamplanError) else _cannot_be_declared(name, error)
        broken.append(BrokenPipeline(name, told))
    if broken:
        heading = "a registered pipeline is" if len(broken) == 1 else f"{len(broken)} registered pipelines are"
        raise Refused(f"{heading} broken:\n" + "\n".join(map(str, broken)))


def _declare(options: dict[str, Any]) -> tuple[dict[str, DAG], list[tuple[str, Exception]]]:
    """Return the DAGs, and the errors of the pipelines that have none."""
    dags: dict[str, DAG] = {}
    faults = []
    for pipeline in registered_pipelines():
        try:
            dags.update(declare_dags(pipeline, **options))
        except Exception as error:  # noqa: BLE001  # whatever a declaration makes Airflow raise belongs to it alone
            faults.append((pipeline.name, error))
    return dags, faults


def _cannot_be_declared(name: str, error: Exception) -> Refused:
    return Refused(
        f"the DAGs of pipeline {name!r}",
        expected="DAGs that Airflow takes",
        observed=f"{type(error).__name__}: {error}",
        remedy="Look at the values that its declaration gives to Pipeline(...).",
    )
