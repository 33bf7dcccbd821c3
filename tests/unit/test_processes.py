"""Processes known by pid and start time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.processes import PidNamespace, ProcessRef

from tests.support.pid_namespaces import in_new_pid_namespace

Starter = Callable[..., ProcessRef]
SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def start(run_dir: Path, tmp_path: Path) -> Iterator[Starter]:
    """Starts Python code under a name; whatever a failing test leaves is killed by pid."""
    started = []

    def start(code: str, name: str = "subject") -> ProcessRef:
        ref = processes.start(
            name, [sys.executable, "-c", code], env=os.environ, log_file=tmp_path / f"{name}.log", run_dir=run_dir
        )
        started.append(ref)
        return ref

    yield start
    for ref in started:
        processes.stop(ref, grace_seconds=0.1)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within 300 s"
        time.sleep(0.02)


def has_ended(process: psutil.Process) -> bool:
    """Also a zombie has: an orphan's is removed by init, whenever that gets to it."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def pid_in(file: Path) -> int:
    wait_for(lambda: file.exists() and file.read_text().strip().isdigit(), f"a pid in {file}")
    return int(file.read_text())


def spawns(code: str, pid_file: Path, *, new_session: bool = False) -> str:
    """Code of a parent that starts ``code`` as its child, writes the child's pid and waits."""
    return (
        "import subprocess, sys, time, pathlib\n"
        f"child = subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session={new_session})\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )


def test_a_started_process_is_alive_registered_and_leads_its_own_session(start: Starter, run_dir: Path) -> None:
    ref = start(SLEEPER)
    assert processes.is_alive(ref)
    assert processes.registered(run_dir) == [ref]
    assert os.getsid(ref.pid) == os.getpgid(ref.pid) == ref.pid
    assert ref.started == psutil.Process(ref.pid).create_time()


def test_a_reference_rebuilt_from_its_three_values_is_as_good(start: Starter) -> None:
    ref = start(SLEEPER)
    assert processes.is_alive(ProcessRef(ref.name, ref.pid, ref.started))


def test_stop_ends_it_and_removes_its_entry_and_may_be_repeated(start: Starter, run_dir: Path) -> None:
    ref = start(SLEEPER)
    processes.stop(ref)
    assert not processes.is_alive(ref)
    assert not psutil.pid_exists(ref.pid)
    assert processes.registered(run_dir) == []
    processes.stop(ref)


def test_a_process_that_ended_by_itself_is_not_alive_but_still_registered(start: Starter, run_dir: Path) -> None:
    ref = start("print('said')")
    wait_for(lambda: not processes.is_alive(ref), "the end of the process")
    assert [found.name for found in processes.registered(run_dir)] == ["subject"]


def test_output_is_appended_to_the_log_file(start: Starter, tmp_path: Path) -> None:
    for word in ("one", "two"):
        ref = start(f"import sys; print('{word}'); print('{word}!', file=sys.stderr)")
        wait_for(lambda ref=ref: not processes.is_alive(ref), "the end of the process")
    assert sorted((tmp_path / "subject.log").read_text().split()) == ["one", "one!", "two", "two!"]


def test_a_reused_pid_is_neither_alive_nor_stopped(start: Starter) -> None:
    stranger = start(SLEEPER, "stranger")
    dead = replace(stranger, name="dead", started=stranger.started - 60, file=None)
    assert not processes.is_alive(dead)
    processes.stop(dead, grace_seconds=0.1)
    assert processes.is_alive(stranger)


@pytest.mark.parametrize("seconds", [-172_800, -5, 5, 172_800])
def test_a_clock_that_is_set_ends_no_process(start: Starter, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """The kernel then gives another boot time, and psutil another start time of the same process."""
    ref = start(SLEEPER)
    boot_time = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot_time + seconds)
    assert abs(psutil.Process(ref.pid).create_time() - ref.started) > 2
    assert processes.is_alive(ref)
    with pytest.raises(StreamplanError, match="expected none running"):
        start(SLEEPER)
    processes.stop(ref)
    assert not psutil.pid_exists(ref.pid)


def test_stop_kills_a_stubborn_grandchild_in_a_session_of_its_own(start: Starter, tmp_path: Path) -> None:
    ref = start(spawns(STUBBORN, tmp_path / "pid", new_session=True))
    grandchild = psutil.Process(pid_in(tmp_path / "pid"))
    wait_for(lambda: "ready" in (tmp_path / "subject.log").read_text(), "SIGTERM ignored")
    processes.stop(ref, grace_seconds=0.5)
    assert has_ended(grandchild)
    assert not processes.is_alive(ref)


def test_stop_ends_what_a_dead_leader_left_in_its_group(start: Starter, tmp_path: Path) -> None:
    ref = start(spawns(SLEEPER, tmp_path / "pid"))
    orphan = psutil.Process(pid_in(tmp_path / "pid"))
    psutil.Process(ref.pid).kill()
    wait_for(lambda: not processes.is_alive(ref), "the end of the leader")
    assert orphan.is_running()
    processes.stop(ref)
    assert has_ended(orphan)


def test_a_successor_does_not_leave_what_its_predecessor_left(start: Starter, tmp_path: Path) -> None:
    """As the idle workers of a scheduler that was killed."""
    ref = start(spawns(SLEEPER, tmp_path / "pid"))
    orphan = psutil.Process(pid_in(tmp_path / "pid"))
    psutil.Process(ref.pid).kill()
    wait_for(lambda: not processes.is_alive(ref), "the end of the leader")
    start(SLEEPER)
    assert has_ended(orphan)


def test_stop_spares_a_descendant_with_an_entry_of_its_own(start: Starter, run_dir: Path, tmp_path: Path) -> None:
    """As a supervised job, started by a task of Airflow, outlives a restart of Airflow."""
    code = (
        "import os, pathlib, sys, time\n"
        "from streamplan import processes\n"
        f"ref = processes.start('job', [sys.executable, '-c', {SLEEPER!r}], env=os.environ,"
        f" log_file=pathlib.Path({str(tmp_path / 'job.log')!r}), run_dir=pathlib.Path({str(run_dir)!r}))\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(ref.pid))\n"
        "time.sleep(600)\n"
    )
    parent = start(f"import sys; sys.path[:0] = {sys.path!r}\n{code}", "parent")
    pid_in(tmp_path / "pid")
    [job] = [ref for ref in processes.registered(run_dir) if ref.name == "job"]
    try:
        processes.stop(parent)
        assert not processes.is_alive(parent)
        assert processes.is_alive(job)
    finally:
        processes.stop(job)
    assert processes.registered(run_dir) == []


def test_a_name_in_use_is_refused(start: Starter, run_dir: Path) -> None:
    ref = start(SLEEPER)
    with pytest.raises(StreamplanError, match=rf"Process subject: expected none running, observed pid {ref.pid} alive"):
        start(SLEEPER)
    assert processes.registered(run_dir) == [ref]


def test_the_name_of_a_dead_process_is_free_again(start: Starter, run_dir: Path) -> None:
    wait_ref = start("pass")
    wait_for(lambda: not processes.is_alive(wait_ref), "the end of the process")
    again = start(SLEEPER)
    assert processes.registered(run_dir) == [again]


def test_a_missing_program_is_named(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(StreamplanError, match="expected /no/such/program starts"):
        processes.start("x", ["/no/such/program"], env={}, log_file=tmp_path / "x.log", run_dir=run_dir)
    assert processes.registered(run_dir) == []


def test_a_process_knows_the_dag_run_that_started_it(run_dir: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"env": os.environ, "log_file": tmp_path / "log", "run_dir": run_dir}
    owner = processes.Owner("orders_aggregator", "manual__1")
    first = processes.start("job", [sys.executable, "-c", SLEEPER], owner=owner, **arguments)
    found = processes.find(run_dir, "job")
    processes.stop(first)
    second = processes.start("job", [sys.executable, "-c", SLEEPER], **arguments)
    without_owner = processes.find(run_dir, "job")
    processes.stop(second)
    assert found == first
    assert found.owner == owner
    assert without_owner == second
    assert without_owner.owner is None
    assert processes.find(run_dir, "job") is None


def test_a_process_of_another_pid_namespace_is_neither_dead_nor_signalled(
    start: Starter, run_dir: Path, tmp_path: Path
) -> None:
    """Its pid means another process there: here that of the one that looks."""
    ref = start(SLEEPER)
    entry = json.loads((run_dir / "subject.json").read_text())
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import json, os, pathlib, psutil\n"
        "from streamplan import processes\n"
        "from streamplan.errors import StreamplanError\n"
        f"run_dir = pathlib.Path({str(run_dir)!r})\n"
        "mine = {'pid': os.getpid(), 'started': psutil.Process().create_time()}\n"
        f"(run_dir / 'subject.json').write_text(json.dumps({entry!r} | mine))\n"
        "ref = processes.find(run_dir, 'subject')\n"
        "assert ref is not None and not processes.is_alive(ref), f'taken for the process that looks: {ref}'\n"
        "assert ref.is_elsewhere\n"
        "try:\n"
        "    processes.stop(ref)\n"
        "except StreamplanError as error:\n"
        "    print(error)\n"
    )
    command = [*in_new_pid_namespace(), sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stderr
    assert "expected in the PID namespace of this process" in told.stdout
    assert str(PidNamespace.of_this_process()) in told.stdout
    assert processes.is_alive(ref)
    (run_dir / "subject.json").write_text(json.dumps(entry))


def test_the_name_of_a_process_elsewhere_is_free_for_one_here(start: Starter, run_dir: Path) -> None:
    """As after a restart of the machine or of a container. Nothing is signalled, not even with the pid of another."""
    stranger = start(SLEEPER, "stranger")
    entry = json.loads((run_dir / "stranger.json").read_text())
    namespace = {"boot_id": "another", "inode": "pid:[1]", "host": "other"}
    (run_dir / "subject.json").write_text(json.dumps(entry | {"name": "subject", "namespace": namespace}))
    found = processes.find(run_dir, "subject")
    assert found is not None
    assert found.is_elsewhere
    mine = start(SLEEPER)
    assert processes.find(run_dir, "subject") == mine
    processes.stop(mine)
    assert processes.is_alive(stranger)


def test_an_entry_without_a_namespace_belongs_to_this_one(start: Starter, run_dir: Path) -> None:
    """An earlier version wrote it."""
    start(SLEEPER)
    entry = json.loads((run_dir / "subject.json").read_text())
    del entry["namespace"]
    (run_dir / "subject.json").write_text(json.dumps(entry))
    found = processes.find(run_dir, "subject")
    assert found is not None
    assert processes.is_alive(found)
