"""Serves metrics to Prometheus: those of the exporter, and those of an aggregator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from streamplan.errors import Refused
from streamplan.observability.metrics import METRICS, Measurement, Metric

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily


class PrometheusCollector:
    """Measures when Prometheus asks.

    Args:
        measure: Returns the values of all metrics.
        metrics: The metrics that it may return.
    """

    def __init__(self, measure: Callable[[], Iterable[Measurement]], metrics: Sequence[Metric] = METRICS) -> None:
        self._measure = measure
        self._metrics = metrics

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric with all of its values."""
        from prometheus_client.core import GaugeMetricFamily

        values = list(self._measure())
        for metric in self._metrics:
            of_metric = [value for value in values if value.metric is metric]
            labels = sorted({name for value in of_metric for name in value.attributes})
            family = GaugeMetricFamily(prometheus_name(metric), metric.description, labels=labels)
            for value in of_metric:
                family.add_metric([value.attributes[name] for name in labels], value.value)
            yield family


def prometheus_name(metric: Metric) -> str:
    """Return the name of a metric as Prometheus has it: with underscores, and with the unit if it is a physical one."""
    return metric.name.replace(".", "_") + {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")


def serve(collector: PrometheusCollector, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve metrics at ``http://HOST:PORT/metrics``, by a thread.

    Args:
        host: The address to listen at.
        port: The port; 0 for any free one.

    Returns:
        The port, and a function that ends it.

    Raises:
        Refused: The port is not free, or the host is not this one.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise Refused(
            f"{host}:{port}", expected="a free port", observed=str(error), remedy="Give another one."
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
