"""The command ``upgrade``: let a changed declaration take over from the application that runs."""

from __future__ import annotations

import argparse
import os

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, refuse_ignored
from streamplan.cli.confirmation import is_confirmed
from streamplan.cli.operation import active_in_airflow
from streamplan.cli.output import plain_console
from streamplan.maintenance.upgrade_plan import Stage
from streamplan.programs import ExitStatus
from streamplan.settings import Settings
from streamplan.spark.submit import LOCAL_MASTER, pyspark_home

_UNCHANGED = "The old application was left as it is."


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "upgrade",
        "let a changed declaration take over from the application that runs",
        description="Build the state of a changed declaration while the old application runs (build). Compare the "
        "stores, ask, and let the changed application take over at the same positions (switch). Without a "
        "step the command does both. The declaration has another application id, and names the old one in "
        "upgrade_from. The switch asks the old application to end. It keeps its state, so it can take "
        "over again in the same way. Spark runs on this machine. The DAG <pipeline>_upgrade does the same "
        "on the Spark of its connection.",
        examples="%(prog)s orders plan\n%(prog)s orders build\n%(prog)s orders switch",
        run=_run,
    )
    add_pipeline(parser)
    parser.add_argument("step", nargs="?", choices=("plan", "build", "switch"), help="one step alone")
    parser.add_argument(
        "--accept-differences",
        action="store_true",
        help="switch although stores that mean the same differ, or input was deleted",
    )
    parser.add_argument(
        "--max-offsets",
        type=int,
        metavar="N",
        help="read at most N records at a time (default: as an aggregator). With a smaller number, fewer records "
        "are late behind a repartition topic, but the build is slower",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before the switch")
    add_broker_options(parser)


def _run(options: argparse.Namespace) -> int:
    from streamplan.local.jars import SPARK, fetch_missing, require
    from streamplan.maintenance.upgrade import Upgrader
    from streamplan.registry import pipeline_named

    if options.step in ("plan", "build"):
        refuse_ignored(options, "accept_differences", beside=options.step)
    if options.step == "plan":
        refuse_ignored(options, "max_offsets", beside=options.step)
    console = plain_console()
    settings = Settings.from_environment()
    pipeline = pipeline_named(options.pipeline)
    upgrader = Upgrader(
        pipeline,
        chosen_brokers(options),
        settings,
        console.print,
        active_in_airflow(settings),
        max_offsets=options.max_offsets,
    )
    plan = upgrader.observe()
    console.print(plan.text.replace("`", ""))
    if options.step == "plan" or plan.stage is Stage.DONE:
        return 0
    pyspark_home()  # says what to do where PySpark is missing
    from streamplan.spark.session import late_session, local_session  # imports PySpark, which takes seconds

    if settings.jars is None:
        fetch_missing([SPARK], os.environ, settings.logs, console.print)
    jars = sorted((settings.jars or require(SPARK, os.environ)).glob("*.jar"))
    with late_session(local_session(f"{plan.application_id}-upgrade", master=LOCAL_MASTER, jars=jars)) as spark:
        if options.step != "switch":
            built = upgrader.build(spark)
            if built is not None:
                console.print(built.text.replace("`", ""))
        if options.step == "build":
            return 0
        if not options.yes and not is_confirmed(
            "the upgrade", plan.application_id, purpose=f"end {plan.upgrade_from}", unchanged=_UNCHANGED
        ):
            console.print(_UNCHANGED)
            return ExitStatus.REFUSED
        compared = upgrader.switch(spark, accept_differences=options.accept_differences)
        if compared is not None:
            console.print(compared.text.replace("`", ""))
    return 0
