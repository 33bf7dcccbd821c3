"""What `plan --against-cluster` prints: what a changed declaration would do to its application."""

from __future__ import annotations

import argparse
import json
import sys

from streamplan.cli.brokers import chosen_brokers
from streamplan.cli.output import plain_console
from streamplan.model.pipeline import Pipeline
from streamplan.programs import ExitStatus
from streamplan.settings import Settings


def show_evolution(pipeline: Pipeline, options: argparse.Namespace) -> int:
    """Compare the declaration with the cluster and the checkpoints, and print the plan.

    Args:
        options: The broker options, and ``json``.

    Returns:
        The exit status.
    """
    from streamplan.kafka.cluster import KafkaCluster
    from streamplan.kafka.requests import require_reachable
    from streamplan.maintenance.evolution import observe_evolution

    brokers = chosen_brokers(options)
    require_reachable(brokers)
    plan = observe_evolution(pipeline, KafkaCluster(brokers), Settings.from_environment().checkpoints)
    if options.json:
        sys.stdout.write(json.dumps(plan.written(), indent=2) + "\n")
    else:
        plain_console().print(plan.text)
    return ExitStatus.WRONG if plan.refused else ExitStatus.DONE
