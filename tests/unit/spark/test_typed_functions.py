"""A function that takes and returns objects of dataclasses, called with the records of an Arrow batch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from streamplan import Json, KeyValueStore, Processor, Record, Topology
from streamplan.model.operations import FlatMapValuesFunction, MapValuesFunction, Process
from streamplan.model.processor_topology import Processor as Node
from streamplan.serdes.arrow import struct_type
from streamplan.spark.planning.function_results import reason_of
from streamplan.spark.planning.python_functions import mapped_batches

from tests.support.typed_declaration import Line, Order, Product, Score, score

LINES = [{"sku": "s", "price": Decimal("1.50")}]
ORDERS: list[dict[str, Any]] = [
    {"id": "a", "product": 0, "at": datetime(2026, 1, 1, tzinfo=UTC), "lines": LINES, "note": None},
    {"id": "b", "product": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "lines": [], "note": "n"},
    {"id": "c", "product": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "lines": None, "note": "n"},
    {"id": "d", "product": 9, "at": datetime(2026, 1, 1, tzinfo=UTC), "lines": [], "note": "n"},
]


def batch() -> pa.RecordBatch:
    values = pa.array(ORDERS, struct_type(Json(Order).fields))
    records = [{"key": row["id"], "topic": "t", "partition": 0, "offset": at} for at, row in enumerate(ORDERS)]
    texts = [(name, pa.string()) for name in ("key", "topic", "reason")]
    record_type = pa.struct([*texts, ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])
    names = [*(of_field.name for of_field in values.type), "record"]
    return pa.RecordBatch.from_arrays([*values.flatten(), pa.array(records, record_type)], names=names)


def made_by(function: Any) -> list[dict[str, Any]]:
    topology = Topology("app")
    topology.stream("orders", value=Json(Order)).map_values(function)
    (operation,) = (node.operation for node in topology.processors.nodes if isinstance(node, Node))
    assert isinstance(operation, MapValuesFunction | FlatMapValuesFunction)
    (made,) = mapped_batches(operation.function, dict(operation.fields))(iter([batch()]))
    return made.to_pylist()  # type: ignore[no-any-return]


def test_a_record_that_is_no_object_of_the_class_is_rejected_and_the_others_are_processed() -> None:
    made = made_by(score)
    assert [(row["id"], row["risk"]) for row in made] == [("a", 1.5), ("b", 1.0), (None, None), (None, None)]
    reasons = [row["record"]["reason"] for row in made]
    assert reasons[:2] == [None, None]
    name = "tests.support.typed_declaration.score"
    assert reasons[2] == f"{name} raised ValueError: lines is null, and its annotation has no None"
    assert reasons[3] == f"{name} raised ValueError: product: 9 is not a valid Product"


def test_an_object_with_enumerations_and_nested_objects_is_written_as_the_values_that_they_stand_for() -> None:
    def changed(order: Order) -> Order:
        key = order.record.key  # type: ignore[attr-defined]
        return Order(key, Product.SHIRTS, order.at, [*order.lines, Line("t", Decimal(2))])

    first, *_ = made_by(changed)
    assert (first["id"], first["product"], first["note"]) == ("a", 1, None)
    assert first["lines"] == [*LINES, {"sku": "t", "price": Decimal("2.00")}]


def test_a_reason_has_the_line_of_the_function() -> None:
    def fails(order: Order) -> Score:
        raise RuntimeError("no")

    line = fails.__code__.co_firstlineno + 1
    assert made_by(fails)[0]["record"]["reason"].endswith(f"raised RuntimeError in line {line}: no")


class Numbered(Processor):
    def process(self, record: Record[str, Order], store: KeyValueStore) -> list[Score]:
        if record.value.product is not Product.SHIRTS:
            raise RuntimeError(record.value.product.name)
        return [Score(record.key, float(record.value.total))]


def test_a_processor_that_takes_records_of_a_class_is_given_its_objects() -> None:
    topology = Topology("app")
    stream = topology.stream("orders", value=Json(Order))
    stream.process(Numbered, store="numbers", state="n bigint").to("scores")
    assert topology.faults == ()
    (operation,) = (node.operation for node in topology.processors.nodes if isinstance(node, Node))
    assert isinstance(operation, Process)
    assert operation.function.name.endswith("test_typed_functions.Numbered")
    processor = operation.function.call()
    value = SimpleNamespace(**{**ORDERS[1], "lines": [SimpleNamespace(**LINES[0])]})
    record = Record("k", value, datetime(2026, 1, 1, tzinfo=UTC), "orders", 0, 0)
    assert processor.process(record, None) == [Score("k", 1.5)]
    with pytest.raises(RuntimeError, match="JACKETS") as raised:
        processor.process(replace(record, value=SimpleNamespace(**{**vars(value), "product": 0})), None)
    reason = reason_of("numbered", processor.process, raised.value)
    assert reason == f"numbered raised RuntimeError in line {Numbered.process.__code__.co_firstlineno + 2}: JACKETS"
    assert cloudpickle.loads(cloudpickle.dumps(operation.function)).call().process(record, None) == [Score("k", 1.5)]
