"""Follows the steps of docs/your-repository.md in an empty directory. Only the wheel comes from this clone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.wheel import Environment

KINDS = ("deploy", "producer", "aggregator", "health", "reset", "redrive", "repartition")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with its extra ``airflow``."""
    environment = Environment.make(tmp_path_factory.mktemp("an airflow") / "venv")
    environment.add_all_packages()
    environment.install(str(wheel))
    return environment


@pytest.fixture(scope="module")
def repository(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``init`` writes, installed as its README says."""
    directory = tmp_path_factory.mktemp("a team") / "my-pipelines"
    environment.run("streamplan", "init", str(directory), cwd=directory.parent)
    environment.install("--editable", str(directory))
    return directory


def test_the_pipeline_is_registered_in_any_directory(
    environment: Environment, repository: Path, tmp_path: Path
) -> None:
    [heading, line] = environment.run("streamplan", "list", cwd=tmp_path).splitlines()
    assert dict(zip(heading.split(), line.split(), strict=True)) == {
        "PIPELINE": "visits",
        "APPLICATION": "visits-per-page",
        "READS": "visits",
        "WRITES": "-",
        "STORES": "visits-per-page",
        "TASKS": "4",
    }
    described = environment.run("streamplan", "describe", "visits", cwd=tmp_path)
    assert described.startswith("Topologies:\n   Sub-topology: 0\n")


@pytest.mark.soak
def test_spark_finds_no_fault_in_it(environment: Environment, repository: Path) -> None:
    assert environment.run("streamplan", "validate", cwd=repository) == "visits: ok\n"


USES_THE_FIXTURE = """
from my_pipelines.visits import PIPELINE


def test_the_package_has_a_fixture(topology_test_driver):
    driver = topology_test_driver(PIPELINE)
    driver.pipe("visits", {"id": "1", "page": "/", "robot": False}, key="ann")
    assert driver.store("visits-per-page")["/"] == 1
"""


def test_its_tests_pass_and_the_one_of_a_deployment_waits_for_one(
    environment: Environment, repository: Path, tmp_path: Path
) -> None:
    more = tmp_path / "test_fixture.py"
    more.write_text(USES_THE_FIXTURE)
    printed = environment.run("python", "-m", "pytest", "-p", "no:cacheprovider", "tests", str(more), cwd=repository)
    assert "6 passed, 1 skipped" in printed.splitlines()[-1]


def test_the_environment_may_register_more(environment: Environment, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("from streamplan.pipelines.orders import PIPELINE\n")
    variables = {"PYTHONPATH": str(tmp_path), "STREAMPLAN_PIPELINES": "more"}
    lines = environment.run("streamplan", "list", cwd=tmp_path, **variables).splitlines()
    assert [line.split()[0] for line in lines] == ["PIPELINE", "visits", "orders"]


ASK_AIRFLOW = """
import json
from airflow import plugins_manager
from airflow.dag_processing.dagbag import DagBag

found = DagBag()
plugins, errors = plugins_manager._get_plugins()
print(json.dumps({
    "import errors": found.import_errors,
    "dags": sorted(found.dags),
    "operators": sorted({type(task).__module__.split(".")[0] for dag in found.dags.values() for task in dag.tasks}),
    "plugin errors": errors,
    "plugins": [str(plugin.source) for plugin in plugins if plugin.name == "streamplan"],
}))
"""


def test_airflow_finds_the_dags_and_the_plugin(environment: Environment, repository: Path, tmp_path: Path) -> None:
    """Without a plugins folder and without a setting but that of its DAGs."""
    variables = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(repository / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    printed = environment.run("python", "-c", ASK_AIRFLOW, cwd=tmp_path, **variables)
    answer = json.loads(printed.splitlines()[-1])
    assert answer["import errors"] == {}
    assert answer["dags"] == sorted(f"visits_{kind}" for kind in KINDS)
    assert "streamplan" in answer["operators"]
    assert answer["plugin errors"] == {}
    [source] = answer["plugins"]
    assert source.startswith("streamplan==")  # not the plugins folder


def test_what_is_there_is_not_overwritten(environment: Environment, repository: Path) -> None:
    said = environment.fail("streamplan", "init", str(repository), cwd=repository.parent)
    assert "expected no file that would be overwritten" in " ".join(said.split())
