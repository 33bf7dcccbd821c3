"""The command ``serve``: answers queries of a pipeline's state stores over HTTP."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, port
from streamplan.cli.output import plain_console
from streamplan.programs import ExitStatus, stop_on_signals
from streamplan.queries.queries import open_queries
from streamplan.queries.service import Service, read_tokens
from streamplan.registry import pipeline_named

LOOK_SECONDS = 0.5
"""How often the command looks whether the changelogs are still read."""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "serve",
        "answer queries of the state stores over HTTP",
        description="Read the state stores of a pipeline from their changelogs into memory, follow the changelogs, and "
        "answer queries in JSON: a key, a range of keys, windows, sessions, all. http://HOST:PORT/ lists the stores "
        "and their operations, /health says whether the changelogs are read, and /metrics has metrics for Prometheus. "
        "Only committed records are read, and nothing is written. It ends with SIGTERM or Ctrl-C.\n"
        "Everybody on this machine may ask, unless there is a token. At another address than a loopback address a "
        "token is needed.",
        examples="%(prog)s orders\n"
        "curl 'http://127.0.0.1:7070/stores/orders-products-quantities/get?key=0'\n"
        "%(prog)s orders --partitions 0,1 --host 0.0.0.0 --token-file token",
        run=_run,
        done="a signal ended it",
    )
    add_pipeline(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=port, default=7070, help="the port to listen at (default: 7070; 0 for a free one)"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a token on each line: who asks sends `Authorization: Bearer TOKEN` with one of them",
    )
    parser.add_argument(
        "--partitions",
        type=_partitions,
        metavar="N,N",
        help="read only these partitions, so that several services share a store (default: all)",
    )
    parser.add_argument(
        "--store", action="append", metavar="STORE", help="read only this store; may be given several times"
    )
    add_broker_options(parser)


def _partitions(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, such as 0,1, observed {text}")
    return [int(word) for word in words]


def _run(options: argparse.Namespace) -> int:
    pipeline, console = pipeline_named(options.pipeline), plain_console()
    tokens = read_tokens(options.token_file) if options.token_file else ()
    with closing(Service(options.host, options.port, tokens)) as service:
        console.print(f"Reading the state stores of {pipeline.name}.")
        brokers = chosen_brokers(options)
        with open_queries(
            pipeline, brokers, partitions=options.partitions, stores=options.store, report=console.print
        ) as queries:
            stop = stop_on_signals()
            service.start(queries)
            stores = queries.view.stores
            entries = sum(map(len, stores.values()))
            console.print(f"{len(stores)} stores with {entries:,} entries are at {service.url}. Ctrl-C ends it.")
            while not stop.wait(LOOK_SECONDS):
                queries.require_followed()
    return ExitStatus.DONE
