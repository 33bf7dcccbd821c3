"""What Airflow's OpenLineage provider sends of a pipeline: topics, their schemas, columns, positions and checks.

The provider calls ``get_openlineage_facets_on_…`` of an operator when a task starts and ends, and sends what it returns
to where ``OPENLINEAGE_URL`` or the section ``[openlineage]`` of Airflow's configuration says. Without either nothing
here is imported. Spark's own agent is not used: it does not see what ``foreachBatch`` writes.

Topics have the names of OpenLineage's specification: namespace ``kafka://<host>:<port>``, name ``<topic>``. The facet
``version`` of a topic has its positions as ``<partition>@<offset>, …``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streamplan.airflow.connections import brokers
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.checks.framework.verified import VerifiedCut
from streamplan.errors import StreamplanError
from streamplan.model.column_lineage import Origins, column_lineage
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source
from streamplan.model.topics import TopicRole
from streamplan.serdes.field_types import ArrayType, FieldType, MapType, Scalar, StructType, parse_type

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

ANSWER_SECONDS = 10.0
"""How long the brokers have for an answer. A task must not wait for its lineage."""

Positions = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


def aggregator_lineage(pipeline: Pipeline) -> OperatorLineage[Any, Any]:
    """Return what an aggregator reads and writes, with its positions now."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated.job_type_job import JobTypeJobFacet

    from streamplan.kafka.cluster import KafkaCluster

    servers = brokers(pipeline.name)
    cluster = KafkaCluster(servers, deadline_seconds=ANSWER_SECONDS)
    topology = pipeline.topology
    specs = pipeline.declared_topics()
    read = [spec.name for spec in specs if spec.role is TopicRole.SOURCE]
    written = [spec.name for spec in specs if spec.role is not TopicRole.SOURCE]
    positions = _ask(read, lambda topic: cluster.positions(topology.application_id, topic))
    ends = _ask(written, lambda topic: {n: at.last_stable for n, at in cluster.offsets(topic).items()})
    datasets = _Datasets(pipeline, str(servers))
    return OperatorLineage(
        inputs=[datasets.read(topic, positions.get(topic)) for topic in read],
        outputs=[datasets.written(topic, ends.get(topic)) for topic in written],
        job_facets={"jobType": JobTypeJobFacet(processingType="STREAMING", integration="SPARK", jobType="JOB")},
    )


def check_lineage(pipeline: Pipeline, result: CheckResult | None, cut: VerifiedCut | None) -> OperatorLineage[Any, Any]:
    """Return which topics a check has looked at, and what it found.

    Args:
        result: The result of this run; None where there is none yet.
        cut: Up to where the totals are verified; None for a check that verifies none.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated.data_quality_assertions_dataset import (
        Assertion,
        DataQualityAssertionsDatasetFacet,
    )

    datasets = _Datasets(pipeline, str(brokers(pipeline.name)))
    verified = dict.fromkeys(pipeline.topology.source_topics, cut.source) if cut is not None else {}
    inputs = [datasets.read(spec.name, verified.get(spec.name)) for spec in pipeline.declared_topics()]
    if result is not None and result.outcome is not Outcome.COULD_NOT_LOOK:
        found = Assertion(assertion=result.check, success=result.outcome is Outcome.PASSED)
        for dataset in inputs:
            dataset.inputFacets = {"dataQualityAssertions": DataQualityAssertionsDatasetFacet([found])}
    return OperatorLineage(inputs=inputs)


class _Datasets:
    """Makes the datasets of one pipeline."""

    def __init__(self, pipeline: Pipeline, bootstrap_servers: str) -> None:
        self._namespace = f"kafka://{bootstrap_servers.partition(',')[0]}"
        topology = pipeline.topology
        self._types: dict[str, Mapping[str, str]] = {
            topology.decorate(node.topic): node.value.fields
            for subtopology in (*topology.subtopologies, *topology.global_stores)
            for node in subtopology.nodes
            if isinstance(node, Source) and node.value is not None
        }
        self._origins = column_lineage(topology)

    def read(self, topic: str, positions: Mapping[int, int] | None) -> InputDataset:
        from openlineage.client.event_v2 import InputDataset

        return InputDataset(self._namespace, topic, facets=self._facets(topic, positions))

    def written(self, topic: str, positions: Mapping[int, int] | None) -> OutputDataset:
        from openlineage.client.event_v2 import OutputDataset
        from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet

        facets = self._facets(topic, positions)
        if topic in self._origins:
            facets["columnLineage"] = ColumnLineageDatasetFacet(self._fields(self._origins[topic]))
        return OutputDataset(self._namespace, topic, facets=facets)

    def _facets(self, topic: str, positions: Mapping[int, int] | None) -> dict[str, Any]:
        from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
        from openlineage.client.generated.schema_dataset import SchemaDatasetFacet

        types = self._types.get(topic) or dict.fromkeys(self._origins.get(topic, ()))
        facets: dict[str, Any] = {}
        if types:
            facets["schema"] = SchemaDatasetFacet(
                [_schema_field(name, parse_type(text) if text else None) for name, text in types.items()]
            )
        if positions:
            version = ", ".join(f"{partition}@{offset}" for partition, offset in sorted(positions.items()))
            facets["version"] = DatasetVersionDatasetFacet(version)
        return facets

    def _fields(self, origins: Origins) -> dict[str, Any]:
        from openlineage.client.generated.column_lineage_dataset import Fields, InputField

        return {
            name: Fields([InputField(self._namespace, column.topic, column.name) for column in sorted(columns)])
            for name, columns in origins.items()
        }


def _schema_field(name: str, field_type: FieldType | None) -> SchemaDatasetFacetFields:
    """Return a column with its parts, which have the names that OpenLineage's specification gives them."""
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

    kind: str | None
    parts: Sequence[tuple[str, FieldType]] = ()
    match field_type:
        case StructType(fields=fields):
            kind, parts = "struct", fields
        case ArrayType(element=element):
            kind, parts = "array", [("_element", element)]
        case MapType(value=value):
            kind, parts = "map", [("key", Scalar("string")), ("value", value)]
        case _:
            kind = None if field_type is None else str(field_type)
    return SchemaDatasetFacetFields(name=name, type=kind, fields=[_schema_field(*part) for part in parts])


def _ask(topics: Iterable[str], question: Callable[[str], Mapping[int, int]]) -> Positions:
    """Return the offsets of topics. What the brokers do not answer is left out: lineage without them is still true."""
    found: dict[str, Mapping[int, int]] = {}
    with suppress(StreamplanError):
        for topic in topics:
            found[topic] = question(topic)
    return found
