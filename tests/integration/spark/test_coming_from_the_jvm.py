"""Each row of docs/coming-from-the-jvm.md: what Spark makes of an expression, and what the JVM makes of Java's."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from streamplan.local.jars import KAFKA_STREAMS
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Double
from streamplan.testing import TopologyTestDriver

from tests.support.kafka_streams import collection, java

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-the-jvm.md"
FAILS = "fails"

DIFFERENCES: list[tuple[str, Any, str, Any]] = [
    ("split('a,b,,', ',')", ["a", "b", "", ""], '"a,b,,".split(",")', ["a", "b"]),
    ("7 / 2", 3.5, "7 / 2", 3),
    ("7 div 2", 3, "7 / 2", 3),
    ("-7 % 3", -1, "-7 % 3", -1),
    ("pmod(-7, 3)", 2, "Math.floorMod(-7, 3)", 2),
    ("2147483647 + 1", FAILS, "2147483647 + 1", -2147483648),
    ("cast(1e10D as int)", FAILS, "(int) 1e10", 2147483647),
    ("cast(' 12 ' as int)", 12, 'Integer.parseInt(" 12 ")', FAILS),
    ("round(-2.5D)", -3.0, "Math.round(-2.5)", -2),
    ("1BD / 3", "0.333333", 'new BigDecimal("1").divide(new BigDecimal("3"))', FAILS),
    ("substring('abcd', 1, 2)", "ab", '"abcd".substring(1, 2)', "b"),
    ("instr('abc', 'b')", 2, '"abc".indexOf("b")', 1),
    ("length('😀')", 1, '"😀".length()', 2),
    ("trim('\\ta ')", "\ta", '"\\ta ".trim()', "a"),
    ("'｡' < '😀'", True, '"｡".compareTo("😀") < 0', False),
    ("'abc' rlike 'b'", True, '"abc".matches("b")', False),
    ("concat('a', null)", None, '"a" + null', "anull"),
    ("null = null", None, "Objects.equals(null, null)", True),
    ("null <> 'x'", None, '!Objects.equals(null, "x")', True),
    ("upper('straße')", "STRASSE", '"straße".toUpperCase()', "STRASSE"),
    ("-0.0D = 0.0D", True, "Double.valueOf(-0.0).equals(0.0)", False),
    ("cast(-0.0 as double)", "0.0", "-0.0", "-0.0"),
    ("cast('-0.0' as double)", "-0.0", 'Double.parseDouble("-0.0")', "-0.0"),
    ("dayofweek(date'2026-01-05')", 2, "LocalDate.of(2026, 1, 5).getDayOfWeek().getValue()", 1),
]
"""An expression, its result, the Java that a JVM application has for it, and the result of that."""


class Java:
    """What the Java of :data:`DIFFERENCES` computes. The operators of Java are called by methods that apply them."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def text(self, target: str, method: str, *arguments: Any) -> Any:
        return self.method(target, method, *arguments, of="java.lang.String")

    def method(self, target: Any, method: str, *arguments: Any, of: str) -> Any:
        """A method of a class of whose objects Py4j makes values of Python."""
        kinds = {str: "java.lang.String", int: "int", Decimal: "java.math.BigDecimal"}
        wanted = [kinds[type(argument)] for argument in arguments]
        (found,) = (
            each
            for each in self._jvm.java.lang.Class.forName(of).getMethods()
            if each.getName() == method and [kind.getName() for kind in each.getParameterTypes()] == wanted
        )
        return found.invoke(target, collection(self._jvm, arguments).toArray())

    def big(self, number: int) -> Any:
        return self._jvm.java.math.BigInteger(str(number))

    def result(self, code: str) -> Any:
        lang, util = self._jvm.java.lang, self._jvm.java.util
        match code:
            case '"a,b,,".split(",")':
                return list(self.text("a,b,,", "split", ","))
            case "7 / 2":
                return int(self.big(7).divide(self.big(2)).toString())
            case "-7 % 3":
                return int(self.big(-7).remainder(self.big(3)).toString())
            case "Math.floorMod(-7, 3)":
                return lang.Math.floorMod(-7, 3)
            case "2147483647 + 1":
                return lang.Integer.sum(2147483647, 1)
            case "(int) 1e10":
                return self.method(1e10, "intValue", of="java.lang.Double")
            case 'Integer.parseInt(" 12 ")':
                return lang.Integer.parseInt(" 12 ")
            case "Math.round(-2.5)":
                return lang.Math.round(-2.5)
            case 'new BigDecimal("1").divide(new BigDecimal("3"))':
                return self.method(Decimal(1), "divide", Decimal(3), of="java.math.BigDecimal")
            case '"abcd".substring(1, 2)':
                return self.text("abcd", "substring", 1, 2)
            case '"abc".indexOf("b")':
                return self.text("abc", "indexOf", "b")
            case '"😀".length()':
                return self.text("😀", "length")
            case '"\\ta ".trim()':
                return self.text("\ta ", "trim")
            case '"｡".compareTo("😀") < 0':
                return self.text("｡", "compareTo", "😀") < 0
            case '"abc".matches("b")':
                return self.text("abc", "matches", "b")
            case '"a" + null':
                return lang.StringBuilder("a").append(util.Objects.toString(None)).toString()
            case "Objects.equals(null, null)":
                return util.Objects.equals(None, None)
            case '!Objects.equals(null, "x")':
                return not util.Objects.equals(None, "x")
            case '"straße".toUpperCase()':
                return self.text("straße", "toUpperCase")
            case "Double.valueOf(-0.0).equals(0.0)":
                return util.Objects.equals(-0.0, 0.0)
            case "-0.0":
                return lang.Double.toString(-0.0)
            case 'Double.parseDouble("-0.0")':
                return lang.Double.toString(lang.Double.parseDouble("-0.0"))
            case "LocalDate.of(2026, 1, 5).getDayOfWeek().getValue()":
                return self._jvm.java.time.LocalDate.of(2026, 1, 5).getDayOfWeek().getValue()
        raise LookupError(code)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS) as jvm:
        yield jvm


def shown(result: Any) -> str:
    """A result as the page shows it."""
    if result == FAILS and isinstance(result, str):
        return FAILS
    if isinstance(result, bool) or result is None:
        return f"`{str(result).lower() if result is not None else 'null'}`"
    if isinstance(result, str):
        return "`{}`".format(result.replace("\t", "\\t"))
    return "`{}`".format(str(result).replace("'", '"'))


def test_spark_makes_of_each_expression_what_the_page_says(spark: SparkSession) -> None:
    observed = []
    for expression, expected, _, _ in DIFFERENCES:
        try:
            (row,) = spark.sql(f"select {expression} as result").collect()
            result = str(row.result) if isinstance(expected, str) else row.result
        except PySparkException:
            result = FAILS
        observed.append((expression, result))
    assert observed == [(expression, expected) for expression, expected, _, _ in DIFFERENCES]


def test_java_makes_of_its_own_what_the_page_says(jvm: Any) -> None:
    observed = []
    for _, _, code, _ in DIFFERENCES:
        try:
            observed.append((code, Java(jvm).result(code)))
        except Py4JError:
            observed.append((code, FAILS))
    assert observed == [(code, expected) for _, _, code, expected in DIFFERENCES]


def test_the_page_has_a_row_for_each_difference_and_no_other() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{expression}` | {shown(result)} | `{code}` | {shown(of_java)} |"
        for expression, result, code, of_java in DIFFERENCES
    ]


def test_minus_zero_is_another_key_than_zero_and_is_kept_in_values(spark: SparkSession, jvm: Any) -> None:
    topology = Topology("zeros")
    numbers = topology.stream("numbers", value=Json("x double"))
    numbers.to("copied")
    numbers.map_values({"x": "x"}).to("written")
    numbers.select_key("x", key_serde=Double()).to("keyed")
    pipeline = Pipeline("zeros", topology, "", dict.fromkeys(("numbers", "copied", "written", "keyed"), 1))
    with TopologyTestDriver(pipeline, spark=spark) as driver:
        for text in (b'{"x": -0.0}', b'{"x": 0.0}'):
            driver.pipe("numbers", text, key="k", at="12:00")
        assert [str(one.value["x"]) for topic in ("copied", "written") for one in driver.output(topic)] == [
            "-0.0",
            "0.0",
            "-0.0",
            "0.0",
        ]
        assert [str(one.key) for one in driver.output("keyed")] == ["-0.0", "0.0"]
    serializer = jvm.org.apache.kafka.common.serialization.DoubleSerializer()
    assert serializer.serialize("t", -0.0) != serializer.serialize("t", 0.0)


def test_the_store_of_a_count_has_a_number_and_that_of_an_aggregate_of_one_field_has_json(
    spark: SparkSession, jvm: Any
) -> None:
    topology = Topology("stores")
    grouped = topology.stream("orders", value=Json("amount bigint"), key="customer").group_by_key()
    grouped.count(store="orders-per-customer")
    grouped.aggregate({"total": "sum(amount)"}, store="totals")
    pipeline = Pipeline("stores", topology, "", {"orders": 1})
    with TopologyTestDriver(pipeline, spark=spark) as driver:
        driver.pipe("orders", {"amount": 5}, key="ann", at="12:00")
        assert driver.store("orders-per-customer")["ann"] == 1
        assert driver.store("totals")["ann"] == {"total": 5}
    assert len(jvm.org.apache.kafka.common.serialization.LongSerializer().serialize("t", 5)) == 8
