"""The command ``import``: the declaration of a running Kafka Streams application, as far as it can be told."""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Iterator
from pathlib import Path

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands
from streamplan.cli.output import align_columns, plain_console, quantity
from streamplan.errors import Refused, WrongUsage
from streamplan.importing.application import ImportedApplication, import_application
from streamplan.importing.facts import SAMPLED_RECORDS, Facts, observe_facts
from streamplan.importing.python_text import pipeline_name
from streamplan.model.description import parse_subtopologies
from streamplan.programs import ExitStatus

_SHOWN_DIFFERENCES = 40

_DESCRIPTION = f"""\
Write a Python file that declares the topology of an application that was written with Kafka Streams. The file is tried:
its topology has to have the same description, so that the names and the numbers of sub-topologies, internal topics and
state stores agree.

A description has the names of operations, and not what they do. What cannot be told is marked with TODO in the file and
listed. A TODO is refused when the file is imported, so that it cannot be deployed by mistake.

With --bootstrap-servers the cluster is asked for more, and nothing is changed there: the partition counts of topics,
the fields of source topics where the last {SAMPLED_RECORDS:,} records are JSON objects, and which stores look like
counts or have windows.

In the application this prints the description: System.out.println(topology.describe());
"""

_EXAMPLES = """\
%(prog)s --application-id my-app --topology my-app.txt
%(prog)s --application-id my-app --topology my-app.txt \\
  --bootstrap-servers kafka-1:9092 --output pipelines/my_app.py
"""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "import",
        "write the declaration of an application that was written with Kafka Streams",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        run=_run,
        done="the file is written, and its topology has the given description",
        wrong="the file is written, and its topology is not the given one: the lines that differ are shown",
    )
    parser.add_argument("--application-id", metavar="ID", required=True, help="the application.id")
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        required=True,
        help="a file with the text of Topology.describe(); - for the standard input",
    )
    add_broker_options(parser, servers="ask these brokers, too (default: the text alone is used)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write, which must not exist yet (default: my_app.py for my-app)",
    )


def _run(options: argparse.Namespace) -> int:
    output = options.output or Path(f"{pipeline_name(options.application_id).replace('-', '_')}.py")
    if output.exists():
        raise Refused(
            f"file {output}",
            expected="a file that does not exist yet",
            observed="one that exists",
            remedy="Nothing was written. Name another file: --output FILE.",
        )
    try:
        content = sys.stdin.buffer.read() if str(options.topology) == "-" else options.topology.read_bytes()
        is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # what PowerShell's > writes
        description = content.decode("utf-16" if is_utf_16 else "utf-8")
    except (OSError, ValueError) as error:
        observed = getattr(error, "strerror", None) or "bytes that are no text"
        raise WrongUsage(f"--topology {options.topology}", expected="a text file", observed=observed) from error
    facts = _facts(options, description)
    imported = import_application(options.application_id, description, facts, file=str(output))
    try:
        with output.open("x", encoding="utf-8") as opened:
            opened.write(imported.text)
    except OSError as error:
        observed = error.strerror or str(error)
        raise Refused(f"--output {output}", expected="a file that can be written", observed=observed) from error
    given = "the standard input" if str(options.topology) == "-" else str(options.topology)
    plain_console().print("\n".join(_report(imported, given, output, asked=facts is not None)))
    return ExitStatus.DONE if imported.is_verified else ExitStatus.WRONG


def _facts(options: argparse.Namespace, description: str) -> Facts | None:
    """What the brokers tell; None where none are named."""
    if not (options.bootstrap_servers or options.command_config):
        return None
    from streamplan.kafka.cluster import KafkaCluster
    from streamplan.kafka.requests import require_reachable

    subtopologies = parse_subtopologies(description)
    brokers = chosen_brokers(options)
    require_reachable(brokers)
    return observe_facts(KafkaCluster(brokers), options.application_id, subtopologies)


def _report(imported: ImportedApplication, given: str, output: Path, *, asked: bool) -> Iterator[str]:
    yield f"{output} is written."
    yield from _verdict(imported, given)
    if not asked:
        yield "No brokers were asked. With --bootstrap-servers they tell partition counts, fields and counts."
    if imported.missing:
        yield f"\nNot known from the description ({len(imported.missing)}):"
        yield from (f"  {line}" for line in align_columns([(each.node, each.what) for each in imported.missing]))
    yield f"\nNext: replace each TODO in {output}, run `streamplan validate {output}`, and read docs/take-over.md."


def _verdict(imported: ImportedApplication, given: str) -> Iterator[str]:
    """Whether the file declares the given topology."""
    if imported.refusal:
        yield f"Not verified: the declaration is refused, also when each TODO is replaced.\n{imported.refusal}"
    if imported.has_same_nodes:
        order = ", but for the order of names in a line" if imported.differences else ", byte for byte"
        if imported.renumbered:
            order = f", but for the numbers that an older version gave to nodes around {', '.join(imported.renumbered)}"
        yield f"{'But its' if imported.refusal else 'Verified: its'} description is that in {given}{order}."
    elif imported.differences:
        yield f"Not verified: its description differs from {given} (-: given, +: declared)."
        yield from (f"  {line}" for line in imported.differences[:_SHOWN_DIFFERENCES])
        if len(imported.differences) > _SHOWN_DIFFERENCES:
            yield f"  … and {quantity(len(imported.differences) - _SHOWN_DIFFERENCES, 'line')} more"
        if imported.is_same_in_kafka:
            yield "Only nodes differ: sub-topologies, topics and state stores are the same."
        else:
            yield "Sub-topologies, topics or state stores differ: it cannot go on where the application stopped."
