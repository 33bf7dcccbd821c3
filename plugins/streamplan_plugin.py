"""Shows Airflow the plugin of a package that is not installed but only on ``PYTHONPATH``, as in this clone."""

from __future__ import annotations

from importlib.metadata import entry_points

# Airflow loads the plugin of an installed package by itself, and reports a second one of the same name as an error.
if not entry_points(group="airflow.plugins", name="streamplan"):
    from streamplan.airflow.plugin import StreamplanPlugin

    __all__ = ["StreamplanPlugin"]
