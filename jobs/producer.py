"""Writes a pipeline's test data into its source topic, each record exactly once.

Numbers go on where the topic ends. Started again after a kill with the same --until, it writes what is missing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time

from streamplan.adapters.kafka.producer import produce
from streamplan.errors import Refused, StreamplanError
from streamplan.pipelines import PIPELINES, pipeline_named

EX_CONFIG = 78


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Exit status: 0 done or stopped; 1 failed, worth a retry; 78 refused, a retry cannot help.",
    )
    names = ", ".join(pipeline.name for pipeline in PIPELINES)
    parser.add_argument("--pipeline", required=True, help=f"one of: {names}")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    extent = parser.add_mutually_exclusive_group(required=True)
    extent.add_argument("--records", type=_count, help="write so many more")
    extent.add_argument("--until", type=_count, help="write up to this number, itself not included")
    extent.add_argument("--endless", action="store_true", help="write until stopped by SIGTERM or Ctrl-C")
    parser.add_argument("--rate", type=_count, default=0, help="records a second (default 0: as fast as possible)")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


class Progress:
    """At most one line a second."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._first: int | None = None

    def __call__(self, number: int, until: int | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = number, now
        if now - self._last < 1.0:
            return
        self._last = now
        rate = (number - self._first) / max(now - self._began, 1e-9)
        line = f"record {number:,}, {rate:,.0f} a second"
        if until is not None:
            left = f", {(until - number) / rate:.0f} s left" if rate else ""
            line += f", {100 * number / until:.0f}% of {until:,}{left}"
        print(line, flush=True)  # noqa: T201


def main() -> int:
    args = arguments()
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        done = produce(
            pipeline_named(args.pipeline),
            args.bootstrap_servers,
            records=args.records,
            until=args.until,
            rate=args.rate,
            stop=stop,
            progress=Progress(),
        )
    except StreamplanError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return EX_CONFIG if isinstance(error, Refused) else 1
    print(  # noqa: T201
        f"done: {done.records:,} records, numbers {done.first:,} to {done.until:,} (not included), "
        f"in {done.seconds:.1f} s, {done.rate:,.0f} a second",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
