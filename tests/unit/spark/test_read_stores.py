"""Processors that read the stores of other operations, with the state variables in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamplan.model.processor import KeyValueStore, Processor, ProcessorContext, Record
from streamplan.serdes.primitive import Long, String

from tests.support.stores_task import Arrived, Forwarded, StoresTask

TABLE = -1
SUMS = KeyValueStore(String(), Long())


class Totals(Processor):
    """Tells of each record all that the table has, and puts the own sum into a store of the class."""

    def init(self, context: ProcessorContext) -> None:
        self.users, self.sums = context.get_state_store("users"), context.get_state_store("sums")

    def process(self, record: Record) -> Iterator[dict[str, Any]]:
        if record.value.s == "write":
            self.users.put("a", {"n": 1})
        found = [(key, of.value.n, int(of.timestamp.timestamp() * 1000)) for key, of in self.users.all()]
        total = sum(n for _, n, _ in found)
        self.sums.put(record.key, total)
        one = self.users.get(record.key)
        yield {"n": total, "s": f"{None if one is None else one.value.s} {found}"}


def task() -> StoresTask:
    return StoresTask(Totals, {"sums": SUMS}, "n bigint, s string", tables=["users"])


def row(key: str, n: int | None, offset: int, at: int = 0, *, is_update: bool = False) -> Arrived:
    value = None if n is None else {"n": n, "s": f"v{n}"}
    return Arrived(key, at, value, offset, TABLE, is_update=is_update)


def asked(key: str, offset: int, at: int = 0, text: str = "") -> Arrived:
    return Arrived(key, at, {"n": 0, "s": text}, offset)


def told(made: list[Forwarded]) -> list[str]:
    return [[*each.value.values()][1] for each in made]


def test_a_record_meets_the_rows_that_came_before_it() -> None:
    of = task()
    made = of.process(row("a", 1, 0, 5), asked("a", 1, 6), row("a", None, 2, 7), row("b", 4, 3, 8), asked("a", 4, 9))
    assert told(made) == ["v1 [('a', 1, 5)]", "None [('b', 4, 8)]"]
    assert told(of.process(asked("b", 5, 10))) == ["v4 [('b', 4, 8)]"]
    assert [name for name, *_ in of.changes] == ["sums"] * 2, "the table writes its own changelog"


def test_the_updates_of_an_aggregate_are_there_before_the_records_of_their_micro_batch() -> None:
    of = task()
    assert told(of.process(asked("a", 0, 6), row("a", 2, 0, 6, is_update=True))) == ["v2 [('a', 2, 6)]"]


def test_the_store_of_another_operation_cannot_be_written() -> None:
    of = task()
    made = of.process(row("a", 1, 0), asked("a", 1, text="write"), asked("a", 2))
    assert "the store 'users' can only be read" in (made[0].reason or "")
    assert told(made[1:]) == ["v1 [('a', 1, 0)]"]
    assert [key for _, key, *_ in of.changes] == [b"a"]


def test_a_restored_table_has_the_last_row_of_each_key() -> None:
    of = task()
    of.process(row("a", 1, 0), asked("x", 1))
    of.restore(tables=[row("a", None, 3, 2), row("b", 5, 1, 1), row("a", 1, 0)])
    assert told(of.process(asked("b", 4))) == ["v5 [('b', 5, 1)]"]
    assert of.changelogs["sums"][b"b"][0] == (5).to_bytes(8, "big")
