"""The checkpoints of an application as files, without Spark: where they are, what they have finished, how they go.

Spark's layout: ``<checkpoints>/<application id>/<sub-topology>/offsets/<batch>`` is written before a micro-batch and
holds the offsets it ends at, ``commits/<batch>`` after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamplan.errors import StreamplanError

_TRIES = 3
"""Spark deletes the logs of old micro-batches while we read: then there is a newer one."""


def location(checkpoints: str, application_id: str, subtopology: int | None = None) -> str:
    """Of one application, or of one query of it. ``checkpoints`` is a path or a URI."""
    whole = f"{checkpoints.rstrip('/')}/{application_id}"
    return whole if subtopology is None else f"{whole}/{subtopology}"


def exists(checkpoints: str, application_id: str) -> bool:
    """Whether there is anything. Raises StreamplanError where this process cannot look."""
    from pyarrow.fs import FileType

    files, path = _file_system(location(checkpoints, application_id))
    try:
        return bool(files.get_file_info(path).type != FileType.NotFound)
    except OSError as error:
        raise _away(checkpoints, application_id, error) from error


def delete(checkpoints: str, application_id: str) -> None:
    """All of an application's checkpoints. No error where there are none."""
    files, path = _file_system(location(checkpoints, application_id))
    try:
        if exists(checkpoints, application_id):
            files.delete_dir(path)
    except OSError as error:
        raise _away(checkpoints, application_id, error) from error


def finished(checkpoints: str, application_id: str, subtopology: int) -> Mapping[str, Mapping[int, int]] | None:
    """By topic and partition the offsets up to which Spark has finished; None where there is no checkpoint.

    A query that starts again reads from there, whatever the group's positions are: they may be one micro-batch ahead.
    """
    files, root = _file_system(location(checkpoints, application_id, subtopology))
    for look in range(1, _TRIES + 1):
        try:
            planned, done = _batches(files, f"{root}/offsets"), _batches(files, f"{root}/commits")
            if not planned:
                return None
            ends = _offsets(files, f"{root}/offsets/{max(done, default=min(planned))}")
            return ends if done else {topic: dict.fromkeys(found, 0) for topic, found in ends.items()}
        except FileNotFoundError:
            if look == _TRIES:
                raise
        except OSError as error:
            raise _away(checkpoints, application_id, error) from error
    raise AssertionError("unreachable")


def _batches(files: Any, log: str) -> set[int]:
    from pyarrow.fs import FileSelector

    found = files.get_file_info(FileSelector(log, allow_not_found=True))
    return {int(file.base_name) for file in found if file.base_name.isdigit()}


def _offsets(files: Any, file: str) -> dict[str, dict[int, int]]:
    with files.open_input_stream(file) as stream:
        lines = stream.read().decode().splitlines()
    offsets: dict[str, dict[int, int]] = {}
    for line in lines[1:]:  # the first is the version of the log
        content = json.loads(line) if line.startswith("{") else {}
        for topic, found in content.items():
            # A source's line is {topic: {partition: offset}}; the one about the micro-batch has other values.
            if isinstance(found, dict) and all(partition.isdigit() for partition in found):
                offsets[topic] = {int(partition): int(offset) for partition, offset in found.items()}
    return offsets


def _file_system(place: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" not in place:
        return LocalFileSystem(), str(Path(place.removeprefix("file:")).absolute())
    try:
        return FileSystem.from_uri(place.replace("s3a://", "s3://", 1))  # type: ignore[no-any-return]
    except (OSError, ValueError, ImportError) as error:
        raise StreamplanError(
            f"checkpoints at {place}",
            expected="a file system that this machine reaches",
            observed=" ".join(str(error).split()),
            remedy="Run this where it can be reached. Else, for a reset, delete them with the tool of that file system "
            "(hadoop fs -rm -r, aws s3 rm --recursive) and let STREAMPLAN_CHECKPOINTS name a local directory for this "
            "run; and declare purge=False, for purging has to look at them.",
        ) from error


def _away(checkpoints: str, application_id: str, error: OSError) -> StreamplanError:
    return StreamplanError(
        f"checkpoints at {location(checkpoints, application_id)}",
        expected="can be read and deleted from here",
        observed=" ".join(str(error).split()),
        remedy="Nothing else was changed by this step; running this again goes on from here.",
    )
