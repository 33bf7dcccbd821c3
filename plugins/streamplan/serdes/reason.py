"""Text that user code or user data has made, in a form that can be written anywhere: into headers, logs and databases.

A reason stands in a header of a dead letter, in Arrow arrays, in the log, in files of JSON and in Airflow's database.
Each of them refuses something: UTF-8 a lone surrogate, PostgreSQL a NUL, Kafka a record of some MB. A terminal obeys
control characters. So each reason is made by this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_CHARACTERS = 4_000
"""The most characters of a reason."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but tab and line feed, and lone surrogates, which UTF-8 cannot encode."""


def harmless(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return a text with control characters and lone surrogates escaped, and with its end cut off where it is long.

    Args:
        text: Any text.
        most: The most characters of it that are kept.

    Returns:
        The same text, where it is harmless already.
    """
    kept = _UNSAFE.sub(_escaped, text[:most])
    return kept if len(text) <= most else f"{kept}… (cut after {most:,} of {len(text):,} characters)"


def text_of(value: object) -> str:
    """Return ``str(value)``, harmless. Where ``__str__`` raises, say so."""
    return _made_by(str, "__str__", value)


def representation_of(value: object) -> str:
    """Return ``repr(value)``, harmless. Where ``__repr__`` raises, say so."""
    return _made_by(repr, "__repr__", value)


def _made_by(function: Callable[[object], str], name: str, value: object) -> str:
    try:
        return harmless(str.__str__(function(value)))  # the text itself, where it is of a subclass
    except BaseException as error:  # it runs code of a user's class, which may raise anything
        if isinstance(error, KeyboardInterrupt):
            raise
        return harmless(f"<{type(value).__name__} without a text: its {name} raised {type(error).__name__}>")


def _escaped(character: re.Match[str]) -> str:
    return character.group().encode("unicode_escape").decode()
