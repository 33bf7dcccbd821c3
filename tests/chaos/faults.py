"""The faults, one line each in :data:`FAULTS`. Each is over when its function returns; jobs are never started here."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random

import psutil
from streamplan.local.airflow import PROCESSES
from streamplan.local.brokers import NODES

from tests.chaos.jobs import AGGREGATOR_JOB, PRODUCER_JOB, kill
from tests.chaos.ownership_faults import (
    foreign_commit,
    foreign_member,
    second_aggregator,
    suspended_driver,
    torn_history,
)
from tests.chaos.proxy import Cut
from tests.chaos.storage_faults import damage_checkpoint, delete_checkpoint, fill_disk, limit_files
from tests.chaos.system import System
from tests.chaos.waiting import wait_for

VICTIM_SECONDS = 600.0
"""One that a fault before has killed may still be on its way back."""

Apply = Callable[[System, Random], str]
"""Breaks the system and says in a few words what it did; all that is random about it comes from the generator."""


class Needs(Enum):
    """What not every machine or --master has."""

    EXECUTORS = "a --master with executors of their own"
    OWN_DISK = "the right to mount a tmpfs"


@dataclass(frozen=True)
class Fault:
    """``optional``: only when it is named. ``needs``: else it is left out."""

    name: str
    about: str
    apply: Apply
    optional: bool = False
    needs: Needs | None = None


def found(what: str, find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """Wait until there is a victim."""
    victims: list[psutil.Process] = []

    def lacking() -> str:
        victims[:] = find()
        return "" if victims else "none"

    wait_for(what, lacking, VICTIM_SECONDS, interval=0.1)
    return victims


def hold(seconds: float) -> None:
    """How long a fault lasts is a part of it: there is nothing to wait for."""
    time.sleep(seconds)


def kill_driver_jvm(system: System, random: Random) -> str:
    victims = found("the driver's JVM", system.jobs.driver_jvm)
    kill(victims)
    return f"pid {victims[0].pid}"


def kill_driver_python(system: System, random: Random) -> str:
    victims = found("the driver's Python", system.jobs.driver_python)
    kill(victims)
    return f"pid {victims[0].pid}"


def kill_aggregator(system: System, random: Random) -> str:
    found("the driver's JVM", system.jobs.driver_jvm)
    victims = system.jobs.family(AGGREGATOR_JOB)
    kill(victims)
    return f"{len(victims)} processes"


def kill_writer(system: System, random: Random) -> str:
    victims = [random.choice(found("a process that writes", system.jobs.writers))]
    kill(victims)
    return f"pid {victims[0].pid}"


def kill_executor(system: System, random: Random) -> str:
    victims = [random.choice(found("an executor", system.jobs.executors))]
    kill(victims)
    return f"pid {victims[0].pid}"


def kill_producer(system: System, random: Random) -> str:
    found("the producer", system.jobs.producer)
    victims = system.jobs.family(PRODUCER_JOB) if random.random() < 0.5 else system.jobs.producer()
    kill(victims)
    return f"{len(victims)} processes"


def kill_broker(system: System, random: Random) -> str:
    node, seconds = random.choice(NODES), random.uniform(1, 6)
    ref = system.stack.kafka.process(node)
    assert ref is not None
    kill([psutil.Process(ref.pid)])
    hold(seconds)
    system.stack.kafka.up()
    return f"broker {node}, down for {seconds:.1f} s"


def kill_airflow(*names: str) -> Apply:
    def apply(system: System, random: Random) -> str:
        alone, seconds = random.random() < 0.5, random.uniform(0.5, 5)
        jobs = {process.pid for job in (AGGREGATOR_JOB, PRODUCER_JOB) for process in system.jobs.family(job)}
        victims: list[psutil.Process] = []
        for name, ref in system.stack.airflow.running().items():
            if name in names:
                with suppress(psutil.NoSuchProcess):
                    leader = psutil.Process(ref.pid)
                    victims += [leader, *([] if alone else leader.children(recursive=True))]
        # A job is its task's child until that has deferred; it is not Airflow.
        kill(process for process in victims if process.pid not in jobs)
        hold(seconds)
        system.up()
        return f"{'alone' if alone else 'with children'}, down for {seconds:.1f} s"

    return apply


def stop_aggregator(system: System, random: Random) -> str:
    """The zombie: it wakes up when its transaction has been aborted without it."""
    found("a process that writes", system.jobs.writers)
    seconds = system.options.transaction_seconds + random.uniform(2, 6)
    victims = system.jobs.family(AGGREGATOR_JOB)
    sleep(victims, seconds)
    return f"{len(victims)} processes stopped for {seconds:.1f} s"


def stop_writer(system: System, random: Random) -> str:
    victim = random.choice(found("a process that writes", system.jobs.writers))
    seconds = random.uniform(1, system.options.transaction_seconds + 5)
    sleep([victim], seconds)
    return f"pid {victim.pid} stopped for {seconds:.1f} s"


def replaced_writer(system: System, random: Random) -> str:
    """Who writes sleeps while the rest of the aggregator is killed and replaced, and wakes up beside the new one."""
    writers = found("a process that writes", system.jobs.writers)
    for process in writers:
        _signal(process.suspend)
    asleep = {process.pid for process in writers}
    old = [process for process in system.jobs.family(AGGREGATOR_JOB) if process.pid not in asleep]
    kill(old)
    found(
        "a new process that writes",
        lambda: [process for process in system.jobs.writers() if process.pid not in asleep],
    )
    hold(random.uniform(0, 5))
    for process in writers:
        _signal(process.resume)
    return f"{len(writers)} processes woke up beside the new aggregator"


def stop_producer(system: System, random: Random) -> str:
    victims = found("the producer", system.jobs.producer)
    seconds = random.uniform(1, 15)
    sleep(victims, seconds)
    return f"stopped for {seconds:.1f} s"


def restart_all(system: System, random: Random) -> str:
    system.stack.down()
    system.up()
    return "down and up"


def cut_network(how: Cut) -> Apply:
    def apply(system: System, random: Random) -> str:
        nodes = random.choice([(1,), (2,), NODES])
        seconds = random.uniform(1, 12)
        for node in nodes:
            system.proxies[node].cut(how)
        try:
            hold(seconds)
        finally:
            for node in nodes:
                system.proxies[node].heal()
        return f"{how} before {' and '.join(f'broker {node}' for node in nodes)} for {seconds:.1f} s"

    return apply


def sleep(victims: list[psutil.Process], seconds: float) -> None:
    """SIGSTOP, and SIGCONT after so long."""
    for process in victims:
        _signal(process.suspend)
    hold(seconds)
    for process in victims:
        _signal(process.resume)


def _signal(send: Callable[[], None]) -> None:
    with suppress(psutil.NoSuchProcess):
        send()


FAULTS = (
    Fault("kill-driver-jvm", "SIGKILL for the Spark driver", kill_driver_jvm),
    Fault("kill-driver-python", "SIGKILL for the driver's Python process", kill_driver_python),
    Fault("kill-aggregator", "SIGKILL for driver, Python and workers at once", kill_aggregator),
    Fault("kill-writer", "SIGKILL for a Python worker, or for the driver's Python while that writes", kill_writer),
    Fault("kill-executor", "SIGKILL for one executor", kill_executor, needs=Needs.EXECUTORS),
    Fault("kill-producer", "SIGKILL for the producer", kill_producer),
    Fault("kill-broker", "SIGKILL for one broker of two, started again after seconds", kill_broker),
    Fault("kill-scheduler", "SIGKILL for Airflow's scheduler", kill_airflow("airflow-scheduler")),
    Fault("kill-triggerer", "SIGKILL for Airflow's triggerer", kill_airflow("airflow-triggerer")),
    Fault("kill-dag-processor", "SIGKILL for Airflow's DAG processor", kill_airflow("airflow-dag-processor")),
    Fault("kill-airflow", "SIGKILL for all of Airflow", kill_airflow(*PROCESSES)),
    Fault("stop-aggregator", "SIGSTOP for longer than a transaction may last, then SIGCONT", stop_aggregator),
    Fault("stop-writer", "SIGSTOP for such a process, then SIGCONT", stop_writer),
    Fault("zombie-writers", "who writes sleeps while the rest is killed and replaced", replaced_writer),
    Fault("stop-producer", "SIGSTOP for the producer, then SIGCONT", stop_producer),
    Fault("restart-all", "everything stopped in good order and started again", restart_all),
    Fault("black-hole", "nothing passes between brokers and clients for seconds", cut_network(Cut.BLACK_HOLE)),
    Fault("reset", "connections between brokers and clients are reset for seconds", cut_network(Cut.RESET)),
    Fault("file-limit", "the aggregator's processes cannot write to any file for seconds", limit_files),
    Fault("disk-full", "no space is left beside the checkpoints for seconds", fill_disk, needs=Needs.OWN_DISK),
    Fault("delete-checkpoint", "checkpoint and state are gone", delete_checkpoint),
    Fault("damage-checkpoint", "a plan is cut in half, or a state file gone", damage_checkpoint),
    Fault("second-aggregator", "another one, started by hand", second_aggregator),
    Fault("suspended-driver", "an aggregator sleeps while a second one takes over its checkpoints", suspended_driver),
    Fault(
        "foreign-commit", "commits, an offset tool and a deletion by others while the aggregator runs", foreign_commit
    ),
    Fault("foreign-member", "a consumer of another program joins the group for seconds", foreign_member),
    Fault("torn-history", "positions changed while the aggregator is stopped, then put back", torn_history),
)
