"""Checkpoints as they lie on a disk, read without the product's code."""

from __future__ import annotations

from pathlib import Path


def checkpoints_of(checkpoints: Path, application_id: str, subtopology: int) -> list[Path]:
    """Return the complete checkpoints of a sub-topology, the one that was used last at the end."""
    complete = (checkpoints / application_id).glob(f"{subtopology}-*-*/streamplan.json")
    return sorted((file.parent for file in complete), key=lambda path: int(path.name.rpartition("-")[2]))


def checkpoint_of(checkpoints: Path, application_id: str, subtopology: int) -> Path:
    """Return the checkpoint of a sub-topology that was used last."""
    return checkpoints_of(checkpoints, application_id, subtopology)[-1]


def newest(log: Path) -> Path:
    """Return the file of the last micro-batch in a log."""
    return max((file for file in log.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))


def forget_last_commit(checkpoint: Path) -> None:
    """As a kill between the transactions of the sink and the commit of Spark: the micro-batch is to be run again."""
    last = newest(checkpoint / "commits")
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
