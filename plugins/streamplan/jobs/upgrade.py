"""Does a step of an upgrade: builds the state of a changed declaration beside the old application, or switches.

spark-submit runs it. The DAG <pipeline>_upgrade starts it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from streamplan.files import write_atomically
from streamplan.kafka.brokers import Brokers
from streamplan.maintenance.upgrade import Upgrader
from streamplan.programs import refusal_beside, report, run_job, stop_on_signals
from streamplan.registry import pipeline_named
from streamplan.settings import Settings
from streamplan.spark.session import open_session


def main() -> int:
    """Run the job and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write: what was found")
    parser.add_argument("--step", required=True, choices=("build", "switch"))
    parser.add_argument("--accept-differences", action="store_true", help="switch where stores differ")
    parser.add_argument("--max-offsets", type=int, help="the most records of a micro-batch")
    parser.add_argument("--active-run", action="append", default=[], help="an active run that works on the application")
    args = parser.parse_args()
    stop = stop_on_signals()

    def work() -> None:
        brokers = Brokers.from_environment(args.bootstrap_servers)
        upgrader = Upgrader(
            pipeline_named(args.pipeline),
            brokers,
            Settings.from_environment(),
            report,
            args.active_run.__contains__,
            max_offsets=args.max_offsets,
        )
        plan = upgrader.observe()
        report(plan.text)
        spark = open_session(f"{plan.application_id}-upgrade")
        try:
            if args.step == "build":
                comparison = upgrader.build(spark, stop=stop)
            else:
                accepted = args.accept_differences
                comparison = upgrader.switch(spark, accept_differences=accepted, stop=stop)
        finally:
            spark.stop()
        texts = [plan.text, *([comparison.text] if comparison is not None else [])]
        found = {"stage": plan.stage, "text": "\n\n".join(texts)}
        write_atomically(args.output, json.dumps(found, indent=1))

    return run_job(work, refusal_beside(args.output))


if __name__ == "__main__":
    sys.exit(main())
