"""The wheel of this clone, and environments in which it is installed. Nothing of it needs a network."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from streamplan.settings import PACKAGE

CLONE = PACKAGE.parents[1]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def build_wheel(project: Path, into: Path) -> Path:
    """Build the wheel of a project with the build backend of this environment."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run([*pip, "--wheel-dir", str(into), str(project)])
    (wheel,) = into.glob("*.whl")
    return wheel


def requirements(extra: str = "") -> list[Requirement]:
    """What the package requires, always or with an extra."""
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    found: list[Requirement] = []
    for requirement in map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"]):
        if requirement.name == project["name"]:
            found += [one for name in requirement.extras for one in requirements(name)]
        else:
            found.append(requirement)
    return found


def with_requirements(names: Iterable[str]) -> set[str]:
    """These distributions and what they require, without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        for line in distribution(name).requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


@dataclass(frozen=True)
class Environment:
    """An environment with an interpreter of its own, which knows nothing of this clone."""

    directory: Path

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def site_packages(self) -> Path:
        major, minor = sys.version_info[:2]
        return self.directory / "lib" / f"python{major}.{minor}" / "site-packages"

    @classmethod
    def make(cls, directory: Path) -> Environment:
        venv.create(directory, symlinks=True)
        return cls(directory)

    def add_distributions(self, names: Iterable[str]) -> None:
        """Let it import these distributions and what they require, and no other of this environment's."""
        for name in with_requirements(names):
            for file in distribution(name).files or ():
                top = file.parts[0]
                if top not in ("..", "__pycache__") and not (self.site_packages / top).exists():
                    (self.site_packages / top).symlink_to(SITE_PACKAGES / top)

    def add_all_packages(self) -> None:
        """Let it import all that is installed in this environment."""
        (self.site_packages / "all.pth").write_text(f"{SITE_PACKAGES}\n")

    def add_scripts_of(self, name: str) -> None:
        """Let it run the programs of a distribution that finds itself by their place, as ``spark-submit`` does."""
        for file in distribution(name).files or ():
            if file.parts[:3] == ("..", "..", "..") and file.parts[3] == "bin":
                (self.bin / file.name).symlink_to(Path(str(file.locate())).resolve())

    def install(self, *what: str) -> None:
        """Install wheels or projects, without what they require."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--no-deps", "--no-index"]
        run([*pip, "--no-build-isolation", "--disable-pip-version-check", *what])

    def run(self, *argv: str, cwd: Path, timeout: int = 600, **variables: str) -> str:
        """Run a program of this environment and return what it prints on standard output."""
        return run([str(self.bin / argv[0]), *argv[1:]], cwd=cwd, timeout=timeout, env=self.variables(variables))

    def fail(self, *argv: str, cwd: Path, status: int = 78, timeout: int = 600, **variables: str) -> str:
        """Run a program that ends with a status and return what it says on standard error."""
        words = [str(self.bin / argv[0]), *argv[1:]]
        done = subprocess.run(
            words, cwd=cwd, env=self.variables(variables), capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == status, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """Nothing of this clone: no PYTHONPATH, and no settings of Airflow or Streamplan but where the jars are."""
        names = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME", "STREAMPLAN_CACHE")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}", **more}


def run(argv: Sequence[str], *, timeout: int = 600, **options: Any) -> str:
    """Run a command and return what it prints. A status other than 0 fails the test, with all that it printed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, **options)
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
