"""The command ``check``: the health checks of a declared pipeline, or of any Kafka Streams application.

With ``--json`` standard output is one object::

    {"application_id": "my-app", "name": "my-app", "bootstrap_servers": "kafka-1:9092",
     "outcome": "failed",                      as the exit status says: passed, failed, could not look
     "reason": "",                             why no check ran; else empty
     "topics": {"my-app-counts-changelog": {"role": "changelog", "partitions": 2}, ...},
     "notes": ["..."],                         what could not be found out
     "checks": [{"check": "compaction", "outcome": "failed", "reason": "1 of 3 wrong: ...", "at": "2025-01-31T...",
                 "advice": ["Set the config ..."],     what to do next; empty if it passed
                 "observations": [{"subject": "...", "expected": "compact", "observed": "delete", "where": "",
                                   "agrees": false}, ...]}, ...],
                                               a row with the observed text "not judged" says why in "where"
     "left_out": {"totals": "..."}}            checks that have nothing to look at in this application
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from rich.console import Console

from streamplan.checks import CHECKS, check_named, not_applicable
from streamplan.checks.framework.check import Outcome, run_checks
from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.check_progress import CheckProgress
from streamplan.cli.check_report import CheckReport
from streamplan.cli.check_subject import OPTIONS, DeclaredPipeline, DescribedApplication, Subject, add_options
from streamplan.cli.command import Commands, add_pipeline, parsed_by, refuse_ignored
from streamplan.errors import BrokersUnavailable, CouldNotLook, WrongUsage
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import require_reachable
from streamplan.programs import ExitStatus
from streamplan.reports.check_context import check_context
from streamplan.settings import Settings

STATUS = {
    Outcome.PASSED: ExitStatus.DONE,
    Outcome.FAILED: ExitStatus.WRONG,
    Outcome.COULD_NOT_LOOK: ExitStatus.FAILED,
}

_DESCRIPTION = """\
Look once whether an application is well. The checks look at the partition of each record's key, the configs of
repartition topics, the compaction of changelogs, totals, lag, skew, topics and names. They write nothing to Kafka and
need no Spark. They run in parallel. A check that has to wait says what it waits for: it watches a task that does not
move for 90 s.

Give the name of a declared pipeline, or the application id of any Kafka Streams application, in Java or another
language. Its internal topics and the topics that it reads are found in Kafka. Kafka does not know two things:
  --topology   what its Topology.describe() prints; without it the checks group topics into sub-topologies by \
their names, and do not see joins
  --count      how a store counts; without it the check of totals is left out
"""

_EXAMPLES = """\
a declared pipeline, on the brokers of this machine
  %(prog)s orders
any application
  %(prog)s --application-id my-app --bootstrap-servers kafka-1:9092
one whose sub-topologies are known, for a script
  %(prog)s --application-id my-app --bootstrap-servers kafka-1:9092 --topology my-app.txt --json
orders are grouped by the field ProductType of their JSON value and counted in the store totals
  %(prog)s --application-id my-app --bootstrap-servers kafka-1:9092 \
--count orders:ProductType --value "Id string, ProductType int" --store totals
keys of 4 bytes, placed by a partitioner of one's own: def by_region(key: bytes, partitions: int) -> int
  %(prog)s --application-id my-app --bootstrap-servers kafka-1:9092 \
--key-type my-app-by-region-repartition=int --partitioner my-app-by-region-repartition=my_company.keys:by_region
"""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "check",
        "look whether a pipeline, or any Kafka Streams application, is well",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        run=_run,
        done="every check passed",
        wrong="a check failed: each wrong row is printed",
    )
    add_pipeline(parser, optional="or give --application-id")
    add_broker_options(parser)
    names = ", ".join(check.name for check in CHECKS)
    parser.add_argument(
        "--only",
        metavar="NAME,…",
        help=f"run only these checks; their names are: {names}",
        type=parsed_by(_names),
        default=(),
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="look at every record, not at a sample, and count from the beginning, not from the last verified cut",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_options(parser)


def _names(text: str) -> list[str]:
    return [check_named(name.strip()).name for name in text.split(",")]


def _run(options: argparse.Namespace) -> int:
    if bool(options.pipeline) == bool(options.application_id):
        raise WrongUsage("check", expected="either PIPELINE or --application-id ID", observed="none or both")
    if options.pipeline and (needless := [words for name, words in OPTIONS.items() if getattr(options, name)]):
        raise WrongUsage(
            f"leave out {', '.join(needless)}", remedy="A declared pipeline has these settings in its declaration."
        )
    if not options.count:
        refuse_ignored(options, "value", "store", without="--count")
    console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    report = CheckReport(chosen_brokers(options), options.pipeline or options.application_id)
    try:
        with CheckProgress(console) as progress:
            _run_checks(report, options, progress)
    except (BrokersUnavailable, CouldNotLook) as error:
        report.error = " ".join(str(error).split())
    if options.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
    else:
        report.show()
    return STATUS[report.outcome]


def _run_checks(report: CheckReport, options: argparse.Namespace, progress: CheckProgress) -> None:
    """Run the checks and fill the report.

    Raises:
        StreamplanError: No check can run.
    """
    subject: Subject = DeclaredPipeline(options.pipeline) if options.pipeline else DescribedApplication(options)
    progress.looking_for(f"{report.name} at {report.brokers}")
    require_reachable(report.brokers)
    application = report.application = subject.application(KafkaCluster(report.brokers))
    chosen = [check for check in CHECKS if check.name in options.only or not options.only]
    inapplicable = not_applicable(application)
    report.left_out = {check.name: inapplicable[check.name] for check in chosen if check.name in inapplicable}
    context = check_context(application, Settings.from_environment().reports, full=options.full)
    checks = [
        check.configure(replace(context, report=progress.begin(check)))
        for check in chosen
        if check.name not in report.left_out
    ]
    report.results = run_checks(application, checks, lambda: KafkaCluster(report.brokers), finished=progress.finish)
