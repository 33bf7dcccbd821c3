"""Help and errors name the commands as a person can type them where they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from streamplan.cli import COMMANDS, demo, main
from streamplan.cli.program import as_typed


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in which the wheel is installed: its command is beside the interpreter."""
    for name in ("python", "streamplan"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main(words)
    found = capsys.readouterr()
    return found.out + found.err


@pytest.mark.parametrize("command", COMMANDS)
def test_where_the_command_is_installed_help_says_its_name(
    command: str, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, command, "--help")
    assert text.startswith(f"usage: streamplan {command}")
    assert "python -m streamplan " not in " ".join(text.split())


def test_where_it_is_not_installed_help_says_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--help").startswith("usage: python -m streamplan ")


def test_usage_and_errors_say_it_too(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "tasks").startswith("usage: streamplan tasks ")
    assert printed(capsys, "nothing").startswith("usage: streamplan ")
    assert main(["status"]) in (0, 1)
    assert "python -m streamplan " not in capsys.readouterr().err


def test_a_started_script_knows_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/streamplan", "list"])
    assert as_typed("python -m streamplan up, python -m streamplan.local.jars") == (
        "streamplan up, python -m streamplan.local.jars"
    )


@pytest.mark.parametrize(("is_clone", "said"), [(True, "`make down`"), (False, "`streamplan down`")])
def test_a_demo_says_how_to_stop_where_it_runs(
    is_clone: bool, said: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_clone:
        (installed / "Makefile").write_text("down:\n")
    monkeypatch.setattr(demo, "PROJECT", installed)
    assert said in demo.how_to_stop()
