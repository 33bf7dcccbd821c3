"""The text of a schema in JSON, as files have it: with a byte order mark, and with comments."""

from __future__ import annotations

import re

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
"""A text, or a comment. Java's parser of Avro schemas takes the comments of Java, too."""


def plain_json(text: str) -> str:
    """Return a text without a byte order mark and comments. What remains stands in the same lines and columns.

    Args:
        text: JSON, perhaps with comments. Without any it is returned as it is.
    """
    return _COMMENT.sub(lambda found: found[1] or re.sub(r"[^\r\n]", " ", found[0]), text.removeprefix("\ufeff"))


def is_json(text: str) -> bool:
    """Return whether a declaration has JSON and not the path of a file: it begins with a bracket, or is a text."""
    return plain_json(text).lstrip()[:1] in ("{", "[", '"')
