"""The kinds of state: which one a sub-topology has, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest
from streamplan.model.kstream import KStream, KTable
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.stages import stage_of, stages_of
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.model.stages.look_up import LookUpStage
from streamplan.model.stages.process import ProcessStage
from streamplan.model.stages.stage import Restore, Stage, StatelessStage
from streamplan.model.stages.stream_join import StreamJoinStage
from streamplan.model.stages.table_join import TableJoinStage
from streamplan.model.stages.window import WindowStage
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, SessionWindows
from streamplan.serdes.json import Json

EVERY, LAST = Restore.EVERY_RECORD, Restore.LAST_OF_KEY
VALUE = Json("id string, n bigint")
SUM = {"id": "id", "n": "n + 1"}


@dataclass
class Seen:
    n: int


class Counts(Processor):
    def process(self, record: Record, store: KeyValueStore) -> Iterator[Seen]:
        yield Seen(1)


def records(topology: Topology) -> KStream:
    return topology.stream("stream", value=VALUE)


def table(topology: Topology, name: str) -> KTable:
    return topology.table(name, value=VALUE, store=name)


def stateless(topology: Topology) -> None:
    records(topology).to("copied")


def aggregate(topology: Topology) -> None:
    records(topology).group_by_key().count(store="counts")


def window(topology: Topology) -> None:
    records(topology).group_by_key().windowed_by(SessionWindows("5 minutes")).count(store="sessions")


def look_up(topology: Topology) -> None:
    records(topology).join(table(topology, "table"), SUM).to("joined")


def table_join(topology: Topology) -> None:
    table(topology, "table").join(table(topology, "other"), SUM, store="sums")


def process(topology: Topology) -> None:
    records(topology).process(Counts, store="seen", state="n bigint").to("seen")


@pytest.mark.parametrize(
    ("declare", "kind", "stores"),
    [
        (stateless, StatelessStage, {}),
        (aggregate, AggregateStage, {"counts": LAST}),
        (window, WindowStage, {"sessions": LAST}),
        (look_up, LookUpStage, {"table": EVERY}),
        (table_join, TableJoinStage, {"table": LAST, "other": LAST, "sums": LAST}),
        (process, ProcessStage, {"seen": LAST}),
    ],
)
def test_a_sub_topology_has_the_stage_of_its_state_and_restores_its_stores_as_that_says(
    declare: Callable[[Topology], None], kind: type[Stage], stores: Mapping[str, Restore]
) -> None:
    topology = Topology("app")
    declare(topology)
    (group,) = topology.subtopologies
    stage = stage_of(group)
    assert (type(stage), stage.stores) == (kind, stores)
    assert stages_of(group) == ((stage,) if stage.has_state else ())


def test_what_waits_for_a_match_is_restored_from_its_last_list_and_the_streams_from_every_record() -> None:
    topology = Topology("app")
    this, other = (topology.stream(name, value=VALUE) for name in ("this", "other"))
    this.left_join(other, SUM, within=JoinWindows("1 day"), name="met").to("met")
    stage = stage_of(topology.subtopologies[0])
    assert isinstance(stage, StreamJoinStage)
    shared = stage.shared
    assert shared is not None
    assert {store for store, restored in stage.stores.items() if restored is LAST} == {shared.store}
    assert len(stage.stores) == 3


def test_each_side_of_a_join_by_a_foreign_key_has_a_stage() -> None:
    topology = Topology("app")
    this, other = (topology.table(name, value=VALUE) for name in ("this", "other"))
    this.join(other, SUM, foreign_key="id").to_stream().to("joined")
    assert [type(stage_of(group)) for group in topology.subtopologies] == [ForeignKeyStage, ForeignKeyStage]
