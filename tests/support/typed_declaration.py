"""A declaration with types. mypy judges it, and Spark runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, assert_type

from streamplan import (
    Expression,
    F,
    Json,
    KGroupedStream,
    KStream,
    KTable,
    Long,
    String,
    TimeWindows,
    Topology,
    WindowedKStream,
    arrow_batch,
)


class Product(IntEnum):
    JACKETS = 0
    SHIRTS = 1


@dataclass(frozen=True)
class Line:
    sku: str
    price: Annotated[Decimal, "decimal(10,2)"]


@dataclass(frozen=True)
class Order:
    id: str
    product: Product
    at: datetime
    lines: list[Line]
    note: str | None = None

    @property
    def total(self) -> Decimal:
        return sum((line.price for line in self.lines), Decimal(0))


@dataclass(frozen=True)
class Score:
    id: str
    risk: float


@dataclass(frozen=True)
class Spent:
    total: float = 0.0


def score(order: Order) -> Score:
    return Score(order.id, 1.0 if order.product is Product.SHIRTS else float(order.total))


def score_or_none(order: Order) -> Score | None:
    return score(order) if order.lines else None


def lines_of(order: Order) -> Iterator[Line]:
    yield from order.lines


def score_with_key(key: str, order: Order) -> Score:
    return Score(f"{key} {order.id}", 0.0)


def lines_with_key(key: str, order: Order) -> list[Line]:
    return order.lines if key else []


def as_mapping(order: Order) -> dict[str, Any]:
    return {"id": order.id}


def add(key: str, score: Score, spent: Spent) -> Spent:
    return Spent(spent.total + score.risk)


@arrow_batch
def risks(scores: Any) -> dict[str, Any]:
    return {"risk": scores["risk"]}


topology = Topology("typed")
orders = topology.stream("orders", value=Json(Order))
assert_type(orders, KStream[str, Order])
assert_type(orders.filter(F.product == 0), KStream[str, Order])
assert_type(orders.filter(lambda order: order.total > 0), KStream[str, Order])
scores = orders.map_values(score)
assert_type(scores, KStream[str, Score])
assert_type(orders.map_values(score_or_none), KStream[str, Score])
assert_type(orders.map_values(as_mapping, schema="id string"), KStream[Any, Any])
assert_type(orders.map_values(id=F.id), KStream[str, Any])
assert_type(orders.map_values({"id": "id", "n": F.product + 1}), KStream[str, Any])
assert_type(orders.flat_map_values(lines_of), KStream[str, Line])
assert_type(orders.map_values(score_with_key), KStream[str, Score])
with_key = orders.map_values(lambda key, order: Score(key.upper(), float(order.total)), schema="id string, risk double")
assert_type(with_key, KStream[str, Score])
assert_type(orders.map("id", score_with_key, key_serde=String()), KStream[Any, Score])
assert_type(orders.flat_map(lines_with_key, key="sku"), KStream[Any, Line])
assert_type(orders.flat_map_values(lines_with_key), KStream[str, Line])
assert_type(orders.filter(lambda key, order: order.id == key.lower()), KStream[str, Order])
assert_type(orders.filter_not(lambda key, order: order.id == key.lower()), KStream[str, Order])
assert_type(orders.peek(lambda key, order: (key.lower(), order.id)), KStream[str, Order])
assert_type(orders.peek({"orders": "count(*)"}), KStream[str, Order])
assert_type(scores.map_values(risks, schema="risk double"), KStream[Any, Any])
assert_type(orders.map("id", score, key_serde=String()), KStream[Any, Score])
assert_type(scores.select_key(F.risk, key_serde=Long()), KStream[int, Score])
assert_type(scores.group_by_key(), KGroupedStream[str, Score])
assert_type(scores.group_by("id").windowed_by(TimeWindows("1 minute")), WindowedKStream[str, Score])
spent = scores.group_by(F.id).aggregate(Spent, add, store="spent")
assert_type(spent, KTable[str, Spent])
assert_type(spent.to_stream().filter(lambda one: one.total > 1), KStream[str, Spent])
assert_type(scores.group_by_key().reduce(lambda old, new: new if new.risk > old.risk else old), KTable[str, Score])
assert_type(F.product == 0, Expression)
branches = scores.split(name="by-").branch(lambda one: one.risk > 1, name="high").default_branch(name="low")
assert_type(branches["by-high"], KStream[str, Score])
orders.foreach(lambda key, order: (key.lower(), order.id))
of_key = orders.split(name="of-").branch(lambda key, order: order.id == key.lower(), name="key").no_default_branch()
assert_type(of_key["of-key"], KStream[str, Order])
untyped = topology.stream("payments", value=Json("id string, paid double"))
assert_type(untyped, KStream[str, Any])


def scored(stream: KStream[str, Order]) -> KStream[str, Score]:
    return stream.map_values(score)


def of_anything(stream: KStream) -> KTable:
    return stream.group_by("id").count()


scored(orders).to("scores")
