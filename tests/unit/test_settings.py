from __future__ import annotations

from pathlib import Path

import pytest
from streamplan.errors import Refused
from streamplan.settings import Settings


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({"STREAMPLAN_HOME": "/a home", "AIRFLOW_HOME": "/airflow"}, "/a home"),
        ({"AIRFLOW_HOME": "/airflow"}, "/airflow/streamplan"),
        ({"AIRFLOW_HOME": "", "STREAMPLAN_HOME": ""}, None),
        ({}, None),
    ],
)
def test_where_everything_is_kept(
    environment: dict[str, str], home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of an Airflow have one AIRFLOW_HOME and may have several working directories."""
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_environment(environment)
    assert settings.home == Path(home or tmp_path / ".streamplan")
    assert settings.reports == settings.home / "reports"


def test_no_token_callback_is_permitted_unless_the_deployment_names_it() -> None:
    assert Settings.from_environment({}).token_callbacks == frozenset()
    named = Settings.from_environment({"STREAMPLAN_TOKEN_CALLBACKS": " a.b, c.d ,"})
    assert named.token_callbacks == {"a.b", "c.d"}


def test_the_memory_of_drivers_has_a_unit() -> None:
    assert Settings.from_environment({}).driver_memory == "1g"
    assert Settings.from_environment({"STREAMPLAN_DRIVER_MEMORY": "512m"}).driver_memory == "512m"
    for wrong in ("2", "2 g", "0g", "much", "g"):
        with pytest.raises(Refused, match="STREAMPLAN_DRIVER_MEMORY: expected a size with a unit, as 512m or 2g"):
            Settings.from_environment({"STREAMPLAN_DRIVER_MEMORY": wrong})
