"""A broken pipeline is shown as Airflow's import error, and all others have their DAGs as ever.

Airflow's own code judges: the ``DagBag``, the parsing of the DAG processor, and what it writes to its database.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from streamplan.cli.init import write_repository

from tests.support.airflow_home import DAGS

KINDS = ("deploy", "producer", "aggregator", "health", "reset", "repartition", "redrive")

DECLARATION = """
from streamplan import Json, Pipeline, TestData, Topology

topology = Topology("%(name)s-counter")
topology.stream("%(name)s", value=Json("Id string")).group_by("Id", name="by-id").count(store="counts")
data = TestData(("%(name)s",), record=lambda n: ("%(name)s", b"", b"{}"), number="Id")
PIPELINE = Pipeline(
    name="%(name)s", topology=topology, description="", topic_partitions={"%(name)s": 1}, test_data=data
)
"""

BREAKS = {
    "a syntax error": ("def wrong(:", ":10: SyntaxError"),
    "a name that is not there": ("from streamplan import NotThere", ":10: ImportError: cannot import name 'NotThere'"),
    "a module that is not there": ("import not_there", ":10: ModuleNotFoundError: No module named 'not_there'"),
    "an error of its own": ("1 / 0", ":10: ZeroDivisionError"),
    "an exit": ("raise SystemExit(1)", ":10: SystemExit"),
    "a fault of the declaration": (
        "PIPELINE = Pipeline(name='not a name', topology=topology, description='')",
        ":10: the name 'not a name' is not a prefix of a DAG id",
    ),
    "a schedule that is none": (
        "from dataclasses import replace\nPIPELINE = replace(PIPELINE, health_schedule='61 * * * *')",
        ":5: health_schedule of pipeline 'broken': expected a cron expression",
    ),
    "no pipeline": ("del PIPELINE", "expected a Pipeline"),
}
"""How a module of a pipeline breaks: its last lines, and what Airflow shows."""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path for the pipelines of a user. What is imported from it is forgotten afterwards."""
    known = {*sys.modules}
    path = [*sys.path]
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.path[:] = path  # the DAG processor puts the folder of the DAG files there
    for module in {*sys.modules} - known:
        if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[module]


def parse(file: Path) -> Any:
    """What the DAG processor finds in a DAG file."""
    from airflow.dag_processing.processor import DagFileParseRequest, _parse_file

    request = DagFileParseRequest(
        file=str(file), bundle_path=file.parent, bundle_name="testing", callback_requests=[], type="DagFileParseRequest"
    )
    result = _parse_file(request, structlog.get_logger())
    assert result is not None
    return result


def write(file: Path) -> dict[str, str]:
    """Let Airflow write what it finds in a DAG file to its database, and return the import errors."""
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    found = parse(file)
    errors = {("testing", name): error for name, error in (found.import_errors or {}).items()}
    with create_session() as session:
        session.merge(DagBundleModel(name="testing"))
        session.flush()
        update_dag_parsing_results_in_db(
            bundle_name="testing",
            bundle_version=None,
            dags=found.serialized_dags,
            import_errors=errors,
            parse_duration=1.0,
            warnings=set(),
            session=session,
            files_parsed={("testing", file.name)},
        )
    return {name: error for (_, name), error in errors.items()}


def shown_dags() -> set[str]:
    """The DAGs that Airflow's pages show and its scheduler runs."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        models = session.scalars(select(DagModel).where(DagModel.bundle_name == "testing")).all()
        return {model.dag_id for model in models if not model.is_stale and not model.has_import_errors}


@pytest.fixture
def empty_database(database: None) -> Iterator[None]:
    yield
    from airflow.models.dag import DagModel
    from airflow.models.errors import ParseImportError
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(ParseImportError).where(ParseImportError.bundle_name == "testing"))
        for model in session.query(DagModel).filter(DagModel.bundle_name == "testing"):
            session.delete(model)


@pytest.mark.parametrize("way", BREAKS)
def test_a_broken_module_is_an_import_error_with_its_line_and_the_others_have_their_dags(
    way: str, theirs: Path, empty_database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = BREAKS[way]
    (theirs / "their_sound.py").write_text(DECLARATION % {"name": "sound"})
    (theirs / "their_broken.py").write_text(DECLARATION % {"name": "broken"} + code)
    (theirs / "their_last.py").write_text(DECLARATION % {"name": "last"})
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "their_sound,their_broken,their_last")
    errors = {name: error for file in sorted(DAGS.glob("*.py")) for name, error in write(file).items()}
    assert [*errors] == ["broken_pipelines.py"]
    assert shown in errors["broken_pipelines.py"]
    if shown.startswith(":"):
        assert f"{theirs / 'their_broken.py'}{shown}" in errors["broken_pipelines.py"]
    assert shown_dags() == {f"{name}_{kind}" for name in ("sound", "last") for kind in KINDS}


def test_without_a_broken_pipeline_no_file_has_an_import_error(
    theirs: Path, empty_database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "their_sound.py").write_text(DECLARATION % {"name": "sound"})
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "their_sound")
    assert [write(file) for file in sorted(DAGS.glob("*.py"))] == [{}, {}]
    assert shown_dags() == {f"sound_{kind}" for kind in KINDS}


def test_options_that_no_pipeline_can_be_declared_with_are_the_error_of_their_own_file(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamplan.airflow import declare_registered_dags

    (theirs / "their_sound.py").write_text(DECLARATION % {"name": "sound"})
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "their_sound")
    with pytest.raises(TypeError, match="notifyers"):
        declare_registered_dags(notifyers=())


@pytest.mark.parametrize("way", BREAKS)
def test_in_the_layout_of_init_a_broken_pipeline_hides_no_other(
    way: str, theirs: Path, empty_database: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second pipeline is a copy of the first, with its line in ``PIPELINES`` and its DAG file."""
    from streamplan.cli import main

    repository = theirs / "their-pipelines"
    write_repository(repository)
    package = repository / "their_pipelines"
    monkeypatch.syspath_prepend(str(repository))
    code, shown = BREAKS[way]
    (package / "broken.py").write_text(DECLARATION % {"name": "broken"} + code)
    listed = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(
        listed.replace('("their_pipelines.visits",)', '("their_pipelines.broken", "their_pipelines.visits")')
    )
    assert (package / "__init__.py").read_text() != listed
    of_visits = (repository / "dags" / "visits.py").read_text()
    (repository / "dags" / "broken.py").write_text(of_visits.replace("visits", "broken"))
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "their_pipelines")  # as the entry point has it
    errors = {name: error for file in sorted((repository / "dags").glob("*.py")) for name, error in write(file).items()}
    assert [*errors] == ["broken.py"]
    assert str(package / "broken.py") in errors["broken.py"]
    assert shown_dags() == {f"visits_{kind}" for kind in KINDS}
    if way != "a schedule that is none":  # only Airflow reads it
        capsys.readouterr()  # what Airflow has logged
        assert main(["list"]) == 1
        printed = capsys.readouterr()
        assert [line.split()[0] for line in printed.out.splitlines()] == ["PIPELINE", "visits"]
        assert shown in printed.err
