"""The option that names parts of a pipeline which connect to the brokers, each with ACLs of its own."""

from __future__ import annotations

import argparse

from streamplan.model.acls import Role


def add_role_option(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add ``--role``, which may be given several times. ``options.role`` is a list, with all roles by default.

    Args:
        meaning: What the option means to the command.
    """
    parser.add_argument(
        "--role",
        action="append",
        type=Role,
        choices=list(Role),
        metavar="ROLE",
        help=f"{meaning}: {', '.join(Role)}; may be given several times (default: all)",
    )
