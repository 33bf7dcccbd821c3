"""Counts of an application that is not declared: what a user says of one, completed by what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamplan.checks.framework.application import Aggregation, SubtopologyTopics
from streamplan.errors import Refused
from streamplan.model.topics import TopicRole
from streamplan.serdes.serde import KEY_FIELD_TYPES, Serde


@dataclass(frozen=True)
class CountOf:
    """Where a count begins, and how a record gets the key by which it is counted.

    ``field``  of the value, which ``value`` declares; None for the record's own key
    ``store``  None where there is only one that it can be
    """

    source: str
    field: str | None = None
    value: Serde | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        if self.field is None:
            return
        found = self.value.fields.get(self.field) if self.value else None
        if found not in KEY_FIELD_TYPES:
            raise Refused(
                f"the count of {self.source} by {self.field}",
                expected=f"a declared field of type {', '.join(KEY_FIELD_TYPES)}",
                observed=f"{self.field} {found}" if found else f"{self.field} is not declared",
                remedy=f'Declare the fields of the values, as in "{self.field} string, Amount double".',
            )


def resolve_aggregation(
    count: CountOf,
    application_id: str,
    tasks: Iterable[SubtopologyTopics],
    roles: Mapping[str, TopicRole],
    key_types: Mapping[str, str],
) -> Aggregation:
    """With the repartition topic and the changelog that are between the source and the store; or :class:`Refused`."""
    tasks, subject = tuple(tasks), f"the count of {count.source}"
    upstream = [one for one in tasks if count.source in one.sources]
    if not upstream:
        read = [topic for one in tasks for topic in one.sources if roles[topic] is TopicRole.SOURCE]
        raise Refused(subject, expected=f"a topic that {application_id} reads: {' or '.join(read) or 'it reads none'}")
    ways = {
        _store(application_id, changelog): (topic, changelog)
        for one in tasks
        for changelog in one.changelogs
        for topic in one.sources
        if roles[topic] is TopicRole.REPARTITION and _leads(upstream[0], one, topic)
    }
    if count.store is not None:
        ways = {store: way for store, way in ways.items() if store == count.store}
    if len(ways) != 1:
        listed = " or ".join(sorted(ways))
        raise Refused(
            subject,
            expected="a store behind a repartition topic" + (f", called {count.store}" if count.store else ""),
            observed=f"{len(ways)} of them" if ways else "none that is known to be",
            remedy=f"Name the store: {listed}." if ways else "The text of Topology.describe() tells which there are.",
        )
    ((store, (repartition, changelog)),) = ways.items()
    for topic in (repartition, changelog):
        if key_types.get(topic, "string") != "string":
            raise Refused(subject, expected="keys of text", observed=f"{topic} has keys of type {key_types[topic]}")
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
    )


def _leads(upstream: SubtopologyTopics, downstream: SubtopologyTopics, topic: str) -> bool:
    """Whether it writes the topic, as far as is known."""
    return upstream.id is None or (topic in upstream.outputs and topic in downstream.sources)


def _store(application_id: str, changelog: str) -> str:
    return changelog.removeprefix(f"{application_id}-").removesuffix("-changelog")
