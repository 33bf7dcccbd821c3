"""Plans a re-drive of dead letters, or carries out a plan that was approved, and leaves what it found in a file.

spark-submit runs it. The DAG <pipeline>_redrive starts it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from streamplan.files import write_atomically
from streamplan.kafka.brokers import Brokers
from streamplan.maintenance.redrive import Redriver
from streamplan.maintenance.redrive_plan import Choice
from streamplan.programs import refusal_beside, report, run_job
from streamplan.registry import pipeline_named
from streamplan.settings import Settings
from streamplan.spark.session import open_session


def main() -> int:
    """Run the job and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write: the plan, or what was done")
    parser.add_argument("--reason", help="plan: only open dead letters of this reason")
    parser.add_argument("--letter", action="append", default=[], help="plan: this dead letter, PARTITION@OFFSET")
    parser.add_argument("--approved", type=Path, help="carry out the plan in this JSON file")
    parser.add_argument("--by", default="", help="with --approved: who approved the plan")
    parser.add_argument("--run", default="", help="with --approved: names the run")
    parser.add_argument("--active-run", action="append", default=[], help="an active run that works on the application")
    args = parser.parse_args()

    def work() -> None:
        pipeline = pipeline_named(args.pipeline)
        spark = open_session(f"{pipeline.topology.application_id}-redrive")
        try:
            redriver = Redriver(
                pipeline,
                Brokers.from_environment(args.bootstrap_servers),
                Settings.from_environment(),
                report,
                args.active_run.__contains__,
                spark=spark,
                choice=Choice.of(args.reason, args.letter),
                by=args.by,
                run=args.run,
            )
            if args.approved is None:
                plan = redriver.observe()
            else:
                plan = redriver.apply(json.loads(args.approved.read_text()))
        finally:
            spark.stop()
        write_atomically(args.output, json.dumps(plan.written(), indent=1))

    return run_job(work, refusal_beside(args.output))


if __name__ == "__main__":
    sys.exit(main())
