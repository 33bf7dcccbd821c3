"""The commands of docs/kubernetes.md."""

from __future__ import annotations

import re

from streamplan.settings import PROJECT

PAGE = (PROJECT / "docs" / "kubernetes.md").read_text()


def commands(heading: str, *beginnings: str) -> list[str]:
    """Return the lines of the commands below a heading, in their order.

    Args:
        beginnings: Of the lines that are wanted; by default those of kubectl, and what makes their files.
    """
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = []
    for block in re.split(r"\n(?=\S)", section):
        code = [line[4:] for line in block.splitlines() if line.startswith("    ")]
        if code and code[0].startswith(("docker", "kubectl", "python3")):
            lines += code
    found = [line for line in lines if line.startswith(beginnings or ("kubectl ", "python3 ", "for ", " ", "done"))]
    assert found, f"no command below {heading}"
    return found
