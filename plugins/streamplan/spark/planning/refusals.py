"""What Spark says of a wrong expression, as a person reads it, and what to write in its place.

The conditions and their parameters are those of Spark's ``error-conditions.json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from streamplan.errors import Refused, did_you_mean
from streamplan.model.kstream import OF_RECORD
from streamplan.serdes.field_types import nearest_type
from streamplan.spark.planning.syntax_advice import syntax_advice

Said: TypeAlias = PySparkException | Refused | Py4JJavaError
"""What says that an expression is wrong: Spark, or the planning. Spark raises some of its errors as Java's."""

REFUSALS = (PySparkException, Refused, Py4JJavaError)
"""The same, for ``except``."""

WINDOW_FUNCTION = (
    "Records are seen one by one. Compare them with those before in an aggregate, or in a processor with a store"
)
"""What to write in place of a function of a window of SQL."""

_FOLD = "Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')"
_TYPE = 'Give it the type that is required, as in "cast(amount as bigint)"'
_ARROW = "Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))"

_ADVICE: Mapping[str, str] = {
    "UNRESOLVED_ROUTINE": "Write a function of Spark SQL, or give map_values a function of Python",
    "WRONG_NUM_ARGS": "Give the function as many arguments as it takes",
    "MISSING_GROUP_BY": _FOLD,
    "INVALID_WHERE_CONDITION": _FOLD,
    "NESTED_AGGREGATE_FUNCTION": "Aggregate twice: aggregate(…).to_stream().group_by('key').aggregate(…)",
    "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION": "Put it into a field before: map_values({'field': …})",
    "INVALID_OBSERVED_METRICS": "Write an aggregate of the records, as in {'records': 'count(*)'}",
    "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": WINDOW_FUNCTION,
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": 'Write a condition, as in "amount > 0"',
    "DATATYPE_MISMATCH.CAST_": "Cast it to another type",
    "DATATYPE_MISMATCH": _TYPE,
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "Leave out what stands behind it: only a struct, an array or a map has parts",
    "DECIMAL_PRECISION": "Spark's decimals have at most 38 digits: decimal(38,2)",
    "INVALID_TYPED_LITERAL": "For example date '2026-01-31', timestamp '2026-01-31 12:00:00', interval '5 minutes'",
    "INVALID_SQL_SYNTAX.EMPTY_IN": "Write at least one value: amount in (1, 2)",
    "UNBOUND_SQL_PARAMETER": "Write the name of the field alone: amount",
    "UNCLOSED_BRACKETED_COMMENT": "End the comment with */",
    "INVALID_LAMBDA_FUNCTION_CALL": _ARROW,
    "DIVIDE_BY_ZERO": "Write try_divide(a, b), which is null there",
    "ARITHMETIC_OVERFLOW": "Write a larger type, as in cast(amount as decimal(38,0))",
    "INVALID_PARAMETER_VALUE.PATTERN": "Correct the pattern. A \\ before a character takes away its meaning",
    "INVALID_DATETIME_PATTERN": "Write a pattern such as 'yyyy-MM-dd HH:mm:ss'",
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION": "Write a pattern such as 'yyyy-MM-dd HH:mm:ss'",
}
"""By the beginning of Spark's error condition what to write."""

_TEXTS: Mapping[str, str] = {
    "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": "{funcName} compares a record with others",
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "{base} is of type {other}, and has no parts",
    "UNSUPPORTED_DATATYPE": "there is no type {typeName}",
    "UNRESOLVED_ROUTINE": "there is no function {routineName}",
    "MISSING_GROUP_BY": "an aggregate of several records stands where one record is seen",
    "INVALID_WHERE_CONDITION": "an aggregate of several records stands where one record is seen",
    "NESTED_AGGREGATE_FUNCTION": "an aggregate stands in another aggregate",
    "INVALID_OBSERVED_METRICS": "this is no aggregate of records",
    "UNBOUND_SQL_PARAMETER": "a parameter stands where a field is expected: {name}",
    "UNCLOSED_BRACKETED_COMMENT": "a comment does not end",
    "INVALID_SQL_SYNTAX.EMPTY_IN_PREDICATE": "in () has no value",
    "INVALID_LAMBDA_FUNCTION_CALL.NON_HIGHER_ORDER_FUNCTION": (
        "a function of elements is given to a function that takes none"
    ),
    "INVALID_LAMBDA_FUNCTION_CALL.NUM_ARGS_MISMATCH": (
        "the function of elements has {expectedNumArgs} arguments, and {actualNumArgs} are given to it"
    ),
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": "the condition is of type {type}, and not a boolean",
    "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES": "{quoted}: the two sides are of types {left} and {right}",
    "DATATYPE_MISMATCH.BINARY_OP_WRONG_TYPE": "{quoted}: {inputType} is expected, and {actualDataType} is given",
    "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE": (
        "{quoted}: {inputSql} is of type {inputType}, and {requiredType} is expected"
    ),
    "DATATYPE_MISMATCH.CAST_": "{sqlExpr} is of type {srcType}, which cannot be cast to {targetType}",
    "DATATYPE_MISMATCH.DATA_DIFF_TYPES": "{quoted}: the types differ: {dataType}",
    "DATATYPE_MISMATCH.INVALID_ORDERING_TYPE": "{quoted}: values of type {dataType} have no order",
    "INVALID_PARAMETER_VALUE.PATTERN": "{value} is no regular expression",
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_WEEK": "the pattern has the letter {c}, which counts weeks",
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN": "{pattern} is no pattern of a time",
    "INVALID_DATETIME_PATTERN.WITH_SUGGESTION": "{pattern} is no pattern of a time",
    "INVALID_DATETIME_PATTERN": "the pattern of a time is wrong",
    "CAST_INVALID_INPUT": "{expression} cannot be cast from {sourceType} to {targetType}",
}
"""By the beginning of Spark's error condition what is said in place of its text, with its parameters."""

_OTHER_FUNCTIONS: Mapping[str, str] = {
    "str": "cast(amount as string)",
    "tostring": "cast(amount as string)",
    "bool": "cast(amount as boolean)",
    "col": "the name of the field alone: amount",
    "column": "the name of the field alone: amount",
    "lit": "the value alone: 5, or 'text'",
    "expr": "the expression alone",
    "otherwise": "case when condition then 'a' else 'b' end",
    "iif": "if(condition, 'a', 'b')",
    "getdate": "record.timestamp",
}
"""Functions of Python, of PySpark and of other databases, by their names in small letters, and what to write."""

_KINDS: Mapping[str, str] = {
    "numeric or interval day to second or interval year to month or interval": "a number or an interval",
    "timestamp or timestamp without time zone": "a timestamp",
    "numeric or ansi interval": "a number or an interval",
    "integral": "a whole number",
}
"""Spark's words for several types, and those of people."""

_COMPARED = r"(?:<>|[=<>]|\blike|\bin\s*\((?:[^()]*,)?)\s*"
"""What stands before a value that is compared."""

_SHORT = 60
"""The most characters of an expression that is quoted as it was declared. Of a longer one Spark tells the part."""

_SQL = re.compile(r"== SQL[^\n]*==\n(.*?)\n-*\^\^\^", re.DOTALL)
_TYPE_NAMES = re.compile(r'"((?:[^"\\]|\\.)*)"')


_NO_WINDOWS = "This stream has no windows: write windowed_by(TimeWindows('5 minutes')) before the aggregate"
"""What to write where a window is named and there is none."""


class Group(NamedTuple):
    """What an expression sees of an aggregate, in whose updates it stands.

    Attributes:
        is_one: Whether it sees the updates of an aggregate, so that the key is that of the group.
        is_windowed: Whether the key has a window.
    """

    is_one: bool = False
    is_windowed: bool = False


class Explanation(NamedTuple):
    """What is wrong, and what to write."""

    message: str
    hint: str


def explain(error: Said, expression: str = "", fields: Sequence[str] = (), group: Group | None = None) -> Explanation:
    """Return what is wrong with an expression, in one sentence without the plan, and what to write.

    Args:
        error: What Spark, or the planning, says of it.
        expression: Its text; empty where it is not known.
        fields: The fields that it sees.
        group: What it sees of an aggregate; None where it sees none.
    """
    if isinstance(error, Refused):
        message = str(error).removesuffix(f". {error.remedy}") if error.remedy else str(error)
        return Explanation(message, error.remedy.rstrip(".") or "Write Spark SQL over the fields there are")
    condition, parameters = condition_of(error), _parameters(error)
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        return _unresolved(_names(parameters["objectName"]), expression, fields, group or Group())
    if condition == "FIELD_NOT_FOUND" and "fieldName" in parameters:
        return _no_part(_names(parameters["fieldName"]), _listed(parameters["fields"]))
    if condition.startswith("WRONG_NUM_ARGS") and "functionName" in parameters:
        return _arguments(parameters)
    if condition.startswith("PARSE_"):
        sql = expression or next(iter(_SQL.findall(_text(error))), "")
        return Explanation(
            _message(error, condition, parameters, expression) + (f": {sql!r}" if sql else ""), syntax_advice(sql)
        )
    message = _message(error, condition, parameters, expression)
    return Explanation(message, _advice(condition, parameters, expression, fields))


def _advice(condition: str, parameters: Mapping[str, str], expression: str, fields: Sequence[str]) -> str:
    found = (hint for beginning, hint in _ADVICE.items() if condition.startswith(beginning))
    general = next(found, "Write Spark SQL over the fields there are")
    if condition == "UNRESOLVED_ROUTINE":
        names = _names(parameters.get("routineName", ""))
        return _function_meant(names, fields) or general
    if condition == "UNSUPPORTED_DATATYPE":
        meant = nearest_type(parameters.get("typeName", "").strip('"'))
        return f"Write {meant}" if meant else "For example string, bigint, double, boolean, timestamp, decimal(12,2)"
    if condition.endswith("FILTER_NOT_BOOLEAN") and re.search(r"\b(?:like|rlike|in|between)\s*$", expression):
        return syntax_advice(expression)  # Spark takes the last word for a name of the result
    if condition.startswith("DATATYPE_MISMATCH"):
        return _types_meant(condition, parameters, expression) or general
    if condition == "CAST_INVALID_INPUT":
        return "Write a value of that type, or cast the other side"
    return general


def _types_meant(condition: str, parameters: Mapping[str, str], expression: str) -> str:
    """What to write where the types of an expression do not fit; empty where nothing tells what was meant."""
    given = " ".join(parameters.values())
    quoted = parameters.get("sqlExpr", "").strip('"')
    if "BOOLEAN" in given and "||" in expression:
        return "Write or in place of ||, which joins texts"
    if "BOOLEAN" in given and re.search(r"[<>=]{1,2}[^<>=]+[<>=]", quoted):
        return "Compare twice: 0 < amount and amount < 5"
    if "TIMESTAMP" in given and re.search(r"[-+]", quoted):
        return "Write an interval: at + interval 5 minutes"
    if "TIMESTAMP" in given or '"DATE"' in given:
        return "Write a moment as timestamp '2026-01-31 12:00:00', and a day as date '2026-01-31'"
    if condition.endswith("UNEXPECTED_INPUT_TYPE") and "BOOLEAN" in parameters.get("requiredType", ""):
        return "Write a condition, as in amount > 0"
    if condition.endswith("BINARY_OP_WRONG_TYPE") and "STRING" in given and "+" in quoted:
        return "Write customer || '-' || id to join texts"
    if condition.endswith("UNEXPECTED_INPUT_TYPE") and quoted.endswith("]"):
        return "The elements of an array have numbers, from 0: tags[0]"
    return ""


def _unresolved(names: Sequence[str], expression: str, fields: Sequence[str], group: Group) -> Explanation:
    """What is said of a name that is no field."""
    first = names[0]
    message = f"the value has no field {first!r}"
    visible = [field for field in fields if field != "record"]
    hints = [f"It has: {', '.join(visible) or 'none'}", did_you_mean(first, visible)]
    if group.is_one:
        hints.append("The key of the group is record.key")
    if group.is_windowed:
        hints.append("The window is record.window.start")
    if not names[1:] and re.search(rf"{_COMPARED}{re.escape(first)}\b(?!\s*[.(])", expression, re.IGNORECASE):
        hints.append(f"For the text write {first!r}")
    hint = ". ".join(filter(None, hints)).replace("?.", "?")
    if first == "None":
        hint = "Write customer is null, or customer is not null"
    elif first == "F":
        hint = f"F stands outside of texts. Write {'.'.join(names[1:]) or 'amount'}"
    elif re.search(rf"\b{re.escape(first)}\s*=>", expression):
        hint = _ARROW
    elif names[1:] and names[1] in visible:
        hint = f"Write {'.'.join(names[1:])}"
    elif first in (*OF_RECORD, *(("window",) if group.is_windowed else ())) and first not in visible:
        hint = f"Write record.{'.'.join(names)}"
    elif first.lower() == "distinct" and first not in visible:
        hint = "Group by the value before: group_by('amount').reduce() keeps each once"
    return Explanation(message, hint)


def _no_part(names: Sequence[str], parts: Sequence[str]) -> Explanation:
    """What is said of a part that a struct does not have. Of ``record`` only the parts are told that people see."""
    has_no_windows = False
    if "original_key" in parts:
        has_no_windows = names[0].lower() == "window"
        struct, parts = "record", (*OF_RECORD, *(["window"] if "window" in parts else []))
    else:
        struct = "the struct"
    meant = _NO_WINDOWS if has_no_windows else did_you_mean(names[0], parts)
    hint = ". ".join(filter(None, [f"It has: {', '.join(parts)}", meant]))
    return Explanation(f"{struct} has no part {names[0]!r}", hint)


def _arguments(parameters: Mapping[str, str]) -> Explanation:
    """What is said of a function with too few arguments, or too many."""
    name = ".".join(_names(parameters["functionName"]))
    if name == "cast":
        return Explanation("cast takes a value and a type", "Write cast(amount as string)")
    expected = parameters["expectedNum"].strip()
    if expected.startswith("["):
        expected = " or ".join(expected.strip("[]").split(", "))
    words = {"0": "no argument", "1": "1 argument", ">= 1": "at least 1 argument", "> 1": "at least 2 arguments"}
    takes = words.get(expected, f"{'pairs of' if expected.startswith('2n') else expected} arguments")
    hint = f"Write {name}(*), or {name}(field)" if name == "count" else _ADVICE["WRONG_NUM_ARGS"]
    return Explanation(f"{name} takes {takes}, and {parameters['actualNum']} are given", hint)


def _function_meant(names: Sequence[str], fields: Sequence[str]) -> str:
    """What to write in place of a function that there is not; empty where nothing is near."""
    name = names[-1]
    if names[1:] and names[0] in fields:
        return f"Write {name}({'.'.join(names[:-1])})"
    if name.lower() in _OTHER_FUNCTIONS:
        return f"Write {_OTHER_FUNCTIONS[name.lower()]}"
    nearest = get_close_matches(name.lower(), () if names[1:] else _functions(), 1, cutoff=0.75)
    return f"Did you mean {nearest[0]}?" if nearest else ""


@cache
def _functions() -> tuple[str, ...]:
    """The functions of Spark SQL, as far as PySpark has them by the same names."""
    from pyspark.sql import functions

    return tuple(name for name in functions.__all__ if name.islower() and "udf" not in name)


def _message(error: Said, condition: str, parameters: Mapping[str, str], expression: str) -> str:
    """What Spark says in one sentence, with ours in place of it where there is one."""
    text = next((ours for beginning, ours in _TEXTS.items() if condition.startswith(beginning)), "")
    if text:
        try:
            plain = {name: _plain(value) for name, value in parameters.items()}
            quoted = expression if 0 < len(expression) <= _SHORT else plain.get("sqlExpr", "")
            return text.format_map({**plain, "quoted": quoted})
        except KeyError:
            pass  # another version of Spark has other parameters
    text = _text(error).strip().split("\n")[0].split("; line ")[0].split("SQLSTATE")[0]
    text = re.sub(r"^\[[A-Z_.]+\] ", "", text).split(" Please, refer to")[0].split(" Use `try_")[0]
    text = text.split(" Use 'try_")[0].split(" If necessary set")[0].split(": extra input")[0]
    text = re.sub(r'^Cannot resolve "(.*?)" due to data type mismatch: ', r"\1: ", text)
    return text.strip().rstrip(".")


def _plain(value: str) -> str:
    """A parameter of Spark's error without its quotes; names of types in small letters, as people write them."""

    def unquoted(found: re.Match[str]) -> str:
        text = found[1]
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1]
        return text.lower() if re.fullmatch(r"[A-Z_ ]+(?:[<(].*)?", text) else text

    text = _TYPE_NAMES.sub(unquoted, value).replace("`", "")
    for words, plain in _KINDS.items():
        text = text.replace(words, plain)
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _names(quoted: str) -> list[str]:
    """The names of a path in backticks."""
    return _listed(quoted) or [quoted.strip('"')]


def _listed(quoted: str) -> list[str]:
    return re.findall(r"`((?:[^`]|``)*)`", quoted)


def _text(error: Said) -> str:
    return str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)


def condition_of(error: Said) -> str:
    """Spark's name for the error, such as ``DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN``."""
    if isinstance(error, PySparkException):
        return error.getCondition() or ""
    return next(iter(re.findall(r"^\s*\[([A-Z_.]+)\]", _text(error))), "")


def _parameters(error: Said) -> Mapping[str, str]:
    """The parameters of Spark's error by their names."""
    return (error.getMessageParameters() or {}) if isinstance(error, PySparkException) else {}
