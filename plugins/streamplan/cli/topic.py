"""The command ``topic``: records of a topic, as people read them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamplan.cli.observed import add_options, observed, print_json
from streamplan.cli.output import align_columns, plain_console
from streamplan.observability.lookup import read_records

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(commands: Subparsers) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "topic",
        help="show records of a topic of an application",
        description="Show committed records of a topic, the newest first: partition, offset, timestamp, key, value and "
        "headers. Numbers that Java's serializers wrote are shown as numbers.",
        epilog="Example: python -m streamplan topic orders --topic orders --last 5 --containing Jackets",
    )
    add_options(parser)
    parser.add_argument("--topic", required=True, help="a topic of the application")
    parser.add_argument("--partition", type=int, metavar="N", help="the partition (default: all)")
    parser.add_argument("--offset", type=int, metavar="N", help="begin at this offset (default: the newest records)")
    parser.add_argument(
        "--containing", default="", metavar="TEXT", help="only records whose key or value contains TEXT"
    )
    parser.add_argument("--last", type=int, default=20, metavar="N", help="so many of each partition (default: 20)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    chosen = observed(options)
    found = read_records(
        chosen.find(),
        chosen.cluster,
        options.topic,
        last=options.last,
        partition=options.partition,
        offset=options.offset,
        containing=options.containing,
    )
    if options.json:
        print_json(found)
        return 0
    rows = [("PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE", "HEADERS")]
    rows += [
        (
            str(each.partition),
            str(each.offset),
            each.at,
            "null" if each.key is None else each.key,
            "null" if each.value is None else each.value,
            ", ".join(f"{name}: {value}" for name, value in each.headers),
        )
        for each in found
    ]
    for line in align_columns(rows):
        plain_console().print(line)
    return 0
