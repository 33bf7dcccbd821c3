"""Runs a pipeline's aggregator in this process until all that is there is processed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.model.pipeline import Pipeline
from streamplan.spark.aggregator import run
from streamplan.spark.deployment import Deployment
from streamplan.spark.status import Heartbeat


def drain(
    spark: SparkSession,
    pipeline: Pipeline,
    brokers: Brokers,
    checkpoints: Path | str,
    max_offsets: int | None = None,
    *,
    stop: threading.Event | None = None,
    report: Callable[[str], None] = lambda line: None,
    heartbeat: Heartbeat | None = None,
) -> None:
    run(
        spark,
        Deployment(pipeline, brokers, str(checkpoints), max_offsets),
        available_now=True,
        trigger_interval_ms=100,
        stop=stop or threading.Event(),
        report=report,
        heartbeat=heartbeat,
    )
