"""The registered pipelines: what has DAGs, commands and jobs.

A module registers its pipelines by its line in :data:`MODULES` and its tuple ``PIPELINES``. The modules are imported
when the pipelines are asked for, so the library itself imports no declaration.
"""

from __future__ import annotations

from importlib import import_module

from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline

MODULES = ("streamplan.pipelines",)
"""The modules whose pipelines are registered, in this order. ``streamplan.pipelines`` has the examples."""


def registered_pipelines() -> tuple[Pipeline, ...]:
    """Every registered pipeline.

    Raises:
        Refused: Two pipelines have the same name, or a declaration has faults.
    """
    pipelines: dict[str, Pipeline] = {}
    for module in MODULES:
        for pipeline in import_module(module).PIPELINES:
            if pipeline.name in pipelines:
                raise Refused(
                    f"pipeline {pipeline.name!r} of {module}",
                    expected="a name that no other pipeline has",
                    observed=f"the names {', '.join(pipelines)}",
                    remedy="Give it another name.",
                )
            pipelines[pipeline.name] = pipeline
    return tuple(pipelines.values())


def pipeline_named(name: str) -> Pipeline:
    """The registered pipeline of that name.

    Raises:
        Refused: No pipeline has the name. The error lists the names there are.
    """
    for pipeline in registered_pipelines():
        if pipeline.name == name:
            return pipeline
    raise Refused(
        f"pipeline {name!r}",
        expected=" or ".join(pipeline.name for pipeline in registered_pipelines()),
        remedy="Declare it in plugins/streamplan/pipelines and add its line to PIPELINES.",
    )
