from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from streamplan import __version__
from streamplan.cli import main
from streamplan.cli.init import CONSTRAINTS, FILES, TEMPLATES
from streamplan.settings import PROJECT


def files(directory: Path) -> set[str]:
    return {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}


def test_the_repository_is_written_where_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "Orders and-returns"
    assert main(["init", str(directory)]) == 0
    assert files(directory) == {path.replace("$package", "orders_and_returns") for path in (*FILES, CONSTRAINTS)}
    printed = capsys.readouterr().out
    for file in files(directory):
        assert str(directory / file) in printed
        assert "$" not in (directory / file).read_text().replace("${{", ""), file
    assert 'name = "orders-and-returns"' in (directory / "pyproject.toml").read_text()


def test_the_working_directory_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "my-pipelines"
    (directory / ".git").mkdir(parents=True)
    monkeypatch.chdir(directory)
    assert main(["init"]) == 0
    assert (directory / "my_pipelines" / "visits.py").is_file()


def test_nothing_is_overwritten_and_nothing_is_written_by_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "my-pipelines"
    (directory / "tests").mkdir(parents=True)
    (directory / "tests" / "test_visits.py").write_text("mine")
    (directory / "README.md").write_text("mine, too")
    assert main(["init", str(directory)]) == 78
    said = capsys.readouterr().err
    assert f"observed {directory / 'README.md'}, {directory / 'tests' / 'test_visits.py'}. Nothing was written" in said
    assert files(directory) == {"tests/test_visits.py", "README.md"}
    assert (directory / "README.md").read_text() == "mine, too"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("1st", "expected a name with which a package can begin"),
        ("class", "expected a name with which a package can begin"),
        ("my+pipelines", "expected a name with which a package can begin"),
        ("streamplan", "expected a name that no other module has, observed there is a module streamplan"),
        ("json", "observed there is a module json"),
        ("tests", "observed there is a module tests"),
    ],
)
def test_a_name_that_is_no_name_of_a_package_is_refused(
    name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / name)]) == 78
    assert reason in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / name).exists()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flow").touch()
    assert main(["init", str(tmp_path / "flow")]) == 78
    told = capsys.readouterr().err
    assert f"expected a directory that files can be written into, observed File exists: {tmp_path}/flow" in told


def test_a_name_of_one_letter_is_a_name_of_a_package(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "x")]) == 0


def test_each_template_is_used() -> None:
    assert {f"{template}.template" for template in FILES.values()} == {file.name for file in TEMPLATES.iterdir()}


def test_everybody_installs_the_versions_that_were_tested(tmp_path: Path) -> None:
    """pip takes them as constraints: each line has one version, and no extras."""
    assert main(["init", str(tmp_path / "my-pipelines")]) == 0
    repository = tmp_path / "my-pipelines"
    assert "--constraint constraints.txt" in (repository / "requirements.txt").read_text().splitlines()
    lines = [line for line in (repository / CONSTRAINTS).read_text().splitlines() if not line.startswith("#")]
    found = {(one := Requirement(line)).name: one for line in lines}
    locked = (PROJECT / "requirements.txt").read_text()
    assert len(found) > 100
    for name, requirement in found.items():
        assert not requirement.extras, name
        assert re.fullmatch("==[^,]+", str(requirement.specifier)), name
        assert f"\n{name}{requirement.specifier}" in locked
    assert {"apache-airflow", "pyspark", "confluent-kafka", "great-expectations"} <= found.keys()


def test_the_readme_says_where_the_wheel_goes_before_it_installs(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "my-pipelines")]) == 0
    text = (tmp_path / "my-pipelines" / "README.md").read_text()
    assert 0 < text.index(f"streamplan-{__version__}-py3-none-any.whl wheels/") < text.index("pip install")


def test_the_readme_and_the_page_install_the_same_extras(tmp_path: Path) -> None:
    """Airflow's processes and Spark's workers need more than the package alone requires."""
    assert main(["init", str(tmp_path / "my-pipelines")]) == 0
    readme, page = tmp_path / "my-pipelines" / "README.md", PROJECT / "docs" / "your-repository.md"
    [of_readme, of_page] = [
        re.findall(r"^ +(pip install .* \.) +# (.*)$", file.read_text(), re.M) for file in (readme, page)
    ]
    assert of_readme == of_page
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {where: shlex.split(command) for command, where in of_page}
    assert {where: Requirement(words[-2]).extras for where, words in installed.items()} == {
        "Airflow's processes": {"airflow"},
        "Spark's workers": {"spark"},
    }
    for words in installed.values():
        assert words[:-2] == ["pip", "install", "--find-links", "wheels", "--constraint", CONSTRAINTS]
        assert Requirement(words[-2]).extras <= declared.keys()


def test_make_wheel_makes_no_environment_of_the_locked_packages() -> None:
    """It is what a user calls first."""
    plan = subprocess.run(["make", "-n", "wheel"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert "pip wheel" in plan
    assert "bootstrap.py" not in plan
