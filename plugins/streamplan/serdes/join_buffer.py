"""The bytes that a stream-table join with a grace period has of the records that wait, in the changelog of its buffer.

Sources: ``RocksDBTimeOrderedKeyValueBuffer`` and ``PrefixedWindowKeySchemas.TimeFirstWindowKeySchema`` of Kafka Streams
4.3. The values have the form of those of :mod:`streamplan.serdes.suppress_buffer`, with 0 as the time at their end.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MOST_NUMBER = (1 << 31) - 1
"""The number behind it is 0."""

_PREFIX = b"\0"
_BYTES_BEFORE, _BYTES_BEHIND = 1 + 8, 4


class BufferKey(NamedTuple):
    """The key of a record that waits. The order of such keys in bytes is the one in which records are passed.

    Attributes:
        timestamp: The time in ms of the record.
        key: Its key in bytes.
        number: Tells records of one time and key apart.
    """

    timestamp: int
    key: bytes
    number: int

    def as_bytes(self) -> bytes:
        """The bytes of the key."""
        return _PREFIX + struct.pack(">q", self.timestamp) + self.key + struct.pack(">i", self.number)

    @classmethod
    def parse(cls, data: bytes) -> BufferKey:
        """Read the bytes of a key.

        Raises:
            ValueError: They have another form.
        """
        if len(data) < _BYTES_BEFORE + _BYTES_BEHIND or not data.startswith(_PREFIX):
            raise ValueError(f"{data!r:.100} is no key of the buffer of a join")
        (timestamp,) = struct.unpack_from(">q", data, len(_PREFIX))
        (number,) = struct.unpack_from(">i", data, len(data) - _BYTES_BEHIND)
        return cls(timestamp, data[_BYTES_BEFORE:-_BYTES_BEHIND], number)
