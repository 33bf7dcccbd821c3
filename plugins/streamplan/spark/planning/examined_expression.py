"""What Spark takes for an expression, and nobody means: it is refused before it gives a wrong result.

Spark plans a micro-batch as a table. So it takes what compares the rows of a table, such as a window function, and what
makes several rows of one. A record is seen alone here: its result must not depend on what else its micro-batch has.
Spark also takes a constant that fails with each record, such as a text that is compared with a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.spark.planning.compiled_plan import analyzed_expressions
from streamplan.spark.planning.refusals import REFUSALS, WINDOW_FUNCTION, condition_of, explain

_GENERATORS = (
    "explode",
    "explode_outer",
    "posexplode",
    "posexplode_outer",
    "inline",
    "inline_outer",
    "stack",
    "json_tuple",
)

_WINDOWS = ("window", "session_window", "window_time")

_SUBQUERIES = ("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery")

_OF_A_PATTERN = ("INVALID_PARAMETER_VALUE", "INVALID_DATETIME_PATTERN", "INCONSISTENT_BEHAVIOR_CROSS_VERSION")
"""The beginnings of Spark's conditions for an argument that is wrong whatever the others are."""

_NOT_EVALUATED = ("INTERNAL_ERROR", "UNSUPPORTED")
"""Those with which Spark says that it replaces an expression before it computes it."""


class ReadText(NamedTuple):
    """A text that Spark reads as a value of another type, and fails where it is none.

    Attributes:
        text: The part of the expression, as Spark prints it.
        type: The type.
    """

    text: str
    type: str


def examine(data: DataFrame, expression: str, fields: Sequence[str]) -> None:
    """Refuse an expression that sees other records than its own, or makes several of one.

    Args:
        data: Any records.
        expression: The text.
        fields: The fields of the value, which a hint names.

    Raises:
        Refused: It does.
        PySparkException: It is no Spark SQL.
    """
    session: Any = data.sparkSession
    parsed = session._jsparkSession.sessionState().sqlParser().parseExpression(expression)
    for node, above in _nodes(parsed):
        kind = _kind(node)
        if kind in ("WindowExpression", "UnresolvedWindowExpression"):
            raise Refused("over (…) compares a record with others of its micro-batch", remedy=WINDOW_FUNCTION)
        if kind in _SUBQUERIES:
            remedy = "Join the stream with a table: stream.join(topology.table('topic', value=…), {…})"
            raise Refused("a query stands in the expression, and there are no tables that it could read", remedy=remedy)
        if kind == "UnresolvedStar" and above != "count":
            raise Refused("* stands for no fields", remedy=f"Name them: struct({', '.join(fields)})")
        if kind == "LambdaFunction" and not above:
            remedy = "Write transform(tags, tag -> upper(tag)), or give map_values a function of Python"
            raise Refused("a function of elements stands where a value is expected", remedy=remedy)
        if kind in _GENERATORS:
            remedy = "Write flat_map_values('array', {'field': 'element'})"
            raise Refused(f"{kind} makes several records of one", remedy=remedy)
        if kind in _WINDOWS:
            remedy = "Write group_by('key').windowed_by(TimeWindows('5 minutes'))"
            raise Refused(f"{kind} is a window of Spark's own streams", remedy=remedy)


def require_visible(data: DataFrame, condition: str) -> None:
    """Refuse a condition that names a column of the topic. Spark looks there for what the value does not have.

    Raises:
        PySparkException: It does, or Spark refuses it.
    """
    data.select(F.expr(condition))


def examine_analyzed(data: DataFrame, expression: str) -> tuple[ReadText, ...]:
    """Refuse an expression of which a constant part fails whatever the record is.

    Args:
        data: The records that it sees.
        expression: The text. Spark takes it.

    Returns:
        Each text that Spark reads as a value of another type, though the expression does not say so.

    Raises:
        Refused: A part fails.
    """
    casts: list[ReadText] = []
    for column in analyzed_expressions(data.select(F.expr(expression))):
        _refuse_failing(column, data, casts)
    return tuple(dict.fromkeys(casts))


def _refuse_failing(node: Any, data: DataFrame, casts: list[ReadText]) -> bool:
    """Refuse an expression of which a constant part fails. Return whether all of it is constant.

    Args:
        node: The expression.
        data: The records that it sees.
        casts: Gets each text that Spark reads as another type.
    """
    if _kind(node) == "TryEval":
        return bool(node.foldable())  # what fails in it is null
    children = _children(node)
    constant = [_refuse_failing(child, data, casts) for child in children]
    if _kind(node) == "Cast" and not any(constant) and _is_unsafe(node, data):
        casts.append(ReadText(children[0].sql().replace("`", ""), node.dataType().simpleString()))
    if node.foldable() and node.deterministic():
        if children:  # a literal cannot fail
            _evaluate(node)
        return True
    if any(constant):
        jvm: Any = data.sparkSession._jvm
        literals = getattr(jvm, "org.apache.spark.sql.catalyst.expressions.Literal")
        try:
            samples = [
                child if is_constant else literals.default(child.dataType())
                for child, is_constant in zip(children, constant, strict=True)
            ]
            sample = node.withNewChildren(jvm.PythonUtils.toSeq(samples))
        except REFUSALS:
            return False  # Spark has no sample of a type
        _evaluate(sample, only=_OF_A_PATTERN)
    return False


def _is_unsafe(cast: Any, data: DataFrame) -> bool:
    """Whether a cast is one of Spark's own that fails for some texts: of a text to anything but a text or bytes."""
    to = cast.dataType().typeName()
    if cast.child().dataType().typeName() != "string" or to in ("string", "binary"):
        return False
    jvm: Any = data.sparkSession._jvm
    companion = getattr(jvm.org.apache.spark.sql.catalyst.expressions, "Cast$")
    return bool(cast.getTagValue(getattr(companion, "MODULE$").USER_SPECIFIED_CAST()).isEmpty())


def _evaluate(node: Any, only: tuple[str, ...] = ()) -> None:
    """Refuse an expression without fields that fails.

    Args:
        node: The expression.
        only: The beginnings of the conditions that are told, those of a pattern; all where there is none.
    """
    try:
        node.eval(None)
    except REFUSALS as error:
        condition = condition_of(error)
        if condition.startswith(_NOT_EVALUATED):
            _evaluate_replacement(node, only)
        elif condition and (not only or condition.startswith(only)):
            said = explain(error)
            raise Refused(
                said.message if only else f"a constant part fails: {said.message}", remedy=said.hint
            ) from None


def _evaluate_replacement(node: Any, only: tuple[str, ...]) -> None:
    """Refuse an expression that Spark replaces by another one which fails."""
    try:
        replacement = node.replacement()
    except Py4JError:
        return  # it is none of those
    _evaluate(replacement, only)


def _nodes(root: Any, above: str = "") -> Iterator[tuple[Any, str]]:
    """Every part of an expression, each with the kind of what it stands in."""
    yield root, above
    for child in _children(root):
        yield from _nodes(child, _kind(root))


def _kind(node: Any) -> str:
    """The class of a part of an expression, or the function that it calls, in small letters."""
    kind = str(node.getClass().getSimpleName())
    return str(node.nameParts().last()).lower() if kind == "UnresolvedFunction" else kind


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(number) for number in range(children.size())]
