"""What Airflow must see of the package besides its DAGs."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin
from streamplan.airflow import orphan_listener as strays
from streamplan.airflow import preload
from streamplan.airflow.data_docs import URL_PREFIX, DataDocsApp, DataDocsLink


class StreamplanPlugin(AirflowPlugin):
    name = "streamplan"
    listeners: ClassVar[list[Any]] = [strays, preload]
    operator_extra_links: ClassVar[list[Any]] = [DataDocsLink()]
    fastapi_apps: ClassVar[list[Any]] = [{"name": "Data Docs", "app": DataDocsApp(), "url_prefix": URL_PREFIX}]
