"""The command ``produce``: records for a source topic, one's own or test data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, at_least, refuse_ignored
from streamplan.cli.output import quantity
from streamplan.jobs.producer import Progress
from streamplan.kafka.given_records import KeyInText, write_given
from streamplan.kafka.test_data import produce
from streamplan.programs import stop_on_signals
from streamplan.registry import pipeline_named


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "produce",
        "write records into a source topic: your own, or test data",
        description="Write records into a source topic of a pipeline: one with --value, one for each line of the "
        "standard input with --lines, or the next ones of the pipeline's test data with --records. JSON and text are "
        "written as they are, so that a wrong record can be tried. A value of another serde is given as JSON. "
        "The key is the same for all records with --key. With --key-field it is a field of each value, and with "
        "--key-separator it stands before the value.",
        examples="%(prog)s orders --records 1000\n"
        '%(prog)s orders --key 7 --value \'{"Id": "order_7", "ProductType": "Jackets"}\'\n'
        "%(prog)s orders --lines --key-field Id < orders.jsonl\n"
        "%(prog)s orders --lines --key-separator : < keys-and-orders.txt",
        run=_run,
        done="the brokers have all records",
    )
    add_pipeline(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--value", help="the value of one record")
    what.add_argument(
        "--null", action="store_true", help="one record with a null value, which deletes a row of a table"
    )
    what.add_argument("--lines", action="store_true", help="each line of the standard input is the value of a record")
    what.add_argument("--records", type=at_least(1), metavar="N", help="N more records of the test data")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", help="the key of all records, as text (default: none)")
    keys.add_argument(
        "--key-field",
        action="append",
        metavar="FIELD",
        help="the key of each record is this field of its value; for a key of Json it may be given several times",
    )
    keys.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=_separator,
        help="with --lines: a line is the key, this text, and the value; \\t is a tab",
    )
    parser.add_argument("--topic", help="the source topic (default: the only one)")
    parser.add_argument("--rate", type=at_least(0), metavar="R", help="with --records: R a second (default: no limit)")
    add_broker_options(parser)


def _run(options: argparse.Namespace) -> int:
    pipeline = pipeline_named(options.pipeline)
    if options.records is not None:
        refuse_ignored(options, "key", "key_field", "key_separator", "topic", beside="--records")
        done = produce(
            pipeline,
            chosen_brokers(options),
            records=options.records,
            rate=options.rate or 0,
            stop=stop_on_signals(),
            progress=Progress(),
        )
        told, topic = quantity(done.records, "record"), ", ".join(pipeline.require_test_data().topics)
    else:
        refuse_ignored(options, "rate", without="--records")
        if options.null:
            refuse_ignored(options, "key_field", beside="--null")
        if not options.lines:
            refuse_ignored(options, "key_separator", without="--lines")
        key = options.key
        if options.key_field or options.key_separator:
            key = KeyInText(options.key_field or (), options.key_separator or "")
        count, topic = write_given(
            pipeline, chosen_brokers(options), _values(options), key=key, topic=options.topic or ""
        )
        told = quantity(count, "record")
    sys.stdout.write(f"{told} written to {topic}\n")
    return 0


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a text, observed an empty one")
    return text.replace("\\t", "\t")


def _values(options: argparse.Namespace) -> Iterator[str | None]:
    if options.lines:
        yield from (line.rstrip("\n") for line in sys.stdin)
    else:
        yield None if options.null else options.value
