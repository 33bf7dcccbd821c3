"""The help of each command in a terminal of 80 columns."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from streamplan.cli import COMMANDS, command, main
from streamplan.cli.output import folded_command


def help_of(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert usage.startswith("usage: ")
    return rest


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_help_fits_eighty_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = help_of([name] if name else [], capsys, monkeypatch)
    assert "examples:\n" in shown
    for line in shown.splitlines():
        assert len(line) <= 80, line
        assert not re.search(r"\w-$", line), f"a word is broken: {line}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_a_table_is_broken_in_the_source(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that ends where the next word still fits was broken there by hand, for another width."""
    shown = help_of([name], capsys, monkeypatch).partition("\npositional arguments:")[0].partition("\noptions:")[0]
    for line, following in pairwise(shown.splitlines()):
        if following.startswith(" " * 10):
            assert len(f"{line} {following.split()[0]}") > 78, line


def test_a_long_command_is_folded_before_its_options() -> None:
    line = "  %(prog)s --load 1_0=9 --text 'a b' --more | diff - file"
    assert folded_command(line, 80, "streamplan plan") == line
    assert folded_command(line, 40, "streamplan plan").splitlines() == [
        "  %(prog)s --load 1_0=9 \\",
        "    --text 'a b' --more | diff - file",
    ]
    assert command.HelpFormatter("streamplan", width=24)._split_lines("these with --against-cluster", 20) == [
        "these with",
        "--against-cluster",
    ]
