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
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from streamplan.errors import Refused, StreamplanError, did_you_mean
from streamplan.judged_words import OF_ANOTHER_LIBRARY, described
from streamplan.model.expressions import NoTruthValue
from streamplan.model.kstream import KStream
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.words import NoSuchOperation, answer_to_import, operations_of, window_field_called
from streamplan.near_modules import file_meant, module_meant, module_of

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

    @property
    def is_file(self) -> bool:
        """Whether it is a file that a command was given, and not what a deployment registers."""
        return self.source.endswith(".py")

    @property
    def subject(self) -> str:
        """What an error is about."""
        return f"the file {self.source}" if self.is_file else f"module {self}"

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
    if name.endswith(".py"):
        how = (
            f"Register its module, PYTHONPATH={Path(name).parent} {VARIABLE}={Path(name).stem}, and name the pipeline."
        )
        raise kind(f"pipeline {name!r}", expected="the name of a pipeline", observed="a file", remedy=how)
    raise kind(
        f"pipeline {name!r}",
        expected=" or ".join(names) or "one that is registered",
        observed="" if names else "none is registered",
        remedy="\n".join(
            [
                " ".join(filter(None, [file_meant(name) or did_you_mean(name, names), HOW_TO_REGISTER])),
                *map(str, broken),
            ]
        ),
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
        near = [each.name for each in file.parent.glob("*.py") if each.is_file()] if file.parent.is_dir() else []
        raise UnknownPipeline(
            f"the file {file}",
            expected="a Python file that declares a pipeline",
            observed="a directory" if file.is_dir() else "no such file",
            remedy=did_you_mean(file.name, near),
        )
    if "." in file.stem or file.stem == "__init__":
        raise Refused(
            f"the file {file}",
            expected="a name without a further dot, so that Python can import it"
            if "." in file.stem
            else "a file of its own beside __init__.py",
            observed=file.name,
            remedy="Give the file another name.",
        )
    module, root = module_of(file)
    if os.pathsep in str(root):
        raise Refused(
            f"the file {file}",
            expected=f"a folder without {os.pathsep!r}, which separates the folders of PYTHONPATH",
            observed=str(root),
            remedy="Give the folder another name.",
        )
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


_FILE = re.compile(r"(.*\.py)(?:(:)(.*))?", re.DOTALL)
"""A file, or a pipeline of one. A folder may have a colon in its name."""


def names_file(text: str) -> bool:
    """Whether a text is ``file.py``, or ``file.py:NAME``, and no name of a pipeline."""
    return _FILE.fullmatch(text) is not None


def pipeline_of_file(text: str) -> Pipeline:
    """Register the pipelines of a file, as :func:`pipelines_of_file`, and return one of them.

    Args:
        text: ``file.py``, or ``file.py:NAME`` where it has several.

    Raises:
        StreamplanError: As of :func:`pipelines_of_file`, or the file has several, or none of that name.
    """
    found = _FILE.fullmatch(text)
    file, colon, name = found.groups(default="") if found is not None else (text, "", "")
    pipelines = {pipeline.name: pipeline for pipeline in pipelines_of_file(Path(file))}
    chosen = pipelines.get(name) if colon else next(iter(pipelines.values())) if len(pipelines) == 1 else None
    if chosen is None:
        raise Refused(
            f"the pipeline of {file}",
            expected=" or ".join(f"{file}:{each}" for each in pipelines) or f"one in PIPELINE of {file}",
            observed=text,
        )
    return chosen


def chosen_pipelines(names: Iterable[str]) -> tuple[tuple[Pipeline, ...], tuple[BrokenPipeline, ...]]:
    """Return the pipelines of those names and what is broken of them; all that is registered where there is no name.

    Args:
        names: The names, or files that declare pipelines. One that no pipeline has is broken, and ends nothing for the
            others.
    """
    if not (wanted := tuple(dict.fromkeys(names))):
        return _look_up()
    pipelines, broken = [], []
    for name in wanted:
        try:
            if not names_file(name):
                pipelines.append(pipeline_named(name))
            else:
                pipelines += pipelines_of_file(Path(name)) if name.endswith(".py") else [pipeline_of_file(name)]
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
        raise Refused(f"{registration.subject} has a fault:\n  {_place(error, module_name)}{error}") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything, and may call exit()
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        # The file of the library, and not of the user, stands behind what cannot be imported from it.
        told = re.sub(r" \((most likely due to a circular import)\)| \(/[^)]*\)$", "", told)
        if isinstance(error, AttributeError) and told.startswith("module 'streamplan' "):
            told = told.partition(". ")[0]  # the answer is the remedy
        raise Refused(
            registration.subject,
            expected="one that can be imported",
            observed=f"{_place(error, module_name)}{type(error).__name__}{told and f': {told}'}",
            remedy=_remedy(error, registration, module_name),
        ) from error
    named = (found,) if isinstance(found, Pipeline) else found
    if isinstance(named, tuple | list) and all(isinstance(each, Pipeline | str) for each in named):
        return tuple(named)
    others = "" if registration.is_file else ", or name another object after a colon, as in module:object"
    where = "" if registration.is_file else f"The module is {getattr(module, '__file__', None) or module_name}. "
    raise Refused(
        registration.subject,
        expected=f"a Pipeline, or a tuple of them or of modules' names, in {attribute or 'PIPELINES or PIPELINE'}",
        observed="no such name" if found is None else described(found),
        remedy=where
        + (_pipelines_elsewhere(module, attribute, found) or f"Write PIPELINE = Pipeline(…) there{others}."),
    )


def _pipelines_elsewhere(module: ModuleType, attribute: str, found: object) -> str:
    """What to write where the module has a pipeline under another name, or a function that makes one."""
    attribute = attribute or "PIPELINE"
    if isinstance(found, FunctionType):
        return f"Call it: {attribute} = {found.__name__}()."
    if isinstance(found, str):
        return f"Write {attribute} = ({found!r},): a tuple with one module has a comma."
    if isinstance(found, set | frozenset | dict):
        return f"Write a tuple, in parentheses: {attribute} = (…,)."
    if isinstance(found, tuple | list) and found:
        wrong = next(each for each in found if not isinstance(each, Pipeline | str))
        if isinstance(wrong, ModuleType):
            return f"Write the name of the module, and do not import it: {wrong.__name__!r}."
        return f"Leave out {described(wrong)}."
    if isinstance(found, Topology):
        return f"Write {attribute} = Pipeline(name='…', topology={_name_in(module, found)}, description='…')."
    if names := [name for name, each in vars(module).items() if isinstance(each, Pipeline)]:
        if names[0] in ("PIPELINE", "PIPELINES"):  # the registration names another object
            return f"Write {module.__name__} in the registration, without what is behind the colon."
        if names[1:] and attribute == "PIPELINE":
            return f"It has Pipelines in {' and '.join(names)}. Write PIPELINES = ({', '.join(names)})."
        return f"It has a Pipeline in {names[0]}. Write {attribute} = {names[0]}."
    if topology := next((each for each in vars(module).values() if isinstance(each, Topology)), None):
        name = _name_in(module, topology)
        return f"It has a Topology. Write {attribute} = Pipeline(name='…', topology={name}, description='…')."
    makes = next((each for each in vars(module).values() if _makes_pipeline(each, module)), None)
    return f"It has the function {makes.__name__}. Write {attribute} = {makes.__name__}()." if makes is not None else ""


def _name_in(module: ModuleType, value: object) -> str:
    return next((name for name, each in vars(module).items() if each is value and name.islower()), "topology")


def _makes_pipeline(value: Any, module: ModuleType) -> bool:
    is_own = isinstance(value, FunctionType) and value.__module__ == module.__name__
    if is_own and value.__code__.co_argcount > len(value.__defaults__ or ()):
        return False
    returned = str(value.__annotations__.get("return", "")) if is_own else ""
    return is_own and ("Pipeline" in value.__code__.co_names or "Pipeline" in returned)


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


def _remedy(error: BaseException, registration: Registration, module_name: str) -> str:
    if advice := _advice(error):
        return advice
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    reference = registration.reference
    if module_name.startswith(".") or not module_name:
        return module_meant(reference)
    if missing is not None and f"{module_name}.".startswith(f"{missing}.") and not registration.is_file:
        words = re.split(r"[;\s]+", reference)
        if len(words) > 1:
            return f"Separate modules with commas: {VARIABLE}={','.join(words)}."
        if Path(reference).is_dir():
            packages = [file.parent.name for file in sorted(Path(reference).glob("*/__init__.py"))]
            named = f"{VARIABLE}={','.join(packages) or 'my_pipelines'}, and its directory: PYTHONPATH={reference}"
            return f"Write the package: {named}."
        if reference.endswith(".py") or "/" in reference:
            module, root = module_of(Path(reference))
            return f"Write the module: {VARIABLE}={module}, and its directory: PYTHONPATH={root}."
        if meant := module_meant(reference):
            return meant
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
    return "Correct the file." if registration.is_file else "Correct the module, or remove it from the registration."


def _advice(error: BaseException) -> str:
    """What to write in place of a mistake of Python that declarations have."""
    names = sys.modules["streamplan"].__all__
    if any("/pyspark/sql/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
        return f"A declaration runs without Spark. {OF_ANOTHER_LIBRARY}, and not from pyspark."
    if isinstance(error, NameError):
        if error.name in names:
            return f"Write from streamplan import {error.name}."
        return answer_to_import(error.name, []) if error.name else ""
    if isinstance(error, AttributeError) and str(error).startswith("module 'streamplan' "):
        return str(error).partition(". ")[2]
    if isinstance(error, AttributeError) and isinstance(error.obj, str) and error.name in operations_of(KStream):
        return (
            "A text has no operations of a stream. The branches of split() are a mapping by their names: "
            "branches['…'], or branches.values()."
        )
    if isinstance(error, AttributeError) and isinstance(error.obj, Pipeline) and error.name in ("run", "start"):
        return "A declaration starts nothing: streamplan run FILE runs its PIPELINE."
    if isinstance(error, FrozenInstanceError):
        return "A declaration is not changed afterwards: give Pipeline(…) the value."
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return "The file is in no package. Put an __init__.py beside it, or import without the dot."
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("streamplan."):
        return "A declaration imports from streamplan alone, as in from streamplan import Json, KStream, Topology."
    if isinstance(error, ImportError) and "circular import" in str(error):
        return "Two modules import each other. Import inside a function, or move what both need into a third module."
    if isinstance(error, TypeError) and (called := re.match(r"(\w+)\(\) missing \d+ required positional", str(error))):
        return f"Where the function itself is meant, write {called[1]} without parentheses."
    if isinstance(error, TypeError) and re.fullmatch(r"'(str|NoneType)' object is not callable", str(error)):
        last = traceback.extract_tb(error.__traceback__)[-1]
        lines = linecache.getlines(last.filename)[(last.lineno or 1) - 1 : last.end_lineno]
        return window_field_called("".join(lines))
    return ""


def _same_name(name: str, places: list[str]) -> Refused:
    return Refused(
        f"pipeline {name!r}",
        expected="a name that no other pipeline has",
        observed=f"two of that name, in {' and '.join(places)}",
        remedy="Give it another name, or register one of them.",
    )
