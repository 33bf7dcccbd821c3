"""Files that several parts of a deployment share: how they are written, and where they lie below ``reports/``.

The formats belong to the modules that write and read them. This module knows paths alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from streamplan.errors import CouldNotLook, Refused

Parsed = TypeVar("Parsed")

MAX_NAME_BYTES = 255
"""The longest name of a file or directory on the file systems of Linux (``NAME_MAX``)."""

NOT_AS_WRITTEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What reading the content of a file raises that was cut short, or that something else has written."""


def read_json(path: Path, parse: Callable[[Any], Parsed], *, remedy: str) -> Parsed | None:
    """Read a JSON file that this deployment has written.

    Args:
        path: The file.
        parse: Makes a value of its content.
        remedy: What a person does where the file cannot be read.

    Returns:
        The value; None where there is no such file.

    Raises:
        CouldNotLook: The file cannot be read, or has something else in it: a full disk may have cut it short.
    """
    try:
        return parse(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, *NOT_AS_WRITTEN) as error:
        observed = f"{type(error).__name__}: {error}"
        raise CouldNotLook(str(path), expected="the JSON that was written", observed=observed, remedy=remedy) from error


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Write a whole file so that a reader sees either the old content or the new one.

    The content goes to a hidden file beside ``path``, which is then renamed. Directories that are missing are made.
    Several processes may write the same file: the last one wins. A process that is killed may leave its hidden file
    behind, but never half a file under the name ``path``.

    Args:
        path: The file to write.
        content: Text (written as UTF-8) or bytes.
        mode: The permissions of a new file, as for ``open(2)``: the umask is taken off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def append_bounded(path: Path, text: str, limit: int) -> None:
    """Append lines to a file. One that is beyond ``limit`` bytes becomes the older file first, and a new one begins.

    The lines of processes that write at the same time do not mix, and none is lost. A last line without its end, which
    a full disk has left, stays a line of its own.

    Args:
        path: The file; its directory exists.
        text: Whole lines.
        limit: In bytes.
    """
    while True:
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = os.fstat(file.fileno())
            if not path.exists() or not os.path.samestat(found, path.stat()):
                continue  # another process has renamed it since it was opened
            if found.st_size <= limit:
                file.write(_end_of_torn_line(file) + text.encode())
                return
            path.replace(older_file(path))


def _end_of_torn_line(file: BinaryIO) -> bytes:
    if not file.seek(0, os.SEEK_END):
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def require_file_name(name: str) -> None:
    """Refuse a name that is no name of one file or directory.

    Args:
        name: What may come from a request or from the command line.

    Raises:
        Refused: The name is empty, ``.`` or ``..``, has a ``/`` or a NUL, or is longer than file systems take.
    """
    size = len(name.encode(errors="surrogateescape"))
    if name in ("", ".", "..") or "/" in name or "\0" in name or size > MAX_NAME_BYTES:
        shown = repr(name if size <= MAX_NAME_BYTES else f"{name[:40]}…")
        raise Refused(
            f"the name {shown}",
            expected=f"a name of a directory: at most {MAX_NAME_BYTES} bytes, no slash, not . or ..",
            observed=f"{size:,} bytes" if size > MAX_NAME_BYTES else shown,
            remedy="Give the name of a pipeline or an application.id.",
        )


def older_file(path: Path) -> Path:
    """Return the file that :func:`append_bounded` has renamed: ``history.1.jsonl`` for ``history.jsonl``."""
    return path.with_suffix(f".1{path.suffix}")


@dataclass(frozen=True)
class ReportPaths:
    """The paths of one pipeline's files below the directory of reports.

    Attributes:
        reports: The directory of all reports (:attr:`streamplan.settings.Settings.reports`).
        pipeline: The name of the pipeline, or the application id of an application that is not declared.

    Raises:
        Refused: The name is no name of a directory, so that nothing outside of ``reports`` is read or written.
    """

    reports: Path
    pipeline: str

    def __post_init__(self) -> None:
        require_file_name(self.pipeline)

    @property
    def directory(self) -> Path:
        """The directory with all files of this pipeline."""
        return self.reports / self.pipeline

    def check_result(self, check: str) -> Path:
        """Return the file with the last result of the check of this name."""
        return self.directory / f"{check}.json"

    @property
    def history(self) -> Path:
        """One line for each result of each check."""
        return self.directory / "history.jsonl"

    @property
    def verified_store(self) -> Path:
        """The last cut at which the totals agreed (SQLite)."""
        return self.directory / "totals.sqlite"

    @property
    def state_store(self) -> Path:
        """What the state store held when ``jobs/state_store.py`` last read it."""
        return self.directory / "state_store" / "totals.json"

    def recount(self, dag_id: str) -> Path:
        """Return the file with the rows that ``jobs/recount.py`` last wrote for this DAG."""
        return self.directory / "recount" / f"{dag_id}.json"

    @property
    def sink_offsets(self) -> Path:
        """Where the application began to write its sinks anew. A reset writes it, and it stays."""
        return self.directory / "sinks.json"

    @property
    def redrive_outcome(self) -> Path:
        """What came of the last re-drive, in words."""
        return self.directory / "redrive-outcome.json"

    @property
    def aggregator_status(self) -> Path:
        """What the aggregator says about itself every few seconds."""
        return self.directory / "aggregator.json"

    def notification(self, check: str) -> Path:
        """Return the file that remembers which outcome of this check Airflow's callbacks were told last."""
        return self.directory / "announced" / f"{check}.json"

    @property
    def expectations(self) -> Path:
        """Great Expectations' own files: its file context."""
        return self.directory / "gx"

    @property
    def data_docs(self) -> Path:
        """The site that Great Expectations renders."""
        return self.directory / "data_docs"

    def state_files(self, checks: Iterable[str]) -> list[Path]:
        """List the existing files that describe the pipeline's state and not its history. A reset deletes them.

        Args:
            checks: The names of the checks whose results are part of the state.
        """
        candidates = [
            self.verified_store,
            self.verified_store.with_name(f"{self.verified_store.name}-journal"),
            self.state_store,
            self.aggregator_status,
            *sorted(self.recount("any").parent.glob("*.json")),
            *map(self.check_result, checks),
        ]
        return [path for path in candidates if path.exists()]
