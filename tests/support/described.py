"""Descriptions as short texts: a test shows the nodes of a topology in a line, and not in thirty."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NODE = re.compile(r"(?P<name>[^\s<\[]+)(?:<(?P<topic>[^>]*)>)?(?:\[(?P<stores>[^\]]*)\])?")


@dataclass
class _Node:
    name: str
    topic: str | None = None
    stores: str = ""
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        after, before = ", ".join(self.after) or "none", ", ".join(self.before)
        if not self.before:
            return [f"    Source: {self.name} (topics: [{self.topic}])", f"      --> {after}"]
        if self.topic is not None:
            return [f"    Sink: {self.name} (topic: {self.topic})", f"      <-- {before}"]
        return [f"    Processor: {self.name} (stores: [{self.stores}])", f"      --> {after}", f"      <-- {before}"]


def described(text: str) -> str:
    """The description of a topology.

    Args:
        text: Sub-topologies, each behind the one before and ``|``. Each has chains of nodes, behind each other and
            ``;``, as ``KSTREAM-SOURCE-0<orders> > KSTREAM-PROCESSOR-1[seen] > KSTREAM-SINK-2<found>``. The topics are
            those of sources and sinks. A node of an earlier chain has its name only. Numbers have ten digits in the
            description.
    """
    text = re.sub(r"(?<=[A-Z]-)\d+", lambda number: number[0].zfill(10), text)
    lines = ["Topologies:"]
    for number, part in enumerate(text.split("|")):
        lines.append(f"{'  ' if number else '   '}Sub-topology: {number}")
        nodes: dict[str, _Node] = {}
        for chain in part.split(";"):
            last: _Node | None = None
            for each in chain.split(" > "):
                match = _NODE.fullmatch(each.strip())
                assert match is not None, each
                node = nodes.setdefault(match["name"], _Node(match["name"], match["topic"], match["stores"] or ""))
                if last is not None:
                    node.before.append(last.name)
                    last.after.append(node.name)
                last = node
        lines += [line for node in nodes.values() for line in node.lines()]
        lines.append("")
    return "\n".join([*lines, ""])
