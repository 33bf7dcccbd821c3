"""The command ``exporter``: metrics of pipelines, or of any application, for Prometheus and OpenTelemetry."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event
from typing import Any

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipelines, port, refuse_ignored
from streamplan.cli.output import plain_console, print_broken
from streamplan.errors import Refused
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.pipeline import Pipeline
from streamplan.observability.metrics import BROKEN, METRICS, Measurement, Metric, measure
from streamplan.observability.observed import Observed
from streamplan.observability.prometheus import PrometheusCollector, serve
from streamplan.observability.sampler import Sampler
from streamplan.programs import ExitStatus
from streamplan.registry import BrokenPipeline, chosen_pipelines
from streamplan.settings import Settings

SNAPSHOT_SECONDS = 5.0
"""Prometheus and OpenTelemetry share a snapshot that is not older."""

_OTLP_SECONDS = 30.0

ANSWER_SECONDS = 5.0
"""How long the brokers have for an answer: less than Prometheus waits (``scrape_timeout``, 10 s)."""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "exporter",
        "serve metrics to Prometheus, and send them to OpenTelemetry",
        description="Serve the metrics of pipelines at http://HOST:PORT/metrics: the lag of each stream task in "
        "offsets and in seconds, the members of its group, the ends of its topics, what the aggregator "
        "measured of its micro-batches and its state, the last outcome of each check and its time, and "
        "the verified records. The exporter asks the brokers when somebody asks for metrics, at most once "
        "in five seconds. It runs until Ctrl-C. A broken pipeline is named, and has a metric. All others "
        "have theirs. The directory monitoring/ has alert rules and a dashboard.",
        examples="%(prog)s orders --port 9404",
        run=_run,
    )
    add_pipelines(parser)
    parser.add_argument(
        "--application-id",
        metavar="ID",
        action="append",
        default=[],
        help="any application; may be given several times",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=9404, help="the port to listen at (default: 9404)")
    parser.add_argument(
        "--otlp", metavar="URL", help="also send the metrics there, such as http://collector:4318/v1/metrics"
    )
    parser.add_argument(
        "--otlp-seconds",
        type=float,
        metavar="SECONDS",
        help=f"with --otlp: how often they are sent (default: {_OTLP_SECONDS:g})",
    )
    add_broker_options(parser)


def _run(options: argparse.Namespace) -> int:
    if not options.otlp:
        refuse_ignored(options, "otlp_seconds", without="--otlp")
    otlp_seconds = _OTLP_SECONDS if options.otlp_seconds is None else options.otlp_seconds
    declared: Sequence[Pipeline] = ()
    broken: Sequence[BrokenPipeline] = ()
    if options.pipelines or not options.application_id:
        declared, broken = chosen_pipelines(options.pipelines)
    print_broken(broken)
    cluster = KafkaCluster(chosen_brokers(options), deadline_seconds=ANSWER_SECONDS)
    reports = Settings.from_environment().reports
    applications = [
        *(Observed(pipeline.name, cluster, pipeline) for pipeline in declared),
        *(Observed(name, cluster) for name in options.application_id),
    ]
    samplers = [Sampler(each.find, each.name, cluster, reports) for each in applications]
    if broken and not samplers:
        return ExitStatus.REFUSED
    if not samplers:
        raise Refused(
            "pipelines",
            expected="at least one, or an --application-id",
            observed="none is registered",
            remedy="Give --application-id ID, or register a pipeline: `python -m streamplan list` says how.",
        )
    port, stop_serving = serve(PrometheusCollector(lambda: measurements(samplers, broken)), options.host, options.port)
    stop_sending = send_by_otlp(samplers, options.otlp, otlp_seconds, broken) if options.otlp else None
    plain_console().print(f"Metrics are at http://{options.host}:{port}/metrics. Ctrl-C ends it.")
    try:
        Event().wait()
    finally:
        if stop_sending is not None:
            stop_sending()
        stop_serving()
    return 0


def measurements(samplers: Sequence[Sampler], broken: Sequence[BrokenPipeline]) -> Iterator[Measurement]:
    """Yield the values of all metrics of some pipelines.

    Args:
        samplers: Look at the pipelines that can be used.
        broken: The others.
    """
    for each in broken:
        yield Measurement(BROKEN, 1, {"pipeline": each.name})
    for sampler in samplers:
        yield from measure(sampler.latest(SNAPSHOT_SECONDS))


def send_by_otlp(
    samplers: Sequence[Sampler], url: str, seconds: float, broken: Sequence[BrokenPipeline] = ()
) -> Callable[[], None]:
    """Send the metrics by OTLP over HTTP again and again.

    Args:
        samplers: One for each application.
        url: Where to, such as ``http://collector:4318/v1/metrics``.
        seconds: How often.
        broken: The pipelines that cannot be used.

    Returns:
        A function that ends it.

    Raises:
        Refused: The OpenTelemetry SDK is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.metrics import CallbackOptions, Observation
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise Refused(
            "--otlp",
            expected="the OpenTelemetry SDK with its OTLP exporter, as Airflow has it",
            observed=str(error),
            remedy="pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
        ) from error

    def observe(metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: [
            Observation(value.value, dict(value.attributes))
            for value in measurements(samplers, broken)
            if value.metric is metric
        ]

    exporter = OTLPMetricExporter(endpoint=url)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=seconds * 1000)
    provider: Any = MeterProvider([reader], resource=Resource.create({"service.name": "streamplan"}))
    meter = provider.get_meter("streamplan")
    for metric in METRICS:
        meter.create_observable_gauge(metric.name, [observe(metric)], unit=metric.unit, description=metric.description)
    return lambda: provider.shutdown()
