"""What a query's checkpoint says of offsets.

Spark's layout: ``offsets/<batch>`` is written before a micro-batch runs and holds the offsets it ends at,
``commits/<batch>`` after it, ``sources/0/0`` the offsets at which the query began. Read through Hadoop's file system,
so that a checkpoint may lie wherever Spark can write one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamplan.errors import StreamplanError
from streamplan.model.start_point import CheckpointView

IDENTITY = "streamplan.json"
"""Beside Spark's own files: whose checkpoint it is. Written last, so that one without it was never finished."""


class Damaged(StreamplanError):
    """A checkpoint that is not what Spark wrote."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query. ``location`` is a path or a URI."""

    spark: SparkSession
    location: str

    def view(self, topics: Sequence[str]) -> CheckpointView | None:
        """What it says; None where there is none."""
        if not self._exists(""):
            return None
        try:
            identity = json.loads(self._read(IDENTITY)) if self._exists(IDENTITY) else {}
            planned, committed = self.last_planned(), self.last_committed()
            if planned is None:
                return CheckpointView(identity)
            begun = self.ends(planned, topics)
            done = self.ends(committed, topics) if committed is not None else self._initial(topics)
        except (Damaged, ValueError) as error:
            return CheckpointView(damage=str(error))
        except Py4JJavaError as error:  # a file that is named is not there, or cannot be read
            return CheckpointView(damage=str(error.java_exception).splitlines()[0])
        return CheckpointView(identity, done, begun)

    def identify(self, identity: Mapping[str, str]) -> None:
        """Say whose it is: from now on it counts."""
        self._write(IDENTITY, json.dumps(dict(identity), indent=1))

    def set_aside(self) -> str | None:
        """Make room for another; the path where this one lies from now on, None where there was none."""
        if not self._exists(""):
            return None
        aside = f"{self.location}.replaced"
        target = self._path_of(aside)
        self._files.delete(target, True)  # the one before: one is kept, for whoever wonders
        if not self._files.rename(self._path(""), target):
            raise StreamplanError(f"{self.location} could not be renamed to {aside}", remedy="Is it writable?")
        return aside

    def remove_beside(self, location: str) -> None:
        """Remove a directory that lies beside the checkpoint."""
        self._files.delete(self._path_of(location), True)

    def begin_at(self, positions: Mapping[tuple[str, int], int], topics: Sequence[str]) -> None:
        """Let the query that comes begin at ``positions``, without state.

        ``topics``  of its sources, in Spark's order: each has a log with its first offsets
        """
        for number, line in enumerate(_lines(positions, topics)):
            self._write(f"sources/{number}/0", f"\0v1\n{line}")  # KafkaSourceInitialOffsetWriter

    def go_on_at(self, positions: Mapping[tuple[str, int], int], topics: Sequence[str]) -> None:
        """Let the query that comes go on at ``positions``, with the state that another query has left here.

        ``topics``  of its sources, in Spark's order: a line each in the offsets of a micro-batch
        """
        last = self.last_committed()
        if last is None or last != self.last_planned():
            raise Damaged(f"{self.location}: the restoring query did not finish")
        head = self._read(f"offsets/{last}").splitlines()[:2]  # the version; watermark and settings
        self._delete(f"offsets/.{last}.crc")
        self._write(f"offsets/{last}", "\n".join([*head, *_lines(positions, topics)]))
        self._delete("sources")  # of the restoring query

    def ranges(self, batch: int, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        """Of each topic and partition with news the offsets (first, past the last) of a micro-batch."""
        until = self.ends(batch, topics)
        first = self.ends(batch - 1, topics) if batch else {}
        if first.keys() != until.keys():
            first = self._initial(topics) | first  # a source begins where it is seen first
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

    def _initial(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for number in range(len(topics)):
            found = self._offsets(f"sources/{number}/0", topics) | found
        return found

    def _newest(self, log: str) -> int | None:
        path = self._path(log)
        if not self._files.exists(path):
            return None
        names = [str(status.getPath().getName()) for status in self._files.listStatus(path)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _offsets(self, name: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for line in self._read(name).splitlines():
            if '{"' in line:
                try:
                    offsets: Mapping[str, Any] = json.loads(line[line.index('{"') :])
                except ValueError as error:
                    raise Damaged(f"{name} is cut off, or not Spark's") from error
                for topic in topics:
                    if topic in offsets:
                        found |= {(topic, int(partition)): int(offset) for partition, offset in offsets[topic].items()}
        if not found:
            raise Damaged(f"{name} has no offsets of {', '.join(topics)}")
        return found

    def _exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def _read(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            # A gateway call with the whole text, not one a byte. ISO-8859-1 cannot fail on the leading zero byte.
            return str(self._io.toString(stream, "ISO-8859-1"))
        finally:
            stream.close()

    def _write(self, name: str, text: str) -> None:
        stream = self._files.create(self._path(name), True)
        try:
            self._io.write(text, stream, "UTF-8")
        finally:
            stream.close()

    def _delete(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._path_of(f"{self.location}/{name}" if name else self.location)

    # Offsets are read with every micro-batch. To find a class takes a gateway call for each part of its name, and a
    # file system that Hadoop does not keep is made anew.

    @cached_property
    def _path_of(self) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path

    @cached_property
    def _io(self) -> Any:
        return self._jvm.org.apache.commons.io.IOUtils

    @cached_property
    def _files(self) -> Any:
        return self._path("").getFileSystem(self.spark._jsc.hadoopConfiguration())

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm


def _lines(positions: Mapping[tuple[str, int], int], topics: Sequence[str]) -> list[str]:
    """For each topic its offsets, as Spark writes those of a source."""
    return [
        json.dumps({topic: {str(number): at for (of, number), at in sorted(positions.items()) if of == topic}})
        for topic in topics
    ]
