"""What MkDocs is told while it builds: the generated pages, their places in the navigation, and how lists are read.

``python -m website .streamplan/reference`` writes the pages before. MkDocs has an environment of its own, in which the
package cannot be imported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from website.markdown_lists import with_deep_items

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PROJECT = Path(__file__).parents[1]

GENERATED = PROJECT / ".streamplan" / "reference"
"""The generated pages."""

CONTRIBUTING = "CONTRIBUTING.md"
"""A page that is not in ``docs/``, and which pages there link to."""

_LISTED = re.compile(r"\]\((\w+-\w+\.md)\)")
"""A page of an operation, where the list of all operations links to it."""

FOLDER = "operations"
"""The folder of the pages of the operations, of which the navigation of ``mkdocs.yml`` has the first alone."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the page of each operation to the navigation, behind the list of all operations."""
    [section] = [part["Reference"] for part in config.nav or () if "Reference" in part]
    [entry] = [part for part in section if part.get("Operations") == f"{FOLDER}/index.md"]
    by_class: dict[str, list[dict[str, str]]] = {}
    for page in _LISTED.findall((GENERATED / FOLDER / "index.md").read_text(encoding="utf-8")):
        of_class, _, name = page.removesuffix(".md").partition("-")
        by_class.setdefault(of_class, []).append({name: f"{FOLDER}/{page}"})
    entry["Operations"] = [f"{FOLDER}/index.md", *({name: listed} for name, listed in by_class.items())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add to the pages of ``docs/`` the generated ones, and the one on contributing."""
    from mkdocs.structure.files import File

    path = str(PROJECT / CONTRIBUTING)
    files.append(File.generated(config, CONTRIBUTING.lower(), abs_src_path=path))
    for page in sorted(GENERATED.rglob("*.md")):
        files.append(File.generated(config, page.relative_to(GENERATED).as_posix(), abs_src_path=str(page)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Let Python-Markdown read the lists of a page as GitHub does."""
    return with_deep_items(markdown.replace(f"](../{CONTRIBUTING}", f"]({CONTRIBUTING.lower()}"))
