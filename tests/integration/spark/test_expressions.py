"""Spark reads the text of an expression of F as the value that Python has of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession
from streamplan import Expression, F
from streamplan.model.expressions import plain

ROW = {"a": 7, "b": -3, "c": 12, "odd name": 5, "with ` tick": 2, "größe": 9, "null": 4, "order": 1, "1a": 6}
KEYWORDS = ("true", "false", "not", "case", "distinct", "interval", "exists", "select", "from", "current_date", "when")

LITERALS: list[Any] = [
    None, True, False, 0, -1, 2**31, -(2**63), 2**63, 10**37, 0.5, -0.1, 1e-7, 1e300, 5e-324, 0.1 + 0.2, 1e16,
    math.inf, -math.inf, Decimal("0.10"), Decimal("-5"), Decimal("1E+5"), Decimal("0.00000000000000000001"),
    Decimal("9" * 38), "", "a", "it's", '"', "back\\slash", "\\", "\\'", "\\n", "new\nline", "tab\t", "\x00", "%_\\%",
    "${env:HOME}", "${spark.app.name}", "$", "{}", "größe 漢字 🙂", "--", "/* no comment */", "`", "\\u0041", "'" * 5,
    b"", b"\x00\xff'", datetime(2026, 1, 31, 12, 30, 15, 123456, UTC), datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), datetime(1969, 12, 31, tzinfo=UTC), date(2026, 1, 31),
    date(1, 1, 1),
]  # fmt: skip

Tree = tuple[Expression, Callable[[], Any]]
"""An expression, and what it is by Python's own operators."""


def number(chance: random.Random, depth: int) -> Tree:
    if depth == 0 or chance.random() < 0.2:
        name = chance.choice(["a", "b", "c", *(each for each in ROW if len(each) > 1)])
        literal = chance.randint(-9, 9)
        return chance.choice([(F[name], lambda: ROW[name]), (F.lit(literal), lambda: literal)])
    (x, of_x), (y, of_y) = number(chance, depth - 1), number(chance, depth - 1)
    literal = chance.randint(-5, 5)
    return chance.choice(
        [
            (x + y, lambda: of_x() + of_y()),
            (x - y, lambda: of_x() - of_y()),
            (x * y, lambda: of_x() * of_y()),
            (-x, lambda: -of_x()),
            (literal - x, lambda: literal - of_x()),
            (x * literal, lambda: of_x() * literal),
            (F.when(x > y, x, y), lambda: max(of_x(), of_y())),
        ]
    )


def condition(chance: random.Random, depth: int) -> Tree:
    if depth == 0 or chance.random() < 0.3:
        (x, of_x), (y, of_y), (z, of_z) = (number(chance, 2) for _ in range(3))
        return chance.choice(
            [
                (x > y, lambda: of_x() > of_y()),
                (x <= y, lambda: of_x() <= of_y()),
                (x == y, lambda: of_x() == of_y()),
                (x != 3, lambda: of_x() != 3),
                (x.between(y, z), lambda: of_y() <= of_x() <= of_z()),
                (x.is_in(y, z, 7), lambda: of_x() in (of_y(), of_z(), 7)),
                (x.is_null(), lambda: False),
                ((x > y) == (y > z), lambda: (of_x() > of_y()) == (of_y() > of_z())),
            ]
        )
    (x, of_x), (y, of_y) = condition(chance, depth - 1), condition(chance, depth - 1)
    return chance.choice(
        [
            (x & y, lambda: of_x() and of_y()),
            (x | y, lambda: of_x() or of_y()),
            (~x, lambda: not of_x()),
            (x.is_not_null(), lambda: True),
            (x & True, of_x),
            (x == y, lambda: of_x() == of_y()),
        ]
    )


def as_read(value: Any) -> Any:
    """A value of Spark's as Python has it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):  # Spark gives a moment in the zone of this process
        return value.astimezone(UTC)
    return value


def test_spark_reads_an_expression_as_python_does(spark: SparkSession) -> None:
    chance = random.Random(42)
    trees = [number(chance, 4) for _ in range(150)] + [condition(chance, 4) for _ in range(150)]
    columns = ", ".join(f"cast({value} as bigint) as `{name.replace('`', '``')}`" for name, value in ROW.items())
    names = ", ".join(f"0 as `{name}`" for name in KEYWORDS)
    row = spark.sql(f"select {columns}, {names}, named_struct('odd part', 1, 'count', 2) as s, array(8, 9) as t")
    parts = [F.s["odd part"] + 0, F.s["count"], F.t[1], F.t[F.order], *(F[name] for name in KEYWORDS)]
    # One moment beyond what Python holds in a zone of its own is compared as its microseconds.
    literals = [F.unix_micros(value) if isinstance(value, datetime) else F.lit(value) for value in LITERALS]
    texts = [plain(each) for each in [*(tree for tree, _ in trees), *parts, *literals]]
    found = [
        as_read(value) for value in row.selectExpr(*(f"({text}) as r{at}" for at, text in enumerate(texts))).first()
    ]
    expected = [*(of() for _, of in trees), 1, 2, 9, 9, *(0 for _ in KEYWORDS)]
    for value in LITERALS:
        if isinstance(value, datetime):
            value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        expected.append(value)
    for text, is_value, should_be in zip(texts, found, expected, strict=True):
        if isinstance(should_be, float) and isinstance(is_value, Decimal):  # Spark reads 0.5 exactly
            is_value = float(is_value)
        assert is_value == should_be, text
