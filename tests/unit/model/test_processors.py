"""The declaration of a Python class with state: its names, its faults, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.kstream import KStream
from streamplan.model.operations import Process
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topics import CHANGELOG_CONFIGS
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json


@dataclass
class Alarm:
    id: str
    count: int


class Counts(Processor):
    def process(self, record: Record, store: KeyValueStore) -> Iterator[Alarm]:
        yield Alarm("", 1)


class Timed(Counts):
    def on_timer(self, time: datetime, store: KeyValueStore) -> None: ...


class Silent(Processor):
    def process(self, record: Record, store: KeyValueStore) -> None: ...


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def orders(topology: Topology) -> KStream:
    return topology.stream("orders", value=Json("id string, amount bigint"), key="customer")


def counted(orders: KStream, processor: Any = Counts, **options: Any) -> KStream:
    return orders.process(processor, **{"store": "seen", "state": "count bigint, due timestamp", **options})


def test_the_fields_of_the_result_are_those_of_the_type_hint_or_of_the_schema(
    topology: Topology, orders: KStream
) -> None:
    assert counted(orders)._fields == ("id", "count")
    assert counted(orders, store="other", schema="alarm boolean")._fields == ("alarm",)
    assert topology.faults == ()


@dataclass
class Sum:
    count: int
    total: float


@dataclass
class OtherCount:
    count: str


class TellsByTimer(Silent):
    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterator[Sum]:
        yield Sum(1, 1.0)


class TellsByBoth(Counts):
    def on_timer(self, time: datetime, store: KeyValueStore) -> list[Sum] | None: ...


class TellsTwoTypes(Counts):
    def on_timer(self, time: datetime, store: KeyValueStore) -> list[OtherCount]:
        return []


def test_the_type_hint_of_on_timer_is_read_as_that_of_process(topology: Topology, orders: KStream) -> None:
    assert counted(orders, TellsByTimer, store="one", timer="due")._fields == ("count", "total")
    assert counted(orders, TellsByBoth, store="two", timer="due")._fields == ("id", "count", "total")
    assert counted(orders, Timed, store="three", timer="due")._fields == ("id", "count")
    assert counted(orders, TellsByTimer, store="four", timer="due", schema="x int")._fields == ("x",)
    assert topology.faults == ()


def test_a_field_that_process_and_on_timer_return_has_one_type(topology: Topology, orders: KStream) -> None:
    counted(orders, TellsTwoTypes, timer="due")
    assert [fault.message for fault in topology.faults] == ["process: count: bigint of process and string of on_timer"]


def test_a_checkpoint_belongs_to_what_the_store_holds_and_not_to_the_class(topology: Topology, orders: KStream) -> None:
    counted(orders, ttl="7 days").to("out")
    (node,) = topology.subtopologies[0].processors_with(Process)
    assert isinstance(node.operation, Process)
    assert repr(node.operation) == "Process(store='seen', state='count bigint, due timestamp')"
    assert node.operation.ttl_ms == 7 * 86_400_000


def test_the_changelog_is_compacted_and_its_columns_come_from_every_field(topology: Topology, orders: KStream) -> None:
    counted(orders).to("out")
    pipeline = Pipeline("app", topology, "", {"orders": 2, "out": 2})
    (changelog,) = (spec for spec in pipeline.topics() if spec.name == "app-seen-changelog")
    assert (changelog.configs, changelog.partitions, changelog.window_bytes) == (CHANGELOG_CONFIGS, 2, 0)
    every = frozenset({Column("orders", name) for name in ("key", "id", "amount")})
    lineage = column_lineage(topology)
    assert lineage["app-seen-changelog"]["count"] == lineage["out"]["id"] == every


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processor": len}, "process: len is no class of processors"),
        ({"processor": Silent}, f"process: what {__name__}.Silent returns is not known"),
        ({"state": "count"}, "process: state: 'count' is not a field"),
        ({"ttl": "a week"}, "process: ttl: 'a week' is not a duration"),
        ({"ttl": "0 days"}, "process: the ttl is 0"),
        ({"on_error": "ignore"}, "process: on_error='ignore'"),
        ({"timer": "due"}, "process: Counts has no on_timer"),
        ({"processor": Timed}, "process: Timed has on_timer, and no field has the time of a timer"),
        ({"processor": Timed, "timer": "count"}, "process: timer='count' is a bigint of the state"),
        ({"processor": Timed, "timer": "at"}, "process: timer='at' is no field of the state"),
        (
            {"processor": Timed, "timer": "due", "timer_type": "WALL_CLOCK_TIME"},
            "process: there are no timers of WALL_CLOCK_TIME: the results of a timer belong to the record",
        ),
        ({"processor": Timed, "timer": "due", "timer_type": "often"}, "process: timer_type='often'"),
        ({"name": "a b"}, "the name 'a b' contains ' '"),
    ],
)
def test_wrong_declarations_are_faults(
    topology: Topology, orders: KStream, options: dict[str, Any], message: str
) -> None:
    counted(orders, **options)
    (fault,) = topology.faults
    assert fault.message.startswith(message)


def test_two_classes_do_not_share_a_store(topology: Topology, orders: KStream) -> None:
    counted(orders)
    counted(orders)
    assert "the store 'seen' is declared twice" in str(topology.faults[0])


def test_what_is_grouped_behind_it_is_repartitioned_as_in_the_library(topology: Topology, orders: KStream) -> None:
    counted(orders).group_by_key(name="alarms").count(store="alarms-per-customer")
    Pipeline("app", topology, "", {"orders": 2})
    first, second = topology.subtopologies
    assert first.stores == ("seen",)
    assert second.source_topics == ("alarms-repartition",)
    assert first.processors[0].name == "KSTREAM-PROCESSOR-0000000001"
