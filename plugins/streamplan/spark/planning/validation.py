"""Validates the expressions of a declaration with Spark, and derives types from them. Nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.errors import StreamplanError
from streamplan.model.diagnostics import Diagnostic, refuse
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source, Subtopology
from streamplan.model.topology import Topology
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.operators import read_source
from streamplan.spark.planning.refusals import REFUSALS, explain
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.session import open_session
from streamplan.spark.sources import RAW
from streamplan.spark.submit import spark_submit_configs


def find_diagnostics(pipelines: Sequence[Pipeline], unfinished: Sequence[Topology] = ()) -> list[Diagnostic]:
    """Find every fault in the expressions of pipelines, and what to warn of, in a Spark session of its own.

    Args:
        unfinished: Topologies with faults. Their other expressions are judged, too.
    """
    master = "local[1]"
    configs = {**spark_submit_configs(master), "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    SparkSession.builder.master(master).config(map=dict(configs)).getOrCreate()
    spark = open_session("streamplan-validate")
    try:
        found = [diagnostic for pipeline in pipelines for diagnostic in _diagnostics(spark, pipeline)]
        return [*found, *(diagnostic for topology in unfinished for diagnostic in _of_unfinished(spark, topology))]
    finally:
        spark.stop()


def _of_unfinished(spark: SparkSession, topology: Topology) -> list[Diagnostic]:
    """Every further fault of a topology that has faults."""
    try:
        found = _plan(spark, topology.without_faults(), is_finished=False)[1]
        return [each for each in found if not each.is_warning]
    except Exception:  # noqa: BLE001  its faults are told already, and may make it anything
        return []


def _diagnostics(spark: SparkSession, pipeline: Pipeline) -> list[Diagnostic]:
    try:
        return topology_diagnostics(spark, pipeline.topology)
    except (StreamplanError, *REFUSALS) as error:  # an answer about this pipeline; the others have theirs
        location = pipeline.topology.processors.nodes[0].location
        message, hint = (str(error), "Correct it") if isinstance(error, StreamplanError) else explain(error)
        return [Diagnostic(location, f"pipeline {pipeline.name!r} cannot be planned: {message}", hint)]


def topology_diagnostics(spark: SparkSession, topology: Topology) -> list[Diagnostic]:
    """Return every fault that Spark finds in the expressions of a topology, and what to warn of.

    Args:
        spark: A session. Nothing is run.
        topology: A topology without faults of its own.
    """
    return sorted(_plan(spark, topology)[1], key=lambda fault: (fault.location.file, fault.location.line))


def resolve_schemas(spark: SparkSession, pipeline: Pipeline) -> dict[str, Serde]:
    """Return the serdes of the repartition topics, by their undecorated names.

    Raises:
        Refused: Spark finds faults in the expressions; the error tells all of them.
    """
    schemas, diagnostics = _plan(spark, pipeline.topology)
    refuse(f"pipeline {pipeline.name!r}", (each for each in diagnostics if not each.is_warning))
    return schemas


def _plan(
    spark: SparkSession, topology: Topology, *, is_finished: bool = True
) -> tuple[dict[str, Serde], list[Diagnostic]]:
    """The serdes of the repartition topics, and every fault, of a plan without records.

    Args:
        is_finished: Whether the topology has no faults. What cannot be planned of another one is left out.
    """
    schemas: dict[str, Serde] = {}
    diagnostics: list[Diagnostic] = []
    no_records = spark.createDataFrame([], RAW)
    waiting = list(topology.subtopologies)
    while waiting:
        # After a fault the types of a repartition topic are not known, nor what is made of them.
        ready = [group for group in waiting if all(_known(topology, topic, schemas) for topic in group.source_topics)]
        if not ready:
            break
        for subtopology in ready:
            waiting.remove(subtopology)
            try:
                schemas |= _plan_one(subtopology, schemas, no_records, diagnostics)
            except Exception:  # what stands behind a fault, which is told already, may make it anything
                if is_finished:
                    raise
    return schemas, diagnostics


def _plan_one(
    subtopology: Subtopology, schemas: dict[str, Serde], no_records: DataFrame, diagnostics: list[Diagnostic]
) -> Mapping[str, Serde]:
    """Plan one sub-topology. Return the serdes of the repartition topics that it writes."""
    planner = plan_of(subtopology).planner(diagnostics)
    frames = {}
    for source in subtopology.sources:
        try:
            frames[source.name] = read_source(subtopology, source, schemas, no_records)
        except REFUSALS as error:
            fields = list(source.value.fields) if source.value is not None else []
            text = source.timestamp if isinstance(source.timestamp, str) else ""
            said = explain(error, text, fields)
            diagnostics.append(Diagnostic(source.location, f"stream: timestamp: {said.message}", said.hint))
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
    return planner.take_output_rows().schemas


def _known(topology: Topology, topic: str, schemas: dict[str, Serde]) -> bool:
    carried = {node.topic for node in topology.processors.nodes if isinstance(node, Source) and node.carried}
    return topic not in topology.internal_topics or topic in schemas or topic in carried
