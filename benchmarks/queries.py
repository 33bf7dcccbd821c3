"""What a service of queries costs: memory, CPU time for the records of a changelog, and how long an answer takes.

The changelog is in memory, so that no broker is measured. One store has keys such as ``customer_0000000``, and values
of 8 bytes or of JSON::

    python benchmarks/queries.py --entries 1000000
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import psutil
from streamplan.queries.follower import Follower
from streamplan.queries.queries import Queries
from streamplan.queries.service import Service
from streamplan.queries.state_view import StateView
from streamplan.queries.store_form import ReadValues, StoreForm, StoreKind
from streamplan.serdes.primitive import Long, String

BATCH = 2_000
QUESTIONS = 2_000


def say(line: str) -> None:
    """Print a figure."""
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--json-bytes", type=int, default=0, help="values are JSON of so many bytes; 0 for counts")
    options = parser.parse_args()

    key_value = StoreKind.KEY_VALUE
    form = StoreForm("store", key_value, "changelog", 1, String(), None if options.json_bytes else Long())
    view = StateView("measured", {"store": form}, {"store": [0]})
    order = list(range(options.entries))
    random.Random(1).shuffle(order)
    before, reading = psutil.Process().memory_info().rss, 0.0
    for first in range(0, len(order), BATCH):
        numbers = order[first : first + BATCH]
        batch = SimpleNamespace(
            partition=0,
            offsets=range(first, first + len(numbers)),
            timestamps=[1_700_000_000_000 + number for number in numbers],
            keys=[b"customer_%07d" % number for number in numbers],
            values=[_value(number, options.json_bytes) for number in numbers],
        )
        begun = time.process_time()
        view.apply("changelog", cast(Any, batch))
        reading += time.process_time() - begun
    del order
    used = psutil.Process().memory_info().rss - before
    say(f"{options.entries:,} entries: {used / options.entries:.0f} bytes of memory each, {reading:.1f} CPU seconds")

    follower = cast(Follower, SimpleNamespace(failure=None, silent_seconds=0.0, close=lambda: None))
    service = Service("127.0.0.1", 0)
    service.start(Queries(view, ReadValues(cast(Any, None)), follower))
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=60)
    try:
        for name, path in (
            ("get", "/stores/store/get?key=customer_{0:07d}"),
            ("range of 100", "/stores/store/range?first=customer_{0:07d}&limit=100"),
        ):
            times = [_asked(connection, path, number, options.entries) for number in range(QUESTIONS)]
            cuts = statistics.quantiles(times, n=100)
            say(f"{name}: p50 {cuts[49] * 1000:.2f} ms, p99 {cuts[98] * 1000:.2f} ms over HTTP")
    finally:
        connection.close()
        service.close()


def _value(number: int, json_bytes: int) -> bytes:
    if not json_bytes:
        return number.to_bytes(8, "big")
    value = json.dumps({"number": number, "text": ""})
    return value.replace('""', f'"{"x" * max(0, json_bytes - len(value))}"').encode()


def _asked(connection: http.client.HTTPConnection, path: str, number: int, entries: int) -> float:
    begun = time.perf_counter()
    connection.request("GET", path.format(number * 7919 % entries))
    response = connection.getresponse()
    assert response.status == 200
    response.read()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
