"""What Spark says of a wrong expression, as a person reads it, and what to write in its place."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from streamplan.errors import Refused

_ADVICE = {
    "PARSE_": 'Write an expression in Spark SQL, as in "amount > 0 and customer is not null"',
    "UNRESOLVED_ROUTINE": "Write a function of Spark SQL, or give map_values a function of Python",
    "WRONG_NUM_ARGS": "Give the function as many arguments as it takes",
    "MISSING_GROUP_BY": "Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')",
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": 'Write a condition, as in "amount > 0"',
    "DATATYPE_MISMATCH": 'Give it the type that is required, as in "cast(amount as bigint)"',
}
"""By the beginning of Spark's error condition what to write."""

_SQL = re.compile(r"== SQL[^\n]*==\n(.*?)\n-*\^\^\^", re.DOTALL)
_ROUTINE = re.compile(r"Cannot resolve routine (`.*?`) on search path .*")


def sentence(error: PySparkException | Refused) -> str:
    """Return what Spark says, without its code, the plan and the position. A text that is no SQL is shown.

    Args:
        error: What Spark, or the planning, says of an expression.
    """
    text = str(error).strip().split("\n")[0].split("; line ")[0].split("SQLSTATE")[0]
    text = re.sub(r"^\[[A-Z_.]+\] ", "", text).split(" Please, refer to")[0].strip().rstrip(".")
    text = _ROUTINE.sub(r"There is no function \1", text)
    if text.startswith("The query does not include a GROUP BY clause"):
        text = "An aggregate of several records stands where one record is seen"
    written = _SQL.search(str(error))
    return f"{text}: {written[1]!r}" if written is not None and _condition(error).startswith("PARSE_") else text


def advice(error: PySparkException | Refused) -> str:
    """Return what to write in place of an expression.

    Args:
        error: What Spark, or the planning, says of it.
    """
    condition = _condition(error)
    found = (hint for beginning, hint in _ADVICE.items() if condition.startswith(beginning))
    return next(found, "Write Spark SQL over the fields there are")


def _condition(error: PySparkException | Refused) -> str:
    """Spark's name for the error, such as ``DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN``."""
    return (error.getCondition() or "") if isinstance(error, PySparkException) else ""
