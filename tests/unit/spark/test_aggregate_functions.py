"""What Python functions make of the records of a stream task, and what its store holds, against plain Python."""

from __future__ import annotations

import random
import typing
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame
from streamplan.errors import Refused
from streamplan.model.functions import STOP
from streamplan.model.operations import ReduceFunction
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Bytes, String
from streamplan.serdes.serde import MAX_BYTES, Serde, too_large
from streamplan.spark.planning.process import resolve_operation
from streamplan.spark.planning.records import RecordFrame

from tests.support.process_task import Arrived, Made, ProcessTask, in_micro_batches

BEGIN = 6_000_000

SCHEMA = "total bigint, last array<bigint>"


class Totals(NamedTuple):
    total: int
    last: list[int]


def none_yet() -> Totals:
    return Totals(0, [])


def add(key: str, value: Any, aggregate: Any) -> Any:
    """Changes the aggregate that it is given. A 7 deletes. A negative number fails after the change."""
    aggregate.total += value.n
    aggregate.last = [*aggregate.last, value.n][-3:]
    if value.n < 0:
        raise ValueError(f"{key} has a negative number")
    return None if value.n == 7 else aggregate


def wind(old: Any, new: Any) -> Any:
    """Depends on the order. Returns one of the two, or a new value, or none."""
    if new.n < 0:
        raise ValueError("a negative number")
    if new.n == 7:
        return None
    return old if new.n == 0 else {"n": (10 * old.n + new.n) % 1_000_000}


def random_records(seed: int, count: int) -> list[Arrived]:
    chosen, now = random.Random(seed), BEGIN
    records = []
    for offset in range(count):
        now += chosen.choice([0, 1, 500])
        n = chosen.choices([chosen.randrange(7), None, 7, -1], [12, 1, 3, 2])[0]
        records.append(Arrived(chosen.choice("abcd"), now - chosen.choice([0, 0, 1, 20_000]), n, offset))
    return records


Expected = tuple[list[tuple[str, int, Any]], dict[str, tuple[Any, int]]]
"""Key, time and value of each result, with a text for a failure; and by key the value in the store and its time."""


def expected_of(records: list[Arrived], first: Any, fold: Any) -> Expected:
    """The same as the library's ``KStreamReduce`` and ``KStreamAggregate`` do: a dictionary and a loop."""
    made: list[tuple[str, int, Any]] = []
    store: dict[str, tuple[Any, int]] = {}
    for record in records:
        if record.n is None:
            continue
        if record.n < 0 and (record.key in store or fold is added):
            made.append((str(record.key), record.at, "failed"))
            continue
        before = store.get(str(record.key))
        value = first(record.n) if before is None else fold(before[0], record.n)
        if value is None:
            if store.pop(str(record.key), None) is not None:
                made.append((str(record.key), record.at, None))
            continue
        at = record.at if before is None else max(record.at, before[1])
        store[str(record.key)] = value, at
        made.append((str(record.key), at, value))
    return made, store


def added(before: Any, n: int) -> Any:
    return None if n == 7 else {"total": before["total"] + n, "last": [*before["last"], n][-3:]}


def wound(before: Any, n: int) -> Any:
    return None if n == 7 else before if n == 0 else {"n": (10 * before["n"] + n) % 1_000_000}


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
def test_results_and_store_in_whatever_micro_batches_the_records_come(kind: str, seed: int, restores: bool) -> None:
    if kind == "aggregate":
        task = ProcessTask.aggregating(none_yet, add, SCHEMA)
        first, fold = (lambda n: added({"total": 0, "last": []}, n)), added
    else:
        task, first, fold = ProcessTask.reducing(wind), (lambda n: {"n": n}), wound
    records, chosen, made = random_records(seed, 150), random.Random(seed), list[Made]()
    for batch in in_micro_batches(records, iter(lambda: chosen.randint(1, 20), 0)):
        made += task.process(batch)
        if restores and chosen.random() < 0.3:
            task.restore()
    expected, store = expected_of(records, first, fold)
    results = [(one.key, one.at, "failed" if one.reason else values(one.value)) for one in made]
    assert results == expected
    assert {key: (value, at) for key, (value, at) in task.changelog.items() if value is not None} == store
    assert len(task.stored) == len(store)
    assert {"failed", None} <= {value if value == "failed" else value and "a value" for _, _, value in expected}


def values(made: Any) -> Any:
    """A result as plain Python has it."""
    if made is None:
        return None
    row = made if isinstance(made, dict) else made.asDict()
    names = ["total", "last"] if len(row) == 2 else ["n"]
    return dict(zip(names, row.values(), strict=True))


def test_what_was_deleted_in_the_same_micro_batch_is_not_seen_again() -> None:
    task = ProcessTask.aggregating(none_yet, add, SCHEMA)
    task.process([Arrived("a", BEGIN + n, number, n) for n, number in enumerate([5, 7, 1])])
    assert task.changelog == {"a": ({"total": 1, "last": [1]}, BEGIN + 2)}


def test_a_failed_call_changes_nothing_and_its_reason_names_function_and_line() -> None:
    task = ProcessTask.aggregating(none_yet, add, SCHEMA)
    task.process([Arrived("a", BEGIN, 3, 0)])
    (made,) = task.process([Arrived("a", BEGIN + 1, -1, 1)])
    line = add.__code__.co_firstlineno + 5
    assert made.reason == f"add raised ValueError in line {line}: a has a negative number"
    assert task.changelog == {"a": ({"total": 3, "last": [3]}, BEGIN)}
    assert len(task.changes) == 1


def broken() -> Any:
    raise RuntimeError("nothing to begin with")


@pytest.mark.parametrize(
    ("initializer", "aggregator", "reason"),
    [
        (
            broken,
            add,
            f"broken raised RuntimeError in line {broken.__code__.co_firstlineno + 1}: nothing to begin with",
        ),
        (lambda: 0, add, "<lambda> returned int, and not a mapping of fields"),
        (none_yet, lambda key, value, aggregate: 1, "<lambda> returned int, and not a mapping of fields"),
        (
            none_yet,
            lambda key, value, aggregate: {"sum": 1},
            "<lambda> returned the field sum, which its schema does not have",
        ),
        (
            none_yet,
            lambda key, value, aggregate: {"total": "1"},
            "<lambda> returned a total of another type than its schema: '1'",
        ),
        (
            none_yet,
            lambda key, value, aggregate: {"last": [1] * 600_000},
            f"<lambda> returned what the store cannot hold: {too_large(MAX_BYTES)}",
        ),
    ],
    ids=["initializer", "no initial aggregate", "no mapping", "field", "type", "size"],
)
def test_what_the_schema_does_not_allow_is_the_reason_of_a_dead_letter(
    initializer: Any, aggregator: Any, reason: str
) -> None:
    task = ProcessTask.aggregating(initializer, aggregator, SCHEMA)
    (made,) = task.process([Arrived("a", BEGIN, 1, 0)])
    assert made.reason == reason
    assert task.changelog == {}


def test_a_function_may_stop_the_application() -> None:
    task = ProcessTask.reducing(wind)
    task.operation = replace(task.operation, function=replace(task.operation.function, on_error=STOP))
    with pytest.raises(ValueError, match="a negative number"):
        task.process([Arrived("a", BEGIN, 1, 0), Arrived("a", BEGIN, -1, 1)])


def test_structs_of_values_are_attributes_and_an_initializer_may_return_none() -> None:
    value = Json("at struct<x: bigint, y: bigint>")
    task = ProcessTask.reducing(lambda old, new: {"at": {"x": old.at.x + new.at.x, "y": new.at.y}}, value)
    data = b'{"at": {"x": 2, "y": 3}}'
    task.process([Arrived("a", BEGIN, None, n, data) for n in range(2)])
    assert task.changelog["a"][0] == {"at": {"x": 4, "y": 3}}

    def count(key: str, value: Any, aggregate: Any) -> dict[str, int]:
        return {"total": 1 if aggregate is None else aggregate.total + 1}

    task = ProcessTask.aggregating(lambda: None, count, SCHEMA)
    task.process([Arrived("a", BEGIN, 5, n) for n in range(3)])
    assert task.changelog["a"][0] == {"total": 3}


@pytest.mark.parametrize(
    ("serde", "fields"),
    [
        (Json("n bigint, at timestamp, x struct<a: string>"), "n bigint, at timestamp, x struct<a: string>"),
        (String(), "value string"),
        (Bytes(), None),
    ],
    ids=["json", "text", "bytes"],
)
def test_the_values_of_a_reducer_have_the_fields_of_its_stream_and_a_store_has_no_bytes(
    serde: Serde, fields: str | None
) -> None:
    topology = Topology("app")
    topology.stream("read", value=serde).group_by_key().reduce(wind, store="kept").to_stream().to("out")
    [node] = topology.subtopologies[0].processors_with(ReduceFunction)
    frame = RecordFrame(
        typing.cast(DataFrame, None), value_is_raw=True, no_rejects=True, key_not_null=True, serde=serde
    )
    if fields is None:
        with pytest.raises(Refused, match="the store of a reducer cannot hold value of type binary"):
            resolve_operation(node, frame)
        return
    operation = resolve_operation(node, frame)
    assert operation.state == operation.fields
    assert ", ".join(" ".join(field) for field in operation.state) == fields
