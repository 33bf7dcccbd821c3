"""docs/first-aid.md quotes errors that the code has."""

from __future__ import annotations

import re

import pytest
from streamplan.errors import Refused
from streamplan.settings import PACKAGE, PROJECT

PAGE = (PROJECT / "docs" / "first-aid.md").read_text()
QUOTED = re.findall(r"^\| `(.+?)` \|", PAGE.split("\n## By error text\n")[1], re.M)
CODE = "\n".join(file.read_text() for file in sorted(PACKAGE.rglob("*.py")))


@pytest.mark.parametrize("words", [words for words in QUOTED if not words.startswith("PySpark")])
def test_the_words_of_an_error_are_those_of_the_code(words: str) -> None:
    assert words in CODE


def test_an_error_has_what_was_expected_behind_its_subject() -> None:
    assert f"`{Refused('PySpark', expected='installed')}`" in PAGE
    assert '"PySpark",\n        expected="installed"' in CODE
