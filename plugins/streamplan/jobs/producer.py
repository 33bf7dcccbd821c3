"""Writes a pipeline's test data into its source topic, each record exactly once.

The numbers continue where the topic ends. Started again after a kill with the same --until, it writes what is missing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from streamplan.kafka.brokers import Brokers
from streamplan.kafka.test_data import produce
from streamplan.programs import ExitStatus, report, run_job, stop_on_signals
from streamplan.registry import pipeline_named

EPILOG = f"""\
examples (P stands for --pipeline orders --bootstrap-servers localhost:9092):
  producer.py P --records 1000             a thousand more than there are
  producer.py P --until 1000               numbers 0 to 999; nothing to do when they are there
  producer.py P --endless --rate 500       500 a second until stopped

Run only one at a time: a second one fences the first, which then ends with status 78.

exit status:
{ExitStatus.table(done="done, or stopped by a signal after its last transaction")}"""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipeline", required=True, help="the name of a registered pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    extent = parser.add_mutually_exclusive_group(required=True)
    extent.add_argument("--records", type=_count, metavar="N", help="write N more records")
    extent.add_argument("--until", type=_count, metavar="ID", help="write up to this number, itself not included")
    extent.add_argument("--endless", action="store_true", help="write until stopped by SIGTERM or Ctrl-C")
    parser.add_argument(
        "--rate", type=_count, metavar="R", default=0, help="records a second (default 0: as fast as possible)"
    )
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number, 0 or more, observed {text!r}")
    return int(text)


class Progress:
    """Reports the progress of this run, at most one line a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: int | None = None
        self._began = self._last = 0.0

    def __call__(self, number: int, until: int | None) -> None:
        """Report that record ``number`` is written of those up to ``until`` (None for no end)."""
        now = self._clock()
        if self._first is None:
            self._first, self._began, self._last = number, now, now
        if now - self._last < 1.0:
            return
        self._last = now
        written = number - self._first
        rate = written / (now - self._began)
        line = f"record {number:,}, {rate:,.0f} a second"
        if until is not None and written:
            line += f", {100 * written / (until - self._first):.0f}% of {until - self._first:,}"
            line += f", {(until - number) / rate:.0f} s left"
        report(line)


def main() -> int:
    """Run the job and return its exit status."""
    args = arguments()
    stop = stop_on_signals()

    def work() -> None:
        done = produce(
            pipeline_named(args.pipeline),
            Brokers.from_environment(args.bootstrap_servers),
            records=args.records,
            until=args.until,
            rate=args.rate,
            stop=stop,
            progress=Progress(),
        )
        partitions = ", ".join(f"{count:,} in {number}" for number, count in sorted(done.partitions.items()))
        report(
            f"done: {done.records:,} records, numbers {done.first:,} to {done.until:,} (not included), "
            f"in {done.seconds:.1f} s, {done.rate:,.0f} a second; by partition: {partitions or 'none'}"
        )

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
