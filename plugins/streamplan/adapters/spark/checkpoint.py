"""What a query's checkpoint says of offsets.

Spark's layout: ``offsets/<batch>`` is written before a micro-batch runs and holds the offsets it ends at,
``commits/<batch>`` after it, ``sources/0/0`` the offsets at which the query began. Read through Hadoop's file system,
so that a checkpoint may lie wherever Spark can write one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streamplan.errors import Refused


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query. ``location`` is a path or a URI."""

    spark: SparkSession
    location: str

    def ranges(self, batch: int, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        """Of each topic and partition with news the offsets (first, past the last) of a micro-batch."""
        until = self.ends(batch, topics)
        first = self.ends(batch - 1, topics) if batch else {}
        if first.keys() != until.keys():
            for number in range(len(topics)):  # a source begins where it is seen first
                first = self._offsets(f"sources/{number}/0", topics) | first
        return {
            partition: (first.get(partition, 0), end)
            for partition, end in until.items()
            if end > first.get(partition, 0)
        }

    def ends(self, batch: int, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Of each topic and partition the offset past the last one of a micro-batch."""
        return self._offsets(f"offsets/{batch}", topics)

    def last_planned(self) -> int | None:
        """The newest micro-batch that was begun; None for a new checkpoint."""
        return self._newest("offsets")

    def last_committed(self) -> int | None:
        """The newest micro-batch that Spark has finished."""
        return self._newest("commits")

    def _newest(self, log: str) -> int | None:
        path = self._path(log)
        files = path.getFileSystem(self._hadoop)
        if not files.exists(path):
            return None
        names = [str(status.getPath().getName()) for status in files.listStatus(path)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _offsets(self, name: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for line in self._read(name).splitlines():
            if '{"' in line:
                offsets: Mapping[str, Any] = json.loads(line[line.index('{"') :])
                for topic in topics:
                    if topic in offsets:
                        found |= {(topic, int(partition)): int(offset) for partition, offset in offsets[topic].items()}
        if not found:
            raise Refused(
                f"checkpoint {self.location}/{name}",
                expected=f"offsets of {', '.join(topics)}",
                observed="none",
                remedy="The checkpoint belongs to another topology or is damaged.",
            )
        return found

    def _read(self, name: str) -> str:
        path = self._path(name)
        stream = path.getFileSystem(self._hadoop).open(path)
        try:
            # A gateway call with the whole text, not one a byte. ISO-8859-1 cannot fail on the leading zero byte.
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "ISO-8859-1"))
        finally:
            stream.close()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}")

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    @property
    def _hadoop(self) -> Any:
        return self.spark._jsc.hadoopConfiguration()
