from __future__ import annotations

import os
from pathlib import Path

import pytest
from streamplan.settings import PACKAGE
from streamplan.spark import submit
from streamplan.spark.submit import import_path


def test_a_package_that_is_not_installed_comes_first_and_once() -> None:
    kept = os.pathsep.join(["/theirs", "", str(PACKAGE.parent)])
    assert import_path({"PYTHONPATH": kept}).split(os.pathsep) == [str(PACKAGE.parent), "/theirs"]


def test_relative_directories_hold_in_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert import_path({"PYTHONPATH": "modules"}).split(os.pathsep)[1:] == [str(tmp_path / "modules")]


def test_the_directory_of_all_installed_packages_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it would come before the standard library."""
    monkeypatch.setattr(submit, "PACKAGE", Path("/env/lib/python3.12/site-packages/streamplan"))
    assert import_path({}) == ""
    assert import_path({"PYTHONPATH": "/theirs"}) == "/theirs"
