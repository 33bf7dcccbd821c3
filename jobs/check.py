"""Runs the check `copartitioning` or `totals` over every record there is, read by Spark's executors.

Meant for spark-submit; <pipeline>_health calls it so when it is asked for all of a topic that is large.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamplan.checks import copartitioning, totals
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.cluster import Cluster
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.pipelines import pipeline_named
from streamplan.reports.results import Recounted, verified_file
from streamplan.reports.verified_sqlite import KeptFile
from streamplan.spark.distributed_cluster import DistributedCluster
from streamplan.spark.session import open_session


def rows(check: str, pipeline: str, cluster: Cluster, reports: Path) -> tuple[Observation, ...]:
    application = application_of(pipeline_named(pipeline))
    if check == "totals":
        kept = KeptFile(verified_file(reports, pipeline))
        return tuple(totals.observe(application, cluster, kept=kept, full=True))
    return tuple(copartitioning.observe(application.without_bounds(), cluster))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--check", required=True, choices=("copartitioning", "totals"))
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--reports", required=True, type=Path, help="directory of the results")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    args = parser.parse_args()
    try:
        spark = open_session(f"{args.pipeline}-{args.check}")
        try:
            cluster = DistributedCluster(spark, args.bootstrap_servers)
            found = Recounted(rows(args.check, args.pipeline, cluster, args.reports))
        except (BrokersUnavailable, CouldNotLook) as error:
            found = Recounted((), could_not_look=str(error))
        found.write(args.output)
        for row in found.rows:
            print(f"{row.subject}: expected {row.expected}, observed {row.observed}", flush=True)  # noqa: T201
        spark.stop()
    except StreamplanError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
