"""Expressions of F have the text that a person would write, so a topology does not tell which of the two it has."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from streamplan import Expression, F, JoinWindows, Json, KStream, KTable, TimeWindows, Topology
from streamplan.model.expressions import NoTruthValue, plain


class Product(IntEnum):
    JACKETS = 0


class Country(StrEnum):
    GERMANY = "DE"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (F.amount > 0, "amount > 0"),
        (5 - F.amount, "5 - amount"),
        (F.price * F.count, "price * count"),
        ((F.a + F.b) * F.c, "(a + b) * c"),
        (F.a + F.b * F.c, "a + b * c"),
        (F.a - (F.b - F.c), "a - (b - c)"),
        (F.a - F.b - F.c, "a - b - c"),
        (F.a / (F.b * 2), "a / (b * 2)"),
        (1 - F.a % 2, "1 - a % 2"),
        (-F.a, "-a"),
        (-F.lit(-5), "-(-5)"),
        (F.a - -5, "a - -5"),
        (F.a > F.b + 1, "a > b + 1"),
        ((F.a > 0) & (F.b > 0) | (F.c != "x"), "a > 0 and b > 0 or c != 'x'"),
        ((F.a > 0) & ((F.b > 0) | F.c), "a > 0 and (b > 0 or c)"),
        (~(F.a > 0) & ~F.b, "not (a > 0) and not b"),
        ((F.a > 0) == (F.b > 0), "(a > 0) = (b > 0)"),
        (F.a == None, "a is null"),  # noqa: E711
        (F.a != None, "a is not null"),  # noqa: E711
        ((F.a + 1).is_null(), "a + 1 is null"),
        ((F.a > 1).is_not_null(), "(a > 1) is not null"),
        (F.country.is_in("DE", "FR"), "country in ('DE', 'FR')"),
        (F.country.is_in(["DE", F.other_country]), "country in ('DE', other_country)"),
        (F.country.is_in({"FR", "DE", "IT"}), "country in ('DE', 'FR', 'IT')"),
        (F.amount.between(1, F.most + 1), "amount between 1 and most + 1"),
        (F.name.like("A%"), "name like 'A%'"),
        (F.amount.cast("decimal(10,2)"), "cast(amount as decimal(10,2))"),
        (F.customer.name, "customer.name"),
        (F.record.key, "record.key"),
        (F.customer["count"], "customer.count"),
        (F["odd name"]["with ` tick"], "`odd name`.`with `` tick`"),
        (F.größe, "`größe`"),
        (F.null, "`null`"),
        (F.tags[0], "tags[0]"),
        (F.rates[F.currency], "rates[currency]"),
        (F.split(F.line, " ")[0], "split(line, ' ')[0]"),
        (F.amount.sum(), "sum(amount)"),
        ((F.price * F.count).sum(), "sum(price * count)"),
        (F.count(), "count(*)"),
        (F.paid.count(), "count(paid)"),
        (F.id.max_by(F.amount), "max_by(id, amount)"),
        (F.upper(F.name), "upper(name)"),
        (F.coalesce(F.name, None, "it's"), "coalesce(name, null, 'it\\'s')"),
        (F.lit("a text"), "'a text'"),
        (F.a == True, "a = true"),  # noqa: E712
        (F.a > 0.5, "a > 0.5"),
        (F.a > Decimal("0.50"), "a > 0.50"),
        (F.a > Decimal(5), "a > 5BD"),
        (F.a == Product.JACKETS, "a = 0"),
        (F.a == Country.GERMANY, "a = 'DE'"),
        (F.a == "back\\slash ${env:HOME}", "a = 'back\\\\slash \\u0024{env:HOME}'"),
        (F.a == b"\x00\xff", "a = X'00ff'"),
        (F.at > datetime(2026, 1, 31, 12, tzinfo=UTC), "at > timestamp'2026-01-31 12:00:00Z'"),
        (F.at > datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), "at > timestamp'2025-12-31 23:00:00Z'"),
        (F.day == date(2026, 1, 31), "day = date'2026-01-31'"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_expression_has_the_text_that_a_person_would_write(expression: Expression, text: str) -> None:
    assert plain(expression) == text
    assert repr(expression) == f"<Expression {text}>"


ORDER = Json("id string, product int, price double, count int, customer struct<name: string>")


def streams() -> tuple[Topology, KStream, KStream, KTable]:
    topology = Topology("app")
    orders = topology.stream("orders", value=ORDER)
    payments = topology.stream("payments", value=Json("paid double"))
    customers = topology.table("customers", value=Json("name string, city string"))
    return topology, orders, payments, customers


# Each topology twice: with texts, and with F.
TWINS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (
        lambda o, p, c: o.filter("price > 0").group_by("product").aggregate({"total": "sum(price)", "n": "count(*)"}),
        lambda o, p, c: o.filter(F.price > 0).group_by(F.product).aggregate(total=F.price.sum(), n=F.count()),
    ),
    (
        lambda o, p, c: o.filter_not("customer.name is null").map_values({"total": "price * count"}).to("out"),
        lambda o, p, c: o.filter_not(F.customer.name.is_null()).map_values(total=F.price * F.count).to("out"),
    ),
    (
        lambda o, p, c: o.map_values({"a": "price", "b": "count"}),
        lambda o, p, c: o.map_values({"a": "price"}, b=F.count),
    ),
    (
        lambda o, p, c: o.map("customer.name", {"n": "count"}).select_key("n").to("n", topics=("n", "m")),
        lambda o, p, c: o.map(F.customer.name, n=F.count).select_key(F.n).to(F.n, topics=("n", "m")),
    ),
    (
        lambda o, p, c: o.flat_map("split(id, '-')", key="element", value={"word": "element"}),
        lambda o, p, c: o.flat_map(F.split(F.id, "-"), key=F.element, word=F.element),
    ),
    (
        lambda o, p, c: o.flat_map_values("split(id, '-')", {"word": "element"}).peek({"n": "count(*)"}),
        lambda o, p, c: o.flat_map_values(F.split(F.id, "-"), word=F.element).peek(n=F.count()),
    ),
    (
        lambda o, p, c: o.split(name="by-").branch("price > 1", name="large").default_branch(name="small"),
        lambda o, p, c: o.split(name="by-").branch(F.price > 1, name="large").default_branch(name="small"),
    ),
    (
        lambda o, p, c: o.join(c, {"id": "id", "city": "table.city"}),
        lambda o, p, c: o.join(c, id=F.id, city=F.table.city),
    ),
    (
        lambda o, p, c: o.left_join(p, {"id": "id", "paid": "other.paid"}, within=JoinWindows("1 minute")),
        lambda o, p, c: o.left_join(p, id=F.id, paid=F.other.paid, within=JoinWindows("1 minute")),
    ),
    (
        lambda o, p, c: o.group_by("product").windowed_by(TimeWindows("1 minute")).aggregate({"most": "max(price)"}),
        lambda o, p, c: o.group_by(F.product).windowed_by(TimeWindows("1 minute")).aggregate(most=F.price.max()),
    ),
    (
        lambda o, p, c: o.group_by_key().cogroup({"n": "count(*)"}).cogroup(p.group_by_key(), {"sum": "sum(paid)"})
        .aggregate(),
        lambda o, p, c: o.group_by_key().cogroup(n=F.count()).cogroup(p.group_by_key(), sum=F.paid.sum()).aggregate(),
    ),
    (
        lambda o, p, c: o.group_by_key().reduce(max_by="price").filter("count > 1").map_values({"n": "count"}),
        lambda o, p, c: o.group_by_key().reduce(max_by=F.price).filter(F.count > 1).map_values(n=F.count),
    ),
    (
        lambda o, p, c: c.join(o.group_by_key().reduce(), {"city": "city", "id": "table.id"}),
        lambda o, p, c: c.join(o.group_by_key().reduce(), city=F.city, id=F.table.id),
    ),
]  # fmt: skip


def declared(topology: Topology) -> str:
    """All fields of all that runs, without the lines of the declaration: checkpoints have this text of a store."""
    return re.sub(r"line=\d+", "", repr(topology.processors))


@pytest.mark.parametrize(("with_texts", "with_f"), TWINS)
def test_a_topology_of_expressions_is_equal_to_that_of_texts(
    with_texts: Callable[..., Any], with_f: Callable[..., Any]
) -> None:
    (one, *of_one), (two, *of_two) = streams(), streams()
    with_texts(*of_one)
    with_f(*of_two)
    assert one.faults == two.faults == ()
    assert one.describe() == two.describe()
    assert declared(one) == declared(two)


def test_a_foreign_key_and_a_timestamp_are_expressions() -> None:
    texts, expressions = Topology("app"), Topology("app")
    for topology, key, at in ((texts, "customer", "at"), (expressions, F.customer, F.at)):
        orders = topology.table("orders", value=Json("customer string, at timestamp"), timestamp=at)
        customers = topology.table("customers", value=Json("name string"))
        orders.join(customers, {"at": "at", "name": "table.name"}, foreign_key=key).to_stream().to("out")
    assert texts.faults == expressions.faults == ()
    assert declared(texts) == declared(expressions)


def faults(declare: Callable[[KStream, KTable], Any]) -> list[str]:
    topology, orders, _, customers = streams()
    declare(orders, customers)
    assert all(fault.location.file.endswith("test_expressions.py") for fault in topology.faults)
    return [f"{fault.message}. {fault.hint}" for fault in topology.faults]


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (
            lambda o, c: o.filter(F.pric * 2 > 1),
            "filter: the value has no field 'pric'. It has: id, product, price, count, customer. "
            "Did you mean price?",
        ),
        (
            lambda o, c: o.join(c, id=F.id, city=F.upper(F.table.citty)),
            "join, city: the table has no field 'citty'. It has: name, city. Did you mean city?",
        ),
        (
            lambda o, c: o.map_values(name=F.price),
            "map_values: name is an Expression; it takes a text. A field of this name is written in a mapping: "
            "map_values({'name': …})",
        ),
        (
            lambda o, c: o.map_values({"a": "price"}, a=F.price),
            "map_values: the field 'a' is named twice. Leave one of them out",
        ),
        (
            lambda o, c: o.foreach(F.price),
            "foreach: action is an Expression; it takes a function. For example stream.foreach(notify)",
        ),
        (
            lambda o, c: o.filter(F.price.isNull()),
            "F.price.isNull(…): an expression has no method 'isNull'. Write F.price.is_null()",
        ),
        (
            lambda o, c: o.filter(F.id.upper() == "A"),
            "F.id.upper(…): an expression has no method 'upper'. Write a function of Spark SQL as F.upper(F.id)",
        ),
        (
            lambda o, c: o.filter(F.price.betwen(1, 2)),
            "F.price.betwen(…): an expression has no method 'betwen'. Did you mean F.price.between(…)?",
        ),
        (
            lambda o, c: o.map_values(a=F.id + "x"),
            "+ adds numbers, and a text is given. Write F.concat(F.id, 'x')",
        ),
        (lambda o, c: o.map_values(a=F.price // 2), "// is no operator of Spark SQL. Write F.floor(F.a / F.b), or "
         "F.div(F.a, F.b)"),
        (lambda o, c: o.filter(F.price > object()), "<object object> is no literal of Spark SQL. Write a text, a "
         "number, a Decimal, True, False, None, a datetime, a date or bytes"),
        (
            lambda o, c: o.filter(F.price > datetime(2026, 1, 31)),
            "datetime.datetime(2026, 1, 31, 0, 0) has no time zone, so it is no moment. Write one as in "
            "datetime(2026, 1, 31, tzinfo=UTC)",
        ),
        (
            lambda o, c: o.filter(F.exists(F.tags, lambda tag: tag == "x")),
            "lambda … is a function of Python, and no part of an expression. Write the whole expression as a text: "
            '"transform(lines, line -> line.sku)"',
        ),
        (
            lambda o, c: o.filter(F["odd name"] > 1),
            "filter: the value has no field 'odd name'. It has: id, product, price, count, customer",
        ),
        (lambda o, c: o.filter(F.price.is_in()), "is_in: no value is given. For example F.country.is_in('DE', 'FR')"),
        (
            lambda o, c: o.filter(F.price.between(1)),
            "between: the argument high is missing. For example orders.filter(F.amount.between(1, 100))",
        ),
        (
            lambda o, c: o.group_by(F.id).aggregate(mean=F.price.sum() / F.count()),
            "aggregate, mean: 'sum(price) / count(*)' is not one call of sum, count, count_if, min, max, avg, min_by, "
            "max_by, bool_and, bool_or. Fold with those; compute on with map_values",
        ),
        (lambda o, c: o.to(F.id), "to: an expression is given without the topics. Write topics=('a', 'b') beside it"),
    ],
)  # fmt: skip
def test_an_expression_that_is_wrong_is_told_with_what_to_write(declare: Callable[..., Any], told: str) -> None:
    assert faults(declare) == [told]


@pytest.mark.parametrize(
    "use",
    [
        lambda: F.a > 0 and F.b > 0,
        lambda: F.a > 0 or F.b > 0,
        lambda: not F.a,
        lambda: 0 < F.a < 5,  # type: ignore[operator]
        lambda: F.a in (1, 2),
        lambda: 1 if F.a else 2,
    ],
)
def test_python_asks_no_expression_whether_it_is_true(use: Callable[[], object]) -> None:
    with pytest.raises(NoTruthValue, match=r"Write & for 'and', \| for 'or', ~ for 'not'"):
        use()


@pytest.mark.parametrize("use", [lambda: 1 in F.tags, lambda: [*F.tags], lambda: [*F]])
def test_an_expression_has_no_elements(use: Callable[[], object]) -> None:
    with pytest.raises(NoTruthValue, match="has no elements"):
        use()


def test_a_field_may_have_the_name_of_what_takes_the_fields() -> None:
    topology, orders, *_ = streams()
    assert repr(orders.map_values(fields=F.id, other=F.count)).endswith(": fields, other>")
    orders.map_values(self=F.id)
    assert [fault.message for fault in topology.faults] == ["map_values: there is no argument 'self'"]
