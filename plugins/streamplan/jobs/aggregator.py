"""The streaming aggregator: runs every sub-topology of a pipeline on Spark.

spark-submit runs it. The DAG <pipeline>_aggregator starts it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.task_ownership import newest_instance
from streamplan.kafka.topics import resolve_pipeline
from streamplan.observability.metrics import AGGREGATOR_METRICS, measure_aggregator
from streamplan.observability.prometheus import PrometheusCollector, serve
from streamplan.programs import ExitStatus, report, run_job, stop_on_signals
from streamplan.registry import pipeline_named
from streamplan.spark.aggregator import run
from streamplan.spark.deployment import Deployment
from streamplan.spark.session import open_session
from streamplan.spark.status import Heartbeat


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"exit status:\n{ExitStatus.table(done='all is processed, or a stop was asked for')}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pipeline", required=True, help="the name of a registered pipeline")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    parser.add_argument("--checkpoints", required=True, help="directory or URI of Spark's checkpoints")
    parser.add_argument("--heartbeat", type=Path, help="file that gets the aggregator's status every few seconds")
    parser.add_argument(
        "--metrics", type=_address, metavar="HOST:PORT", help="serve the aggregator's metrics to Prometheus there"
    )
    parser.add_argument("--available-now", action="store_true", help="process what is there and end")
    parser.add_argument(
        "--trigger-interval-ms",
        type=int,
        default=500,
        help="how often records are looked for while there are none; twice as often where one sub-topology reads "
        "another's output; 0 for micro-batches without any pause (default 500)",
    )
    parser.add_argument(
        "--max-offsets",
        type=int,
        help="most records of a micro-batch (default 100000 for each partition, and 500000 at least)",
    )
    parser.add_argument(
        "--transaction-timeout-ms",
        type=int,
        default=60_000,
        help="the brokers abort a transaction that nobody has ended by then (default 60000)",
    )
    parser.add_argument(
        "--seen",
        metavar="INSTANCE",
        help="who made the newest generation that was there when this start was asked for, or none; a stop that came "
        "later is obeyed (default: the newest when this job begins)",
    )
    return parser.parse_args(argv)


@contextmanager
def _metrics(args: argparse.Namespace, heartbeat: Heartbeat) -> Iterator[None]:
    """Serve the metrics while the aggregator runs, if they are asked for. It also works where that is not possible."""
    if args.metrics is None:
        yield
        return
    host, port = args.metrics
    collector = PrometheusCollector(lambda: measure_aggregator(args.pipeline, heartbeat.status()), AGGREGATOR_METRICS)
    try:
        port, stop = serve(collector, host, port)
    except Refused as error:  # such as the port of an aggregator that is about to end
        report(f"no metrics: {error}")
        yield
        return
    report(f"metrics are at http://{host}:{port}/metrics")
    try:
        yield
    finally:
        stop()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, such as 0.0.0.0:9405, observed {text}")
    return host, int(port)


def main() -> int:
    """Run the job and return its exit status."""
    args = arguments()
    stop = stop_on_signals()

    def work() -> None:
        brokers = Brokers.from_environment(args.bootstrap_servers)
        pipeline = resolve_pipeline(pipeline_named(args.pipeline), brokers)
        # Before Spark starts, which takes long: a stop that is asked for meanwhile is obeyed.
        seen = args.seen if args.seen is not None else newest_instance(pipeline, brokers)
        deployment = Deployment(
            pipeline,
            brokers,
            args.checkpoints,
            args.max_offsets,
            args.transaction_timeout_ms,
        )
        with Heartbeat(args.heartbeat, stop, report) as heartbeat, _metrics(args, heartbeat):
            spark = open_session(pipeline.topology.application_id)
            progress = run(
                spark,
                deployment,
                available_now=args.available_now,
                trigger_interval_ms=args.trigger_interval_ms,
                stop=stop,
                report=report,
                heartbeat=heartbeat,
                seen=seen,
            )
        report(f"done: {progress.line() or 'nothing new'}")
        # After a signal, Spark's JVM may have ended by itself.
        with suppress(*((Py4JError, ConnectionError) if stop.is_set() else ())):
            spark.stop()

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
