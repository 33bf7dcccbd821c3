"""The command ``store``: the last value of a key in the state stores, as their changelogs have it."""

from __future__ import annotations

import argparse

from streamplan.cli.command import Commands
from streamplan.cli.observed import add_options, observed, print_json
from streamplan.cli.output import plain_console, print_columns
from streamplan.cli.program import AS_MODULE, as_typed
from streamplan.observability.lookup import find_key
from streamplan.programs import ExitStatus


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "store",
        "look a key up in the state stores, with its last update",
        description="Read the changelogs, and show the last value of a key in each state store of an application, "
        "with the partition, offset and time of its last update.",
        examples="%(prog)s orders --key 0\n%(prog)s pageviews --key 'DE at 2026-01-01T12:00:00Z'",
        run=_run,
        done="the key is found",
        wrong="no state store has the key",
    )
    add_options(parser)
    parser.add_argument(
        "--key",
        required=True,
        help="the key, as text or as a number; for one window as in 'ann at 2026-01-01T12:00:00Z'",
    )


def _run(options: argparse.Namespace) -> int:
    chosen = observed(options)
    found = find_key(chosen.find(), chosen.cluster, options.key)
    if options.json:
        print_json(found)
    elif found:
        rows = [("CHANGELOG", "KEY", "VALUE", "PARTITION", "OFFSET", "UPDATED")]
        rows += [
            (
                each.changelog,
                each.key,
                each.value or "(deleted)",
                str(each.partition),
                str(each.offset),
                each.at,
            )
            for each in found
        ]
        print_columns(rows)
    else:
        named = chosen.name if options.pipeline else f"--application-id {chosen.name}"
        text = (
            f"No changelog of {chosen.name} has the key {options.key} yet. Records may still be on their way:"
            f" `{AS_MODULE} top {named}` shows the lag of each stream task."
        )
        plain_console().print(as_typed(text))
    return ExitStatus.DONE if found else ExitStatus.WRONG
