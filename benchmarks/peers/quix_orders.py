"""The orders topology in Quix Streams, exactly-once, with a process for each core.

``bench.py`` runs it in an environment of its own. Arguments: bootstrap servers, name of the application, topic of the
totals, directory for state, processes.

Quix Streams commits every five seconds by default. Here it commits as often as the others, because totals can be read
when they are committed.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from typing import Any

from quixstreams import Application

COMMIT_SECONDS = 0.1


def count(value: Any, state: Any) -> int:
    """Add one to the total of the key."""
    total = int(state.get("total", 0)) + 1
    state.set("total", total)
    return total


def run(servers: str, name: str, totals: str, state: str) -> None:
    """Run one process until a signal."""
    application = Application(
        broker_address=servers,
        consumer_group=name,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_SECONDS,
        state_dir=state,
        producer_extra_config={"compression.type": "lz4", "linger.ms": 5},
        loglevel="WARNING",
    )
    orders = application.dataframe(application.topic("orders", key_deserializer="bytes", value_deserializer="json"))
    as_text = {"key_serializer": "str", "key_deserializer": "str"}
    by_product = orders.group_by(lambda order: str(order["ProductType"]), name="product", **as_text)
    counted = by_product.apply(count, stateful=True)
    counted.to_topic(application.topic(totals, key_serializer="str", value_serializer="int"))
    application.run()


def main() -> None:
    """Run all processes until a signal, which the whole process group gets."""
    servers, name, totals, state, processes = sys.argv[1:6]
    running = [
        multiprocessing.Process(target=run, args=(servers, name, totals, f"{state}/{number}"))
        for number in range(int(processes))
    ]
    for process in running:
        process.start()
    signal.signal(signal.SIGTERM, lambda *_: None)
    for process in running:
        process.join()
    sys.exit(any(process.exitcode for process in running))


if __name__ == "__main__":
    main()
