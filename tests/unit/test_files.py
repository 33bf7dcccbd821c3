from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from streamplan.files import ReportPaths, write_atomically


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "new" / "status.json"
    write_atomically(file, "one")
    write_atomically(file, b"two")
    assert file.read_text() == "two"
    assert list(file.parent.iterdir()) == [file]


def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "status.json"
    write_atomically(file, "old")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    file = tmp_path / "passwords.json"
    write_atomically(file, "{}", mode=0o600)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_state_files_are_those_that_exist_and_not_the_history(tmp_path: Path) -> None:
    paths = ReportPaths(tmp_path, "orders")
    state = [paths.verified_store, paths.aggregator_status, paths.recount("orders_health"), paths.check_result("lag")]
    for path in (*state, paths.history):
        write_atomically(path, "")
    assert paths.state_files(["lag", "skew"]) == state
