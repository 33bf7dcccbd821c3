"""Validates the expressions of a declaration with Spark, and derives types from them. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamplan.errors import Refused, StreamplanError
from streamplan.model.diagnostics import Diagnostic, refuse
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.operators import read_source
from streamplan.spark.planning.refusals import sentence
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.session import open_session
from streamplan.spark.sources import RAW
from streamplan.spark.submit import spark_submit_configs


def find_diagnostics(pipelines: Sequence[Pipeline]) -> list[Diagnostic]:
    """Find every fault in the pipelines' expressions, in a Spark session of its own on this machine."""
    master = "local[1]"
    configs = {**spark_submit_configs(master), "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    SparkSession.builder.master(master).config(map=dict(configs)).getOrCreate()
    spark = open_session("streamplan-validate")
    try:
        return [diagnostic for pipeline in pipelines for diagnostic in _diagnostics(spark, pipeline)]
    finally:
        spark.stop()


def _diagnostics(spark: SparkSession, pipeline: Pipeline) -> list[Diagnostic]:
    try:
        return sorted(_plan(spark, pipeline)[1], key=lambda fault: (fault.location.file, fault.location.line))
    except (StreamplanError, PySparkException) as error:  # an answer about this pipeline; the others have theirs
        location = pipeline.topology.processors.nodes[0].location
        return [Diagnostic(location, f"pipeline {pipeline.name!r} cannot be planned: {error}", "Correct it")]


def resolve_schemas(spark: SparkSession, pipeline: Pipeline) -> dict[str, Serde]:
    """Return the serdes of the repartition topics, by their undecorated names.

    Raises:
        Refused: Spark finds faults in the expressions; the error tells all of them.
    """
    schemas, diagnostics = _plan(spark, pipeline)
    refuse(f"pipeline {pipeline.name!r}", diagnostics)
    return schemas


def _plan(spark: SparkSession, pipeline: Pipeline) -> tuple[dict[str, Serde], list[Diagnostic]]:
    """The serdes of the repartition topics, and every fault, of a plan without records."""
    schemas: dict[str, Serde] = {}
    diagnostics: list[Diagnostic] = []
    no_records = spark.createDataFrame([], RAW)
    waiting = list(pipeline.topology.subtopologies)
    while waiting:
        # After a fault the types of a repartition topic are not known, nor what is made of them.
        ready = [group for group in waiting if all(_known(pipeline, topic, schemas) for topic in group.source_topics)]
        if not ready:
            break
        for subtopology in ready:
            waiting.remove(subtopology)
            planner = plan_of(subtopology).planner(diagnostics)
            frames = {}
            for source in subtopology.sources:
                try:
                    frames[source.name] = read_source(subtopology, source, schemas, no_records)
                except (PySparkException, Refused) as error:
                    diagnostics.append(Diagnostic(source.location, sentence(error), "Write another timestamp="))
                    untimed = replace(source, timestamp=None)
                    frames[source.name] = read_source(subtopology, untimed, schemas, no_records)
            stored = {store: frames[name] for name, store in subtopology.table_stores.items()}
            for name, frame in frames.items():
                record = F.col("record")
                for store, table in stored.items():
                    row_type = table.data.select(F.struct(*table.fields)).schema[0].dataType
                    record = record.withField(f"`{store}`", F.lit(None).cast(row_type))
                planner.bind(name, frame.with_record(record))
            planner.plan(subtopology.nodes)
            schemas |= planner.take_output_rows().schemas
    return schemas, diagnostics


def _known(pipeline: Pipeline, topic: str, schemas: dict[str, Serde]) -> bool:
    carried = {node.topic for node in pipeline.topology.processors.nodes if isinstance(node, Source) and node.carried}
    return topic not in pipeline.topology.internal_topics or topic in schemas or topic in carried
