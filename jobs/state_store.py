"""Writes what a pipeline's state store holds to a JSON file, for the checks to compare.

Meant for spark-submit; the DAG <pipeline>_deploy calls it so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamplan.errors import StreamplanError
from streamplan.pipelines import pipeline_named
from streamplan.spark.session import open_session
from streamplan.spark.state.state_store import read_state_stores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument("--checkpoints", required=True, help="directory or URI of Spark's checkpoints")
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    args = parser.parse_args()
    try:
        pipeline = pipeline_named(args.pipeline)
        spark = open_session(f"{pipeline.topology.application_id}-state-store")
        content = read_state_stores(spark, pipeline, args.checkpoints)
        content.write(args.output)
        print(f"micro-batch {content.batch}: {dict(content.totals)}", flush=True)  # noqa: T201
        spark.stop()
    except StreamplanError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
