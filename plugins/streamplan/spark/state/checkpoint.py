"""The checkpoint of a query, read and prepared through Spark.

Hadoop's file systems are used, so a checkpoint may lie wherever Spark can write one. ``offset_log.py`` describes the
files.
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
from streamplan.model.start_point import CheckpointState, OffsetMap, TopicPartition
from streamplan.spark.state.offset_log import (
    COMMITS,
    OFFSETS,
    CorruptCheckpoint,
    batch_numbers,
    offset_lines,
    parse_offsets,
)

IDENTITY = "streamplan.json"
"""The file, beside Spark's own, that says which query the checkpoint belongs to.

It is written last: a checkpoint without it was never completed.
"""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query.

    Attributes:
        spark: The session whose file systems are used.
        location: A path or a URI.
    """

    spark: SparkSession
    location: str

    def state(self, topics: Sequence[str]) -> CheckpointState | None:
        """Return what the checkpoint says; None where there is none.

        Args:
            topics: The topics that the query reads.
        """
        if not self._exists(""):
            return None
        try:
            identity = json.loads(self._read(IDENTITY)) if self._exists(IDENTITY) else {}
            planned, committed = self.last_planned(), self.last_committed()
            if planned is None:
                return CheckpointState(identity)
            return CheckpointState(
                identity,
                committed=self.end_offsets(committed, topics) if committed is not None else self._initial(topics),
                planned=self.end_offsets(planned, topics),
            )
        except (CorruptCheckpoint, ValueError) as error:
            return CheckpointState(corruption=str(error))
        except Py4JJavaError as error:  # a file of the log is missing, or cannot be read
            return CheckpointState(corruption=str(error.java_exception).splitlines()[0])

    def write_identity(self, identity: Mapping[str, str]) -> None:
        """Say which query the checkpoint belongs to. The checkpoint is complete from now on."""
        self._write(IDENTITY, json.dumps(dict(identity), indent=1))

    def set_aside(self) -> str | None:
        """Rename the checkpoint, so that another one can be made in its place.

        The checkpoint that was set aside before is deleted: one is kept, for whoever wants to look into it.

        Returns:
            Where the checkpoint lies now; None where there was none.

        Raises:
            StreamplanError: It could not be renamed.
        """
        if not self._exists(""):
            return None
        aside = f"{self.location}.replaced"
        target = self._path_of(aside)
        self._files.delete(target, True)
        if not self._files.rename(self._path(""), target):
            raise StreamplanError(f"{self.location} could not be renamed to {aside}", remedy="Is it writable?")
        return aside

    def remove_beside(self, location: str) -> None:
        """Delete a directory that lies beside the checkpoint."""
        self._files.delete(self._path_of(location), True)

    def begin_at(self, positions: OffsetMap, topics: Sequence[str]) -> None:
        """Prepare a checkpoint without state: the next query begins at ``positions``.

        Args:
            positions: The first offset of each topic and partition.
            topics: The topics of the query's sources, in Spark's order: each source has a log of its first offsets.
        """
        for number, line in enumerate(offset_lines(positions, topics)):
            self._write(f"sources/{number}/0", f"\0v1\n{line}")  # the format of KafkaSourceInitialOffsetWriter

    def continue_at(self, positions: OffsetMap, topics: Sequence[str]) -> None:
        """Let the next query continue at ``positions`` with the state that a restoring query has left here.

        Args:
            positions: The next offset of each topic and partition.
            topics: The topics of the next query's sources, in Spark's order: each has a line in a file of offsets.

        Raises:
            CorruptCheckpoint: The restoring query did not finish.
        """
        last = self.last_committed()
        if last is None or last != self.last_planned():
            raise CorruptCheckpoint(f"{self.location}: the restoring query did not finish")
        # After the data a window's watermark makes one more micro-batch, and Spark reads the sources of the last two.
        for batch in range(last + 1):
            head = self._read(f"{OFFSETS}/{batch}").splitlines()[:2]  # the version; the watermark and settings
            self._delete(f"{OFFSETS}/.{batch}.crc")
            self._write(f"{OFFSETS}/{batch}", "\n".join([*head, *offset_lines(positions, topics)]))
        self._delete("sources")  # of the restoring query

    def offset_ranges(self, batch: int, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets ``first <= offset < until`` of a micro-batch.

        Args:
            batch: Number of the micro-batch; Spark has begun it.
            topics: The topics that the query reads.

        Returns:
            ``(first, until)`` of each topic and partition that has new offsets.

        Raises:
            CorruptCheckpoint: A file of the log cannot be understood.
        """
        ends = self.end_offsets(batch, topics)
        starts = self.end_offsets(batch - 1, topics) if batch else {}
        if starts.keys() != ends.keys():
            starts = self._initial(topics) | starts  # a source begins in the micro-batch that reads it first
        return {
            partition: (starts.get(partition, 0), end)
            for partition, end in ends.items()
            if end > starts.get(partition, 0)
        }

    def end_offsets(self, batch: int, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offset past the last one of a micro-batch, for each topic and partition.

        Raises:
            CorruptCheckpoint: The file of the log cannot be understood.
        """
        return self._offsets(f"{OFFSETS}/{batch}", topics)

    def last_planned(self) -> int | None:
        """Return the number of the newest micro-batch that was begun; None for a new checkpoint."""
        return self._newest(OFFSETS)

    def last_committed(self) -> int | None:
        """Return the number of the newest micro-batch that Spark has finished; None before the first."""
        return self._newest(COMMITS)

    def _initial(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for number in range(len(topics)):
            offsets = self._offsets(f"sources/{number}/0", topics) | offsets
        return offsets

    def _newest(self, log: str) -> int | None:
        path = self._path(log)
        if not self._files.exists(path):
            return None
        return max(batch_numbers(str(file.getPath().getName()) for file in self._files.listStatus(path)), default=None)

    def _offsets(self, name: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        offsets = {key: offset for key, offset in parse_offsets(name, self._read(name)).items() if key[0] in topics}
        if not offsets:
            raise CorruptCheckpoint(f"{name} has no offsets of {', '.join(topics)}")
        return offsets

    def _exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def _read(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            # One gateway call for the whole text, and not one for each byte. ISO-8859-1 accepts the leading zero byte.
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

    # Offsets are read with every micro-batch. Finding a class takes a gateway call for each part of its name, and
    # Hadoop makes a new object of a file system that it does not cache. So these are kept.

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
