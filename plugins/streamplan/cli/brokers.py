"""Which brokers a command talks to, and how it connects to them."""

from __future__ import annotations

import argparse
from pathlib import Path

from streamplan.errors import WrongUsage
from streamplan.kafka.brokers import Brokers

DEFAULT = "Kafka brokers (default: those that `python -m streamplan up` starts)"


def add_broker_options(parser: argparse.ArgumentParser, *, servers: str = DEFAULT) -> None:
    """Add the options that name the brokers, as Kafka's own tools have them.

    Args:
        servers: The help of ``--bootstrap-servers``.
    """
    # --bootstrap and --bootstrap-server are short forms, as argparse takes them.
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,…", help=servers)
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client properties to connect with, such as security.protocol: the file that Kafka's own tools take",
    )


def add_secure_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that secures the brokers of this machine's stack."""
    parser.add_argument(
        "--secure",
        action="store_true",
        help="secure new brokers: with a password or a certificate, encryption and ACLs; they stay secured later",
    )


def chosen_brokers(options: argparse.Namespace) -> Brokers:
    """Return the brokers of ``--bootstrap-servers`` and ``--command-config``; without both, this machine's stack.

    Raises:
        Refused: The client properties cannot be read or followed, or they name no brokers.
    """
    if options.bootstrap_servers is not None and not options.bootstrap_servers.strip():
        raise WrongUsage(
            "--bootstrap-servers",
            expected="host:port,host:port",
            observed="an empty text",
            remedy="Is the variable of the shell set? Without the option it is this machine's stack.",
        )
    if options.command_config:
        return Brokers.from_properties(options.command_config, servers=options.bootstrap_servers or "")
    if options.bootstrap_servers:
        return Brokers.from_environment(options.bootstrap_servers)
    from streamplan.local.brokers import local_brokers
    from streamplan.settings import Settings

    return local_brokers(Settings.from_environment())
