"""The example pipelines, which the package names by their modules."""

from __future__ import annotations

from importlib import import_module

from streamplan.model.pipeline import Pipeline
from streamplan.pipelines import PIPELINES as MODULES

PIPELINES: tuple[Pipeline, ...] = tuple(import_module(module).PIPELINE for module in MODULES)
