"""How long Airflow takes to parse and serialize the DAGs of many pipelines, each with a join and a count.

Run it with ``AIRFLOW_HOME=$(mktemp -d) PYTHONPATH=plugins .venv/bin/python benchmarks/dag_parsing.py [PIPELINES]``.
"""

from __future__ import annotations

import sys
import time

from airflow.serialization.serialized_objects import DagSerialization
from streamplan.airflow.dags import (
    aggregator_dag,
    deploy_dag,
    health_dag,
    producer_dag,
    repartition_dag,
    reset_dag,
)
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json


def declare(number: int) -> Pipeline:
    """Declare one of the pipelines."""
    topology = Topology(f"application-{number}")
    customers = topology.table(f"customers-{number}", value=Json("name string"))
    (
        topology.stream(f"purchases-{number}", value=Json("id string, amount bigint, country string"))
        .filter("amount > 0")
        .join(customers, {"country": "country", "name": "table.name"})
        .group_by("country")
        .count()
        .to_stream()
        .to(f"totals-{number}")
    )
    counts = {f"purchases-{number}": 8, f"customers-{number}": 8}
    test_data = TestData((f"purchases-{number}",), lambda n: (f"purchases-{number}", b"", b""), "id")
    return Pipeline(f"pipeline_{number:03}", topology, "One of many.", counts, test_data)


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    begun = time.perf_counter()
    pipelines = [declare(number) for number in range(count)]
    total = time.perf_counter() - begun
    print(f"{count} pipelines declared in {total:.3f} s")  # noqa: T201
    for make in (deploy_dag, producer_dag, aggregator_dag, health_dag, reset_dag, repartition_dag):
        begun = time.perf_counter()
        dags = [make(pipeline) for pipeline in pipelines]
        parsed = time.perf_counter() - begun
        for dag in dags:
            DagSerialization.to_dict(dag)
        both = time.perf_counter() - begun
        total += both
        print(f"{make.__name__}: parsed in {parsed:.3f} s, serialized in {both - parsed:.3f} s")  # noqa: T201
    print(f"{6 * count} DAGs in {total:.3f} s")  # noqa: T201


if __name__ == "__main__":
    main()
