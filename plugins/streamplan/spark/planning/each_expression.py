"""The expressions of an operation one by one, so that every wrong one is told, and not the first alone.

Spark refuses an operation at its first wrong expression. So each is asked about while harmless ones stand in for the
others. What a wrong expression would have given is unknown: an expression behind it that names such a field is not
judged, and nobody is blamed for what follows from a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from pyspark.errors import ParseException

from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    Aggregate,
    AggregateColumn,
    AggregateWindowsFunction,
    Cogroup,
    CogroupFunctionSide,
    CogroupSide,
    Filter,
    FilterNot,
    FlatMap,
    FlatMapValues,
    GlobalJoin,
    Join,
    KeySelect,
    Map,
    MapValues,
    Operation,
    Peek,
    Split,
    StreamJoin,
    TableFilter,
    TableJoin,
    TableKeySelect,
    TableMapValues,
)
from streamplan.spark.planning.refusals import REFUSALS, Said

_EXPRESSIONS: Mapping[type, tuple[str, ...]] = {
    Filter: ("condition",),
    FilterNot: ("condition",),
    Split: ("conditions",),
    MapValues: ("value",),
    KeySelect: ("key",),
    TableKeySelect: ("key",),
    Map: ("key", "value"),
    FlatMap: ("each", "key", "value"),
    FlatMapValues: ("each", "value"),
    Peek: ("metrics",),
    Join: ("value",),
    GlobalJoin: ("key", "value"),
    StreamJoin: ("value",),
    TableJoin: ("value",),
    TableFilter: ("condition",),
    TableMapValues: ("value",),
    Aggregate: ("columns",),
    CogroupSide: ("columns",),
}
"""The fields of operations that have expressions."""

_PASSES = Filter | FilterNot | KeySelect | Peek | Split | TableFilter | TableKeySelect
"""The operations of these that keep the value."""

_SEE_MORE = FlatMap | FlatMapValues | GlobalJoin | Join | StreamJoin | TableJoin
"""The operations whose expressions see more than the value before them."""

_WORDS = {
    "key_select": "the key",
    "global_join": "join",
    "table_key_select": "group_by",
    "split": "branch",
    "stream_join": "join",
    "outer_stream_join": "join",
    "table_join": "join",
    "table_filter": "filter",
    "table_map_values": "map_values",
}

_NULL = "cast(null as string)"
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")

Place = tuple[str, int]
"""The field of an operation, and the number of the expression in it."""


class Expression(NamedTuple):
    """An expression of an operation.

    Attributes:
        text: In Spark SQL; of an aggregate the whole call.
        is_condition: Whether records are kept for which it is true.
        sees_value_alone: Whether it sees the value before it, and nothing else.
    """

    text: str
    is_condition: bool = False
    sees_value_alone: bool = True


class Judged(NamedTuple):
    """What is known of an operation.

    Attributes:
        faults: What is wrong: where, in which expression, and what is said of it.
        operation: The same with harmless expressions in place of those that are wrong or not known.
        unknown: The fields of its result whose expressions are such.
    """

    faults: tuple[tuple[str, str, Said], ...]
    operation: Operation
    unknown: frozenset[str]


def judge_each(operation: Operation, unknown: Collection[str], attempt: Callable[[Operation], object]) -> Judged | None:
    """Judge the expressions of an operation one by one.

    None stands for an operation without expressions, or one that is refused whatever they are.

    Args:
        unknown: The fields before it that are not known, because of a fault.
        attempt: Plans an operation in its place. Raises what Spark says of it.
    """
    if not (names := _names_of(operation)):
        return None
    places = list(_places(operation, names))
    try:
        attempt(_without(operation, places))
    except REFUSALS:
        return None
    not_known = {place for place in places if _names_one_of(_expression(operation, place), unknown)}
    wrong: dict[Place, Said] = {}
    for place in places:
        # The others see the element, so it stays where it is right.
        others = {each for each in places if each != place and (each[0] != "each" or each in {*not_known, *wrong})}
        try:
            attempt(_without(operation, others))
        except REFUSALS as error:
            if place in not_known and not isinstance(error, ParseException):
                continue  # what is said of its types follows from a fault; that it is no SQL does not
            wrong[place] = error
            if place[0] == "each":
                not_known |= {each for each in places if _names_one_of(_expression(operation, each), ("element",))}
    left_out = {*wrong, *not_known}
    columns = {_label(operation, place) for place in left_out if place[0] in ("value", "columns")}
    told = tuple(
        (f"{_word(operation)}{_argument(operation, place)}", _text(operation, place), error)
        for place, error in wrong.items()
    )
    passes = frozenset(unknown) if isinstance(operation, _PASSES) else frozenset[str]()
    return Judged(told, _without(operation, left_out), passes | columns)


def expressions_of(operation: Operation) -> Iterator[Expression]:
    """Yield the expressions of an operation."""
    for place in _places(operation, _names_of(operation)):
        sees_value_alone = not isinstance(operation, _SEE_MORE) or place[0] == "each"
        yield Expression(_text(operation, place), place[0].startswith("condition"), sees_value_alone)


def _names_of(operation: Operation) -> tuple[str, ...]:
    """The fields of an operation that have expressions which are judged one by one."""
    if isinstance(operation, Cogroup | CogroupFunctionSide | AggregateWindowsFunction):
        return ()
    return next((names for kind, names in _EXPRESSIONS.items() if isinstance(operation, kind)), ())


def _places(operation: Operation, names: Collection[str]) -> Iterator[Place]:
    for name in names:
        for number in range(_count(getattr(operation, name))):
            if not isinstance(_part(operation, (name, number)), PythonFunction):
                yield name, number


def _count(part: object) -> int:
    return len(part) if isinstance(part, tuple) else 1


def _part(operation: Operation, place: Place) -> Any:
    """What stands there: an expression, a column, or a function."""
    parts: Any = getattr(operation, place[0])
    return parts[place[1]] if isinstance(parts, tuple) else parts


def _expression(operation: Operation, place: Place) -> str:
    part = _part(operation, place)
    if isinstance(part, AggregateColumn):
        return part.arguments
    return str(part[1] if isinstance(part, tuple) else part)


def _text(operation: Operation, place: Place) -> str:
    """An expression as it was declared."""
    part, text = _part(operation, place), _expression(operation, place)
    return f"{part.function}({text})" if isinstance(part, AggregateColumn) else text


def _label(operation: Operation, place: Place) -> str:
    column = getattr(operation, place[0])[place[1]]
    return column.name if isinstance(column, AggregateColumn) else str(column[0])


def _names_one_of(expression: str, names: Collection[str]) -> bool:
    words = set(re.findall(r"\w+", _TEXT.sub("", expression)))
    return not words.isdisjoint(names)


def _without(operation: Operation, places: Collection[Place]) -> Operation:
    """The operation with harmless expressions in these places."""
    changes: dict[str, Any] = {}
    key_serde = getattr(operation, "key_serde", None)
    harmless = {
        "condition": "true",
        "each": "array('')",
        "key": _NULL if key_serde is None else f"cast(null as {key_serde.field_type})",
    }
    for each in fields(operation):
        part = getattr(operation, each.name)
        numbers = {number for name, number in places if name == each.name}
        if not numbers:
            continue
        if each.name in harmless:
            changes[each.name] = harmless[each.name]
        else:
            changes[each.name] = tuple(
                _harmless_column(each.name, column) if number in numbers else column
                for number, column in enumerate(part)
            )
    return replace(operation, **changes)


def _harmless_column(name: str, column: Any) -> Any:
    if name == "conditions":
        return "true"
    if isinstance(column, AggregateColumn):
        return AggregateColumn(column.name, "min", _NULL)
    return (column[0], "count(*)" if name == "metrics" else _NULL)


def _word(operation: Operation) -> str:
    """The operation, as a declaration has it."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(operation).__name__).lower()
    return _WORDS.get(name, "cogroup" if isinstance(operation, CogroupSide) else name.removeprefix("final_"))


def _argument(operation: Operation, place: Place) -> str:
    """Which of its expressions, where it has several."""
    if place[0] in ("value", "columns", "metrics"):
        return f", {_label(operation, place)}"
    if isinstance(operation, Split):
        return f" {place[1] + 1}"
    return f", {place[0]}" if isinstance(operation, Map | FlatMap | FlatMapValues) else ""
