"""``python -m streamplan reset``: an application back to the start of its input."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from streamplan.errors import StreamplanError
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "reset",
        help="delete all that a pipeline has made of its input",
        description="Show what a reset of the pipeline deletes (positions, internal topics, checkpoints), ask, and "
        "delete it. Refused while the application runs. Topics from outside are left alone.",
        epilog="Example: python -m streamplan reset --pipeline orders",
    )
    parser.add_argument("--pipeline", required=True, help="the name of a declared pipeline")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="(default: the brokers of this machine)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from streamplan.maintenance.reset import apply_reset, observe_reset
    from streamplan.pipelines import pipeline_named

    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    settings = Settings.from_environment()
    pipeline = pipeline_named(options.pipeline)
    servers = options.bootstrap_servers or _embedded(settings)
    plan = observe_reset(pipeline, servers, settings, runs=_active_runs(pipeline.name, settings))
    console.print(plan.text.replace("`", ""))
    if plan.empty:
        return 0
    if not options.yes and not _agreed(plan.application_id):
        console.print("Nothing was deleted.")
        return 1
    runs = _active_runs(pipeline.name, settings)
    apply_reset(pipeline, servers, settings, plan, say=console.print, runs=runs)
    return 0


def _agreed(application_id: str) -> bool:
    if not sys.stdin.isatty():
        raise StreamplanError(
            f"the reset of {application_id}",
            expected="a person at a terminal who agrees, or --yes",
            observed="neither",
            remedy="Nothing was deleted.",
        )
    sys.stdout.write(f"Type {application_id} to delete this: ")
    sys.stdout.flush()
    return sys.stdin.readline().strip() == application_id


def _embedded(settings: Settings) -> str:
    from streamplan.local.brokers import DEFAULT_PORTS, EmbeddedKafka
    from streamplan.local.ports import Ports

    return EmbeddedKafka(settings, Ports(settings.home / "stack.json", DEFAULT_PORTS)).bootstrap_servers


def _active_runs(pipeline: str, settings: Settings) -> list[str]:
    """Of the Airflow of this machine, where one runs: it would start the aggregator again in the middle."""
    from streamplan.local.stack import Stack
    from streamplan.maintenance.reset_plan import RESET_ALONE

    airflow = Stack(settings).airflow
    if not airflow.running():
        return []
    rest = airflow.rest()
    try:
        found = [dag_id for kind in RESET_ALONE if rest.dag(dag_id := f"{pipeline}_{kind}") is not None]
        return [dag_id for dag_id in found if any(run["state"] in ("queued", "running") for run in rest.runs(dag_id))]
    finally:
        rest.close()
