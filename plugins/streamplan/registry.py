"""The registered pipelines: what has commands, jobs and DAGs.

Pipelines are registered from outside of the library, in two ways:

- an installed distribution names them in its entry points, in the group ``streamplan.pipelines``;
- the environment variable ``STREAMPLAN_PIPELINES`` names them, one after the other with commas.

Either names a module, ``my_pipelines.orders``, whose ``PIPELINES`` (several) or ``PIPELINE`` (one) is taken, or an
object in a module, ``my_pipelines.orders:PIPELINE``. The modules are imported when the pipelines are asked for.
Airflow's processes and the jobs inherit the environment, so they find the same pipelines.

``PIPELINES`` may hold the names of further modules, in the same form, in place of pipelines. Each of them is imported
by itself, so that one that is broken hides none of the others. A package that imports its modules in its ``__init__``
cannot be imported when one of them is broken, and then all its pipelines are missing.

The library registers none itself: ``streamplan.pipelines`` are examples.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from streamplan.errors import Refused, StreamplanError, did_you_mean
from streamplan.model.expressions import NoTruthValue
from streamplan.model.pipeline import Pipeline
from streamplan.model.words import NoSuchOperation, answer_to_import

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


@dataclass(frozen=True)
class BrokenPipeline:
    """What is registered and cannot be used.

    Attributes:
        name: The reference of the module, for its pipelines are not known; or the name that two pipelines have.
        error: What is wrong, and what to do.
    """

    name: str
    error: StreamplanError

    def __str__(self) -> str:
        return str(self.error)


def registered_pipelines() -> tuple[Pipeline, ...]:
    """Every registered pipeline that can be used. What cannot is in :func:`broken_pipelines`.

    Example: ``[pipeline.name for pipeline in registered_pipelines()]``
    """
    return _look_up()[0]


def broken_pipelines() -> tuple[BrokenPipeline, ...]:
    """What is registered and cannot be used.

    A module cannot be imported or has no pipelines, a declaration has faults, or two pipelines have the same name.
    """
    return _look_up()[1]


def pipeline_named(name: str) -> Pipeline:
    """The registered pipeline of that name.

    A module that cannot be imported does not hide the pipelines of the others.

    Example: ``pipeline_named("orders").topology.describe()``

    Raises:
        Refused: No pipeline has the name, or several have it. The error lists the names there are with the nearest
            one, and what cannot be imported.
    """
    pipelines, broken = _look_up()
    for pipeline in pipelines:
        if pipeline.name == name:
            return pipeline
    for each in broken:
        if each.name == name:
            raise each.error
    names = [pipeline.name for pipeline in pipelines]
    kind = Refused if broken else UnknownPipeline
    raise kind(
        f"pipeline {name!r}",
        expected=" or ".join(names) or "one that is registered",
        observed="" if names else "none is registered",
        remedy="\n".join([" ".join(filter(None, [did_you_mean(name, names), HOW_TO_REGISTER])), *map(str, broken)]),
    )


def pipelines_of_file(file: Path) -> tuple[Pipeline, ...]:
    """Register the pipelines of a file in place of those that :data:`VARIABLE` names.

    This process and those that it starts find them: the file is imported as a module, of its package where it is in
    one.

    Args:
        file: A Python file.

    Raises:
        StreamplanError: The file does not exist, cannot be imported, or declares no pipeline.
    """
    file = file.resolve()
    if not file.is_file():
        raise Refused(f"the file {file}", expected="a Python file that declares a pipeline", observed="no such file")
    root, module = file.parent, file.stem
    while (root / "__init__.py").is_file():
        root, module = root.parent, f"{root.name}.{module}"
    sys.path.insert(0, str(root))
    path = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(path), VARIABLE: module}
    taken = getattr(sys.modules.get(module), "__file__", file)
    if Path(str(taken)).resolve() != file:
        raise Refused(
            f"the file {file}",
            expected="a name that no other module has",
            observed=f"{taken}, which Python imports as {module}",
            remedy="Give the file another name.",
        )
    return tuple(each for each in _named_by(Registration(module, str(file))) if isinstance(each, Pipeline))


def chosen_pipelines(names: Iterable[str]) -> tuple[tuple[Pipeline, ...], tuple[BrokenPipeline, ...]]:
    """Return the pipelines of those names and what is broken of them; all that is registered where there is no name.

    Args:
        names: The names. One that no pipeline has is broken, and ends nothing for the others.
    """
    if not (wanted := tuple(dict.fromkeys(names))):
        return _look_up()
    pipelines, broken = [], []
    for name in wanted:
        try:
            pipelines.append(pipeline_named(name))
        except StreamplanError as error:
            broken.append(BrokenPipeline(name, error))
    return tuple(pipelines), tuple(broken)


def _look_up() -> tuple[tuple[Pipeline, ...], tuple[BrokenPipeline, ...]]:
    """Import everything that is registered. Return the pipelines, and what is broken."""
    found: dict[str, dict[int, tuple[Pipeline, Registration]]] = {}
    broken: dict[str, BrokenPipeline] = {}
    waiting = [*registrations()]
    met = {registration.reference for registration in waiting}
    while waiting:
        registration = waiting.pop(0)
        try:
            named = _named_by(registration)
        except StreamplanError as error:
            broken[registration.reference] = BrokenPipeline(registration.reference, error)
            continue
        further = [replace(registration, reference=each) for each in named if isinstance(each, str)]
        waiting = [*(each for each in further if each.reference not in met), *waiting]
        met.update(each.reference for each in further)
        for pipeline in named:
            if isinstance(pipeline, Pipeline):
                found.setdefault(pipeline.name, {}).setdefault(id(pipeline), (pipeline, registration))
    sound = []
    for name, places in found.items():
        (pipeline, _), *others = places.values()
        if others:
            broken[name] = BrokenPipeline(name, _same_name(name, [str(place) for _, place in places.values()]))
        else:
            sound.append(pipeline)
    return tuple(sound), tuple(broken.values())


def _named_by(registration: Registration) -> tuple[Pipeline | str, ...]:
    """Import what a registration names. Return its pipelines, and the references that it has in place of pipelines.

    Raises:
        StreamplanError: It cannot be imported, or it is no pipeline. A declaration with faults raises its own error.
    """
    module_name, _, attribute = registration.reference.partition(":")
    try:
        module = import_module(module_name)
        if not attribute:
            attribute = next((name for name in ("PIPELINES", "PIPELINE") if hasattr(module, name)), "")
            _require_one_assignment(module, attribute)
        found = getattr(module, attribute, None)
    except StreamplanError:
        raise
    except (NoSuchOperation, NoTruthValue) as error:
        raise Refused(f"module {registration} has a fault:\n  {_place(error, module_name)}{error}") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything, and may call exit()
        told = error.msg if isinstance(error, SyntaxError) else error
        raise Refused(
            f"module {registration}",
            expected="one that can be imported",
            observed=f"{_place(error, module_name)}{type(error).__name__}: {told}",
            remedy=_remedy(error, module_name),
        ) from error
    named = (found,) if isinstance(found, Pipeline) else found
    if isinstance(named, tuple | list) and all(isinstance(each, Pipeline | str) for each in named):
        return tuple(named)
    raise Refused(
        f"module {registration}",
        expected=f"a Pipeline, or a tuple of them or of modules' names, in {attribute or 'PIPELINES or PIPELINE'}",
        observed="no such name" if found is None else type(found).__name__,
        remedy=f"The module is {getattr(module, '__file__', None) or module_name}. "
        "Write PIPELINE = Pipeline(...) there, or name another object after a colon, as in module:object.",
    )


def _require_one_assignment(module: ModuleType, name: str) -> None:
    """Refuse a file that calls two pipelines PIPELINE: Python knows the last one alone."""
    file = Path(getattr(module, "__file__", None) or "")
    # A job imports the modules from an archive, and a module that a program makes has no file.
    if name != "PIPELINE" or file.suffix != ".py" or not file.is_file():
        return
    lines = []
    for statement in ast.parse(file.read_bytes()).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        changes = any(isinstance(each, ast.Name) and each.id == name for each in _read_by(statement))
        if any(isinstance(target, ast.Name) and target.id == name for target in targets) and not changes:
            lines.append(str(statement.lineno))
    if len(lines) > 1:
        raise Refused(
            f"the file {file}",
            expected="PIPELINE of one pipeline",
            observed=f"PIPELINE in the lines {' and '.join(lines)}, of which Python knows the last one",
            remedy="Give each pipeline a name of its own, and write PIPELINES = (FIRST, SECOND).",
        )


def _read_by(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement reads: ``PIPELINE = replace(PIPELINE, …)`` makes no second pipeline."""
    return (each for each in ast.walk(statement) if isinstance(getattr(each, "ctx", None), ast.Load))


def _place(error: BaseException, module_name: str) -> str:
    """The line of the user's code that raised: the last one that belongs to no library."""
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        return f"{error.filename}:{error.lineno}: "
    lines = [*_lines(error)]
    own = [line for line in lines if line.is_of(module_name)] or [line for line in lines if not line.is_ours]
    return f"{own[-1].file}:{own[-1].number}: " if own else ""


@dataclass(frozen=True)
class _Line:
    """A line of a traceback."""

    file: str
    number: int
    module: str

    @property
    def is_ours(self) -> bool:
        return self.file.startswith(("<", _PACKAGE)) or self.module.partition(".")[0] == "importlib"

    def is_of(self, module_name: str) -> bool:
        """Whether it is in the package of that module, or in another module that is no library."""
        package = module_name.rpartition(".")[0] or module_name
        if self.module in (module_name, package) or self.module.startswith((f"{module_name}.", f"{package}.")):
            return True
        return not self.is_ours and not self.file.startswith(_LIBRARIES)


_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _lines(error: BaseException) -> Iterator[_Line]:
    for frame, number in traceback.walk_tb(error.__traceback__):
        yield _Line(frame.f_code.co_filename, number, str(frame.f_globals.get("__name__", "")))


def _remedy(error: BaseException, module_name: str) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None and isinstance(error, ImportError) and error.name == "streamplan":
        word = re.search(r"cannot import name '(\w+)'", str(error))  # Python 3.12 has it in name_from
        if word and (answer := answer_to_import(word[1], sys.modules[error.name].__all__)):
            return answer
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
