"""The orders pipeline on a topic of its own."""

from __future__ import annotations

from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order


def pipeline_of(topic: str) -> Pipeline:
    """The orders pipeline on a topic of its own."""
    topology = Topology(f"app-{topic}")
    topology.stream(topic, value=ORDER).group_by("ProductType", name="q").count(store="s")
    return Pipeline("orders", topology, "", {topic: 2}, TestData((topic,), lambda n: (topic, *order(n)), "Id"))
