"""What Spark says of a declaration's expressions, and the types that follow from them. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamplan.model.diagnostics import Diagnostic, refuse
from streamplan.model.pipeline import Pipeline
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.operators import Walk, read
from streamplan.spark.planning.plan import number_outputs
from streamplan.spark.session import open_session
from streamplan.spark.sources import RAW


def faults(pipelines: Sequence[Pipeline]) -> list[Diagnostic]:
    """Every fault that Spark finds in the pipelines' expressions; in a session of its own, on this machine."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.log.level", "ERROR").getOrCreate()
    spark = open_session("streamplan-validate")
    try:
        return [fault for pipeline in pipelines for fault in _walk(spark, pipeline)[1]]
    finally:
        spark.stop()


def resolve_schemas(spark: SparkSession, pipeline: Pipeline) -> dict[str, Serde]:
    """The serdes of the repartition topics, or :class:`Refused` with every fault that Spark finds."""
    schemas, found = _walk(spark, pipeline)
    refuse(f"pipeline {pipeline.name!r}", found)
    return schemas


def _walk(spark: SparkSession, pipeline: Pipeline) -> tuple[dict[str, Serde], list[Diagnostic]]:
    schemas: dict[str, Serde] = {}
    found: list[Diagnostic] = []
    nothing = spark.createDataFrame([], RAW)
    waiting = list(pipeline.topology.subtopologies)
    while waiting:
        # Behind a fault the types of a repartition topic are not known, nor what is made of them.
        ready = [group for group in waiting if all(_known(pipeline, topic, schemas) for topic in group.source_topics)]
        if not ready:
            break
        for group in ready:
            waiting.remove(group)
            numbers, _ = number_outputs(pipeline, group)
            walk = Walk(group, numbers, found)
            frames = {source.name: read(group, source, schemas, nothing) for source in group.sources}
            looked_up = {store: frames[name] for name, store in group.table_stores.items()}
            for name, frame in frames.items():
                record = F.col("record")
                for store, table in looked_up.items():
                    kind = table.data.select(F.struct(*table.fields)).schema[0].dataType
                    record = record.withField(f"`{store}`", F.lit(None).cast(kind))
                walk.put(name, frame.with_record(record))
            walk.visit(group.nodes)
            schemas |= walk.schemas
    return schemas, found


def _known(pipeline: Pipeline, topic: str, schemas: dict[str, Serde]) -> bool:
    return topic not in pipeline.topology.internal_topics or topic in schemas
