"""What a changelog tells about its store where nobody declared the store: the cleanup policy and the form of the keys.

Sources, all of Kafka Streams, for the policy: ``InternalTopologyBuilder.createChangelogTopicConfig``, the
``…ChangelogTopicConfig`` classes beside it, ``StreamJoinedStoreFactory`` and ``WindowStoreBuilder``. For the keys:
``WindowKeySchema``, ``SessionKeySchema``, ``TimeWindowedSerializer``, ``TimestampedKeyAndJoinSideSerializer``,
``CombinedKeySchema`` and ``PrefixedWindowKeySchemas.TimeFirstWindowKeySchema``. These are all forms that the changelogs
of versions 3.0 to 4.3 have. Stores of timestamped, versioned and headers-aware values have the plain key, and a store
that is ordered by time (``RocksDBTimeOrderedWindowStore``) logs the keys of ``WindowKeySchema``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from streamplan.checks.framework.application import Partitioner
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster, RecordBatch
from streamplan.model.topics import ObservedTopic, words
from streamplan.model.windows import (
    STORED_SESSION_BYTES,
    STORED_WINDOW_BYTES,
    WINDOW_START_BYTES,
    parse_stored_session,
    parse_stored_window,
    window_start_ms,
    without_suffix,
)
from streamplan.serdes.subscriptions import parse_combined_key

KEY_VALUE_POLICY = "compact"
WINDOWED_POLICY = "compact,delete"
STREAM_JOIN_POLICY = "delete"

_STREAM_JOIN = re.compile(r"(-(this|other)-join|-KSTREAM-(JOIN|OUTER)(THIS|OTHER)-\d+)-store-changelog$")
"""``KStreamImplJoin``. The stores of an outer join's ``-shared-join`` are key-value stores."""

_LATEST_TIME_OF_ANY_UNIT = 2**61
"""Greater than a time since the epoch, even in ns. Printable text, read as a number of 8 bytes, is beyond it."""

_LATEST_TIME_MS = 2**47
"""Some 4,400 years since the epoch, in ms. Text, read as a number of 8 bytes, is beyond it."""

SAMPLED_OFFSETS = 200
"""The form of the keys is found from this many of the first offsets of each partition."""

TIME_AND_SIDE_BYTES = 9
"""The bytes before the key of a record that waits for a match: its time and its side."""

TIME_FIRST_BYTES, SEQUENCE_BYTES = 9, 4
"""The bytes before the key of a buffered record (a zero and its time), and behind it (a sequence number)."""

COMPARED_OFFSETS = 100_000
"""At most this many of the last offsets of each partition of the inputs are compared with keys that lie elsewhere."""

ENOUGH_KEYS = 5
"""This many keys are enough to tell that their producers place keys by CRC32."""

MAX_EXCEPTIONS = 0.1
"""At most this share of the keys may have another form than the one that is inferred."""


# -- the cleanup policy


def resolve_policy(cluster: Cluster, topic: ObservedTopic) -> str:
    """Return the right cleanup policy of a changelog, by its name, its records' keys and the policy that it has.

    A windowed or a versioned store cannot be told from a key-value store where the policy is ``compact``: that loses
    nothing. ``compact,delete`` is right when the keys can be those of windows. ``delete`` alone is right for the buffer
    of a stream-stream join, which keeps duplicates: by its name, or by its keys where the user supplied the store. For
    such a buffer either policy will do: ``WindowStoreBuilder`` sets ``delete``, and Kafka Streams 4.3, with another
    builder, does not.

    Raises:
        RecordsGone: Records were deleted meanwhile.
    """
    if _STREAM_JOIN.search(topic.name):
        return STREAM_JOIN_POLICY
    policy = words(topic.configs.get("cleanup.policy", ""))
    if "delete" not in policy:
        return KEY_VALUE_POLICY
    ranges = {
        number: (offsets.log_start, offsets.last_stable) for number, offsets in cluster.offsets(topic.name).items()
    }
    for batch in cluster.read(topic.name, ranges):
        if policy == words(STREAM_JOIN_POLICY) and _is_stream_join(batch):
            return STREAM_JOIN_POLICY
        return WINDOWED_POLICY if any(map(_may_be_windowed, batch.keys)) else KEY_VALUE_POLICY
    return WINDOWED_POLICY if policy == words(WINDOWED_POLICY) else KEY_VALUE_POLICY


def _may_be_windowed(key: bytes | None) -> bool:
    """Whether a key ends in a window's start and a sequence number, or in a session's end and start."""
    window, session = parse_stored_window(key or b""), parse_stored_session(key or b"")
    if window is not None and 0 <= window.start_ms < _LATEST_TIME_OF_ANY_UNIT:
        return True
    return session is not None and all(
        0 <= time < _LATEST_TIME_OF_ANY_UNIT for time in (session.start_ms, session.end_ms)
    )


def _is_stream_join(batch: RecordBatch) -> bool:
    """Whether each record has a window of its own, which starts at its time, and a sequence number.

    The number begins with 1 (``ChangeLoggingWindowBytesStore``). In a store that keeps no duplicates it is always 0.
    """
    stored = (parse_stored_window(key or b"") for key in batch.keys)
    return all(
        window is not None and window.start_ms == timestamp and window.sequence_number != 0
        for window, timestamp in zip(stored, batch.timestamps, strict=True)
    )


# -- the form of the keys


@dataclass(frozen=True)
class KeySchema:
    """The part of a stored key that decides its partition.

    A changelog lies in the partitions of its task's input, so by the key that the application sees. The store may put a
    time before or behind that key, or another key behind it.

    Attributes:
        fits: Whether a stored key can have this form.
        suffix: The number of bytes behind the application's key.
        part: Cuts the application's key out of a stored key, where cutting off a suffix is not enough.
    """

    fits: Callable[[bytes], bool] = lambda stored: True
    suffix: int = 0
    part: Callable[[bytes], bytes] | None = None

    def application_key(self, stored: bytes) -> bytes:
        """Return the application's key of a stored key that fits."""
        return self.part(stored) if self.part else without_suffix(stored, self.suffix)

    def partitioner(self, partitioner: Partitioner) -> Partitioner:
        """Return the partitioner of stored keys whose ``suffix`` was cut off.

        Args:
            partitioner: The partitioner of the application's keys.
        """
        return _PartitionByPart(self.part, partitioner) if self.part else partitioner


@dataclass(frozen=True)
class _PartitionByPart:
    """A class and no closure, so that it can be pickled."""

    part: Callable[[bytes], bytes]
    partitioner: Partitioner

    def __call__(self, stored: bytes, partitions: int) -> int:
        return self.partitioner(self.part(stored), partitions)


def _is_time(number: int) -> bool:
    return 0 <= number < _LATEST_TIME_MS


def _fits_window_store(stored: bytes) -> bool:
    window = parse_stored_window(stored)
    return window is not None and _is_time(window.start_ms) and window.sequence_number >= 0


def _fits_session_store(stored: bytes) -> bool:
    session = parse_stored_session(stored)
    return session is not None and _is_time(session.end_ms) and 0 <= session.start_ms <= session.end_ms


def _fits_windowed_key(stored: bytes) -> bool:
    return len(stored) > WINDOW_START_BYTES and _is_time(window_start_ms(stored))


def _fits_time_and_side(stored: bytes) -> bool:
    return len(stored) >= TIME_AND_SIDE_BYTES and _is_time(_number(stored[:WINDOW_START_BYTES])) and stored[8] in (0, 1)


def _after_time_and_side(stored: bytes) -> bytes:
    return stored[TIME_AND_SIDE_BYTES:]


def _fits_combined_key(stored: bytes) -> bool:
    return 0 <= _number(stored[:4]) <= len(stored) - 4


def _foreign_key(stored: bytes) -> bytes:
    return parse_combined_key(stored)[0]


def _fits_time_first(stored: bytes) -> bool:
    return (
        len(stored) >= TIME_FIRST_BYTES + SEQUENCE_BYTES
        and stored[0] == 0
        and _is_time(_number(stored[1:TIME_FIRST_BYTES]))
        and _number(stored[-SEQUENCE_BYTES:]) >= 0
    )


def _between_time_and_sequence_number(stored: bytes) -> bytes:
    return stored[TIME_FIRST_BYTES:-SEQUENCE_BYTES]


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


PLAIN = KeySchema()

WINDOWED = (
    KeySchema(_fits_window_store, suffix=STORED_WINDOW_BYTES),
    KeySchema(_fits_session_store, suffix=STORED_SESSION_BYTES),
    # The store of a windowed table that was filtered, mapped or suppressed.
    KeySchema(_fits_windowed_key, suffix=WINDOW_START_BYTES),
)

TIME_FIRST = KeySchema(_fits_time_first, part=_between_time_and_sequence_number)
"""The buffer of a join of a stream with a table that has a grace period (``RocksDBTimeOrderedKeyValueBuffer``)."""

NAMED = (
    # Records of a left or outer join that wait for a match (``OuterStreamJoinStoreFactory``).
    (
        re.compile(r".*(-(left|outer)-shared-join|-KSTREAM-OUTERSHARED-\d+)-store-changelog"),
        KeySchema(_fits_time_and_side, part=_after_time_and_side),
    ),
    # The subscriptions of a foreign-key join (``KTableImpl``).
    (
        re.compile(r".*(-subscription-store|-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-\d+)-changelog"),
        KeySchema(_fits_combined_key, part=_foreign_key),
    ),
)
"""Changelogs that Kafka Streams names itself, for stores that it needs. A user's store may have such a name, too."""

_GENERATED = re.compile(r"-(KSTREAM|KTABLE|COGROUPKSTREAM)-[A-Z-]+-\d{10}(-store)?-changelog$")
"""Stores that Kafka Streams names itself belong to its own operations, whose keys are those of records."""


@dataclass(frozen=True)
class StoredKeys:
    """What is known of the keys of a changelog.

    Attributes:
        schema: Their form.
        unjudged: Why they tell no partition; empty where they do.
    """

    schema: KeySchema
    unjudged: str = ""


def resolve_stored_keys(
    cluster: Cluster, topic: str, partitions: int, partitioner: Partitioner, inputs: Sequence[str]
) -> StoredKeys:
    """Return what the name and the first keys of a changelog tell about its keys.

    A store of the Processor API may have any keys. Where most keys lie elsewhere than they should, and none of these is
    the key of a record that the tasks read, they are taken for keys of the store's own.

    Args:
        cluster: Where to read.
        topic: The changelog.
        partitions: Its number of partitions.
        partitioner: The partitioner of the application's keys.
        inputs: The topics whose records the store is made of.
    """
    keys = attempt(partial(_first_keys, cluster, topic))
    schema = next(
        (schema for pattern, schema in NAMED if pattern.fullmatch(topic) and _nearly_all_fit(schema, keys)), None
    )
    if schema is not None or _GENERATED.search(topic):
        return StoredKeys(schema or infer_key_schema(keys, partitions, partitioner))
    schema = infer_key_schema(keys, partitions, partitioner)
    misplaced = {
        key: partition for partition, key in keys if not _is_in_place(schema, key, partition, partitions, partitioner)
    }
    if len(misplaced) <= MAX_EXCEPTIONS * len(keys):
        return StoredKeys(schema)
    own = {schema.application_key(key) for key in misplaced if schema.fits(key)}
    by_crc32 = all(crc32(schema.application_key(key)) % partitions == partition for key, partition in misplaced.items())
    if (by_crc32 and len(misplaced) >= ENOUGH_KEYS) or attempt(partial(_has_any_key, cluster, inputs, own)):
        return StoredKeys(schema)
    reason = (
        f"{len(misplaced):,} of {len(keys):,} keys that were looked at lie elsewhere than a record with that key,"
        " and no record that is still there has one of them. A Processor API store may have keys of its own"
    )
    return StoredKeys(schema, reason)


def _is_in_place(schema: KeySchema, key: bytes, partition: int, partitions: int, partitioner: Partitioner) -> bool:
    try:
        return schema.fits(key) and partitioner(schema.application_key(key), partitions) == partition
    except CouldNotLook:  # a user's partitioner may refuse keys of another kind
        return False


def _nearly_all_fit(schema: KeySchema, keys: Collection[tuple[int, bytes]]) -> bool:
    return sum(schema.fits(key) for _, key in keys) >= (1 - MAX_EXCEPTIONS) * len(keys)


def _has_any_key(cluster: Cluster, topics: Sequence[str], keys: Collection[bytes]) -> bool:
    """Whether a record of these topics has one of the keys, as far as they are read."""
    for topic in topics:
        ranges = {
            number: (max(offsets.log_start, offsets.last_stable - COMPARED_OFFSETS), offsets.last_stable)
            for number, offsets in cluster.offsets(topic).items()
        }
        if any(not set(keys).isdisjoint(batch.keys) for batch in cluster.read(topic, ranges)):
            return True
    return False


def infer_key_schema(keys: Collection[tuple[int, bytes]], partitions: int, partitioner: Partitioner) -> KeySchema:
    """Infer the form of keys from some of them.

    Where nearly all keys have the form of a windowed key or of a buffer's, that is no accident: no text has it. Binary
    keys may have it.
    So the keys are plain if nearly all of them lie in the right partition as they are, and more of them than if a
    suffix is cut off.

    Args:
        keys: Each stored key with the partition in which it lies.
        partitions: The number of partitions.
        partitioner: The partitioner of the application's keys.
    """

    def in_place(schema: KeySchema) -> int:
        return sum(_is_in_place(schema, key, partition, partitions, partitioner) for partition, key in keys)

    nearly_all = (1 - MAX_EXCEPTIONS) * len(keys)
    fitting = [schema for schema in (*WINDOWED, TIME_FIRST) if _nearly_all_fit(schema, keys)]
    if not fitting or not keys:
        return PLAIN
    best = max(fitting, key=in_place)  # the first one of equals
    return PLAIN if in_place(PLAIN) > in_place(best) and in_place(PLAIN) >= nearly_all else best


def _first_keys(cluster: Cluster, topic: str) -> Collection[tuple[int, bytes]]:
    """Read some of the first keys of each partition, with the partition."""
    whole = {number: (offsets.log_start, offsets.last_stable) for number, offsets in cluster.offsets(topic).items()}
    first = {number: (begin, min(end, begin + SAMPLED_OFFSETS)) for number, (begin, end) in whole.items()}
    keys: set[tuple[int, bytes]] = set()
    for batch in cluster.read(topic, first):
        keys.update((batch.partition, key) for key in batch.keys if key is not None)
    if not keys:  # these were superseded by later ones
        for batch in cluster.read(topic, whole):
            keys.update((batch.partition, key) for key in batch.keys if key is not None)
            if keys:
                break
    return keys
