"""The command ``topic``: records of a topic, as people read them."""

from __future__ import annotations

import argparse

from streamplan.cli.command import Commands, at_least, parsed_by, refuse_ignored
from streamplan.cli.observed import add_options, observed, print_json
from streamplan.cli.output import plain_console, print_columns
from streamplan.model.start_moment import FORMS
from streamplan.observability.lookup import moment, read_records
from streamplan.observability.topic_view import TopicView, view_topic

_LAST = 20


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "topic",
        "show records of a topic of an application, or its partitions and configs",
        description="Show committed records of a topic, the newest first: partition, offset, timestamp, key, value and "
        "headers. Numbers that Java's serializers wrote are shown as numbers. With --describe, show its partitions "
        "with their replicas, records, live records and busiest keys, and its configs.",
        examples="%(prog)s orders --topic orders --last 5 --containing Jackets\n"
        "%(prog)s orders --topic orders --since 2026-01-01T12:00:00Z\n"
        "%(prog)s orders --topic orders --describe",
        run=_run,
    )
    add_options(parser)
    parser.add_argument("--topic", required=True, help="a topic of the application")
    parser.add_argument("--partition", type=int, metavar="N", help="the partition (default: all)")
    parser.add_argument("--offset", type=int, metavar="N", help="begin at this offset (default: the newest records)")
    parser.add_argument("--since", type=parsed_by(moment), metavar="TIME", help=f"begin at this time: {FORMS}")
    parser.add_argument("--uncommitted", action="store_true", help="also records of open and of aborted transactions")
    parser.add_argument("--describe", action="store_true", help="describe the topic instead of showing records")
    parser.add_argument("--containing", metavar="TEXT", help="only records whose key or value contains TEXT")
    parser.add_argument(
        "--last", type=at_least(1), metavar="N", help=f"show at most N records of each partition (default: {_LAST})"
    )


def _run(options: argparse.Namespace) -> int:
    chosen = observed(options)
    if options.describe:
        refuse_ignored(
            *(options, "partition", "offset", "since", "uncommitted", "containing", "last"), beside="--describe"
        )
        return _describe(view_topic(chosen.find(), chosen.cluster, options.topic), as_json=options.json)
    found = read_records(
        chosen.find(),
        chosen.cluster,
        options.topic,
        last=options.last or _LAST,
        partition=options.partition,
        offset=options.offset,
        since=options.since,
        uncommitted=options.uncommitted,
        containing=options.containing or "",
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
    print_columns(rows)
    return 0


def _describe(view: TopicView, *, as_json: bool) -> int:
    if as_json:
        print_json(view)
        return 0
    headings = ("PARTITION", "LEADER", "IN SYNC", "OFFSETS", "UNCOMMITTED", "RECORDS", "LIVE")
    partitions = [(*headings, "BUSIEST KEYS", "GREATEST VALUES")]
    partitions += [
        (
            str(each.partition),
            "none" if each.leader < 0 else str(each.leader),
            f"{len(each.in_sync)} of {len(each.replicas)}",
            f"{each.start} to {each.end}",
            str(each.uncommitted),
            str(each.records) if each.counted_from == each.start else f"{each.records} from {each.counted_from}",
            "-" if each.live is None else str(each.live),
            ", ".join(f"{key.key}: {key.records}" for key in each.busiest),
            ", ".join(f"{key.key}: {key.value}" for key in each.greatest),
        )
        for each in view.partitions
    ]
    configs = [("CONFIG", "DECLARED", "OBSERVED")]
    configs += [(each.name, each.declared or "-", each.observed or "not set") for each in view.configs]
    plain_console().print(f"{view.name}, {view.role}")
    print_columns(partitions)
    plain_console().print()
    print_columns(configs)
    return 0
