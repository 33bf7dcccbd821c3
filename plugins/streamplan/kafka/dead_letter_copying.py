"""Dead letters name the record they are about by its offset. When that record moves, so does what they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from streamplan.checks.framework.cluster import Headers, Record
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.copying import Placed, all_records
from streamplan.model.dead_letters import TASK, Origin, origin_headers, parse_origin, parse_subtopology


def relocated(cluster: KafkaCluster, dead_letters: str, moved: Mapping[str, str], partitions: int) -> Iterator[Placed]:
    """Every letter; those about a record of a topic in ``moved`` name it where it is now.

    A letter holds its record whole, and by key and value the record is found again. Of equal records each is as good
    as the other: what cannot be read in one cannot be read in any.
    """
    places = _places(cluster, dead_letters, moved)
    for letter in all_records(cluster, dead_letters):
        origin = parse_origin(letter.headers)
        at = places.get(origin) if origin is not None else None
        if at is None:
            yield Placed(letter.partition % partitions, letter)
        else:
            yield Placed(at.partition % partitions, letter._replace(headers=_rewritten(letter.headers, at)))


def _places(cluster: KafkaCluster, dead_letters: str, moved: Mapping[str, str]) -> dict[Origin, Origin]:
    """By the origin that letters name, where its record is now."""
    waiting: dict[str, dict[bytes, list[Origin]]] = {topic: defaultdict(list) for topic in moved}
    seen: set[Origin] = set()
    for letter in all_records(cluster, dead_letters):
        origin = parse_origin(letter.headers)
        if origin is None or origin[0] not in moved or origin in seen:
            continue  # one record has a letter for each operation that could not take it
        seen.add(origin)
        waiting[origin[0]][_digest(letter)].append(origin)
    places: dict[Origin, Origin] = {}
    for old, new in moved.items():
        if not waiting[old]:
            continue
        for record in all_records(cluster, new):
            if origins := waiting[old].get(_digest(record)):
                places[origins.pop(0)] = Origin(new, record.partition, record.offset)
    return places


def _digest(record: Record) -> bytes:
    found = blake2b(digest_size=16)
    for part in (record.key, record.value):
        found.update(b"-" if part is None else b"%d:" % len(part) + part)
    return found.digest()


def _rewritten(headers: Headers, at: Origin) -> Headers:
    ours = {name: value.encode() for name, value in origin_headers(at).items()}
    ours[TASK] = parse_subtopology(headers) + b"_%d" % at.partition
    last = {name: number for number, (name, _) in enumerate(headers)}
    return tuple(
        (name, ours[name] if name in ours and last[name] == number else value)
        for number, (name, value) in enumerate(headers)
    )
