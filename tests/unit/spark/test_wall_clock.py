"""Which stream tasks go on by the wall clock, and when everything was processed before that."""

from __future__ import annotations

from streamplan.kafka_types import Offsets
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.spark.aggregator import in_flow_order, in_order_of_runs
from streamplan.spark.wall_clock import IdleTasks, ProcessedInput, stages_of

SECOND = 1000
MINUTE = 60 * SECOND
START = 1_000 * MINUTE


def test_a_task_is_given_a_time_when_it_had_no_record_for_so_long() -> None:
    tasks = IdleTasks(10 * MINUTE, 2, START)
    tasks.note_records([1], START + MINUTE)
    assert tasks.give_times(START + 10 * MINUTE - 1) == {}
    assert tasks.give_times(START + 10 * MINUTE) == {0: START}
    assert tasks.give_times(START + 11 * MINUTE) == {0: START + MINUTE, 1: START + MINUTE}


def test_a_record_ends_the_silence() -> None:
    tasks = IdleTasks(10 * MINUTE, 1, START)
    tasks.note_records([0], START + 9 * MINUTE)
    assert tasks.give_times(START + 18 * MINUTE) == {}
    assert tasks.is_any_due(START + 19 * MINUTE)


def test_a_start_is_no_silence() -> None:
    """What has come while the application stood still is not processed yet."""
    assert IdleTasks(MINUTE, 1, START).give_times(START + SECOND) == {}


def test_an_idle_task_is_given_a_later_time_now_and_then() -> None:
    for idle, step in ((2 * SECOND, SECOND), (5 * MINUTE, 30 * SECOND), (1_000 * MINUTE, MINUTE)):
        tasks, now = IdleTasks(idle, 1, START), START + idle
        assert tasks.give_times(now) == {0: START}
        assert tasks.give_times(now + step - 1) == {}
        assert tasks.give_times(now + step) == {0: START + step}


def test_a_clock_that_is_set_back_counts_anew() -> None:
    tasks = IdleTasks(MINUTE, 1, START)
    tasks.note_records([0], START + 60 * MINUTE)
    assert tasks.give_times(START) == {}
    assert tasks.give_times(START + MINUTE) == {0: START}


class Kafka:
    """The ends of topics with one partition, and the positions of a group."""

    def __init__(self, **topics: int) -> None:
        self.ends, self.at = dict(topics), dict.fromkeys(topics, 0)

    def offsets(self, topic: str) -> dict[int, Offsets]:
        return {0: Offsets(0, self.ends[topic], self.ends[topic] + 5)}  # records of an open transaction lie behind

    def positions(self, group: str, topic: str) -> dict[int, int]:
        assert group == "app"
        return {0: self.at[topic]} if self.at[topic] else {}


def test_everything_is_processed_when_each_stage_has_read_what_was_there() -> None:
    kafka = Kafka(source=3, repartition=0)
    processed = ProcessedInput(kafka, "app", [["source"], ["repartition"]])
    assert processed.until(1) is None
    kafka.at["source"], kafka.ends["repartition"] = 3, 2  # the first stage has written for the second one
    assert processed.until(2) is None
    kafka.at["repartition"] = 2
    assert processed.until(3) == 1  # what came after the first look is not proven


def test_what_the_application_has_written_in_an_open_transaction_is_not_processed() -> None:
    """Its marker is on its way: the position of the stage before has moved, and its records cannot be read yet."""
    kafka = Kafka(source=3, repartition=0)  # behind each end lie five records of an open transaction
    processed = ProcessedInput(kafka, "app", [["source"], ["repartition"]], {"repartition"})
    kafka.at["source"] = 3
    assert processed.until(1) is None
    kafka.ends["repartition"] = kafka.at["repartition"] = 4
    assert processed.until(2) is None
    kafka.ends["repartition"] = kafka.at["repartition"] = 6  # the transaction has ended, with its marker
    assert processed.until(3) == 1


def test_topics_that_never_stand_still_are_processed_up_to_an_earlier_moment() -> None:
    kafka = Kafka(source=10)
    processed = ProcessedInput(kafka, "app", [["source"]])
    moments = []
    for now in range(1, 5):
        moments.append(processed.until(now))
        kafka.at["source"], kafka.ends["source"] = kafka.ends["source"], kafka.ends["source"] + 10
    assert moments == [None, 1, 1, 3]


def test_a_topic_without_records_is_processed_at_once() -> None:
    assert ProcessedInput(Kafka(source=0), "app", [["source"]]).until(7) == 7


def test_the_stages_are_the_sub_topologies_on_the_way() -> None:
    topology = Topology("app")
    values = Json("a string, b string")
    for name in ("one", "other"):
        topology.stream(name, value=values).group_by("a", name=name).count(store=f"{name}-count")
    keyed = topology.stream("third", value=values).select_key("a").repartition(name="again")
    keyed.group_by("b", name="last").count(store="last-count")
    stages = [stages_of(each, topology) for each in topology.subtopologies]
    assert [[stage.id for stage in way] for way in stages] == [[0], [0, 1], [2], [2, 3], [4], [4, 5], [4, 5, 6]]


def test_a_join_by_a_foreign_key_is_passed_before_and_behind_the_sub_topology_that_responds() -> None:
    topology, values = Topology("app"), Json("a string, b string")
    tables = [topology.table(name, value=values) for name in ("one", "other")]
    joined = tables[0].join(tables[1], {"a": "table.a"}, foreign_key="b").to_stream()
    joined.group_by("a", name="by-a").count(store="counts")
    assert [stage.id for stage in stages_of(topology.subtopologies[2], topology)] == [0, 1, 0, 2]
    assert [group.id for group in in_flow_order(topology)] == [0, 1, 2]
    assert [group.id for group in in_order_of_runs(topology)] == [0, 1, 0, 2]


def test_joins_by_foreign_keys_in_a_row_are_passed_one_after_the_other() -> None:
    topology, values = Topology("app"), Json("a string, b string")
    third, other, this = (topology.table(name, value=values) for name in ("third", "other", "this"))
    joined = this.join(other, {"a": "table.a"}, foreign_key="b").join(third, {"a": "table.a"}, foreign_key="a")
    joined.join(other, {"a": "table.a"}, foreign_key="a").to_stream().group_by("a", name="by-a").count(store="counts")
    numbers = {group.id: group.source_topics for group in topology.subtopologies}
    (of_this, of_other, of_third, counting) = (
        next(number for number, topics in numbers.items() if topic in topics)
        for topic in ("this", "other", "third", "by-a-repartition")
    )
    in_turn = [of_this, of_other, of_this, of_third, of_this, of_other, of_this]
    assert [stage.id for stage in stages_of(topology.subtopologies[counting], topology)] == [*in_turn, counting]
    runs = [group.id for group in in_order_of_runs(topology)]
    assert is_within(in_turn, runs[: runs.index(counting)])


def is_within(numbers: list[int], others: list[int]) -> bool:
    """Whether others has the numbers in their order, with further ones between."""
    left = iter(others)
    return all(number in left for number in numbers)


def test_it_is_known_when_the_next_task_is_due() -> None:
    tasks = IdleTasks(10 * MINUTE, 2, START)
    tasks.note_records([1], START + MINUTE)
    assert tasks.next_due_ms() == START + 10 * MINUTE
    tasks.give_times(START + 10 * MINUTE)
    assert tasks.next_due_ms() == START + 11 * MINUTE  # of the other one, and the first one's step is as long
    tasks.note_records([0, 1], START + 12 * MINUTE)
    assert tasks.next_due_ms() == START + 22 * MINUTE


def test_tasks_with_punctuators_are_given_the_time_of_the_clock_in_steps_of_the_least_interval() -> None:
    tasks = IdleTasks(0, 2, START, 2_000)
    assert tasks.give_times(START) == {0: START, 1: START}
    assert tasks.give_times(START + 1_999) == {}
    assert tasks.give_times(START + 9_000) == {0: START + 9_000, 1: START + 9_000}
    assert tasks.give_times(START + 10_999) == {}
    assert tasks.next_due_ms() == START + 11_000
