"""The plugin of Airflow: listeners, the Streams page, the button of the checks' tasks, the Data Docs, a middleware.

Airflow finds it through the entry point of the installed package, and needs no plugins folder. Where the package is not
installed but only on ``PYTHONPATH``, ``streamplan_plugin.py`` in the plugins folder shows it.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from streamplan.airflow import orphan_listener, preload
from streamplan.airflow.data_docs import URL_PREFIX, DataDocsApp, DataDocsLink, SummaryLink
from streamplan.airflow.sqlite_writes import OneWriteAtATime
from streamplan.airflow.streams_page import NAVIGATION, StreamsApp, StreamsLink
from streamplan.airflow.streams_page import URL_PREFIX as STREAMS_PREFIX


class StreamplanPlugin(AirflowPlugin):
    """What Airflow loads. The DAGs are in DAG files, see :func:`streamplan.airflow.dags.declare_dags`."""

    name = "streamplan"
    listeners: list[Any] = [orphan_listener, preload]  # noqa: RUF012  # as the base class has it
    operator_extra_links: list[Any] = [DataDocsLink(), StreamsLink(), SummaryLink()]  # noqa: RUF012
    fastapi_apps: list[Any] = [  # noqa: RUF012
        {"name": "Data Docs", "app": DataDocsApp(), "url_prefix": URL_PREFIX},
        {"name": "Streams", "app": StreamsApp(), "url_prefix": STREAMS_PREFIX},
    ]
    fastapi_root_middlewares: list[Any] = [  # noqa: RUF012
        {"name": "One write at a time", "middleware": OneWriteAtATime}
    ]
    external_views: list[Any] = [NAVIGATION]  # noqa: RUF012
