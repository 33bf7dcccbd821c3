"""The command ``check``: the health checks of a declared pipeline, or of any Kafka Streams application.

Exit status: 0 all passed, 1 one failed, 2 one could not look and none failed (also wrong usage).

With ``--json`` standard output is one object::

    {"application_id": "my-app", "name": "my-app", "bootstrap_servers": "kafka-1:9092",
     "outcome": "failed",                      as the exit status says: passed, failed, could not look
     "reason": "",                             why nothing was looked at at all; else empty
     "topics": {"my-app-counts-changelog": {"role": "changelog", "partitions": 2}, ...},
     "notes": ["..."],                         what could not be found out
     "checks": [{"check": "compaction", "outcome": "failed", "reason": "1 of 3 wrong: ...", "at": "2025-01-31T...",
                 "observations": [{"subject": "...", "expected": "compact", "observed": "delete", "where": "",
                                   "agrees": false}, ...]}, ...],
     "left_out": {"totals": "..."}}            checks without a subject in this application
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from streamplan.checks import CHECKS, check_named, not_applicable
from streamplan.checks.discovery.counts import CountOf
from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import Application, Partitioner, application_of
from streamplan.checks.framework.check import CheckResult, NotApplicable, Outcome, run_check, sentence
from streamplan.cli.brokers import chosen_brokers
from streamplan.cli.tables import checks_table
from streamplan.errors import BrokersUnavailable, CouldNotLook, Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import require_reachable
from streamplan.model.pipeline import Limits
from streamplan.model.topics import SERIALIZED_KEY_TYPES, TopicRole
from streamplan.serdes.json import Json
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

STATUS = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.COULD_NOT_LOOK: 2}

_ANY = {
    "source": "--source",
    "topology": "--topology",
    "count": "--count",
    "value": "--value",
    "store": "--store",
    "partitioner": "--partitioner",
    "key_type": "--key-type",
    "partition_share": "--partition-share",
    "lag_seconds": "--lag-seconds",
}
"""Options that a declaration answers."""

_DESCRIPTION = """\
Look once whether an application is well: records in the partition of their key, repartition topics that lose nothing,
changelogs that are compacted, totals, lag, skew, topics, names. Nothing is written to Kafka, and no Spark is needed.

Give the name of a declared pipeline, or the application id of any Kafka Streams application, in Java or another
language: its internal topics and what it reads are found in Kafka. Two things can only be told:
  --topology   what its Topology.describe() prints; without it sub-topologies are put together by the names of topics,
               and joins are not seen
  --count      how a store counts, without which the check of totals is left out
"""

_EPILOG = """\
exit status:
  0  every check passed
  1  one failed: something is wrong, and each wrong row is printed
  2  one could not look, and none failed: brokers away, no such application, nothing there yet; or wrong usage

examples:
  a declared pipeline, on the brokers of this machine
    python -m streamplan check orders
  any application
    python -m streamplan check --bootstrap-servers kafka-1:9092 --application-id my-app
  one whose sub-topologies are known, for a script
    python -m streamplan check --bootstrap-servers kafka-1:9092 --application-id my-app --topology my-app.txt --json
  orders are grouped by the field ProductType of their JSON value and counted in the store totals
    python -m streamplan check --bootstrap-servers kafka-1:9092 --application-id my-app \\
      --count orders:ProductType --value "Id string, ProductType int" --store totals
  keys of 4 bytes, placed by a partitioner of one's own: def by_region(key: bytes, partitions: int) -> int
    python -m streamplan check --bootstrap-servers kafka-1:9092 --application-id my-app \\
      --key-type my-app-by-region-repartition=int --partitioner my-app-by-region-repartition=my_company.keys:by_region
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "check",
        help="look whether a pipeline, or any Kafka Streams application, is well",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", help="the name of a declared pipeline")
    parser.add_argument(
        "--bootstrap-servers",
        "--bootstrap",
        metavar="HOST:PORT,…",
        help="Kafka brokers (default: those that `python -m streamplan up` starts)",
    )
    names = ", ".join(check.name for check in CHECKS)
    parser.add_argument("--only", metavar="NAME,…", help=f"these checks alone: {names}")
    parser.add_argument(
        "--full",
        action="store_true",
        help="look at every record, not at a sample, and count from the beginning, not from the last verified cut",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    any_application = parser.add_argument_group("any application")
    any_application.add_argument("--application-id", metavar="ID", help="the application.id")
    any_application.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic that it reads, where its consumer group has no position there; may be given again",
    )
    any_application.add_argument("--topology", type=Path, metavar="FILE", help="the text of Topology.describe()")
    any_application.add_argument(
        "--partitioner",
        action="append",
        default=[],
        metavar="TOPIC=MODULE:FUNCTION",
        help="how keys of the topic are placed, if not by murmur2: a Python function of key and partition count",
    )
    any_application.add_argument(
        "--key-type",
        action="append",
        default=[],
        metavar="TOPIC=TYPE",
        help=f"how keys of the topic are shown: {', '.join(SERIALIZED_KEY_TYPES)}",
    )
    any_application.add_argument(
        "--partition-share",
        type=float,
        metavar="SHARE",
        help=f"of a topic, the most that one partition may have (default {Limits().partition_share})",
    )
    any_application.add_argument(
        "--lag-seconds", type=float, metavar="SECONDS", help="how old the oldest record that is to process may be"
    )
    any_application.add_argument(
        "--count",
        metavar="TOPIC[:FIELD]",
        help="the topic whose records are counted, by a field of their JSON value or, without one, by their key; counts"
        " have keys of text and values of 8 bytes, as StringSerializer and LongSerializer write them",
    )
    any_application.add_argument("--value", metavar="SCHEMA", help='the fields of its values: "Id string, Type int"')
    any_application.add_argument(
        "--store", metavar="NAME", help="the store that holds the counts, where it is not clear"
    )
    parser.set_defaults(run=lambda options: _run(parser, options))


@dataclass
class Report:
    """What was found. ``unasked``: why nothing, or no more, was looked at."""

    brokers: Brokers
    name: str
    application: Application | None = None
    results: list[CheckResult] = field(default_factory=list)
    left_out: Mapping[str, NotApplicable] = field(default_factory=dict)
    unasked: str = ""

    @property
    def outcome(self) -> Outcome:
        outcomes = {result.outcome for result in self.results}
        if Outcome.FAILED in outcomes:
            return Outcome.FAILED
        return Outcome.PASSED if outcomes == {Outcome.PASSED} and not self.unasked else Outcome.COULD_NOT_LOOK


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if bool(options.pipeline) == bool(options.application_id):
        parser.error("give either the name of a declared pipeline or --application-id")
    if options.pipeline and (given := [words for name, words in _ANY.items() if getattr(options, name)]):
        parser.error(f"{', '.join(given)}: a pipeline declares that itself")
    if (options.value or options.store) and not options.count:
        parser.error("--value and --store belong to --count")
    progress = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    report = Report(chosen_brokers(options.bootstrap_servers), options.pipeline or options.application_id)
    try:
        with progress.status("Looking") as status:
            _look(report, options, status.update if progress.is_terminal else progress.print)
    except (BrokersUnavailable, CouldNotLook) as error:
        report.unasked = " ".join(str(error).split())
    except StreamplanError as error:  # wrong usage: 1 would say that a check failed
        progress.print(str(error), style="red")
        return STATUS[Outcome.COULD_NOT_LOOK]
    if options.json:
        sys.stdout.write(json.dumps(as_json(report), indent=1) + "\n")
    else:
        _show(report)
    return STATUS[report.outcome]


def _look(report: Report, options: argparse.Namespace, say: Callable[[str], object]) -> None:
    """Fills the report. What it could not even begin with is raised."""
    only = [check_named(name.strip()).name for name in options.only.split(",")] if options.only else []
    subject = _Declared(options.pipeline) if options.pipeline else _Discovered(options)
    say(f"Looking for {report.name} at {report.brokers}")
    require_reachable(report.brokers)
    cluster = KafkaCluster(report.brokers)
    report.application = subject.application(cluster)
    application = report.application
    chosen = [check for check in CHECKS if check.name in only or not only]
    inapplicable = not_applicable(application)
    report.left_out = {check.name: inapplicable[check.name] for check in chosen if check.name in inapplicable}
    from streamplan.reports.check_context import check_context

    context = check_context(application, Settings.from_environment().reports, full=options.full)
    for check in chosen:
        if check.name in report.left_out:
            continue
        say(f"Looking: {check.title}")
        report.results.append(run_check(application, check.configure(context), cluster))
        if report.results[-1].outcome is Outcome.COULD_NOT_LOOK:
            require_reachable(report.brokers)  # else each of the others would wait, and say the same


class _Declared:
    def __init__(self, name: str) -> None:
        from streamplan.pipelines import pipeline_named

        self._pipeline = pipeline_named(name)

    def application(self, cluster: KafkaCluster) -> Application:
        cluster.names()  # one question, which can be waited for in vain: eight checks would
        return application_of(self._pipeline)


class _Discovered:
    """Parses what is given before Kafka is asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._id = options.application_id
        self._sources = options.source
        self._counts = [_count_of(options)] if options.count else []
        self._partitioners = {topic: _function(given) for topic, given in _pairs("--partitioner", options.partitioner)}
        self._key_types = dict(_pairs("--key-type", options.key_type))
        for topic, given in self._key_types.items():
            if given not in SERIALIZED_KEY_TYPES:
                raise Refused(f"--key-type {topic}={given}", expected=" or ".join(SERIALIZED_KEY_TYPES))
        usual = Limits()
        self._limits = Limits(
            usual.partition_share if options.partition_share is None else options.partition_share, options.lag_seconds
        )
        self._topology = _text(options.topology) if options.topology else None

    def application(self, cluster: KafkaCluster) -> Application:
        return discover(
            cluster,
            self._id,
            sources=self._sources,
            topology=self._topology,
            counts=self._counts,
            partitioners=self._partitioners,
            key_types=self._key_types,
            limits=self._limits,
        )


def _count_of(options: argparse.Namespace) -> CountOf:
    source, _, name = options.count.partition(":")
    try:
        value = Json(options.value) if options.value else None
        _ = value and value.fields
    except ValueError as error:
        raise Refused(f"--value {options.value!r}", observed=str(error)) from error
    return CountOf(source, name or None, value, options.store)


def _pairs(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        topic, _, rest = text.partition("=")
        if not (topic and rest):
            raise Refused(f"{option} {text}", expected="TOPIC=…")
        yield topic, rest


def _function(given: str) -> Partitioner:
    module, _, name = given.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(
            f"--partitioner …={given}",
            expected="MODULE:FUNCTION",
            observed=str(error),
            remedy="The directory that holds the module belongs into PYTHONPATH.",
        ) from error
    if not callable(found):
        raise Refused(f"--partitioner …={given}", expected="a function", observed=f"{type(found).__name__}")
    partitioner: Partitioner = found
    return partitioner


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Refused(f"--topology {file}", expected="a text file", observed=str(error)) from error


def as_json(report: Report) -> dict[str, Any]:
    """The structure at the head of this module."""
    found = report.application
    specs = found.topics if found else ()
    return {
        "application_id": found.application_id if found else None,
        "name": report.name,
        "bootstrap_servers": str(report.brokers),
        "outcome": str(report.outcome),
        "reason": report.unasked,
        "topics": {spec.name: {"role": str(spec.role), "partitions": spec.partitions} for spec in specs},
        "notes": list(found.notes) if found else [],
        "checks": [
            {
                "check": result.check,
                "outcome": str(result.outcome),
                "reason": result.reason,
                "at": result.at,
                "observations": [asdict(row) | {"agrees": row.agrees} for row in result.observations],
            }
            for result in report.results
        ],
        "left_out": {name: inapplicable.reason for name, inapplicable in report.left_out.items()},
    }


def _show(report: Report) -> None:
    console = Console(markup=False, emoji=False, highlight=False)
    if report.application:
        console.print(_heading(report.application), style="bold", soft_wrap=True)
        table = checks_table(report.results)
        for name, inapplicable in report.left_out.items():
            why = ": ".join(filter(None, (inapplicable.reason, inapplicable.remedy)))
            table.add_row(name, "left out", why, style="dim")
        console.print(table)
    for result in report.results:
        for row in result.observations:
            if not row.agrees:
                console.print(f"{result.check}: {sentence(row)}", style="red", soft_wrap=True)
    for note in report.application.notes if report.application else ():
        console.print(f"Note: {note}", style="dim", soft_wrap=True)
    if report.unasked:
        console.print(f"Could not look: {report.unasked}", style="yellow", soft_wrap=True)


def _heading(application: Application) -> str:
    """``my-app: 1 source, 1 repartition topic, 1 changelog``."""
    words = {
        TopicRole.SOURCE: "source",
        TopicRole.REPARTITION: "repartition topic",
        TopicRole.CHANGELOG: "changelog",
        TopicRole.SINK: "sink",
    }
    counts = {word: len(application.with_role(role)) for role, word in words.items()}
    listed = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)
    return f"{application.application_id}: {listed}"
