"""The files of one directory, through Hadoop's file systems: a path or a URI wherever Spark can write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamplan.errors import StreamplanError


@dataclass(frozen=True)
class HadoopFiles:
    """The files below a location.

    Attributes:
        spark: The session whose file systems are used.
        location: A path or a URI of a directory.
    """

    spark: SparkSession
    location: str

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or directory."""
        return bool(self._files.exists(self._path(name)))

    def names(self, directory: str = "") -> list[str]:
        """Return the names in a directory; none where it does not exist."""
        path = self._path(directory)
        if not self._files.exists(path):
            return []
        return [str(file.getPath().getName()) for file in self._files.listStatus(path)]

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream = self._files.open(self._path(name))
        try:
            return str(self._io.toString(stream, "UTF-8"))  # one gateway call for the whole text
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file, and the directories that it lies in."""
        stream = self._files.create(self._path(name), True)
        try:
            self._io.write(text, stream, "UTF-8")
        finally:
            stream.close()

    def delete(self, name: str) -> None:
        """Delete a file or a directory with all that it contains. No error where there is none."""
        self._files.delete(self._path(name), True)

    def rename(self, name: str, target: str) -> None:
        """Rename a file or a directory to a name that does not exist.

        Raises:
            StreamplanError: It could not be renamed.
        """
        try:
            reason = "" if self._files.rename(self._path(name), self._path(target)) else "it was refused"
        except Py4JJavaError as error:
            reason = str(error.java_exception).splitlines()[0]
        if reason:
            raise StreamplanError(
                f"{self.location}/{name} could not be renamed to {target}",
                observed=reason,
                remedy="Is it writable? Is another aggregator of the application being started?",
            )

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
