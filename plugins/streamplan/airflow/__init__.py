"""Airflow: the DAGs of each declared pipeline, their tasks, and the pages of the Data Docs.

A DAG file needs ``from streamplan.airflow import declare_dags``. The names are imported when they are first used,
because other processes of Airflow import parts of this package and need no DAGs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamplan.airflow.dags import declare_dags
    from streamplan.airflow.deadlines import verification_deadline
    from streamplan.airflow.registered_dags import declare_registered_dags, refuse_broken_pipelines

__all__ = ["declare_dags", "declare_registered_dags", "refuse_broken_pipelines", "verification_deadline"]

_MODULES = {
    "declare_dags": "dags",
    "declare_registered_dags": "registered_dags",
    "refuse_broken_pipelines": "registered_dags",
    "verification_deadline": "deadlines",
}


if not TYPE_CHECKING:  # a type checker would take every name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"streamplan.airflow.{_MODULES[name]}"), name)
