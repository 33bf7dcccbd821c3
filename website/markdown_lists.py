"""Lists of Markdown as MkDocs reads them.

The pages are written in the Markdown of GitHub, in which what belongs to an item stands below its text: two spaces deep
behind "- ", three behind "1. ". Python-Markdown, which MkDocs uses, wants four.
"""

from __future__ import annotations

import re

_ITEM = re.compile(r"(?:[-*]|\d+\.) +")
_DEEP = 4


def with_deep_items(markdown: str) -> str:
    """Return a page whose lists have their further lines four spaces deep.

    Args:
        markdown: The page. The items of a list in a list stand four spaces deep in it already, and get two or one more.
    """
    lines: list[str] = []
    depth, is_fenced = 0, False
    for line in markdown.splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
        if is_fenced or not line.strip():
            lines.append(line)
            continue
        if depth and line.startswith(" " * depth):
            lines.append(" " * (_DEEP - depth) + line)
            continue
        item = _ITEM.match(line)
        depth = len(item[0]) if item else 0
        lines.append(line)
    return "\n".join(lines) + "\n"
