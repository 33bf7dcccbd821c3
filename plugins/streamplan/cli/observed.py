"""What `top`, `topic`, `store` and `letters` have in common: which application they look at, and their output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import Application, application_in
from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.errors import Refused
from streamplan.kafka.cluster import KafkaCluster
from streamplan.registry import pipeline_named


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name an application, its brokers and the form of the output."""
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", help="the name of a registered pipeline")
    parser.add_argument("--application-id", metavar="ID", help="any Kafka Streams application, by its application.id")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_broker_options(parser)


class Observed:
    """The application that the options name.

    Args:
        options: What :func:`add_options` added.

    Raises:
        Refused: The options name no application, or two; there is no such pipeline; the brokers cannot be followed.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        if (options.pipeline is None) == (options.application_id is None):
            raise Refused("the application", expected="either PIPELINE or --application-id ID", observed="none or both")
        self._pipeline = None if options.pipeline is None else pipeline_named(options.pipeline)
        self.name: str = self._pipeline.name if self._pipeline else options.application_id
        self.cluster = KafkaCluster(chosen_brokers(options))

    def find(self) -> Application:
        """Return the application as the checks see it.

        Raises:
            BrokersUnavailable: Kafka does not answer.
            CouldNotLook: There is no such application.
        """
        self.cluster.names()  # where Kafka does not answer, it is waited for once
        return application_in(self._pipeline, self.cluster) if self._pipeline else discover(self.cluster, self.name)


def print_json(value: Any) -> None:
    """Print a value of dataclasses, or a list of them, as JSON."""
    content = [asdict(each) for each in value] if isinstance(value, Iterable) else asdict(value)
    json.dump(content, sys.stdout, indent=2)
    sys.stdout.write("\n")
