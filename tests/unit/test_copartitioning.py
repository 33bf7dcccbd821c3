from __future__ import annotations

import pytest
from streamplan.copartitioning import enforce_copartitioning, resolve_partition_counts
from streamplan.errors import Refused
from streamplan.pipelines.orders import PIPELINE
from streamplan.processor_topology import TaskId


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_repartition_topic_takes_the_count_of_its_source(partitions: int) -> None:
    counts = resolve_partition_counts(PIPELINE.topology, {"orders": partitions})
    assert counts == {"orders": partitions, "orders-products-quantities-repartition": partitions}


def test_a_source_of_unknown_count_is_refused() -> None:
    with pytest.raises(Refused, match="source topic orders"):
        resolve_partition_counts(PIPELINE.topology, {})


def test_topics_read_together_have_one_count() -> None:
    assert enforce_copartitioning({"a": 3, "b": 3}) == 3
    with pytest.raises(Refused, match=r"\[a \(2\), b \(3\)\]"):
        enforce_copartitioning({"b": 3, "a": 2})


def test_four_stream_tasks() -> None:
    assert PIPELINE.tasks() == (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1))
    assert [str(task) for task in PIPELINE.tasks()] == ["0_0", "0_1", "1_0", "1_1"]
