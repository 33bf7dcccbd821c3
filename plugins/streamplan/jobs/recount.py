"""Computes a pipeline's result again from its input and compares it with what was written: rows of the check of totals.

spark-submit runs it. The DAGs <pipeline>_deploy and <pipeline>_health start it.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from streamplan.checks.framework.application import application_of
from streamplan.errors import CouldNotLook, Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import resolve_pipeline
from streamplan.programs import refusal_beside, run_job
from streamplan.registry import pipeline_named
from streamplan.reports.observations import RecordedObservations, offsets_fingerprint
from streamplan.reports.sink_offsets import SinkOffsets, read_sink_offsets
from streamplan.spark.observation_job import write_observations
from streamplan.spark.recount.recount import recount


def main() -> int:
    """Run the job and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    parser.add_argument("--sinks", type=Path, help="JSON file that says where a reset application began its sinks")
    args = parser.parse_args()

    def work() -> None:
        declared = pipeline_named(args.pipeline)
        brokers = Brokers.from_environment(args.bootstrap_servers)

        def observe(spark: SparkSession) -> RecordedObservations:
            cluster, at = KafkaCluster(brokers), datetime.now(UTC).isoformat()
            try:
                pipeline = resolve_pipeline(declared, brokers)
            except Refused as error:
                raise CouldNotLook(str(error)) from error
            before = offsets_fingerprint(application_of(pipeline), cluster)
            sinks = read_sink_offsets(args.sinks, cluster) if args.sinks else SinkOffsets()
            rows = tuple(recount(spark, pipeline, cluster, brokers, sinks))
            return RecordedObservations(rows, at=at, fingerprint=before)

        write_observations(f"{declared.topology.application_id}-recount", args.output, observe)

    return run_job(work, refusal_beside(args.output))


if __name__ == "__main__":
    sys.exit(main())
