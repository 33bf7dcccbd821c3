"""Which dag run a supervised process belongs to: ``run/<job>.owner``, beside the process's own entry."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """The dag run that started a process."""

    dag_id: str
    run_id: str


def write_owner(run_dir: Path, job: str, owner: Owner) -> None:
    """To be called before the process starts, so that no process is ever without."""
    run_dir.mkdir(parents=True, exist_ok=True)
    file = _file(run_dir, job)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(owner)) + "\n")
    draft.replace(file)


def read_owner(run_dir: Path, job: str) -> Owner | None:
    """None for a process that no dag run started."""
    try:
        return Owner(**json.loads(_file(run_dir, job).read_text()))
    except FileNotFoundError:
        return None


def _file(run_dir: Path, job: str) -> Path:
    return run_dir / f"{job}.owner"
