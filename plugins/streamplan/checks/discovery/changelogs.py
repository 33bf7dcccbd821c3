"""What kind of store a changelog belongs to, where nobody declared it, and so which cleanup policy is right.

Sources, all of Kafka Streams: ``InternalTopologyBuilder.createChangelogTopicConfig``, the ``…ChangelogTopicConfig``
classes beside it, ``StreamJoinedStoreFactory`` and ``WindowStoreBuilder``.
"""

from __future__ import annotations

import re

from streamplan.checks.framework.cluster import Cluster, RecordBatch
from streamplan.model.topics import ObservedTopic, words
from streamplan.model.windows import parse_stored_session, parse_stored_window

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
    ranges = {number: (one.log_start, one.last_stable) for number, one in cluster.offsets(topic.name).items()}
    for batch in cluster.read(topic.name, ranges):
        if found == words(STREAM_JOIN) and _is_stream_join(batch):
            return STREAM_JOIN
        return WINDOWED if any(map(_is_windowed, batch.keys)) else KEY_VALUE
    return WINDOWED if found == words(WINDOWED) else KEY_VALUE


def _is_windowed(key: bytes | None) -> bool:
    """Ends in a window's start and a sequence number (``WindowKeySchema``), or a session's end and start."""
    window, session = parse_stored_window(key or b""), parse_stored_session(key or b"")
    if window is not None and _is_time(window.start_ms):
        return True
    return session is not None and _is_time(session.start_ms) and _is_time(session.end_ms)


def _is_time(number: int) -> bool:
    return 0 <= number < _TEXT


def _is_stream_join(batch: RecordBatch) -> bool:
    """Each record has a window of its own, which starts at its time, and a number (``ChangeLoggingWindowBytesStore``).

    The number begins with 1; in a store that keeps no duplicates it is always 0.
    """
    stored = (parse_stored_window(key or b"") for key in batch.keys)
    return all(
        window is not None and window.start_ms == timestamp and window.sequence_number != 0
        for window, timestamp in zip(stored, batch.timestamps, strict=True)
    )
