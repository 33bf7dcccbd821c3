"""A listener that loads Great Expectations into the scheduler once, before its workers are forked from it.

LocalExecutor forks its workers from the scheduler, and each task from a worker: a task finds loaded what the scheduler
has loaded. Great Expectations takes several CPU seconds to load, more than all else that a health run does, and
the task ``data_docs`` of each run needs it: ``benchmarks/NOTES.md`` has the figures. Only what does not change while
the scheduler runs may be loaded here; a declared pipeline may change.
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
    """Load the modules. Airflow calls this when a component starts, before the executor forks."""
    if "scheduler" not in sys.argv[1:2] or "LocalExecutor" not in conf.get("core", "executor"):
        return
    # Great Expectations logs hundreds of lines about its own documentation while it is imported.
    logging.getLogger("great_expectations._docs_decorators").setLevel(logging.WARNING)
    for module in MODULES:
        import_module(module)
    log.info("The scheduler has loaded these modules for its tasks: %s", ", ".join(MODULES))
