"""The bytes that the buffer of ``suppress`` has of an update, in its changelog.

Sources: ``InMemoryTimeOrderedKeyValueChangeBuffer``, ``BufferValue`` and ``ProcessorRecordContext`` of Kafka Streams
4.3. A header says that it is the third form of these bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from streamplan.kafka_types import Header

FORMAT = "suppress"
"""Names the encoding."""

VERSION_HEADER: Header = ("v", b"\x03")
"""The header of a changelog record (``V_3_CHANGELOG_HEADERS``)."""

_NULL = -1
_AS_THE_PRIOR_VALUE = -2


@dataclass(frozen=True)
class BufferedUpdate:
    """An update of a table that waits in the buffer.

    Attributes:
        value: The new value in bytes; None for a deletion.
        timestamp: The time in ms of the update.
        buffered_at: The time in ms of the first update of the key that is waiting.
        topic: The topic of the record that the update was made of; empty where it was made of several records.
        partition: The partition of this record.
        offset: The offset of this record.
        headers: The headers of this record.
    """

    value: bytes | None
    timestamp: int
    buffered_at: int
    topic: str
    partition: int
    offset: int
    headers: Sequence[Header] = ()

    def as_bytes(self) -> bytes:
        """The bytes of the update. The values from before it are null: no operation behind the buffer asks for them."""
        topic = self.topic.encode()
        parts = [struct.pack(">qqi", self.timestamp, self.offset, len(topic)), topic]
        parts.append(struct.pack(">ii", self.partition, len(self.headers)))
        for name, value in self.headers:
            parts += [_sized(name.encode()), _sized(value)]
        parts += [_sized(None), _sized(None), _sized(self.value), struct.pack(">q", self.buffered_at)]
        return b"".join(parts)

    @classmethod
    def parse(cls, data: bytes) -> BufferedUpdate:
        """Read the bytes of an update.

        Raises:
            ValueError: They have another form.
        """
        reader = _Reader(data)
        try:
            timestamp, offset = reader.long(), reader.long()
            topic = reader.sized() or b""
            partition, count = reader.number(), reader.number()
            headers = [((reader.sized() or b"").decode(), reader.sized()) for _ in range(count)]
            for _ in ("the prior value", "the old value"):
                reader.sized()
            value, buffered_at = reader.sized(), reader.long()
            if reader.place != len(data):
                raise ValueError(f"{len(data) - reader.place} bytes follow")
            return cls(value, timestamp, buffered_at, topic.decode(), partition, offset, headers)
        except (struct.error, ValueError) as error:
            raise ValueError(f"{data!r:.100} is no update of a buffer of suppress: {error}") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.place = 0
        self._data = data

    def long(self) -> int:
        return self._unpacked(">q", 8)

    def number(self) -> int:
        return self._unpacked(">i", 4)

    def sized(self) -> bytes | None:
        size = self.number()
        if size in (_NULL, _AS_THE_PRIOR_VALUE):
            return None
        if not 0 <= size <= len(self._data) - self.place:
            raise ValueError(f"a part of {size} bytes does not fit")
        self.place += size
        return self._data[self.place - size : self.place]

    def _unpacked(self, form: str, size: int) -> int:
        (number,) = struct.unpack_from(form, self._data, self.place)
        self.place += size
        return int(number)


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", _NULL) if data is None else struct.pack(">i", len(data)) + data
