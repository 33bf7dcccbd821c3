"""What Airflow must see of the package besides its DAGs."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin
from streamplan.adapters.airflow import strays


class StreamplanPlugin(AirflowPlugin):
    name = "streamplan"
    listeners: ClassVar[list[Any]] = [strays]
