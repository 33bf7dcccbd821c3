"""What `top`, `topic`, `store` and `letters` have in common: which application they look at, and their output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import add_pipeline
from streamplan.errors import WrongUsage
from streamplan.kafka.cluster import KafkaCluster
from streamplan.observability.observed import Observed
from streamplan.registry import pipeline_named


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name an application, its brokers and the form of the output."""
    add_pipeline(parser, optional="or give --application-id")
    parser.add_argument("--application-id", metavar="ID", help="any Kafka Streams application, by its application.id")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_broker_options(parser)


def observed(options: argparse.Namespace) -> Observed:
    """Return the application that the options name.

    Args:
        options: What :func:`add_options` added.

    Raises:
        WrongUsage: The options name no application, or two.
        Refused: There is no such pipeline, or the client properties cannot be followed.
    """
    if (options.pipeline is None) == (options.application_id is None):
        raise WrongUsage("the application", expected="either PIPELINE or --application-id ID", observed="none or both")
    pipeline = None if options.pipeline is None else pipeline_named(options.pipeline)
    name = options.application_id if pipeline is None else pipeline.name
    return Observed(name, KafkaCluster(chosen_brokers(options)), pipeline)


def print_json(value: Any) -> None:
    """Print a value of dataclasses, or a list of them, as JSON."""
    content = [asdict(each) for each in value] if isinstance(value, Iterable) else asdict(value)
    json.dump(content, sys.stdout, indent=2)
    sys.stdout.write("\n")
