"""The registered pipelines: what has commands, jobs and DAGs.

Pipelines are registered from outside of the library, in two ways:

- an installed distribution names them in its entry points, in the group ``streamplan.pipelines``;
- the environment variable ``STREAMPLAN_PIPELINES`` names them, one after the other with commas.

Either names a module, ``my_pipelines.orders``, whose ``PIPELINES`` (several) or ``PIPELINE`` (one) is taken, or an
object in a module, ``my_pipelines.orders:PIPELINE``. The modules are imported when the pipelines are asked for.
Airflow's processes and the jobs inherit the environment, so they find the same pipelines.

The library registers none itself: ``streamplan.pipelines`` are examples.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from streamplan.errors import Refused, StreamplanError, did_you_mean
from streamplan.model.pipeline import Pipeline

GROUP = "streamplan.pipelines"
"""The group of entry points."""

VARIABLE = "STREAMPLAN_PIPELINES"
"""The environment variable."""

HOW_TO_REGISTER = (
    f"Name the module of a pipeline in {VARIABLE}, or in an entry point of the group {GROUP!r}. "
    f"{VARIABLE}=streamplan.pipelines registers the examples."
)


class UnknownPipeline(Refused):
    """No pipeline has a name, and every registration could be imported."""


@dataclass(frozen=True)
class Registration:
    """One line that names pipelines.

    Attributes:
        reference: ``module`` or ``module:object``.
        source: Where the line stands.
    """

    reference: str
    source: str

    def __str__(self) -> str:
        return f"{self.reference} ({self.source})"


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of the installed distributions. They are read once: each takes a file."""
    return tuple(entry_points(group=GROUP))


def registrations() -> tuple[Registration, ...]:
    """Return what is registered: first the entry points by their names, then the environment variable's."""
    found = [
        Registration(
            point.value, f"entry point {point.name!r}" + (f" of {point.dist.name}" if point.dist is not None else "")
        )
        for point in sorted(installed(), key=lambda point: (point.name, point.value))
    ]
    words = (word.strip() for word in os.environ.get(VARIABLE, "").split(","))
    found += [Registration(word, VARIABLE) for word in words if word]
    first: dict[str, Registration] = {}
    for registration in found:
        first.setdefault(registration.reference, registration)
    return tuple(first.values())


def registered_pipelines() -> tuple[Pipeline, ...]:
    """Every registered pipeline.

    Raises:
        Refused: A module cannot be imported or has no pipelines, a declaration has faults, or two pipelines have the
            same name.
    """
    found: dict[str, tuple[Pipeline, Registration]] = {}
    for registration in registrations():
        for pipeline in _pipelines_of(registration):
            known, place = found.setdefault(pipeline.name, (pipeline, registration))
            if known is not pipeline:
                raise _same_name(pipeline.name, [str(place), str(registration)])
    return tuple(pipeline for pipeline, _ in found.values())


def pipeline_named(name: str) -> Pipeline:
    """The registered pipeline of that name.

    A module that cannot be imported does not hide the pipelines of the others.

    Raises:
        Refused: No pipeline has the name, or several have it. The error lists the names there are with the nearest
            one, and what cannot be imported.
    """
    found: dict[int, tuple[Pipeline, Registration]] = {}
    names: dict[str, None] = {}
    faults: list[str] = []
    for registration in registrations():
        try:
            pipelines = _pipelines_of(registration)
        except Refused as error:
            faults.append(str(error))
            continue
        names.update(dict.fromkeys(pipeline.name for pipeline in pipelines))
        for pipeline in pipelines:
            if pipeline.name == name:
                found.setdefault(id(pipeline), (pipeline, registration))
    if len(found) > 1:
        raise _same_name(name, [str(place) for _, place in found.values()])
    for pipeline, _ in found.values():
        return pipeline
    kind = Refused if faults else UnknownPipeline
    raise kind(
        f"pipeline {name!r}",
        expected=" or ".join(names) or "one that is registered",
        observed="" if names else "none is registered",
        remedy="\n".join([" ".join(filter(None, [did_you_mean(name, names), HOW_TO_REGISTER])), *faults]),
    )


def _pipelines_of(registration: Registration) -> tuple[Pipeline, ...]:
    """Import what a registration names.

    Raises:
        Refused: It cannot be imported, or it is no pipeline. A declaration with faults raises its own error.
    """
    module_name, _, attribute = registration.reference.partition(":")
    try:
        module = import_module(module_name)
    except StreamplanError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise Refused(
            f"module {registration}",
            expected="one that can be imported",
            observed=f"{_place(error)}{type(error).__name__}: {error}",
            remedy=_remedy(error, module_name),
        ) from error
    if not attribute:
        attribute = next((name for name in ("PIPELINES", "PIPELINE") if hasattr(module, name)), "")
    found = getattr(module, attribute, None)
    pipelines = (found,) if isinstance(found, Pipeline) else found
    if isinstance(pipelines, tuple | list) and all(isinstance(each, Pipeline) for each in pipelines):
        return tuple(pipelines)
    raise Refused(
        f"module {registration}",
        expected=f"a Pipeline, or a tuple of them, in {attribute or 'PIPELINES or PIPELINE'}",
        observed="no such name" if found is None else type(found).__name__,
        remedy=f"The module is {getattr(module, '__file__', None) or module_name}. "
        "Write PIPELINE = Pipeline(...) there, or name another object after a colon, as in module:object.",
    )


def _place(error: Exception) -> str:
    """The line of the user's code that raised."""
    if isinstance(error, SyntaxError):
        return ""  # its message has the line
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith("<frozen") and frame.filename != __file__]
    own = [frame for frame in own if "importlib" not in frame.filename]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""


def _remedy(error: Exception, module_name: str) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{module_name}.".startswith(f"{missing}."):
        return (
            "Install the distribution that has it where this process runs, or put its directory into PYTHONPATH. "
            "If it is gone, remove it from the registration."
        )
    if missing is not None:
        return f"The module imports {missing}: install that where this process runs, too."
    return "Correct the module, or remove it from the registration."


def _same_name(name: str, places: list[str]) -> Refused:
    return Refused(
        f"pipeline {name!r}",
        expected="a name that no other pipeline has",
        observed=f"two of that name, in {' and '.join(places)}",
        remedy="Give it another name, or register one of them.",
    )
