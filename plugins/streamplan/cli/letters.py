"""The command ``letters``: the newest dead letters of an application, and why each could not be processed."""

from __future__ import annotations

import argparse
from collections import Counter

from streamplan.cli.command import Commands, at_least
from streamplan.cli.observed import add_options, observed, print_json
from streamplan.cli.output import plain_console, quantity
from streamplan.observability.lookup import newest_dead_letters


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "letters",
        "show the newest dead letters, grouped by reason",
        description="Show the newest records of the dead-letter topic: how many have which reason, then each record "
        "with its place in the input, whether it was re-driven, its key and its value.",
        examples="%(prog)s orders --last 20 --json",
        run=_run,
    )
    add_options(parser)
    parser.add_argument(
        "--last",
        type=at_least(1),
        default=20,
        metavar="N",
        help="show at most N dead letters of each partition (default: 20)",
    )


def _run(options: argparse.Namespace) -> int:
    chosen = observed(options)
    found = newest_dead_letters(chosen.find(), chosen.cluster, options.last)
    if options.json:
        print_json(found)
        return 0
    console = plain_console()
    console.print(quantity(len(found), "dead letter"), style="bold")
    open_ones = Counter(letter.reason for letter in found if letter.redriven is None)
    for reason, count in Counter(letter.reason for letter in found).most_common():
        console.print(f"  {count:,} × {reason}: {open_ones[reason]:,} open, {count - open_ones[reason]:,} re-driven")
    for letter in found:
        console.print(f"\n{letter.origin or '(no header says where the record is)'}  {letter.at}  task {letter.task}")
        state = f"re-driven by {letter.redriven.by} at {letter.redriven.at}" if letter.redriven else "open"
        console.print(f"  letter  {letter.partition}@{letter.offset}, {state}")
        console.print(f"  reason  {letter.reason}\n  key     {letter.key}\n  value   {letter.value}")
    return 0
