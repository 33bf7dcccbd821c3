"""What Spark says of a wrong expression is told in one sentence, with what to write. The texts are Spark 4.2's own."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from streamplan.errors import Refused
from streamplan.spark.planning.refusals import advice, sentence

SQL = 'Write an expression in Spark SQL, as in "amount > 0 and customer is not null"'


class Said(PySparkException):
    """An error of Spark's JVM, which makes its text and its condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self._said = condition, text

    def getCondition(self) -> str:
        return self._said[0]

    def __str__(self) -> str:
        return self._said[1]


@pytest.mark.parametrize(
    ("condition", "text", "told", "write"),
    [
        (
            "PARSE_SYNTAX_ERROR",
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 8)\n\n"
            "== SQL ==\namount >\n--------^^^\n",
            "Syntax error at or near end of input: 'amount >'",
            SQL,
        ),
        (
            "UNRESOLVED_ROUTINE",
            "[UNRESOLVED_ROUTINE] Cannot resolve routine `nosuch` on search path [`system`.`builtin`, "
            "`system`.`session`, `spark_catalog`.`default`]. SQLSTATE: 42883; line 1 pos 0",
            "There is no function `nosuch`",
            "Write a function of Spark SQL, or give map_values a function of Python",
        ),
        (
            "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
            "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] The `upper` requires 1 parameters but the actual number is 2. Please, "
            "refer to 'https://spark.apache.org/docs/latest/sql-ref-functions.html' for a fix. SQLSTATE: 42605; line 1",
            "The `upper` requires 1 parameters but the actual number is 2",
            "Give the function as many arguments as it takes",
        ),
        (
            "MISSING_GROUP_BY",
            "[MISSING_GROUP_BY] The query does not include a GROUP BY clause. Add GROUP BY or turn it into the window "
            "functions using OVER clauses. SQLSTATE: 42803; line 1 pos 0",
            "An aggregate of several records stands where one record is seen",
            "Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')",
        ),
        (
            "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN",
            '[DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN] Cannot resolve "customer" due to data type mismatch: Filter '
            'expression "customer" of type "STRING" is not a boolean. SQLSTATE: 42K09;\nFilter customer\n+- Project',
            'Cannot resolve "customer" due to data type mismatch: Filter expression "customer" of type "STRING" is not '
            "a boolean",
            'Write a condition, as in "amount > 0"',
        ),
    ],
)
def test_an_error_of_spark_is_a_sentence_with_what_to_write(condition: str, text: str, told: str, write: str) -> None:
    error = Said(condition, text)
    assert (sentence(error), advice(error)) == (told, write)


def test_what_the_planning_refuses_is_told_as_it_is() -> None:
    error = Refused("the key", expected="a text", observed="an array")
    assert sentence(error) == "the key: expected a text, observed an array"
    assert advice(error) == "Write Spark SQL over the fields there are"
