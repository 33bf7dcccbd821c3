"""Processes that outlive the one that started them.

A process is known by pid and start time. Each has an entry ``run/<name>.json``. A process that an Airflow dag run
started also has ``run/<name>.owner``. The kernel may give the pid of a dead process to another program, but not with
the same start time, so nothing here signals a process that it did not start.

A pid means a process in one PID namespace only. An entry names that namespace. A process of another namespace (in
another container, or on another host) is *elsewhere*: nobody here can tell whether it lives, and nothing here signals
it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from streamplan.errors import StreamplanError
from streamplan.files import read_json, write_atomically

START_TIME_TOLERANCE_SECONDS = 2.0
"""psutil derives the start time from the boot time, which follows small corrections of the clock."""

KILL_SECONDS = 10.0
"""How long the kernel may take to end a process after SIGKILL."""

_UNREADABLE = "Look with `ps` whether the process of that name runs, end it if it does, and remove the file."

# Popen objects of the processes that this process started. They are polled, so that they leave no zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Owner:
    """The Airflow dag run that started a process."""

    dag_id: str
    run_id: str


@dataclass(frozen=True)
class PidNamespace:
    """The PID namespace of a process: what its pid belongs to.

    Attributes:
        boot_id: The kernel's id of this boot of the machine.
        inode: The kernel's name of the namespace, such as ``pid:[4026531836]``. Each boot has such numbers of its own.
        host: The host name, for people. Containers that share a PID namespace may differ in it.
    """

    boot_id: str
    inode: str
    host: str = field(compare=False)

    @classmethod
    def of_this_process(cls) -> PidNamespace:
        """Return the PID namespace of this process."""
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(boot_id, os.readlink("/proc/self/ns/pid"), socket.gethostname())

    def __str__(self) -> str:
        return f"{self.inode} on host {self.host}, boot {self.boot_id}"


@dataclass(frozen=True)
class ProcessRef:
    """One started process.

    Attributes:
        name: The name of its entry in ``run/``.
        pid: Its process id, which is also the id of its session and process group.
        started: Its start time in seconds since the epoch (``psutil`` create_time), by the clock of that moment.
        file: Its entry in ``run/``; None for a reference that was built from the first three alone.
        owner: The dag run that started it; None when no dag run did.
        namespace: The PID namespace that its pid belongs to; None in entries of earlier versions, which count as those
            of this namespace.
    """

    name: str
    pid: int
    started: float
    file: Path | None = field(default=None, compare=False)
    owner: Owner | None = field(default=None, compare=False)
    namespace: PidNamespace | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the process belongs to another PID namespace than this one, where its pid means another process."""
        return self.namespace is not None and self.namespace != PidNamespace.of_this_process()


def start(
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_file: Path,
    cwd: Path | None = None,
    run_dir: Path,
    owner: Owner | None = None,
) -> ProcessRef:
    """Start a program in a session (and process group) of its own and register it.

    When a dead process of this name is registered, whatever it left in its group is stopped first: once its entry is
    overwritten, nobody would know of it. An entry of a process elsewhere is overwritten: whoever starts this one has
    decided what becomes of that one.

    Args:
        name: The name of the entry in ``run_dir``.
        argv: The program and its arguments.
        env: The whole environment.
        log_file: The file to which standard output and standard error are appended.
        cwd: The working directory; by default that of this process.
        run_dir: The directory of the entries.
        owner: The dag run that starts the process.

    Returns:
        The started process.

    Raises:
        StreamplanError: The program cannot be started, or a process of this name is registered and alive.
    """
    file = run_dir / f"{name}.json"
    known = _read(file)
    if known is not None and is_alive(known):
        raise StreamplanError(
            f"Process {name}", expected="none running", observed=f"pid {known.pid} alive", remedy="Stop it first."
        )
    if known is not None and not known.is_elsewhere:
        stop(known)
    run_dir.mkdir(parents=True, exist_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    # The owner is written before the process exists, so that a process is never without its owner.
    if owner is None:
        _owner_file(file).unlink(missing_ok=True)
    else:
        write_atomically(_owner_file(file), json.dumps(asdict(owner)) + "\n")
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
    except OSError as error:
        raise StreamplanError(f"Process {name}", expected=f"{argv[0]} starts", observed=str(error)) from error
    _children[child.pid] = child
    # The child is not reaped before the next poll, so its entry exists even when it has already died.
    namespace = PidNamespace.of_this_process()
    ref = ProcessRef(name, child.pid, psutil.Process(child.pid).create_time(), file, owner, namespace)
    entry = {"name": name, "pid": ref.pid, "started": ref.started, "argv": list(argv), "log_file": str(log_file)}
    entry |= {"namespace": asdict(namespace), "since_boot": _seconds_since_boot(child.pid)}
    write_atomically(file, json.dumps(entry, indent=2) + "\n")
    return ref


def find(run_dir: Path, name: str) -> ProcessRef | None:
    """Return the process that is registered under this name, or None when there is none or it has ended.

    A process elsewhere is returned, too (:attr:`ProcessRef.is_elsewhere`): whether it has ended cannot be told here.
    """
    ref = _read(run_dir / f"{name}.json")
    return ref if ref is not None and (ref.is_elsewhere or is_alive(ref)) else None


def registered(run_dir: Path) -> list[ProcessRef]:
    """List every process that is registered in ``run_dir``, alive or not, in the order in which they were started."""
    refs = [ref for file in run_dir.glob("*.json") if (ref := _read(file)) is not None]
    return sorted(refs, key=lambda ref: (ref.started, ref.name))


def is_alive(ref: ProcessRef) -> bool:
    """Whether the process that ``ref`` names runs here: same PID namespace, pid and start time, and not a zombie."""
    if ref.is_elsewhere:
        return False
    exit_status(ref)  # reaps a child of this process
    try:
        process = psutil.Process(ref.pid)
        return _same(process, ref) and not _has_ended(process)
    except psutil.NoSuchProcess:
        return False


def exit_status(ref: ProcessRef) -> int | None:
    """Return how a process has ended that this process started: its exit status, or less than 0 after a signal.

    None where it runs, or where another process started it.
    """
    child = _children.get(ref.pid)
    return None if child is None else child.poll()


def stop(ref: ProcessRef, *, grace_seconds: float = 10.0) -> None:
    """Stop the process, its group and its descendants, and remove its entry in ``run/``.

    All get SIGTERM. Those that are left after ``grace_seconds`` get SIGKILL. Descendants that have an entry of their
    own in the same ``run/`` are spared: they are stopped by their own reference. It is no error to stop a process
    twice, or after it died. Whatever a dead process left in its group is stopped, too.

    Args:
        ref: The process to stop.
        grace_seconds: How long the processes may take to end after SIGTERM.

    Raises:
        StreamplanError: The process is elsewhere, or a process is still there :data:`KILL_SECONDS` after SIGKILL.
    """
    if ref.is_elsewhere:
        raise StreamplanError(
            f"Process {ref.name}",
            expected=f"in the PID namespace of this process, {PidNamespace.of_this_process()}",
            observed=str(ref.namespace),
            remedy="Its pid means another process here, so nothing was signalled. Stop it where it runs.",
        )
    others = registered(ref.file.parent) if ref.file else []
    spared = {other.pid for other in others if not other.is_elsewhere} - {ref.pid}
    family = _family(ref, spared)
    _signal(family, signal.SIGTERM)
    left = _wait(family, grace_seconds)
    # New children may have started meanwhile, so look again before the kill.
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
    forget(ref)


def forget(ref: ProcessRef) -> None:
    """Remove the entry of a process that has ended, unless it is another one's by now."""
    if ref.file is not None and _read(ref.file) == ref:
        ref.file.unlink(missing_ok=True)


def _read(file: Path) -> ProcessRef | None:
    def entry_of(content: Any) -> ProcessRef:
        namespace = PidNamespace(**content["namespace"]) if "namespace" in content else None
        return ProcessRef(
            str(content["name"]), int(content["pid"]), float(content["started"]), file, _read_owner(file), namespace
        )

    return read_json(file, entry_of, remedy=_UNREADABLE)


def _read_owner(file: Path) -> Owner | None:
    return read_json(_owner_file(file), lambda content: Owner(**content), remedy=_UNREADABLE)


def _owner_file(file: Path) -> Path:
    return file.with_suffix(".owner")


def _same(process: psutil.Process, ref: ProcessRef) -> bool:
    """Whether a process is the one of a reference.

    The entry has the start time since the boot of the machine, too. It stays the same when the clock is set, and the
    one since the epoch does not. Without such an entry the latter has to do.
    """
    try:
        entry = json.loads(ref.file.read_text()) if ref.file is not None else {}
    except FileNotFoundError:
        entry = {}
    if "since_boot" in entry and (entry["pid"], entry["started"]) == (ref.pid, ref.started):
        return bool(entry["since_boot"] == _seconds_since_boot(process.pid))
    return abs(process.create_time() - ref.started) <= START_TIME_TOLERANCE_SECONDS


def _seconds_since_boot(pid: int) -> float:
    """Return when a process was started, as the kernel counts it (``starttime`` of proc(5)). A clock changes nothing.

    Raises:
        psutil.NoSuchProcess: There is no such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _family(ref: ProcessRef, spared: set[int]) -> set[psutil.Process]:
    """Return the process, its descendants and the members of its group, also when the process itself is dead.

    The kernel gives no new process a pid that still names a group. So when another program has the pid, the group is
    gone.
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
        pass  # It died. The loop below finds what it left in its group.
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
    """Wait at most ``seconds`` until all have ended, and return those that have not. A zombie counts as ended."""
    deadline = time.monotonic() + seconds
    left = {process for process in family if not _has_ended(process)}
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = {process for process in left if not _has_ended(process)}
    return left


def _has_ended(process: psutil.Process) -> bool:
    try:
        # While a JVM ends, its first thread is a zombie before its other threads are gone and its files are closed.
        return not process.is_running() or (process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.NoSuchProcess:
        return True


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)  # psutil compares the start time again before it signals
        except psutil.NoSuchProcess:
            continue
