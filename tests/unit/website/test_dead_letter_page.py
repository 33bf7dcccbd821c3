"""docs/dead-letters.md names the reasons and the headers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamplan.model import dead_letters
from streamplan.settings import PACKAGE, PROJECT

PAGE = (PROJECT / "docs" / "dead-letters.md").read_text()
REASONS = re.findall(r"^\| (`.+?`)(?: \||, `)", PAGE.split("\n## Reasons\n")[1], re.M)
CODE = "\n".join(
    file.read_text() for folder in ("serdes", "spark", "model") for file in sorted(Path(PACKAGE, folder).rglob("*.py"))
)


@pytest.mark.parametrize("reason", REASONS)
def test_each_part_of_a_reason_is_a_text_of_the_code(reason: str) -> None:
    parts = [part.strip(" `") for part in reason.split("…") if part.strip(" `,")]
    assert parts
    for part in parts:
        assert part in CODE, part


def test_every_header_is_on_the_page() -> None:
    headers = [
        value
        for name, value in vars(dead_letters).items()
        if name.isupper() and isinstance(value, str) and value.startswith(("streamplan.", "__streams."))
    ]
    assert headers
    assert [header for header in headers if f"`{header}`" not in PAGE] == []
