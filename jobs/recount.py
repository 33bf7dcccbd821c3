"""Computes a pipeline anew from its input and compares with what it has written: the rows of the totals check.

Meant for spark-submit; the DAGs <pipeline>_deploy and <pipeline>_health call it so.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from streamplan.checks.framework.application import application_of
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.kafka.cluster import KafkaCluster
from streamplan.pipelines import pipeline_named
from streamplan.reports.checking import contents
from streamplan.reports.results import Recounted
from streamplan.spark.recount import recount
from streamplan.spark.session import open_session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    args = parser.parse_args()
    try:
        pipeline = pipeline_named(args.pipeline)
        spark = open_session(f"{pipeline.topology.application_id}-recount")
        try:
            cluster, at = KafkaCluster(args.bootstrap_servers), datetime.now(UTC).isoformat()
            before = contents(application_of(pipeline), cluster)
            rows = tuple(recount(spark, pipeline, cluster, args.bootstrap_servers))
            found = Recounted(rows, at=at, contents=before)
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
