"""Loads Great Expectations into the scheduler, once, where its workers are forked from it.

LocalExecutor forks its workers from the scheduler and each task from a worker, so that what the scheduler has loaded
is there already. To load Great Expectations takes two to four CPU seconds, and a health run has eight tasks which need
it. Only what does not change while the scheduler runs may be loaded here: not a declared pipeline.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module

from airflow.configuration import conf
from airflow.listeners import hookimpl

MODULES = ("great_expectations", "great_expectations.render.renderer.site_builder", "confluent_kafka.admin")

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: object) -> None:
    """Airflow's announcement of a component that starts; it comes before the executor forks."""
    if "scheduler" not in sys.argv[1:2] or "LocalExecutor" not in conf.get("core", "executor"):
        return
    logging.getLogger("great_expectations._docs_decorators").setLevel(logging.WARNING)  # it tells hundreds of lines
    for module in MODULES:
        import_module(module)
    log.info("Loaded for the tasks to come: %s", ", ".join(MODULES))
