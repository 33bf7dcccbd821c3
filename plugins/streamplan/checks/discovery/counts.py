"""Counts of a discovered application: what the user says about a count, completed by what Kafka has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamplan.checks.framework.application import Aggregation, SubtopologyTopics
from streamplan.errors import Refused
from streamplan.model.topics import STRING_KEYS, TopicRole
from streamplan.serdes.primitive import KEY_SERDES
from streamplan.serdes.serde import KEY_FIELD_TYPES, Serde

_FIELDS_OF_KEYS = {STRING_KEYS: KEY_FIELD_TYPES, "int": ("int",), "long": ("int", "bigint")}
"""By the type of keys the types of the fields that become such keys."""


@dataclass(frozen=True)
class CountOf:
    """A count that a user describes.

    Attributes:
        source: The topic whose records are counted.
        field: The field of the value by which records are counted; None for the record's own key.
        value: The serde of the values; necessary for ``field``.
        store: The store that holds the counts; None where there is only one possible store.

    Raises:
        Refused: ``value`` does not declare ``field`` with a type that a key can have.
    """

    source: str
    field: str | None = None
    value: Serde | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        if self.field is None:
            return
        field_type = self.value.fields.get(self.field) if self.value else None
        if field_type not in KEY_FIELD_TYPES:
            raise Refused(
                f"the count of {self.source} by {self.field}",
                expected=f"a declared field of type {', '.join(KEY_FIELD_TYPES)}",
                observed=f"{self.field} {field_type}" if field_type else f"{self.field} is not declared",
                remedy=f'Declare the fields of the values, as in "{self.field} string, Amount double".',
            )


def resolve_aggregation(
    count: CountOf,
    application_id: str,
    subtopologies: Iterable[SubtopologyTopics],
    roles: Mapping[str, TopicRole],
    key_types: Mapping[str, str],
) -> Aggregation:
    """Complete a count with the repartition topic and the changelog between its source and its store.

    Args:
        count: What the user said.
        subtopologies: The topics of each sub-topology.
        roles: The role of each topic.
        key_types: The types of keys, of topics whose keys are not text.

    Raises:
        Refused: The application does not read the source, there is no such store or more than one, or the keys are not
            those of the field.
    """
    subtopologies, subject = tuple(subtopologies), f"the count of {count.source}"
    upstream = [subtopology for subtopology in subtopologies if count.source in subtopology.sources]
    if not upstream:
        sources = [
            topic for subtopology in subtopologies for topic in subtopology.sources if roles[topic] is TopicRole.SOURCE
        ]
        read = " or ".join(sources) or "none is known"
        raise Refused(
            subject,
            expected=f"a topic that {application_id} reads: {read}",
            observed=f"{count.source}, which {application_id} does not read",
        )
    candidates = {
        _store(application_id, changelog): (topic, changelog)
        for subtopology in subtopologies
        for changelog in subtopology.changelogs
        for topic in subtopology.sources
        if roles[topic] is TopicRole.REPARTITION and _leads(upstream[0], subtopology, topic)
    }
    if count.store is not None:
        candidates = {store: topics for store, topics in candidates.items() if store == count.store}
    if len(candidates) != 1:
        listed = " or ".join(sorted(candidates))
        raise Refused(
            subject,
            expected="a store behind a repartition topic" + (f", called {count.store}" if count.store else ""),
            observed=f"{len(candidates)} such stores" if candidates else "no such store is known",
            remedy=f"Name the store: {listed}."
            if candidates
            else "Give the text of Topology.describe(): it tells which stores there are.",
        )
    ((store, (repartition, changelog)),) = candidates.items()
    key_type = key_types.get(changelog, STRING_KEYS)
    field_type = count.value.fields[count.field] if count.value is not None and count.field is not None else None
    if field_type is not None and field_type not in _FIELDS_OF_KEYS.get(key_type, ()):
        raise Refused(
            subject,
            expected="text as keys, or whole numbers of the field's type",
            observed=f"{changelog} has keys of type {key_type}, and {count.field} is of type {field_type}",
        )
    return Aggregation(
        application_id=application_id,
        subtopology=upstream[0].id or 0,
        source=count.source,
        serde=count.value,
        field=count.field,
        repartition=repartition,
        store=store,
        changelog=changelog,
        dead_letters=None,
        key_serde=KEY_SERDES[key_type],
    )


def _leads(upstream: SubtopologyTopics, downstream: SubtopologyTopics, topic: str) -> bool:
    """Whether ``upstream`` writes a topic that ``downstream`` reads, as far as is known."""
    return upstream.id is None or (topic in upstream.outputs and topic in downstream.sources)


def _store(application_id: str, changelog: str) -> str:
    return changelog.removeprefix(f"{application_id}-").removesuffix("-changelog")
