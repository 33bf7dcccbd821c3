"""Airflow: the DAGs of each declared pipeline, their tasks, and the pages of the Data Docs.

A DAG file needs ``from streamplan.airflow import declare_dags``. The name is imported when it is first used, because
other processes of Airflow import parts of this package and need no DAGs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplan.airflow.dags import declare_dags

__all__ = ["declare_dags"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("streamplan.airflow.dags"), name)
