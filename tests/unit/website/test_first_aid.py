"""docs/first-aid.md quotes errors that the code has."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from concurrent.futures import Future
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigResource
from streamplan.checks.framework.advice import SET_CONFIG
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


def test_the_command_that_sets_a_config_is_the_one_that_checks_advise() -> None:
    assert f"    {SET_CONFIG}\n" in PAGE


def test_the_script_sets_the_config_of_the_topic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called as the page calls it. The client is a stand-in, which keeps what it is asked."""
    asked: list[ConfigResource] = []
    servers: list[Any] = []

    class Admin:
        def __init__(self, properties: dict[str, Any]) -> None:
            servers.append(properties)

        def incremental_alter_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Future[None]]:
            asked.extend(resources)
            done: Future[None] = Future()
            done.set_result(None)
            return {resources[0]: done}

    [script] = re.findall(r"^    import sys\n(?:    .*\n|\n(?=    |\n))*", PAGE, re.M)
    [command] = re.findall(r"^    python (set_config\.py .*)$", PAGE, re.M)
    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", Admin)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    exec(textwrap.dedent(script), {})
    [resource] = asked
    [entry] = resource.incremental_configs
    assert servers == [{"bootstrap.servers": "127.0.0.1:9092"}]
    assert resource.name == "visits-per-page-visits-per-page-changelog"
    assert (entry.name, entry.value) == ("cleanup.policy", "compact")
    assert entry.incremental_operation is AlterConfigOpType.SET
