"""Runs a check over all records, read by Spark's executors.

spark-submit runs it. The DAG <pipeline>_health starts it when it is asked to check all records of a large topic.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamplan.checks import CHECKS, check_named
from streamplan.checks.discovery.running import running_application
from streamplan.kafka.brokers import Brokers
from streamplan.programs import run_job
from streamplan.registry import pipeline_named
from streamplan.reports.check_context import check_context
from streamplan.reports.observations import RecordedObservations
from streamplan.spark.distributed_cluster import DistributedCluster
from streamplan.spark.observation_job import write_observations


def main() -> int:
    """Run the job and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--check", required=True, choices=[check.name for check in CHECKS if check.distributed])
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--reports", required=True, type=Path, help="directory of the results")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    args = parser.parse_args()

    def observe(spark: SparkSession) -> RecordedObservations:
        cluster = DistributedCluster(spark, Brokers.from_environment(args.bootstrap_servers))
        application = running_application(pipeline_named(args.pipeline), cluster)
        check = check_named(args.check).configure(check_context(application, args.reports, full=True))
        return RecordedObservations(tuple(check.observe(application, cluster)))

    return run_job(lambda: write_observations(f"{args.pipeline}-{args.check}", args.output, observe))


if __name__ == "__main__":
    sys.exit(main())
