"""What the command is called where it runs: ``streamplan`` where it is installed, else ``python -m streamplan``."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

AS_MODULE = "python -m streamplan"
"""How help and errors write it. It works wherever the package can be imported."""

AS_COMMAND = "streamplan"


def program() -> str:
    """Return the name of the program, as a person can type it here."""
    if Path(sys.argv[0]).stem == AS_COMMAND or shutil.which(AS_COMMAND, path=str(Path(sys.executable).parent)):
        return AS_COMMAND
    return AS_MODULE


def as_typed(text: str) -> str:
    """Return a text with the commands in it as a person can type them here."""
    return text.replace(f"{AS_MODULE} ", f"{program()} ")


class Parser(argparse.ArgumentParser):
    """A parser, and those of its commands. The help of their arguments has commands as a person can type them here."""

    def format_help(self) -> str:
        """Return the help; see the base class."""
        for action in self._actions:
            action.help = as_typed(action.help) if action.help else action.help
        return super().format_help()
