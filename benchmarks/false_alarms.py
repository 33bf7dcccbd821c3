"""How often a check does not pass while the stream runs. All checks of a deployed pipeline are run again and again.

Run it beside a deployment (``make demo``) whose producer goes on (trigger ``orders_producer`` with a rate and no number
of records): ``PYTHONPATH=plugins .venv/bin/python benchmarks/false_alarms.py [--pipeline orders] [--runs 100]``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter

from streamplan.checks import scheduled_checks
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Outcome, run_check
from streamplan.kafka.cluster import KafkaCluster
from streamplan.local.stack import Stack
from streamplan.registry import pipeline_named
from streamplan.reports.check_context import check_context
from streamplan.settings import Settings


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default="orders")
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    settings = Settings.from_environment()
    application = application_of(pipeline_named(options.pipeline))
    cluster = KafkaCluster(Stack(settings).kafka.brokers)
    outcomes: Counter[tuple[str, str]] = Counter()
    seconds: dict[str, list[float]] = {}
    source = application.aggregations[0].source if application.aggregations else application.subtopologies[0].sources[0]

    def written() -> int:
        return sum(offsets.last_stable for offsets in cluster.offsets(source).values())

    begun, before = time.perf_counter(), written()
    for run in range(options.runs):
        for check in scheduled_checks(application):
            since = time.perf_counter()
            result = run_check(application, check.configure(check_context(application, settings.reports)), cluster)
            seconds.setdefault(check.name, []).append(time.perf_counter() - since)
            outcomes[check.name, str(result.outcome)] += 1
            if result.outcome is not Outcome.PASSED:
                sys.stdout.write(f"\nrun {run}: {check.name} {result.outcome}: {result.reason}\n")
        sys.stderr.write(f"\r{run + 1} of {options.runs} runs")
    took, offsets = time.perf_counter() - begun, written() - before
    sys.stdout.write(f"\n{offsets:,} offsets of {source} in {took:.0f} s: {offsets / took:,.0f}/s\n")
    for check in scheduled_checks(application):
        counts = ", ".join(f"{count} {outcome}" for (name, outcome), count in outcomes.items() if name == check.name)
        median, most = statistics.median(seconds[check.name]), max(seconds[check.name])
        sys.stdout.write(f"{check.name:<16} {counts:<24} median {median:.2f} s, at most {most:.2f} s\n")


if __name__ == "__main__":
    main()
