"""The files that a page of the documentation tells its reader to write."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path


def file_of_page(page: Path, name: str) -> str:
    """Return the text of a file that a page has behind the words ``Write this file as``."""
    [text] = re.findall(rf"^Write this file as `{name}`:\n\n((?:    .*\n|\n(?=\n*    ))+)", page.read_text(), re.M)
    return textwrap.dedent(text)
