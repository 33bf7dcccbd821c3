"""Which part of a changelog's keys decides their partition, where nobody declared the store.

A store's changelog lies in the partitions of its task's input, so by the key that the application sees; the store may
put a time before or behind it, or another key behind it. Sources, all of Kafka Streams: ``WindowKeySchema``,
``SessionKeySchema``, ``TimeWindowedSerializer``, ``TimestampedKeyAndJoinSideSerializer``, ``CombinedKeySchema``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from streamplan.checks.framework.application import Partitioner
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.model.windows import (
    STORED_SESSION_BYTES,
    STORED_WINDOW_BYTES,
    WINDOW_START_BYTES,
    parse_stored_session,
    parse_stored_window,
    window_start_ms,
    without_suffix,
)

LOOKED_AT = 200
"""So many of the first offsets of each partition."""

MOST_OTHERS = 0.1
"""So great a share of the keys may be of another form, and still the form is that of the others."""

_LATEST_TIME = 2**47
"""In ms since the epoch, some 4,400 years. Text, read as a number of 8 bytes, is beyond it."""


@dataclass(frozen=True)
class KeySchema:
    """``suffix``: bytes behind the key. ``part``: of a form that is more than that, the key in it."""

    fits: Callable[[bytes], bool] = lambda stored: True
    suffix: int = 0
    part: Callable[[bytes], bytes] | None = None

    def placing(self, partitioner: Partitioner) -> Partitioner:
        """The partition of a stored key, once ``suffix`` is cut off."""
        return _ByPart(self.part, partitioner) if self.part else partitioner


@dataclass(frozen=True)
class _ByPart:
    """A class, so that it can be pickled."""

    part: Callable[[bytes], bytes]
    partitioner: Partitioner

    def __call__(self, stored: bytes, partitions: int) -> int:
        return self.partitioner(self.part(stored), partitions)


def _is_time(number: int) -> bool:
    return 0 <= number < _LATEST_TIME


def _in_window_store(stored: bytes) -> bool:
    window = parse_stored_window(stored)
    return window is not None and _is_time(window.start_ms) and window.sequence_number >= 0


def _in_session_store(stored: bytes) -> bool:
    session = parse_stored_session(stored)
    return session is not None and _is_time(session.end_ms) and 0 <= session.start_ms <= session.end_ms


def _windowed(stored: bytes) -> bool:
    return len(stored) > WINDOW_START_BYTES and _is_time(window_start_ms(stored))


def _behind_time_and_side(stored: bytes) -> bytes:
    return stored[9:]


def _foreign_key(stored: bytes) -> bytes:
    return stored[4 : 4 + int.from_bytes(stored[:4], "big")]


PLAIN = KeySchema()

WINDOWED = (
    KeySchema(_in_window_store, suffix=STORED_WINDOW_BYTES),
    KeySchema(_in_session_store, suffix=STORED_SESSION_BYTES),
    KeySchema(
        _windowed, suffix=WINDOW_START_BYTES
    ),  # a table of windows that was filtered, mapped or suppressed, in a store of its own
)

NAMED = (
    # Records of a left or outer join that wait for a match (``OuterStreamJoinStoreFactory``).
    (
        re.compile(r".*(-(left|outer)-shared-join|-KSTREAM-OUTERSHARED-\d+)-store-changelog"),
        KeySchema(part=_behind_time_and_side),
    ),
    # The subscriptions of a foreign-key join (``KTableImpl``).
    (
        re.compile(r".*(-subscription-store|-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-\d+)-changelog"),
        KeySchema(part=_foreign_key),
    ),
)


def resolve_key_schema(cluster: Cluster, topic: str, partitions: int, partitioner: Partitioner) -> KeySchema:
    """By the changelog's name, which the library makes itself for the stores that it needs, or by its first keys."""
    for pattern, form in NAMED:
        if pattern.fullmatch(topic):
            return form
    return infer_key_schema(attempt(partial(_first_keys, cluster, topic)), partitions, partitioner)


def infer_key_schema(keys: Collection[tuple[int, bytes]], partitions: int, partitioner: Partitioner) -> KeySchema:
    """From some keys with their partitions.

    The form of a window that nearly all keys have is nobody's accident: no text has one. Binary keys may; so keys are
    plain where more of them lie right as they are, if nearly all do.
    """

    def right(form: KeySchema) -> int:
        return sum(form.fits(key) and is_right(without_suffix(key, form.suffix), partition) for partition, key in keys)

    def is_right(key: bytes, partition: int) -> bool:
        try:
            return partitioner(key, partitions) == partition
        except CouldNotLook:  # one that is made for keys of this kind does not know others
            return False

    nearly_all = (1 - MOST_OTHERS) * len(keys)
    alike = [form for form in WINDOWED if sum(form.fits(key) for _, key in keys) >= nearly_all]
    if not alike or not keys:
        return PLAIN
    best = max(alike, key=right)  # the first of equals
    return PLAIN if right(PLAIN) > right(best) and right(PLAIN) >= nearly_all else best


def _first_keys(cluster: Cluster, topic: str) -> Collection[tuple[int, bytes]]:
    """Read some of the first keys of each partition, with the partition."""
    whole = {number: (found.log_start, found.last_stable) for number, found in cluster.offsets(topic).items()}
    first = {number: (begin, min(end, begin + LOOKED_AT)) for number, (begin, end) in whole.items()}
    keys: set[tuple[int, bytes]] = set()
    for batch in cluster.read(topic, first):
        keys.update((batch.partition, key) for key in batch.keys if key is not None)
    if not keys:  # these were superseded by later ones
        for batch in cluster.read(topic, whole):
            keys.update((batch.partition, key) for key in batch.keys if key is not None)
            if keys:
                break
    return keys
