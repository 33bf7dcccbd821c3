"""The wheel, installed where nothing else of this clone is: neither Spark nor Airflow for those who only check."""

from __future__ import annotations

import json
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.support.wheel import CLONE, Environment, requirements

OPTIONAL = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]["optional-dependencies"]

EXAMPLES = {"STREAMPLAN_PIPELINES": "streamplan.pipelines"}


def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = CLONE / "plugins" / "streamplan"
    files = {file.relative_to(package.parent).as_posix() for file in package.rglob("*") if file.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}
    assert "streamplan/py.typed" in packed


def test_the_locked_versions_are_those_that_the_package_asks_for() -> None:
    for extra in ("", *OPTIONAL):
        for requirement in requirements(extra):
            assert requirement.specifier.contains(version(requirement.name)), str(requirement)


@pytest.mark.parametrize(
    "words",
    [["--help"], ["list"], ["describe", "orders"], ["plan", "orders"], ["check", "--help"], ["status", "--help"]],
    ids=" ".join,
)
def test_commands_that_only_look_need_no_extra(
    wheel_environment: Environment, tmp_path: Path, words: list[str]
) -> None:
    printed = wheel_environment.run("streamplan", *words, cwd=tmp_path, **EXAMPLES)
    assert printed.strip()
    same = wheel_environment.run("python", "-m", "streamplan", *words, cwd=tmp_path, **EXAMPLES)
    if "--help" in words:  # it names the program as it was called
        assert printed.startswith("usage: streamplan ")
        assert same.startswith("usage: streamplan ")
    else:
        assert printed == same


def test_an_installed_package_registers_no_pipeline(wheel_environment: Environment, tmp_path: Path) -> None:
    assert "pipelines: expected at least one, observed none is registered" in wheel_environment.fail(
        "streamplan", "list", cwd=tmp_path
    )


def test_the_base_has_neither_spark_nor_airflow(wheel_environment: Environment, tmp_path: Path) -> None:
    """Else the tests beside this one would show nothing."""
    optional = {canonicalize_name(r.name) for extra in OPTIONAL for r in requirements(extra)}
    code = "import json; from importlib.metadata import distributions as d; print(json.dumps([x.name for x in d()]))"
    installed = {
        canonicalize_name(name) for name in json.loads(wheel_environment.run("python", "-c", code, cwd=tmp_path))
    }
    assert "confluent-kafka" in installed
    assert not optional & installed


TESTING = """
from streamplan.errors import CouldNotLook
from streamplan.testing import assert_healthy
try:
    assert_healthy("127.0.0.1:1", "an-application")
except CouldNotLook as error:
    print(error.subject)
"""


def test_users_tests_need_no_extra(wheel_environment: Environment, tmp_path: Path) -> None:
    assert wheel_environment.run("python", "-c", TESTING, cwd=tmp_path) == "Kafka at 127.0.0.1:1\n"


def test_the_driver_of_users_tests_names_the_extra_that_it_needs(
    wheel_environment: Environment, tmp_path: Path
) -> None:
    code = "from streamplan.testing import TopologyTestDriver"
    said = wheel_environment.fail("python", "-c", code, cwd=tmp_path, status=1)
    assert "PySpark: expected installed, observed not found. Run `pip install 'streamplan[spark]'`" in said


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [("validate", "PySpark", "spark"), ("up", "Airflow", "airflow"), ("demo", "Airflow", "airflow")],
)
def test_a_command_whose_extra_is_missing_names_it(
    wheel_environment: Environment, tmp_path: Path, command: str, missing: str, extra: str
) -> None:
    said = wheel_environment.fail("streamplan", command, cwd=tmp_path, **EXAMPLES)
    assert f"{missing}: expected installed" in said
    assert f"pip install 'streamplan[{extra}]'" in said
    assert list(tmp_path.iterdir()) == []  # nothing was started


def test_the_jobs_are_files_of_the_package(wheel_environment: Environment, tmp_path: Path) -> None:
    """Spark-submit is given a file."""
    job = wheel_environment.site_packages / "streamplan" / "jobs" / "producer.py"
    assert "write N more records" in wheel_environment.run("python", str(job), "--help", cwd=tmp_path)
