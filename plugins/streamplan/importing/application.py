"""From the text of ``Topology.describe()`` to a module that declares the same topology, and the proof that it does."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamplan.errors import Refused
from streamplan.importing.calls import Missing
from streamplan.importing.declaration import declare
from streamplan.importing.facts import Facts
from streamplan.importing.nodes import global_tables_of, nodes_of, number_of, prefix_of, repartition_topics
from streamplan.importing.operations import Operation, operations_of
from streamplan.importing.order import in_order_of_declaration
from streamplan.importing.python_text import python_text
from streamplan.model.description import description_lines, parse_description, parse_subtopologies
from streamplan.model.diagnostics import name_fault
from streamplan.model.kstream import KStream, KTable
from streamplan.model.topology import Topology

_UNEXPECTED = re.compile(r"(\w+)\.(\w+)\(\) got an unexpected keyword argument '(\w+)'")

_EXTRACTOR = re.compile(r"\(extractor class: .*\)$")
"""What chooses the topic of each record. The library prints whatever the application's object says of itself."""

_NAME = re.compile(r"(?<![^\s])K(?:STREAM|TABLE)-[A-Z-]+-\d{10}(?=[\s,]|$)")

_MOST_TRIED = 20
"""Of the operations that the application named, so many are tried as processors, each alone."""

_READ = ("stream", "table", "global_table")
"""The words that read a topic."""

_KINDS = {"KStream": "stream", "KTable": "table", "KGroupedStream": "grouping", "KGroupedTable": "grouping"}
"""What the classes of the language are called in an answer."""


@dataclass(frozen=True)
class ImportedApplication:
    """A declaration of an application.

    Attributes:
        text: The module that declares it.
        missing: What the description does not tell.
        refusal: Why the language refuses the declaration, also when everything that is missing is written; else empty.
        differences: The lines of the given description and of the declared one that differ, as ``diff`` shows them.
        has_same_nodes: Whether the nodes are the same nevertheless: the order in which a line lists names may differ.
            It depends on the order in which operations were declared, which names do not always tell.
        is_same_in_kafka: Whether the sub-topologies, their topics and their state stores are the same.
        renumbered: The repartition topics around which an older version has numbered the nodes. In everything above,
            these nodes have the names that newer versions give them.
    """

    text: str
    missing: Sequence[Missing]
    refusal: str
    differences: Sequence[str]
    has_same_nodes: bool
    is_same_in_kafka: bool
    renumbered: Sequence[str] = ()

    @property
    def is_verified(self) -> bool:
        """Whether the declaration is accepted and has the given topology."""
        return not self.refusal and self.has_same_nodes


def import_application(
    application_id: str, description: str, facts: Facts | None = None, *, file: str = "the declaration"
) -> ImportedApplication:
    """Write the declaration of an application, and try it.

    Args:
        description: The text of ``Topology.describe()``.
        facts: What a cluster tells besides.
        file: The file into which the text is to be written. A refusal names its lines.

    Raises:
        Refused: The text is no description.
    """
    facts = facts or Facts()
    if fault := name_fault(application_id):
        raise Refused(f"application id: {fault}")
    description, renumbered = _with_names_of_newer_versions(description)
    subtopologies = parse_subtopologies(description)
    global_tables = global_tables_of(subtopologies)
    of_tables = [source.name for source, _ in global_tables.values()]
    global_stores = [
        Missing(
            source.name,
            f"a global store of {', '.join(source.topics or (source.pattern or '',))} that a processor fills. The "
            "language does not have such stores. Where it holds the records as they are, write global_table().",
        )
        for part in subtopologies
        if part.is_global
        for source in part.sources
        if source.name not in of_tables
    ]
    found = operations_of(nodes_of(subtopologies), global_tables)
    operations = in_order_of_declaration(found)
    best = _try(application_id, description, operations, facts, file)
    for others in _with_processors(found) if best.differences and not best.has_same_nodes else ():
        ordered = in_order_of_declaration(others)
        tried = _try(application_id, description, ordered, facts, file)
        if tried.has_same_nodes or (tried.differences and len(tried.differences) < len(best.differences)):
            operations, best = ordered, tried
        if best.has_same_nodes:
            break
    for number, operation in enumerate(operations):
        if operation.word == "merge" and best.differences and best.has_same_nodes:
            # The order of two streams that are merged can be seen only in the order of their names.
            other = [*operations]
            other[number] = replace(operation, on=operation.on[::-1])
            tried = _try(application_id, description, other, facts, file)
            if len(tried.differences) < len(best.differences):
                operations, best = other, tried
    return replace(best, missing=(*global_stores, *best.missing), renumbered=renumbered)


def _with_processors(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Yield the same operations with processors of the Processor API in the place of some that the application named.

    The library draws no number for a processor with a name, and one for any other operation with a name.
    """
    words = {"unknown": "process_values", "select_key": "process"}
    named = [place for place, each in enumerate(operations) if number_of(each.node.name) is None]
    unknown, rekeying = ([place for place in named if operations[place].word == word] for word in words)
    choices = [unknown, unknown + rekeying, *([place] for place in (unknown + rekeying)[:_MOST_TRIED])]
    for chosen in filter(None, choices):
        yield [
            replace(each, word=words[each.word], numbers=()) if place in chosen else each
            for place, each in enumerate(operations)
        ]


def _with_names_of_newer_versions(description: str) -> tuple[str, list[str]]:
    """Call the nodes around repartition topics after the topics, where an older version has given them numbers.

    Newer versions give numbers only where the topic has a number, too. The numbers are drawn in either case.

    Returns:
        The description, and the topics.
    """
    topics = repartition_topics(nodes_of(parse_subtopologies(description)))
    names: dict[str, str] = {}
    found = []
    for topic in topics.values():
        # Those of a grouped table, before which no filter stands, have numbers in each version.
        if not prefix_of(topic.prefix) and topic.null_key_filter and number_of(topic.sink) is not None:
            names |= {topic.null_key_filter: f"{topic.topic}-filter"}
            names |= {topic.sink: f"{topic.topic}-sink", topic.source: f"{topic.topic}-source"}
            found.append(topic.topic)
    if not found:
        return description, found
    lines = [_NAME.sub(lambda name: names.get(name[0], name[0]), line) for _, line in description_lines(description)]
    return "\n".join(lines), found


def _try(
    application_id: str, description: str, operations: Sequence[Operation], facts: Facts, file: str
) -> ImportedApplication:
    """Declare operations, and compare the description of the declaration with the given one."""
    declaration = declare(operations, facts)
    counts = _declared_counts(operations, facts)
    unknown = [Missing(topic, "its number of partitions") for topic, count in counts.items() if count is None]
    topology, refusal = _run(python_text(application_id, declaration.calls, counts, tried=True), file)
    described = ""
    if topology is not None and not topology.faults and topology.subtopologies:
        described = topology.describe()
    return ImportedApplication(
        python_text(application_id, declaration.calls, counts),
        (*declaration.missing, *unknown),
        refusal,
        _differences(description, described) if described else [],
        bool(described) and _nodes(description) == _nodes(described),
        bool(described) and _in_kafka(description) == _in_kafka(described),
    )


def _declared_counts(operations: Sequence[Operation], facts: Facts) -> dict[str, int | None]:
    """The topics whose partition counts a declaration has: those that the application writes, as they exist.

    A topic that is only read belongs to others. One that is read and written has to have a count.
    """
    written = dict.fromkeys(topic for op in operations if op.word == "to" for topic in op.node.topics)
    read = {topic for op in operations if op.word in _READ for topic in (*op.node.topics, op.topic)}
    return {topic: facts.partitions.get(topic) for topic in written if topic in read or topic in facts.partitions}


def _run(text: str, file: str) -> tuple[Topology | None, str]:
    """Run a module that declares a pipeline.

    Args:
        text: Its text, in which all names of a description are quoted.
        file: The file that it is, or will be.

    Returns:
        Its topology, if it came so far, and why it is refused.
    """
    names: dict[str, Any] = {}
    refusal = ""
    try:
        exec(compile(text, file, "exec", dont_inherit=True), names)
    except Refused as error:
        refusal = str(error)
    except Exception as error:  # noqa: BLE001  # what a trial raises is an answer about the description
        refusal = _told(error, text, file)
    return names.get("topology"), refusal


def _told(error: Exception, text: str, file: str) -> str:
    """What an exception of a tried module says to a person: the line of the file, the call, and what to write."""
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    number = numbers[-1] if numbers and numbers[-1] else 1
    advice = "Write the operation of the application in other words there, or leave it out."
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, AttributeError) and isinstance(error.obj, (KStream, KTable)):
        what = f"a {_KINDS[type(error.obj).__name__]} does not have {error.name}()"
        if isinstance(error.obj, KTable) and error.name in vars(KStream):
            advice = "Put to_stream() before it."
    elif isinstance(error, TypeError) and (argument := _UNEXPECTED.search(str(error))):
        what = f"{argument[2]}() of a {_KINDS.get(argument[1], argument[1])} does not take {argument[3]}="
    return f"{file}:{number}: {text.splitlines()[number - 1].strip()}: {what}. {advice}"


def _differences(given: str, declared: str) -> list[str]:
    """The lines of two descriptions that differ."""
    diff = [*difflib.unified_diff(_lines(given), _lines(declared), lineterm="", n=0)]
    return [line for line in diff[2:] if not line.startswith("@@")]  # the first two lines name the files


def _lines(description: str) -> list[str]:
    """The lines of the sub-topologies, without what stands before them and without indentation."""
    lines = [_EXTRACTOR.sub("(extractor class)", " ".join(line.split())) for _, line in description_lines(description)]
    first = next(number for number, line in enumerate(lines) if line.startswith("Sub-topology: "))
    return [line for line in lines[first:] if line and not line.startswith("Topolog")]


def _nodes(description: str) -> tuple[Any, ...]:
    """The nodes of a description, without the order of names in a line, and the global tables."""
    subtopologies = parse_subtopologies(description)
    nodes = nodes_of(subtopologies).values()
    return {
        node.name: (
            node.subtopology,
            {*node.before},
            {*node.stores},
            node.has_buffer,
            {*node.topics},
            node.pattern,
            node.is_sink,
        )
        for node in nodes
    }, [part for part in subtopologies if part.is_global]


def _in_kafka(description: str) -> list[tuple[Any, ...]]:
    """What of a description Kafka has: of each sub-topology its number, and the names of its topics and stores."""
    return [
        (
            part.id,
            {topic for source in part.sources for topic in (*source.topics, source.pattern)},
            {*part.sinks},
            {*part.store_names},
        )
        for part in parse_description(description)
    ]
