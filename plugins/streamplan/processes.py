"""Processes that outlive the one that started them: known by pid and start time, kept as files in ``run/``.

A pid alone may be reused by a stranger after its owner died. A pid together with its start time is not, so
nothing here ever signals a process that it did not start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from streamplan.errors import StreamplanError
from streamplan.files import write_atomically

START_TIME_TOLERANCE_SECONDS = 2.0
"""psutil derives the start time from the boot time, which follows small corrections of the clock."""

KILL_SECONDS = 10.0
"""How long the kernel may take to end a process after SIGKILL."""

# Popen objects of processes that this very process started: polled so that they leave no zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class ProcessRef:
    """One started process. ``started`` is its start time in seconds since the epoch (``psutil`` create_time)."""

    name: str
    pid: int
    started: float
    file: Path | None = field(default=None, compare=False)
    """Its entry in ``run/``; None for a reference rebuilt from the first three alone."""


def start(
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_file: Path,
    cwd: Path | None = None,
    run_dir: Path,
) -> ProcessRef:
    """Start ``argv`` in a session (and process group) of its own and register it as ``run_dir/<name>.json``.

    ``env`` is the whole environment. Output is appended to ``log_file``. Raises StreamplanError when the program
    cannot be started, or when a process of that name is registered and alive. What a dead one of that name left
    in its group is stopped first: with its entry gone, nobody would know of it any more.
    """
    file = run_dir / f"{name}.json"
    known = _read(file)
    if known is not None and is_alive(known):
        raise StreamplanError(
            f"Process {name}", expected="none running", observed=f"pid {known.pid} alive", remedy="Stop it first."
        )
    if known is not None:
        stop(known)
    run_dir.mkdir(parents=True, exist_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log_file.open("ab") as log:
            child = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as fault:
        raise StreamplanError(f"Process {name}", expected=f"{argv[0]} starts", observed=str(fault)) from fault
    _children[child.pid] = child
    # The child is not reaped before the next poll, so its entry exists even when it has already died.
    ref = ProcessRef(name, child.pid, psutil.Process(child.pid).create_time(), file)
    entry = {"name": name, "pid": ref.pid, "started": ref.started, "argv": list(argv), "log_file": str(log_file)}
    write_atomically(file, json.dumps(entry, indent=2) + "\n")
    return ref


def is_alive(ref: ProcessRef) -> bool:
    """Whether the very process that ``ref`` names still runs: same pid, same start time, not a zombie."""
    child = _children.get(ref.pid)
    if child is not None and child.poll() is not None:
        del _children[ref.pid]
    try:
        process = psutil.Process(ref.pid)
        return _same(process, ref) and not _has_ended(process)
    except psutil.NoSuchProcess:
        return False


def stop(ref: ProcessRef, *, grace_seconds: float = 10.0) -> None:
    """Stop the process, its group and its descendants, and remove its entry in ``run/``.

    SIGTERM to the group, then, for whatever is left after ``grace_seconds``, SIGKILL. Descendants that have an
    entry of their own in the same ``run/`` are spared: they are stopped by their own reference. Doing it again,
    or after the process died, is no error; what an already dead leader left in its group is stopped too.
    """
    spared = {other.pid for other in registered(ref.file.parent)} - {ref.pid} if ref.file else set()
    family = _family(ref, spared)
    _signal(family, signal.SIGTERM)
    left = _wait(family, grace_seconds)
    # New children may have come meanwhile: look again before the kill.
    left |= _family(ref, spared)
    _signal(left, signal.SIGKILL)
    survivors = sorted(process.pid for process in _wait(left, KILL_SECONDS))
    is_alive(ref)  # reaps our own child
    if survivors:
        raise StreamplanError(
            f"Process {ref.name}",
            expected=f"gone {KILL_SECONDS:g} s after SIGKILL",
            observed=f"still there: {survivors}",
            remedy="It probably waits for a disk; look at it with `ps`.",
        )
    if ref.file is not None and _read(ref.file) == ref:
        ref.file.unlink(missing_ok=True)


def registered(run_dir: Path) -> list[ProcessRef]:
    """Every process registered in ``run_dir``, alive or not, in the order in which they were started."""
    found = [ref for file in run_dir.glob("*.json") if (ref := _read(file)) is not None]
    return sorted(found, key=lambda ref: (ref.started, ref.name))


def _read(file: Path) -> ProcessRef | None:
    try:
        entry = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return ProcessRef(str(entry["name"]), int(entry["pid"]), float(entry["started"]), file)


def _same(process: psutil.Process, ref: ProcessRef) -> bool:
    return abs(process.create_time() - ref.started) <= START_TIME_TOLERANCE_SECONDS


def _family(ref: ProcessRef, spared: set[int]) -> set[psutil.Process]:
    """The process, its descendants and the members of its group, also when it is dead itself.

    The kernel gives no new process a pid that still names a group. So if a stranger has the pid, the group is gone.
    """
    family: set[psutil.Process] = set()
    try:
        leader = psutil.Process(ref.pid)
        if not _same(leader, ref):
            return family
        family.add(leader)
        queue = [leader]
        while queue:
            children = [child for child in _children_of(queue.pop()) if child.pid not in spared]
            family.update(children)
            queue.extend(children)
    except psutil.NoSuchProcess:
        pass  # it died: what follows finds what it left behind
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == ref.pid and os.getsid(process.pid) == ref.pid:
                family.add(process)
        except (ProcessLookupError, PermissionError):
            continue
    return {process for process in family if not _has_ended(process)}


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _wait(family: set[psutil.Process], seconds: float) -> set[psutil.Process]:
    """Wait until all have ended; those that have not after ``seconds``. A zombie has ended: its parent is just slow."""
    deadline = time.monotonic() + seconds
    left = {process for process in family if not _has_ended(process)}
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = {process for process in left if not _has_ended(process)}
    return left


def _has_ended(process: psutil.Process) -> bool:
    try:
        # While a JVM ends, its first thread is a zombie before the others are gone and files are let go.
        return not process.is_running() or (process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.NoSuchProcess:
        return True


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)  # psutil looks at the start time again before it signals
        except psutil.NoSuchProcess:
            continue
