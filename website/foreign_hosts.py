"""Refuses a built site whose pages load from foreign hosts: ``python -m website.foreign_hosts FOLDER``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "audio": "src", "video": "src"}
"""Attributes whose address a browser asks for by itself. A link that a person follows is none of them."""

_LINKED = {"stylesheet", "preconnect", "preload", "prefetch", "dns-prefetch", "icon", "manifest", "modulepreload"}
"""What a ``link`` is for where a browser asks for its address."""

_FOREIGN = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in _LOADED:
            self.found.append(given.get(_LOADED[tag], ""))
        if tag == "link" and _LINKED & set(given.get("rel", "").lower().split()):
            self.found.append(given.get("href", ""))


def foreign_addresses(site: Path) -> Iterator[str]:
    """Yield each address of a foreign host that a page or a style sheet of a site loads, with its file.

    Args:
        site: The folder of the built site.
    """
    for file in sorted(site.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        parser = _Addresses()
        parser.feed(text)
        loaded = [address for address in parser.found if _FOREIGN.match(address)]
        for address in [*loaded, *_IN_STYLE.findall(text)]:
            yield f"{file.relative_to(site)}: {address}"
    for file in sorted(site.rglob("*.css")):
        for address in _IN_STYLE.findall(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(site)}: {address}"


if __name__ == "__main__":
    found = list(foreign_addresses(Path(sys.argv[1])))
    sys.exit("\n".join(["The site loads from foreign hosts:", *found]) if found else 0)
