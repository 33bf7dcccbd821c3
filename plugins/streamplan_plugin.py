"""The plugin of Airflow: its listeners, the button of the checks' tasks, and the pages of the Data Docs."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin
from streamplan.airflow import orphan_listener, preload
from streamplan.airflow.data_docs import URL_PREFIX, DataDocsApp, DataDocsLink


class StreamplanPlugin(AirflowPlugin):
    """What Airflow finds in the plugins folder. The DAGs are in ``dags/``."""

    name = "streamplan"
    listeners: ClassVar[list[Any]] = [orphan_listener, preload]
    operator_extra_links: ClassVar[list[Any]] = [DataDocsLink()]
    fastapi_apps: ClassVar[list[Any]] = [{"name": "Data Docs", "app": DataDocsApp(), "url_prefix": URL_PREFIX}]
