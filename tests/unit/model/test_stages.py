"""The kinds of state: which one a sub-topology has, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from streamplan.model.kstream import KStream, KTable
from streamplan.model.operations import FilterNot, TableFilter, TableKeySelect
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.stages import stage_of, stages_of, stateful_faults
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.model.stages.look_up import LookUpStage
from streamplan.model.stages.old_values import OldValuesStage
from streamplan.model.stages.process import ProcessStage
from streamplan.model.stages.stage import Restore, Stage, StatelessStage
from streamplan.model.stages.stream_join import StreamJoinStage
from streamplan.model.stages.table_join import TableJoinStage
from streamplan.model.stages.window import WindowStage
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, OnWindowClose, SessionWindows, TimeWindows
from streamplan.serdes.json import Json

EVERY, LAST = Restore.EVERY_RECORD, Restore.LAST_OF_KEY
VALUE = Json("id string, n bigint")
SUM = {"id": "id", "n": "n + 1"}
NAMED = {"n": "table.n"}
SESSIONS = SessionWindows("5 minutes")
MINUTES = TimeWindows("1 minute")


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


def joined_before(topology: Topology) -> KTable:
    users = topology.table("users", value=VALUE)
    records(topology).join(users, SUM).to("joined")
    return users


WITH_OLD_VALUES: Mapping[str, Callable[[Topology], KTable]] = {
    "an aggregate": lambda topology: records(topology).group_by_key().count(),
    "values of an aggregate": lambda topology: records(topology).group_by_key().count().map_values({"n": "count"}),
    "a table with a store": lambda topology: table(topology, "users"),
    "a table that was joined before": joined_before,
    "behind a filter with a store": lambda topology: topology.table("t", value=VALUE).filter("n > 1", store="kept"),
    "a stream as a table with a store": lambda topology: records(topology).to_table(store="latest"),
    "joined tables with a store": lambda topology: table(topology, "a").join(table(topology, "b"), NAMED, store="j"),
    "a grouped table": lambda topology: topology.table("t", value=VALUE).group_by("n").count(),
    "an aggregate of windows": lambda topology: records(topology).group_by_key().windowed_by(MINUTES).count(),
    "values of sessions": lambda topology: (
        records(topology).group_by_key().windowed_by(SESSIONS).count().map_values({"n": "count"})
    ),
}
"""Tables that send old values in the library (``KTableImpl.enableSendingOldValues``)."""

NOT_KNOWN: Mapping[str, Callable[[Topology], KTable]] = {
    "joined tables": lambda topology: table(topology, "a").join(table(topology, "b"), NAMED),
}
"""Tables that send old values in the library, and here do not."""

WITHOUT: Mapping[str, Callable[[Topology], KTable]] = {
    "a table": lambda topology: topology.table("users", value=VALUE),
    "values of a table": lambda topology: topology.table("users", value=VALUE).map_values({"count": "n"}),
    "a stream as a table": lambda topology: records(topology).to_table(),
}


def filtered(declare: Callable[[Topology], KTable]) -> Topology:
    topology = Topology("filtered")
    table = declare(topology)
    assert table._fields is not None
    table.filter_not(f"{table._fields[-1]} > 5").to_stream().to("filtered")
    assert not topology.faults
    return topology


def refusals(topology: Topology) -> list[str]:
    return [fault.message for group in topology.subtopologies for fault in stateful_faults(group)]


def comparing(topology: Topology) -> list[type]:
    """What each stage that compares with old values does."""
    stages = [stage for group in topology.subtopologies for stage in stages_of(group)]
    return [type(stage.nodes[0].operation) for stage in stages if isinstance(stage, OldValuesStage)]


@pytest.mark.parametrize("declare", WITH_OLD_VALUES.values(), ids=WITH_OLD_VALUES)
def test_a_filter_of_a_table_with_a_state_store_compares_with_old_values(
    declare: Callable[[Topology], KTable],
) -> None:
    topology = filtered(declare)
    assert refusals(topology) == []
    assert TableFilter in comparing(topology)


@pytest.mark.parametrize("declare", NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_a_filter_is_refused_where_old_values_are_not_known(declare: Callable[[Topology], KTable]) -> None:
    assert [message[:20] for message in refusals(filtered(declare))] == ["filter: the values t"]


@pytest.mark.parametrize("windows", [MINUTES, SESSIONS], ids=["time windows", "sessions"])
def test_a_filter_of_windows_has_no_store_and_is_restored_from_that_of_the_aggregate(windows: Any) -> None:
    topology = Topology("filtered")
    counts = records(topology).group_by_key().windowed_by(windows).count(store="counts")
    counts.filter("count > 5").to_stream().to("filtered")
    (group,) = topology.subtopologies
    stage = stage_of(group)
    assert (group.stores, stage.stores) == (("counts",), {"counts": LAST})
    assert next(each.windows for each in stages_of(group) if isinstance(each, OldValuesStage)) == windows


def test_a_filter_of_windows_with_a_store_is_refused() -> None:
    topology = Topology("filtered")
    counts = records(topology).group_by_key().windowed_by(MINUTES).count()
    counts.filter("count > 5", store="often").to_stream().to("filtered")
    assert "a store of windows" in topology.faults[0].message


def test_a_filter_of_final_results_passes_what_it_keeps() -> None:
    topology = Topology("filtered")
    windows = records(topology).group_by_key().windowed_by(SESSIONS).emit_strategy(OnWindowClose())
    windows.count().filter_not("count > 5").to_stream().to("filtered")
    assert (refusals(topology), comparing(topology)) == ([], [])
    assert FilterNot("count > 5") in topology.subtopologies[0].operations


@pytest.mark.parametrize("declare", WITHOUT.values(), ids=WITHOUT)
def test_a_filter_of_a_table_without_a_state_store_compares_with_nothing(
    declare: Callable[[Topology], KTable],
) -> None:
    topology = filtered(declare)
    assert refusals(topology) == []
    assert comparing(topology) == []


@pytest.mark.parametrize("declare", WITHOUT.values(), ids=WITHOUT)
def test_a_table_that_is_grouped_has_a_state_store(declare: Callable[[Topology], KTable]) -> None:
    topology = Topology("grouped")
    table = declare(topology)
    kept = table.filter("true")
    kept.group_by("record.key").count().to_stream().to("counted")
    assert comparing(topology) == [TableKeySelect]
    assert refusals(topology) == []
    assert len([store for group in topology.subtopologies for store in group.stores]) == 2


@pytest.mark.parametrize("windows", [MINUTES, SESSIONS], ids=["time windows", "sessions"])
def test_windows_are_grouped_but_for_final_results(windows: Any) -> None:
    topology = Topology("grouped")
    windowed = records(topology).group_by_key().windowed_by(windows)
    windowed.count(store="counts").filter("count > 1").group_by("unix_millis(record.window.start)").count()
    assert comparing(topology) == [TableKeySelect]
    assert refusals(topology) == []
    windowed.emit_strategy(OnWindowClose()).count().group_by("record.key").count()
    assert [fault.message for fault in topology.faults] == ["group_by: the table has the final results of windows"]


def test_a_filter_compares_that_is_grouped_and_written() -> None:
    topology = Topology("grouped")
    kept = topology.table("t", value=VALUE).filter("n > 1")
    kept.map_values({"n": "n"}).filter("n > 2").group_by("n").count().to_stream().to("counted")
    kept.to_stream().to("kept")
    assert comparing(topology) == [TableFilter, TableKeySelect]


def test_the_state_of_a_grouped_table_is_restored_from_its_store() -> None:
    topology = Topology("grouped")
    kept = records(topology).group_by_key().count(store="counts").filter("count > 1", store="kept")
    kept.map_values({"n": "count"}).group_by("n").count().to_stream().to("counted")
    stages = [stage for group in topology.subtopologies for stage in stages_of(group)]
    stores = [[*stage.stores] for stage in stages if isinstance(stage, OldValuesStage)]
    assert stores == [["kept"], ["kept"]]


def test_a_filter_of_a_table_is_taken_that_is_joined_behind_it() -> None:
    """The library asks for old values when the filter is declared."""
    topology = Topology("filtered")
    users = topology.table("users", value=VALUE)
    users.filter("n > 1").to_stream().to("filtered")
    records(topology).join(users, SUM).to("joined")
    assert refusals(topology) == []
