"""Break the real stack on a seeded schedule, and compare every record with the truth after each round."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from rich.console import Console
from streamplan.errors import StreamplanError
from streamplan.settings import PROJECT

from tests.chaos.disk import may_mount
from tests.chaos.faults import FAULTS, Fault, Needs
from tests.chaos.report import Report
from tests.chaos.resources import Resources
from tests.chaos.runner import Failed, run
from tests.chaos.schedule import schedule
from tests.chaos.system import Broken, Options, System
from tests.chaos.waiting import NotSettled

TRANSACTION_MS = 10_000
MAX_OFFSETS = 20_000
"""A micro-batch is one transaction a task: what has piled up must not take longer than a transaction may last."""

EPILOG = """\
Two brokers, Airflow, Spark and the jobs are started in HOME, on free ports of loopback, and stopped at the end. Orders
flow all the time. The same seed gives the same schedule of faults; where a fault lands is the machine's.

exit status: 0 nothing was lost, doubled or wrong, and all came back by itself; 1 something was, and HOME is kept;
2 wrong arguments

faults:
"""


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if options.schedule:
        for planned in schedule(options.seed, options.faults, options.rounds):
            console.print(f"round {planned.number:3}: {planned.name}")
        return 0
    given = options.home is not None
    home = options.home.absolute() if given else Path(tempfile.mkdtemp(prefix="streamplan-chaos-"))
    file = options.report or PROJECT / ".streamplan" / f"chaos-{options.seed}.json"
    shown = {"rounds": options.rounds, "orders_per_second": options.orders_per_second, "master": options.master}
    report = Report(options.seed, home, shown)
    console.print(f"Seed {options.seed}, {options.rounds} rounds, home {home}")
    began = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ["STREAMPLAN_PIPELINES"] = "streamplan.pipelines.orders"  # Airflow and the jobs inherit it
    system = System(_system_options(options, home), console.print)
    resources = Resources(system.jobs, home)
    failed = True
    try:
        system.start()
        console.print(f"Deployed after {time.monotonic() - began:.0f} s; orders flow.")
        run(system, schedule(options.seed, options.faults, options.rounds), report, resources, console.print)
        failed = False
    except (Failed, Broken, NotSettled, StreamplanError) as error:
        console.print(f"FAILED, seed {options.seed}: {error}", style="red")
    except KeyboardInterrupt:
        console.print("Interrupted: stopping all that was started.")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is being stopped is stopped to the end
        system.stop()
        if report.rounds:
            report.show(console)
            resources.show(console)
            report.write(file, resources.as_json())
            console.print(f"{time.monotonic() - began:.0f} s in all. Report: {file}")
        if failed:
            console.print(f"Kept: {home}; logs: {home / 'logs'}")
        elif not given:
            shutil.rmtree(home, ignore_errors=True)
    return int(failed)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    width = max(len(fault.name) for fault in FAULTS)
    listed = "".join(
        f"  {fault.name:<{width}}  {fault.about}{' (only when named)' if fault.optional else ''}\n" for fault in FAULTS
    )
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        epilog=EPILOG + listed,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="default: a random one")
    parser.add_argument("--faults", help="only these, separated by commas")
    parser.add_argument("--orders-per-second", type=int, default=2000, help="of the producer (default 2000)")
    parser.add_argument("--master", default="", help="of Spark: local-cluster[4,1,1024] for executors to kill")
    parser.add_argument("--home", type=Path, help="working directory, a new one (default: a temporary one)")
    parser.add_argument("--report", type=Path, help="JSON file (default .streamplan/chaos-SEED.json)")
    parser.add_argument("--schedule", action="store_true", help="print the schedule and end")
    options = parser.parse_args(argv)
    has = {
        Needs.EXECUTORS: bool(options.master) and not options.master.startswith("local["),
        Needs.OWN_DISK: may_mount(),
    }
    if options.home and options.home.exists() and any(options.home.iterdir()):
        parser.error(f"--home {options.home} is not empty: its orders could not be told from ours")
    if options.faults:
        names = [name.strip() for name in options.faults.split(",")]
        unknown = sorted(set(names) - {fault.name for fault in FAULTS})
        if unknown:
            parser.error(f"no such fault: {', '.join(unknown)}")
        chosen: list[Fault] = [fault for fault in FAULTS if fault.name in names]
        for fault in chosen:
            if fault.needs and not has[fault.needs]:
                parser.error(f"{fault.name} needs {fault.needs.value}")
        options.faults = chosen
    else:
        options.faults = [fault for fault in FAULTS if not fault.optional and (not fault.needs or has[fault.needs])]
    return options


def _system_options(options: argparse.Namespace, home: Path) -> Options:
    return Options(
        home=home,
        rate=options.orders_per_second,
        master=options.master,
        aggregator_options=f"--transaction-timeout-ms {TRANSACTION_MS} --max-offsets {MAX_OFFSETS}",
        transaction_seconds=TRANSACTION_MS / 1000,
        own_disk=any(fault.needs is Needs.OWN_DISK for fault in options.faults),
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
