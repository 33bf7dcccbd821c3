"""The text of ``Topology.describe()``: written for a declared topology, and parsed for any other.

The format is that of ``TopologyDescription`` and its parts in Kafka Streams' ``InternalTopologyBuilder``. It has not
changed since 2.1. tests/integration compares :func:`describe` with the real library.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from streamplan.errors import Refused
from streamplan.model.java_collections import TreeSet, hash_order, string_hash
from streamplan.model.operations import SeveralTopics
from streamplan.model.processor_topology import (
    Node,
    Processor,
    ProcessorTopology,
    Sink,
    Source,
    Subtopology,
    TopicChoice,
)

# -- writing


def describe(topology: ProcessorTopology) -> str:
    """What ``Topology.describe().toString()`` prints."""
    lines: list[str] = []
    for subtopology in topology.node_groups:
        of_global_store = " for global store (will not generate tasks)" if subtopology.is_global else ""
        lines.append(f"  Sub-topology: {subtopology.id}{of_global_store}")
        described = _connect(subtopology)
        for entry in sorted(described.values(), key=lambda entry: entry.rank):
            match entry.node:
                case Source(name=name, topic=topic):
                    lines += [f"    Source: {name} (topics: [{topic}])", f"      --> {entry.after}"]
                case Processor(name=name, operation=SeveralTopics(topics=topics)):
                    listed = ", ".join(hash_order(topics, string_hash, is_copied=True))
                    lines += [f"    Source: {name} (topics: [{listed}])", f"      --> {entry.after}"]
                case Processor(name=name, connected_stores=stores):
                    listed = ", ".join(hash_order(stores, string_hash))
                    lines += [f"    Processor: {name} (stores: [{listed}])", f"      --> {entry.after}"]
                    lines += [f"      <-- {entry.before}"]
                case Sink(name=name, choice=TopicChoice(expression=expression)):
                    lines += [f"    Sink: {name} (extractor class: {expression})", f"      <-- {entry.before}"]
                case Sink(name=name, topic=topic):
                    lines += [f"    Sink: {name} (topic: {topic})", f"      <-- {entry.before}"]
        if not subtopology.is_global:
            lines.append("")
    return "Topologies:\n " + "".join(f"{line}\n" for line in lines)


class _Described:
    """A node in a description. Its neighbours keep the order that their ranks had when they were added."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.size = 1
        self.predecessors = TreeSet[_Described]()
        self.successors = TreeSet[_Described]()

    @property
    def rank(self) -> tuple[int, bytes]:
        """``NODE_COMPARATOR``: the greater subtree first, then by name (``String.compareTo``)."""
        return -self.size, self.node.name.encode("utf-16-be")

    @property
    def before(self) -> str:
        """The names of its predecessors."""
        return ", ".join(entry.node.name for entry in self.predecessors) or "none"

    @property
    def after(self) -> str:
        """The names of its successors."""
        return ", ".join(entry.node.name for entry in self.successors) or "none"

    def grow(self, delta: int) -> None:
        """Add to the size of its subtree, and of the subtrees that contain it."""
        self.size += delta
        for before in self.predecessors:
            before.grow(delta)


def _is_of_library(node: Node) -> bool:
    match node:
        case Processor():
            return node.is_of_library
        case Source():
            return not node.is_one_of_several
        case Sink():
            return not node.is_further


def _connect(subtopology: Subtopology) -> dict[str, _Described]:
    """``describeSubtopology``: connects the nodes in the order of a Java ``HashMap``, which matters: sizes change."""
    nodes = (node for node in subtopology.nodes if _is_of_library(node))
    described = {node.name: _Described(node) for node in nodes}
    for name in hash_order(described, string_hash):
        entry = described[name]
        for before in (described[each] for each in subtopology.of_library_before(entry.node) if each in described):
            entry.predecessors.add(before)
            before.successors.add(entry)
            before.grow(entry.size)
    return described


# -- parsing

_SUBTOPOLOGY = re.compile(r"\s*Sub-topology: (\d+)( for global store.*)?\s*")
_NODE = re.compile(r"\s*(Source|Processor|Sink): +(\S.*?) *\((topics|stores|topic|extractor class): (.*)\)\s*")
_ARROW = re.compile(r"\s*(-->|<--) (.*)")
_HEADING = re.compile(r"\s*((Topolog|Sub-topolog)(ies|y: .*):|Global Stores:|none)\s*")

_NODES = {"topics": "Source", "stores": "Processor", "topic": "Sink", "extractor class": "Sink"}

_LINES = re.compile(
    r".*(?P<line>"
    r"((Topolog|Sub-topolog)(ies|y: .*):|Sub-topology: \d.*|(Source|Processor|Sink): .+ \(.+\)|(?<!\S)(-->|<--) .*)\s*)"
)
"""A line of a description behind the prefix of a log, of a comment or of a Java string."""

_END_OF_STRING = re.compile(r'((\\n)?"[\s+;,)]*|\s*\|)$')

_TAG = re.compile(r"</?(?:a|b|br|code|div|em|i|li|p|pre|span|strong|table|tbody|td|th|tr|ul)\b[^<>]*>", re.IGNORECASE)
_BREAK = re.compile(r"<br */?>", re.IGNORECASE)

_ONE_LINE = re.compile(
    r"(?P<kind>Source|Processor|Sink): *(?P<name>[^\s(]+) ?\((?P<attribute>topics|stores|topic): (?P<listed>[^()]*)\)"
    r"(?P<arrows>(?: +(?:-->|<--) .*)?)"
)
"""A node in the form of Kafka Streams 1.0 and 1.1: the arrows stand in its line."""


@dataclass(frozen=True)
class DescribedSource:
    """Reads ``topics``, or those whose names match ``pattern``, a regular expression."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None = None


@dataclass(frozen=True)
class DescribedSubtopology:
    """A sub-topology as its description shows it.

    Attributes:
        id: Its number.
        sources: Its source nodes.
        sink_topics: The topic of each sink node, by the node's name; None where the application chooses it for each
            record.
        stores: The state stores of each processor, by the processor's name.
        predecessors: The names of the nodes before each node, by its name.
        is_global: Whether it only fills a global store. Such a sub-topology has no stream tasks.
    """

    id: int
    sources: tuple[DescribedSource, ...]
    sink_topics: Mapping[str, str | None]
    stores: Mapping[str, tuple[str, ...]]
    predecessors: Mapping[str, tuple[str, ...]]
    is_global: bool = False

    @property
    def sinks(self) -> tuple[str, ...]:
        """The topics that it writes, each once."""
        return tuple(dict.fromkeys(topic for topic in self.sink_topics.values() if topic is not None))

    @property
    def store_names(self) -> tuple[str, ...]:
        """The names of its state stores, each once."""
        return tuple(dict.fromkeys(store for stores in self.stores.values() for store in stores))

    @property
    def joined(self) -> tuple[frozenset[str], ...]:
        """Sets of names of sources that are joined: two processors share a state store.

        A merge shares no store, and one processor alone does not join. Where all processors of a store have the same
        sources, merged streams are joined with themselves. The library enforces equal partition counts for the same
        sets (``InternalTopologyBuilder.copartitionSources``).
        """
        upstream = {name: self._sources_upstream_of(name) for name in self.stores}
        joined_sets = list[frozenset[str]]()
        for store in self.store_names:
            pairs = [*combinations([upstream[name] for name, stores in self.stores.items() if store in stores], 2)]
            joined_sets += [left | right for left, right in pairs if left != right] or [left for left, _ in pairs[:1]]
        groups: list[frozenset[str]] = []
        for joined in joined_sets:
            touching = [group for group in groups if group & joined]
            groups = [group for group in groups if not group & joined] + [frozenset().union(joined, *touching)]
        return tuple(group for group in groups if len(group) > 1)

    def _sources_upstream_of(self, name: str) -> frozenset[str]:
        visited, pending = set[str](), [name]
        while pending:
            node = pending.pop()
            if node not in visited:
                visited.add(node)
                pending += self.predecessors.get(node, ())
        return frozenset(source.name for source in self.sources if source.name in visited)


def parse_description(text: str) -> tuple[DescribedSubtopology, ...]:
    """The sub-topologies that have stream tasks. A global store has none; see :func:`parse_subtopologies`."""
    return tuple(subtopology for subtopology in parse_subtopologies(text) if not subtopology.is_global)


def parse_subtopologies(text: str) -> tuple[DescribedSubtopology, ...]:
    """All sub-topologies, those of global stores too.

    Args:
        text: What ``System.out.println(topology.describe())`` prints. Lines before and behind the description are
            ignored, and so is what a log puts before each line.

    Raises:
        Refused: A line between others is no line of a description, a sub-topology or a node is there twice, or
            there is no sub-topology.
    """
    parsers: list[_SubtopologyParser] = []
    lines_of: dict[str, int] = {}
    node = ""
    for number, line in description_lines(text):
        if match := _SUBTOPOLOGY.fullmatch(line):
            _refuse_repeated(f"Sub-topology: {match[1]}", number, lines_of)
            parsers.append(_SubtopologyParser(int(match[1]), is_global=match[2] is not None))
            node = ""
        elif parsers and (match := _NODE.fullmatch(line)) and _NODES[match[3]] == match[1]:
            node = match[2]
            _refuse_repeated(f"{match[1]}: {node}", number, lines_of, node)
            parsers[-1].add(node, match[3], match[4])
        elif parsers and node and (match := _ARROW.fullmatch(line)):
            if match[1] == "<--":
                parsers[-1].predecessors[node] = _names(match[2])
            else:
                parsers[-1].successors[node] = _names(match[2])
        elif parsers and line.strip() and not _HEADING.fullmatch(line):
            raise Refused(
                f"line {number} of the topology",
                expected="a line of Topology.describe()",
                observed=repr(line.strip()[:80]),
                remedy="Give what System.out.println(topology.describe()) prints, and nothing between its lines.",
            )
    if not parsers:
        raise Refused(
            "the topology",
            expected="the text of Topology.describe()",
            observed="no 'Sub-topology: 0'",
            remedy="Give what System.out.println(topology.describe()) prints in the application.",
        )
    return tuple(parser.result() for parser in parsers)


def description_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a description with their numbers, without what a page, a log or Java puts around it.

    Where the first sub-topology stands alone in its line, each line is taken as it is, up to the last one of the
    description. A node that has its arrows in one line, as Kafka Streams 1.0 writes it, is yielded as several lines.
    """
    lines = [
        (number, part)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
        for part in _BREAK.split(_as_printed(line))
    ]
    if not any(_SUBTOPOLOGY.fullmatch(line) for _, line in lines):
        matches = ((number, _LINES.fullmatch(_END_OF_STRING.sub("", line))) for number, line in lines)
        lines = [(number, match["line"]) for number, match in matches if match]
    lines = [(number, part) for number, line in lines for part in _divided(line)]
    described = [place for place, (_, line) in enumerate(lines) if _is_described(line)]
    yield from lines[: described[-1] + 1] if described else lines


def _as_printed(line: str) -> str:
    """A line without the tags and the entities of HTML."""
    if "&lt;--" in line or "--&gt;" in line:
        line = html.unescape(line)
    return _TAG.sub(lambda tag: tag[0] if _BREAK.fullmatch(tag[0]) else "", line)


def _divided(line: str) -> list[str]:
    """The lines in which newer versions write a line of Kafka Streams 1.0."""
    match = _ONE_LINE.fullmatch(line.strip())
    if match is None or (f"{match['name']} (" in line and not match["arrows"]):
        return [line]
    is_sink, listed = match["kind"] == "Sink", match["listed"]
    listed = listed if is_sink or listed.startswith("[") else f"[{listed}]"
    node = f"{match['kind']}: {match['name']} ({match['attribute']}: {listed})"
    return [node, *re.split(r" +(?=(?:-->|<--) )", match["arrows"].strip())] if match["arrows"] else [node]


def _is_described(line: str) -> bool:
    """Whether a line says something of a topology."""
    return any(form.fullmatch(line) for form in (_SUBTOPOLOGY, _NODE, _ARROW))


def _refuse_repeated(line: str, number: int, lines_of: dict[str, int], name: str = "") -> None:
    """Refuse a sub-topology or a node that the description has already: a topology has each number and name once."""
    first = lines_of.setdefault(name or line, number)
    if first != number:
        raise Refused(
            f"line {number} of the topology",
            expected="each sub-topology and each node once",
            observed=f"{line!r} again, which line {first} has",
            remedy="Give the description of one application. Delete the lines of every other one.",
        )


class _SubtopologyParser:
    def __init__(self, number: int, *, is_global: bool) -> None:
        self.number = number
        self.is_global = is_global
        self.sources: list[DescribedSource] = []
        self.sink_topics: dict[str, str | None] = {}
        self.stores: dict[str, tuple[str, ...]] = {}
        self.predecessors: dict[str, tuple[str, ...]] = {}
        self.successors: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, attribute: str, listed: str) -> None:
        """Adds a node with the attribute that its line has in parentheses, as ``(topics: [orders])``."""
        in_brackets = listed.startswith("[") and listed.endswith("]")
        if attribute == "topics":
            topics, pattern = (_names(listed[1:-1]), None) if in_brackets else ((), listed)
            self.sources.append(DescribedSource(name, topics, pattern))
        elif attribute == "stores":
            self.stores[name] = _names(listed[1:-1])
        else:
            self.sink_topics[name] = listed if attribute == "topic" else None

    def result(self) -> DescribedSubtopology:
        """The sub-topology, with the arrows of both directions as predecessors."""
        predecessors: dict[str, tuple[str, ...]] = dict(self.predecessors)
        for name, successors in self.successors.items():
            for successor in successors:
                predecessors[successor] = tuple(dict.fromkeys((*predecessors.get(successor, ()), name)))
        return DescribedSubtopology(
            self.number, tuple(self.sources), self.sink_topics, self.stores, predecessors, self.is_global
        )


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name for name in map(str.strip, listed.split(",")) if name and name != "none")


def topics_of(source: DescribedSource, existing: Iterable[str]) -> tuple[str, ...]:
    """The topics that a source reads: of a pattern the existing topics that match it.

    Raises:
        Refused: Python cannot compile the pattern.
    """
    if source.pattern is None:
        return source.topics
    try:
        pattern = re.compile(source.pattern)
    except re.error as error:
        raise Refused(f"the pattern {source.pattern!r} of {source.name}", observed=str(error)) from error
    return tuple(sorted(name for name in existing if pattern.fullmatch(name)))
