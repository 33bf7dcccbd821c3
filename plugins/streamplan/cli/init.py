"""The command ``init``: a small repository for pipelines, from the templates in ``repository/``."""

from __future__ import annotations

import argparse
import keyword
import re
from importlib.util import find_spec
from pathlib import Path
from string import Template

from streamplan import __version__
from streamplan.cli.command import Commands
from streamplan.cli.output import plain_console
from streamplan.errors import Refused

TEMPLATES = Path(__file__).with_name("repository")

FILES = {
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "requirements.txt": "requirements.txt",
    ".gitignore": "gitignore",
    "$package/__init__.py": "package.py",
    "$package/visits.py": "pipeline.py",
    "dags/visits.py": "dag.py",
    "tests/test_visits.py": "test.py",
    ".github/workflows/tests.yml": "workflow.yml",
}
"""The files of the repository, each with the name of its template."""

CONSTRAINTS = "constraints.txt"
"""The file with the versions that this version of Streamplan was tested with."""

_REMEDY = "Name a directory such as my-pipelines."

_DESCRIPTION = """\
Write a small repository for pipelines of your own:
  <package>/visits.py          a pipeline: a topology, its topics, records for trials
  dags/visits.py               its DAGs for Airflow, in three lines
  tests/test_visits.py         its tests, which need Java and no brokers; with KAFKA=host:port also whether a \
deployment is well
  pyproject.toml               the package, and the entry point that registers its pipelines
  requirements.txt             what Airflow's environment, and yours, needs
  constraints.txt              the versions that this version of Streamplan was tested with
  .github/workflows/tests.yml  the tests in CI
  README.md                    how to look at the pipeline, try it on this machine, and deploy it

The package is named after the directory. Files that exist are never overwritten: if there is one, nothing is written.
"""

_EXAMPLES = """\
%(prog)s my-pipelines
then
  cd my-pipelines
  mkdir wheels               and copy the wheel of Streamplan there, unless your package index has it
  python3 -m venv .venv && . .venv/bin/activate
  pip install --requirement requirements.txt
  streamplan list
  streamplan demo visits --records 1000
"""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "init",
        "write a small repository for pipelines of your own",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        run=_run,
    )
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        type=Path,
        default=Path(),
        help="the directory to write into (default: the working directory)",
    )


def _run(options: argparse.Namespace) -> int:
    written = write_repository(options.directory)
    console = plain_console()
    for file in written:
        console.print(str(file))
    console.print(f"Read on in {options.directory / 'README.md'}.")
    return 0


def write_repository(directory: Path) -> list[Path]:
    """Write the repository, all of it or nothing.

    Args:
        directory: It is made where it does not exist. Its name becomes that of the package.

    Returns:
        The files that were written.

    Raises:
        Refused: The directory's name is no name for a package, another module has it, a file exists, or the directory
            cannot be written.
    """
    package = _package(directory.absolute().name)
    values = {"name": package.replace("_", "-"), "package": package, "version": __version__}
    contents = {
        directory / Template(path).substitute(values): Template(
            (TEMPLATES / f"{template}.template").read_text()
        ).substitute(values)
        for path, template in FILES.items()
    }
    contents[directory / CONSTRAINTS] = constraints()
    if existing := [file for file in contents if file.exists()]:
        raise Refused(
            f"repository in {directory}",
            expected="no file that would be overwritten",
            observed=", ".join(map(str, existing)),
            remedy="Nothing was written. Name another directory, or move these files away.",
        )
    found = find_spec(package)  # a directory without modules is found, too, and has no origin
    if package in ("dags", "tests") or (found is not None and found.origin is not None):
        raise Refused(
            f"directory {directory.absolute().name!r}",
            expected="a name that no other module has",
            observed=f"there is a module {package}",
            remedy=_REMEDY,
        )
    try:
        for file, content in contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x") as opened:
                opened.write(content)
    except OSError as error:
        raise Refused(
            f"repository in {directory}",
            expected="a directory that files can be written into",
            observed=f"{error.strerror}: {error.filename}",
            remedy="Name another directory.",
        ) from error
    return list(contents)


def constraints() -> str:
    """Return the versions that Streamplan was tested with, in the form of pip's constraints.

    They are the locked ones of its own repository: the file is a link to its ``requirements.txt``, and the wheel has a
    copy.
    """
    locked = Path(__file__).with_name(CONSTRAINTS).read_text().splitlines()
    lines = [line for line in locked if line and not line.lstrip().startswith("#")]
    heading = f"# The versions that Streamplan {__version__} was tested with."
    return "\n".join([heading, *lines, ""])


def _package(name: str) -> str:
    """Return the name of the package for a directory's name.

    Raises:
        Refused: It cannot be one.
    """
    package = re.sub(r"[-. ]", "_", name.lower())
    if not re.fullmatch(r"[a-z]([a-z0-9_]*[a-z0-9])?", package) or keyword.iskeyword(package):
        raise Refused(
            f"directory {name!r}",
            expected="a name with which a package can begin: a letter, then letters, digits, '-' and '_'",
            remedy=_REMEDY,
        )
    return package
