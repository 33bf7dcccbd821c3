"""The checkpoints of an application as files, without Spark: whether they exist, what they hold, and their deletion.

Maintenance uses this module from Airflow, where no Spark runs. ``offset_log.py`` describes the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from streamplan.errors import StreamplanError
from streamplan.model.start_point import CheckpointState
from streamplan.spark.state.checkpoint_name import IDENTITY, CheckpointName, checkpoints_location, newest_first
from streamplan.spark.state.offset_log import COMMITS, OFFSETS, CorruptCheckpoint, batch_numbers, parse_offsets

_Found = TypeVar("_Found")

_MAX_ATTEMPTS = 3
"""While we read, Spark deletes the files of old micro-batches, and an aggregator that starts renames the checkpoint."""


def exists(checkpoints: str, application_id: str) -> bool:
    """Return whether there is any checkpoint of the application.

    Raises:
        StreamplanError: This process cannot look there.
    """
    from pyarrow.fs import FileType

    files, path = _file_system(checkpoints_location(checkpoints, application_id))
    try:
        return bool(files.get_file_info(path).type != FileType.NotFound)
    except OSError as error:
        raise _unreachable(checkpoints, application_id, error) from error


def delete(checkpoints: str, application_id: str) -> None:
    """Delete all checkpoints of the application. No error where there are none.

    Raises:
        StreamplanError: This process cannot look there, or may not delete.
    """
    files, path = _file_system(checkpoints_location(checkpoints, application_id))
    try:
        if exists(checkpoints, application_id):
            files.delete_dir(path)
    except OSError as error:
        raise _unreachable(checkpoints, application_id, error) from error


def committed_offsets(
    checkpoints: str, application_id: str, subtopology: int, checkpoint_id: str = ""
) -> Mapping[str, Mapping[int, int]] | None:
    """Return the offsets up to which Spark has finished a sub-topology's input.

    A query that starts again reads from there, whatever the group's positions are: they may be one micro-batch ahead.

    Args:
        checkpoints: A path or a URI.
        application_id: The id of the application.
        subtopology: The id of the sub-topology.
        checkpoint_id: The id of the checkpoint, which Kafka names; empty for the one that was used last.

    Returns:
        By topic and partition the offset that is read next; None where there is no such checkpoint.

    Raises:
        StreamplanError: This process cannot look there, or a file cannot be understood.
    """
    return _read_files(
        checkpoints,
        application_id,
        lambda files, root: _committed_offsets(files, root, subtopology, checkpoint_id),
    )


@dataclass(frozen=True)
class StoredCheckpoint:
    """A complete checkpoint, as its files say.

    Attributes:
        name: The name of its directory.
        state: What it says.
    """

    name: CheckpointName
    state: CheckpointState

    def has_read(self, topics: Collection[str]) -> bool:
        """Return whether a micro-batch of it was begun that reads these topics. If that cannot be told, it was."""
        return bool(self.state.corruption) or any(topic in topics for topic, _ in self.state.planned or {})


def read_checkpoints(checkpoints: str, application_id: str) -> Sequence[StoredCheckpoint]:
    """Return the complete checkpoints of an application, the one that was used last first.

    Args:
        checkpoints: A path or a URI.
        application_id: The id of the application.

    Raises:
        StreamplanError: This process cannot look there.
    """
    return _read_files(checkpoints, application_id, _stored_checkpoints)


def _read_files(checkpoints: str, application_id: str, read: Callable[[Any, str], _Found]) -> _Found:
    """Call a function with the file system and the directory of the application's checkpoints."""
    files, root = _file_system(checkpoints_location(checkpoints, application_id))
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return read(files, root)
        except FileNotFoundError:
            if attempt == _MAX_ATTEMPTS:
                raise
        except OSError as error:
            raise _unreachable(checkpoints, application_id, error) from error
    raise AssertionError("unreachable")


def _stored_checkpoints(files: Any, root: str) -> Sequence[StoredCheckpoint]:
    names = [name for name in map(CheckpointName.parse, _names(files, root)) if name is not None]
    complete = [name for name in names if IDENTITY in _names(files, f"{root}/{name}")]
    return [
        StoredCheckpoint(name, _state(files, f"{root}/{name}"))
        for name in sorted(complete, key=lambda name: name.generation, reverse=True)
    ]


def _state(files: Any, root: str) -> CheckpointState:
    try:
        identity = json.loads(_read(files, f"{root}/{IDENTITY}"))
        planned = max(_batches(files, f"{root}/{OFFSETS}"), default=None)
        if planned is None:
            return CheckpointState(identity)
        committed = max(_batches(files, f"{root}/{COMMITS}"), default=None)
        first = [f"{root}/sources/{number}/0" for number in _names(files, f"{root}/sources")]
        logs = first if committed is None else [f"{root}/{OFFSETS}/{committed}"]
        processed = {place: at for log in logs for place, at in parse_offsets(log, _read(files, log)).items()}
        log = f"{root}/{OFFSETS}/{planned}"
        return CheckpointState(identity, processed, parse_offsets(log, _read(files, log)), planned)
    except FileNotFoundError as error:
        if not _names(files, root):
            raise  # an aggregator that starts has renamed the checkpoint
        return CheckpointState(corruption=str(error))
    except (CorruptCheckpoint, ValueError) as error:
        return CheckpointState(corruption=str(error))


def _read(files: Any, name: str) -> str:
    with files.open_input_stream(name) as stream:
        return str(stream.read().decode())


def _committed_offsets(
    files: Any, directory: str, subtopology: int, checkpoint_id: str
) -> Mapping[str, Mapping[int, int]] | None:
    for name in newest_first(_names(files, directory), subtopology, checkpoint_id):
        if IDENTITY in _names(files, f"{directory}/{name}"):
            return _committed_offsets_of(files, f"{directory}/{name}")
    return None


def _committed_offsets_of(files: Any, root: str) -> Mapping[str, Mapping[int, int]] | None:
    planned, committed = _batches(files, f"{root}/{OFFSETS}"), _batches(files, f"{root}/{COMMITS}")
    if not planned:
        return None
    name = f"{root}/{OFFSETS}/{max(committed, default=min(planned))}"
    offsets = parse_offsets(name, _read(files, name))
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, {})[partition] = offset if committed else 0
    return by_topic


def _batches(files: Any, log: str) -> set[int]:
    return batch_numbers(_names(files, log))


def _names(files: Any, directory: str) -> list[str]:
    from pyarrow.fs import FileSelector

    return [file.base_name for file in files.get_file_info(FileSelector(directory, allow_not_found=True))]


def _file_system(location: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" not in location:
        return LocalFileSystem(), str(Path(location.removeprefix("file:")).absolute())
    try:
        return FileSystem.from_uri(location.replace("s3a://", "s3://", 1))  # type: ignore[no-any-return]
    except (OSError, ValueError, ImportError) as error:
        raise StreamplanError(
            f"checkpoints at {location}",
            expected="a file system that this machine reaches",
            observed=" ".join(str(error).split()),
            remedy="Run this where it can be reached. Else, for a reset, delete them with the tool of that file system "
            "(hadoop fs -rm -r, aws s3 rm --recursive) and let STREAMPLAN_CHECKPOINTS name a local directory for this "
            "run; and declare purge=False, for purging has to look at them.",
        ) from error


def _unreachable(checkpoints: str, application_id: str, error: OSError) -> StreamplanError:
    return StreamplanError(
        f"checkpoints at {checkpoints_location(checkpoints, application_id)}",
        expected="can be read and deleted from here",
        observed=" ".join(str(error).split()),
        remedy="Nothing else was changed by this step; running this again goes on from here.",
    )
