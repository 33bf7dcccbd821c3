"""Runs a check over every record there is, read by Spark's executors.

Meant for spark-submit; <pipeline>_health calls it so when it is asked for all of a topic that is large.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamplan.checks import CHECKS, check_named
from streamplan.checks.framework.application import application_of
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.pipelines import pipeline_named
from streamplan.reports.checking import check_context
from streamplan.reports.results import Recounted
from streamplan.spark.distributed_cluster import DistributedCluster
from streamplan.spark.session import open_session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--check", required=True, choices=[check.name for check in CHECKS if check.distributed])
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--reports", required=True, type=Path, help="directory of the results")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    args = parser.parse_args()
    try:
        spark = open_session(f"{args.pipeline}-{args.check}")
        try:
            application = application_of(pipeline_named(args.pipeline))
            check = check_named(args.check).configure(check_context(application, args.reports, full=True))
            cluster = DistributedCluster(spark, args.bootstrap_servers)
            found = Recounted(tuple(check.observe(application, cluster)))
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
