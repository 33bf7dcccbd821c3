"""The command ``check``: the health checks of a declared pipeline, or of any Kafka Streams application.

The exit status is 0 if all checks passed, 1 if one failed, and 2 if one could not look and none failed (also for wrong
usage).

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
from typing import TYPE_CHECKING

from rich.console import Console

from streamplan.checks import CHECKS, check_named, not_applicable
from streamplan.checks.framework.check import Outcome, run_checks
from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.check_progress import CheckProgress
from streamplan.cli.check_report import CheckReport
from streamplan.cli.check_subject import OPTIONS, DeclaredPipeline, DescribedApplication, Subject, add_options
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import require_reachable
from streamplan.reports.check_context import check_context
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

STATUS = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.COULD_NOT_LOOK: 2}

_DESCRIPTION = """\
Look once whether an application is well. The checks look at the partition of each record's key, the configs of
repartition topics, the compaction of changelogs, totals, lag, skew, topics and names. They write nothing to Kafka and
need no Spark. They run beside each other. One that has to wait says what it waits for: a task that stands still is
watched for 90 s.

Give the name of a declared pipeline, or the application id of any Kafka Streams application, in Java or another
language. Its internal topics and the topics that it reads are found in Kafka. Kafka does not know two things:
  --topology   what its Topology.describe() prints; without it the checks group topics into sub-topologies by their
               names, and do not see joins
  --count      how a store counts; without it the check of totals is left out
"""

_EPILOG = """\
exit status:
  0  every check passed
  1  a check failed: each wrong row is printed
  2  a check could not look, and no check failed: the brokers do not answer, the application does not exist or has no
     records yet; or wrong usage

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
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check",
        help="look whether a pipeline, or any Kafka Streams application, is well",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", help="the name of a declared pipeline")
    add_broker_options(parser)
    names = ", ".join(check.name for check in CHECKS)
    parser.add_argument("--only", metavar="NAME,…", help=f"run only these checks; their names are: {names}")
    parser.add_argument(
        "--full",
        action="store_true",
        help="look at every record, not at a sample, and count from the beginning, not from the last verified cut",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_options(parser)
    parser.set_defaults(run=lambda options: _run(parser, options))


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if bool(options.pipeline) == bool(options.application_id):
        parser.error("give either the name of a declared pipeline or --application-id")
    if options.pipeline and (needless := [words for name, words in OPTIONS.items() if getattr(options, name)]):
        parser.error(f"leave out {', '.join(needless)}: a declared pipeline has these settings in its declaration")
    if (options.value or options.store) and not options.count:
        parser.error("--value and --store belong to --count")
    console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    try:
        report = CheckReport(chosen_brokers(options), options.pipeline or options.application_id)
        try:
            with CheckProgress(console) as progress:
                _run_checks(report, options, progress)
        except (BrokersUnavailable, CouldNotLook) as error:
            report.error = " ".join(str(error).split())
    except StreamplanError as error:  # wrong usage: 1 would say that a check failed
        console.print(str(error), style="red")
        return STATUS[Outcome.COULD_NOT_LOOK]
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
    only = [check_named(name.strip()).name for name in options.only.split(",")] if options.only else []
    subject: Subject = DeclaredPipeline(options.pipeline) if options.pipeline else DescribedApplication(options)
    progress.looking_for(f"{report.name} at {report.brokers}")
    require_reachable(report.brokers)
    application = report.application = subject.application(KafkaCluster(report.brokers))
    chosen = [check for check in CHECKS if check.name in only or not only]
    inapplicable = not_applicable(application)
    report.left_out = {check.name: inapplicable[check.name] for check in chosen if check.name in inapplicable}
    context = check_context(application, Settings.from_environment().reports, full=options.full)
    checks = [
        check.configure(replace(context, report=progress.begin(check)))
        for check in chosen
        if check.name not in report.left_out
    ]
    report.results = run_checks(application, checks, lambda: KafkaCluster(report.brokers), finished=progress.finish)
