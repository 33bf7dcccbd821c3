"""The command ``reset``: bring an application back to the start of its input."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamplan.cli.active_runs import active_runs
from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.confirmation import is_confirmed
from streamplan.cli.output import plain_console
from streamplan.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_UNCHANGED = "Nothing was deleted."


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "reset",
        help="delete everything that a pipeline has made from its input",
        description="Show what a reset of the pipeline deletes (committed offsets, internal topics, checkpoints), ask, "
        "and delete it. The command refuses while the application runs. Topics from outside are left alone.",
        epilog="Example: python -m streamplan reset --pipeline orders",
    )
    parser.add_argument("--pipeline", required=True, help="the name of a declared pipeline")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_broker_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from streamplan.maintenance.reset import apply_reset, plan_reset
    from streamplan.maintenance.reset_plan import RESET_ALONE
    from streamplan.registry import pipeline_named

    console = plain_console()
    settings = Settings.from_environment()
    pipeline = pipeline_named(options.pipeline)
    brokers = chosen_brokers(options)
    runs = active_runs(pipeline.name, settings, RESET_ALONE)
    plan = plan_reset(pipeline, brokers, settings, report=console.print, runs=runs)
    console.print(plan.text.replace("`", ""))
    if plan.empty:
        return 0
    if not options.yes and not is_confirmed(
        "the reset", plan.application_id, purpose="delete this", unchanged=_UNCHANGED
    ):
        console.print(_UNCHANGED)
        return 1
    runs = active_runs(pipeline.name, settings, RESET_ALONE)
    apply_reset(pipeline, brokers, settings, plan, report=console.print, runs=runs)
    return 0
