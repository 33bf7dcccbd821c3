"""What Spark says of a wrong expression is told in one sentence, with what to write. The texts are Spark 4.2's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.errors import PySparkException
from streamplan.errors import Refused
from streamplan.spark.planning.refusals import explain

FIELDS = ("id", "customer", "amount")


class Said(PySparkException):
    """An error of Spark's JVM, which makes its text, its condition and its parameters."""

    def __init__(self, condition: str, text: str, parameters: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self._said = condition, text, dict(parameters or {})

    def getCondition(self) -> str:
        return self._said[0]

    def getMessageParameters(self) -> dict[str, str]:
        return self._said[2]

    def __str__(self) -> str:
        return self._said[1]


@pytest.mark.parametrize(
    ("condition", "parameters", "text", "told", "write"),
    [
        (
            "PARSE_SYNTAX_ERROR",
            {"error": "end of input", "hint": ""},
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 8)\n\n"
            "== SQL ==\namount >\n--------^^^\n",
            "Syntax error at or near end of input: 'amount >'",
            "Write what follows it: the expression ends too early",
        ),
        (
            "PARSE_SYNTAX_ERROR",
            {"error": "'b'", "hint": ": extra input 'b'"},
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'b': extra input 'b'. SQLSTATE: 42601 (line 1, pos 4)\n\n"
            "== SQL ==\na a b\n----^^^\n",
            "Syntax error at or near 'b': 'a a b'",
            'Write an expression in Spark SQL, as in "amount > 0 and customer is not null"',
        ),
        (
            "UNRESOLVED_ROUTINE",
            {"routineName": "`my_own_udf`", "searchPath": "[`system`.`builtin`]"},
            "[UNRESOLVED_ROUTINE] Cannot resolve routine `my_own_udf` on search path [`system`.`builtin`, "
            "`system`.`session`, `spark_catalog`.`default`]. SQLSTATE: 42883; line 1 pos 0",
            "there is no function my_own_udf",
            "Write a function of Spark SQL, or give map_values a function of Python",
        ),
        (
            "UNRESOLVED_ROUTINE",
            {"routineName": "`customer`.`upper`"},
            "[UNRESOLVED_ROUTINE] …",
            "there is no function customer.upper",
            "Write upper(customer)",
        ),
        (
            "UNRESOLVED_ROUTINE",
            {"routineName": "`uppper`"},
            "[UNRESOLVED_ROUTINE] …",
            "there is no function uppper",
            "Did you mean upper?",
        ),
        (
            "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
            {"functionName": "`upper`", "expectedNum": "1", "actualNum": "2"},
            "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] The `upper` requires 1 parameters but the actual number is 2. Please, "
            "refer to 'https://spark.apache.org/docs/latest/sql-ref-functions.html' for a fix. SQLSTATE: 42605; line 1",
            "upper takes 1 argument, and 2 are given",
            "Give the function as many arguments as it takes",
        ),
        (
            "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
            {"functionName": "`substring`", "expectedNum": "[2, 3]", "actualNum": "1"},
            "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] …",
            "substring takes 2 or 3 arguments, and 1 are given",
            "Give the function as many arguments as it takes",
        ),
        (
            "MISSING_GROUP_BY",
            {},
            "[MISSING_GROUP_BY] The query does not include a GROUP BY clause. Add GROUP BY or turn it into the window "
            "functions using OVER clauses. SQLSTATE: 42803; line 1 pos 0",
            "an aggregate of several records stands where one record is seen",
            "Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')",
        ),
        (
            "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN",
            {"sqlExpr": '"customer"', "filter": '"customer"', "type": '"STRING"'},
            '[DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN] Cannot resolve "customer" due to data type mismatch: Filter '
            'expression "customer" of type "STRING" is not a boolean. SQLSTATE: 42K09;\nFilter customer\n+- Project',
            "the condition is of type string, and not a boolean",
            'Write a condition, as in "amount > 0"',
        ),
        (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            {"objectName": "`AMOUNT`", "proposal": "`amount`, `record`"},
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] …",
            "the value has no field 'AMOUNT'",
            "It has: id, customer, amount. Did you mean amount?",
        ),
        (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            {"objectName": "`orders`.`amount`", "proposal": "`amount`"},
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] …",
            "the value has no field 'orders'",
            "Write amount",
        ),
        (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            {"objectName": "`timestamp`", "proposal": "`amount`"},
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] …",
            "the value has no field 'timestamp'",
            "Write record.timestamp",
        ),
        (
            "NO_SUCH_CONDITION_AT_ALL",
            {"names": "`a`"},
            "[NO_SUCH_CONDITION_AT_ALL] Something else. Use `try_it`. SQLSTATE: 42K09; line 1 pos 2;\n'Project [a]",
            "Something else",
            "Write Spark SQL over the fields there are",
        ),
    ],
)
def test_an_error_of_spark_is_a_sentence_with_what_to_write(
    condition: str, parameters: Mapping[str, str], text: str, told: str, write: str
) -> None:
    assert explain(Said(condition, text, parameters), "", FIELDS) == (told, write)


def test_an_error_without_the_parameters_of_this_version_is_told_in_words_of_spark() -> None:
    error = Said("FIELD_NOT_FOUND", "[FIELD_NOT_FOUND] No such struct field `a` in `b`. SQLSTATE: 42704; line 1 pos 0")
    assert explain(error) == ("No such struct field `a` in `b`", "Write Spark SQL over the fields there are")


def test_what_the_planning_refuses_is_told_as_it_is() -> None:
    error = Refused("the key", expected="a text", observed="an array")
    assert explain(error) == (
        "the key: expected a text, observed an array",
        "Write Spark SQL over the fields there are",
    )
    error = Refused("a query stands in the expression", remedy="Join the stream with a table.")
    assert explain(error) == ("a query stands in the expression", "Join the stream with a table")
