"""Faults of the state directory: full, gone, damaged."""

from __future__ import annotations

import os
import resource
import shutil
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil

from tests.chaos.jobs import AGGREGATOR_JOB, kill
from tests.chaos.system import System
from tests.chaos.waiting import wait_for
from tests.support.checkpoints import checkpoints_of

VICTIM_SECONDS = 600.0
_BLOCK = bytes(64 * 1024)


def limit_files(system: System, random: Random) -> str:
    """No process of the aggregator can write to a file: EFBIG where a full disk says ENOSPC. Needs no privilege.

    Its log is a file as well, as on a machine with one disk. One that Airflow starts meanwhile has room again.
    """
    wait_for("the aggregator", lambda: "" if system.jobs.driver_jvm() else "none", VICTIM_SECONDS)
    seconds = random.uniform(1, 8)
    limited: list[tuple[psutil.Process, tuple[int, int]]] = []
    for process in system.jobs.family(AGGREGATOR_JOB):
        with suppress(psutil.NoSuchProcess):
            before = process.rlimit(resource.RLIMIT_FSIZE)
            process.rlimit(resource.RLIMIT_FSIZE, (0, before[1]))
            limited.append((process, before))
    time.sleep(seconds)
    # Forks of meanwhile have taken the limit along.
    soft, hard = limited[0][1]
    for process in {*(process for process, _ in limited), *system.jobs.family(AGGREGATOR_JOB)}:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return f"no writes to files for {seconds:.1f} s"


def fill_disk(system: System, random: Random) -> str:
    """The file system of the checkpoints, a tmpfs of the suite's own, is full to the last byte."""
    seconds = random.uniform(2, 20)
    ballast = Path(system.settings.checkpoints) / "ballast"
    until = time.monotonic() + seconds
    try:
        with ballast.open("wb", buffering=0) as file:
            while time.monotonic() < until:  # what others give free is taken as well
                try:
                    file.write(_BLOCK)
                except OSError:
                    time.sleep(0.05)
    finally:
        ballast.unlink()
    return f"no space left for {seconds:.1f} s"


def delete_checkpoint(system: System, random: Random) -> str:
    """At rest, when all is counted and the producer sleeps, or wherever the kill lands."""
    at_rest = random.random() < 0.5
    asleep = system.jobs.producer() if at_rest else []
    for process in asleep:
        process.suspend()
    try:
        if at_rest:
            time.sleep(2)
        kill(system.jobs.family(AGGREGATOR_JOB))
        for entry in Path(system.settings.checkpoints).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    finally:
        for process in asleep:
            process.resume()
    return "at rest" if at_rest else "while it worked"


def damage_checkpoint(system: System, random: Random) -> str:
    """The newest plan of a query is cut in half, or a file of its state is gone."""
    first = random.randrange(2)

    def planned() -> list[Path]:
        """The newest checkpoint. Linked sub-topologies have one, that of the second sub-topology."""
        for subtopology in (first, 1 - first):
            found = checkpoints_of(Path(system.settings.checkpoints), "orders-aggregator", subtopology)
            if newest := [path for path in found[-1:] if list(path.glob("offsets/[0-9]*"))]:
                return newest
        return []

    wait_for("a checkpoint", lambda: "" if planned() else "none", VICTIM_SECONDS)
    kill(system.jobs.family(AGGREGATOR_JOB))
    query = planned()[0]
    states = [file for file in query.glob("state/**/*") if file.is_file()]
    if states and random.random() < 0.5:
        victim = max(states, key=lambda file: file.stat().st_mtime)
        victim.unlink()
        return f"{victim.relative_to(query.parent)} deleted"
    victim = max(query.glob("offsets/[0-9]*"), key=lambda file: int(file.name))
    os.truncate(victim, victim.stat().st_size // 2)
    return f"{victim.relative_to(query.parent)} cut in half"
