from __future__ import annotations

import re

import pytest
from streamplan.errors import Refused
from streamplan.model.assignment import (
    MAX_MESSAGE_BYTES,
    Assignment,
    assign,
    assign_by_load,
    group_metadata_size,
    large_assignment,
    plan_load,
    stateful_tasks,
    topics_of_tasks,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import TaskId
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.json import Json

TASKS = topics_of_tasks(PIPELINE.topology, PIPELINE.partition_counts)
STATEFUL = stateful_tasks(PIPELINE.topology, TASKS)
VALUE = Json("Id string")


def task(text: str) -> TaskId:
    return TaskId(*map(int, text.split("_")))


def held(assignment: Assignment) -> list[str]:
    return [" ".join(map(str, one.tasks)) for one in assignment.instances]


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        (1, ["0_0 0_1 1_0 1_1"]),
        (2, ["0_0 1_0", "0_1 1_1"]),
        (3, ["0_1 1_0", "1_1", "0_0"]),
        (4, ["1_0", "1_1", "0_0", "0_1"]),
        (5, ["1_0", "1_1", "0_0", "0_1", ""]),
    ],
)
def test_stateful_tasks_are_dealt_in_turn_then_stateless_ones_to_who_has_least(
    instances: int, expected: list[str]
) -> None:
    assert held(assign(TASKS, instances, stateful=STATEFUL)) == expected


def test_instances_beyond_the_number_of_tasks_are_idle_and_named() -> None:
    assert assign(TASKS, 6, stateful=STATEFUL).idle == ("instance-5", "instance-6")
    assert assign(TASKS, ["a", "b", "c", "d", "e"], stateful=STATEFUL).idle == ("e",)


def test_stateful_tasks_are_those_with_a_changelog() -> None:
    assert sorted(map(str, STATEFUL)) == ["1_0", "1_1"]


def test_without_instances_nothing_is_assigned() -> None:
    with pytest.raises(Refused, match="instances: expected 1 or more"):
        assign(TASKS, 0, stateful=STATEFUL)


def test_a_sub_topology_has_as_many_tasks_as_its_widest_topic_has_partitions() -> None:
    topology = Topology("app")
    topology.stream("a", value=VALUE).merge(topology.stream("b", value=VALUE))
    assert topics_of_tasks(topology, {"a": 1, "b": 3}) == {
        task("0_0"): ("a", "b"),
        task("0_1"): ("b",),
        task("0_2"): ("b",),
    }


# -- load


def test_equal_numbers_of_tasks_are_unequal_work_where_a_partition_is_hot() -> None:
    plan = plan_load({task("0_0"): 90, task("0_1"): 4, task("0_2"): 3, task("0_3"): 3}, 2, stateful=())
    assert held(plan.by_count) == ["0_0 0_2", "0_1 0_3"]
    assert [(share.load, round(share.share, 2)) for share in plan.shares(plan.by_count)] == [(93, 0.93), (7, 0.07)]
    assert held(plan.by_load) == ["0_0", "0_1 0_2 0_3"]
    assert [share.load for share in plan.shares(plan.by_load)] == [90, 10]


def test_the_remarks_name_the_task_that_alone_is_the_bound() -> None:
    plan = plan_load({task("0_0"): 90, task("0_1"): 4, task("0_2"): 3, task("0_3"): 3}, 2, stateful=())
    said = " ".join(plan.remarks())
    assert "instance-1 has 93% of the load, 1.9 times an even share of 50%" in said
    assert "By load the busiest would have 90%" in said
    assert "Stream task 0_0 alone is 90%" in said


def test_no_task_is_blamed_where_the_load_can_be_spread() -> None:
    plan = plan_load({task("0_0"): 30, task("0_1"): 20, task("0_2"): 30, task("0_3"): 20}, 2, stateful=())
    assert held(plan.by_count) == ["0_0 0_2", "0_1 0_3"]
    said = " ".join(plan.remarks())
    assert "60%" in said
    assert "would have 50%" in said
    assert "alone" not in said


def test_nothing_is_said_of_no_load_or_of_one_instance() -> None:
    assert plan_load({task("0_0"): 0, task("0_1"): 0}, 2, stateful=()).remarks() == ()
    assert plan_load({task("0_0"): 9, task("0_1"): 1}, 1, stateful=()).remarks() == ()
    idle = plan_load({task("0_0"): 0, task("0_1"): 0}, 2, stateful=())
    assert [share.share for share in idle.shares(idle.by_count)] == [0.0, 0.0]


def test_tasks_without_load_are_spread_all_the_same() -> None:
    assert held(assign_by_load({task(f"0_{number}"): 0 for number in range(4)}, 2)) == ["0_0 0_2", "0_1 0_3"]


# -- the message


def wide(names: int, length: int, partitions: int) -> tuple[Topology, dict[str, int]]:
    """``names`` repartition topics with names of ``length``, each counted, of ``partitions`` each."""
    topology = Topology("app")
    stream = topology.stream("events", value=VALUE)
    for number in range(names):
        stream.group_by("Id", name=f"{number:0{length}d}").count(store=f"store-{number}")
    counts = {topology.decorate(topic.name): partitions for topic in topology.repartition_topics}
    return topology, {"events": partitions, **counts}


def test_metadata_grow_with_instances_names_and_partitions() -> None:
    topology, counts = wide(3, 20, 4)
    size = group_metadata_size(topology, counts, instances=4)
    assert group_metadata_size(topology, counts, instances=5) > size
    assert group_metadata_size(*wide(3, 40, 4), instances=4) > size
    assert group_metadata_size(*wide(3, 20, 8), instances=4) > size
    assert group_metadata_size(topology, counts, instances=4, first=True) < size
    assert group_metadata_size(topology, counts, instances=4, application_server="host:80") > size


@pytest.mark.parametrize("partitions", [16, 20, 32])
def test_a_group_too_large_for_one_message_is_a_warning_that_says_where_the_jvm_meets_it(partitions: int) -> None:
    topology, counts = wide(30, 200, partitions)
    (warning,) = large_assignment(topology, counts)
    told = re.search(r"could not have ([\d,]+) instances or more for its ([\d,]+) stream tasks", warning.message)
    assert told is not None
    first, tasks = (int(figure.replace(",", "")) for figure in told.groups())
    assert tasks == 31 * partitions
    assert group_metadata_size(topology, counts, instances=first) > MAX_MESSAGE_BYTES
    assert group_metadata_size(topology, counts, instances=first - 1) <= MAX_MESSAGE_BYTES
    assert "shorter explicit names" in warning.hint
    assert warning.location.file.endswith("test_assignment.py")


def test_shorter_names_are_a_remedy() -> None:
    assert large_assignment(*wide(30, 10, 16)) == ()
    assert large_assignment(*wide(30, 200, 16))


@pytest.mark.parametrize(("names", "length", "partitions"), [(30, 200, 32), (1, 200, 770), (1, 10, 1_288)])
def test_a_pipeline_that_is_too_large_for_the_jvm_alone_is_declared(names: int, length: int, partitions: int) -> None:
    topology, _ = wide(names, length, partitions)
    pipeline = Pipeline("wide", topology, "", {"events": partitions})
    assert len(pipeline.tasks()) == partitions * len(topology.subtopologies)
    assert len(large_assignment(topology, pipeline.partition_counts)) == 1
