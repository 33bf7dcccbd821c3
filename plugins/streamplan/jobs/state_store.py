"""Writes what a pipeline's state store holds to a JSON file, for the checks to compare.

spark-submit runs it. The DAG <pipeline>_deploy starts it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamplan.kafka.brokers import Brokers
from streamplan.programs import refusal_beside, report, run_job
from streamplan.registry import pipeline_named
from streamplan.spark.session import open_session
from streamplan.spark.state.state_store import read_state_stores


def main() -> int:
    """Run the job and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--checkpoints", required=True, help="directory or URI of Spark's checkpoints")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    args = parser.parse_args()

    def work() -> None:
        pipeline = pipeline_named(args.pipeline)
        spark = open_session(f"{pipeline.topology.application_id}-state-store")
        content = read_state_stores(spark, pipeline, args.checkpoints, Brokers.from_environment(args.bootstrap_servers))
        content.write(args.output)
        report(f"micro-batch {content.batch}: {dict(content.totals)}")
        spark.stop()

    return run_job(work, refusal_beside(args.output))


if __name__ == "__main__":
    sys.exit(main())
