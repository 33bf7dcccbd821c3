"""What kind of store a changelog belongs to, where nobody declared it, and so which cleanup policy is right.

Sources, all of Kafka Streams: ``InternalTopologyBuilder.createChangelogTopicConfig``, the ``…ChangelogTopicConfig``
classes beside it, ``StreamJoinedStoreFactory`` and ``WindowStoreBuilder``.
"""

from __future__ import annotations

import re

from streamplan.checks.framework.cluster import Chunk, Cluster
from streamplan.model.topics import ObservedTopic, words

KEY_VALUE = "compact"
WINDOWED = "compact,delete"
STREAM_JOIN = "delete"

_STREAM_JOIN = re.compile(r"(-(this|other)-join|-KSTREAM-(JOIN|OUTER)(THIS|OTHER)-\d+)-store-changelog$")
"""``KStreamImplJoin``. The stores of an outer join's ``-shared-join`` are key-value stores."""

_TEXT = 2**61
"""Printable text, taken for a number of 8 bytes, is greater; a time since the epoch, even in ns, is not."""


def resolve_policy(cluster: Cluster, topic: ObservedTopic) -> str:
    """The cleanup policy of a changelog by its name, its records' keys and the policy that it has.

    A windowed or a versioned store cannot be told from a key-value store where the policy is ``compact``: that loses
    nothing. ``compact,delete`` is right when the keys can be a window's, and ``delete`` alone for the buffer of a
    stream-stream join, which keeps duplicates: by its name, or by its keys where the user supplied the store. There
    either will do: ``WindowStoreBuilder`` sets ``delete``, and Kafka Streams 4.3, with another builder, does not.
    Raises :class:`RecordsGone`.
    """
    if _STREAM_JOIN.search(topic.name):
        return STREAM_JOIN
    found = words(topic.configs.get("cleanup.policy", ""))
    if "delete" not in found:
        return KEY_VALUE
    ranges = {number: (one.start, one.stable) for number, one in cluster.offsets(topic.name).items()}
    for chunk in cluster.read(topic.name, ranges):
        if found == words(STREAM_JOIN) and _is_stream_join(chunk):
            return STREAM_JOIN
        return WINDOWED if any(map(_is_windowed, chunk.keys)) else KEY_VALUE
    return WINDOWED if found == words(WINDOWED) else KEY_VALUE


def _is_windowed(key: bytes | None) -> bool:
    """Ends in a window's start and a sequence number (``WindowKeySchema``), or a session's end and start."""
    if key is None or len(key) < 12:
        return False
    start, session_start, session_end = key[-12:-4], key[-8:], key[-16:-8]
    return _is_time(start) or (len(key) >= 16 and _is_time(session_start) and _is_time(session_end))


def _is_time(raw: bytes) -> bool:
    return 0 <= int.from_bytes(raw, "big", signed=True) < _TEXT


def _is_stream_join(chunk: Chunk) -> bool:
    """Each record has a window of its own, which starts at its time, and a number (``ChangeLoggingWindowBytesStore``).

    The number begins with 1; in a store that keeps no duplicates it is always 0.
    """
    return all(
        key is not None and len(key) >= 12 and int.from_bytes(key[-12:-4], "big") == timestamp and any(key[-4:])
        for key, timestamp in zip(chunk.keys, chunk.timestamps, strict=True)
    )
