"""How a source of ticks is named among the sources of a query. This module is pure."""

from __future__ import annotations

TICKS = ""
"""Stands for the topic of a source that reads none: :func:`streamplan.spark.sources.read_ticks`."""
