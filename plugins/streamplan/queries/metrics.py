"""The metrics of the service of queries, in the form of those of the exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from streamplan.observability.metrics import Measurement, Metric
from streamplan.observability.prometheus import PrometheusCollector
from streamplan.queries.queries import Queries

ENTRIES = Metric("streamplan.queries.entries", "{entry}", "Entries of a store that the service holds.")
LAG = Metric("streamplan.queries.lag", "{offset}", "Offsets of a changelog that the service has not read yet.")
POSITION = Metric("streamplan.queries.position", "{offset}", "The offset of a changelog that the service reads next.")
SILENT = Metric("streamplan.queries.silent.time", "s", "How long the brokers have not answered the service.")
ANSWERS = Metric("streamplan.queries.answers", "{answer}", "Answers since the service started, by HTTP status.")

QUERY_METRICS = (ENTRIES, LAG, POSITION, SILENT, ANSWERS)
"""The metrics in the order in which they are shown."""


def exposition(queries: Queries, answers: Mapping[int, int]) -> bytes:
    """Return the metrics as Prometheus reads them.

    Args:
        queries: The stores.
        answers: By HTTP status how many answers have had it.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(PrometheusCollector(_measured(queries, answers), QUERY_METRICS))
    return generate_latest(registry)


def _measured(queries: Queries, answers: Mapping[int, int]) -> Callable[[], Iterator[Measurement]]:
    def measure() -> Iterator[Measurement]:
        for name, store in queries.view.stores.items():
            for number, state in store.states.items():
                attributes = {"store": name, "topic": store.form.changelog, "partition": str(number)}
                yield Measurement(ENTRIES, len(state), attributes)
                yield Measurement(LAG, state.lag, attributes)
                yield Measurement(POSITION, state.position, attributes)
        yield Measurement(SILENT, queries.silent_seconds, {})
        for status, count in sorted(answers.items()):
            yield Measurement(ANSWERS, count, {"status": str(status)})

    return measure
