"""Expressions that are written in Python: ``F.amount > 0`` stands for the text ``"amount > 0"``.

An expression is the text in Spark SQL that a person would write, so names, numbering, descriptions and checkpoints do
not tell which of the two a declaration has. PySpark's ``Column`` is not used: a declaration must not start Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

from streamplan.judged import Diagnostic, caller_location, judged, mistakes_of
from streamplan.judged_words import described, is_not_called, shown

_OR, _AND, _PREDICATE, _COMPARISON, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(1, 9)
"""How strongly an operator binds, as in Spark's grammar (``SqlBaseParser.g4``)."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_NAMES = ("all", "any", "case", "current_path", "distinct", "exists", "false", "interval", "not", "null", "true")
"""Words of SQL that are no names of fields without backticks."""

AGGREGATES = ("sum", "count", "count_if", "min", "max", "avg", "min_by", "max_by", "bool_and", "bool_or")
"""The functions that fold the records of a key."""

_GREATEST_DIGITS = 38

_METHODS_OF_PYSPARK: Mapping[str, str] = {
    "isNull": "is_null()",
    "isNotNull": "is_not_null()",
    "isin": "is_in(…)",
    "astype": "cast('type')",
    "eqNullSafe": "== …, which is null where one side is null",
    "getField": "name, or ['name']",
    "getItem": "[0]",
    "rlike": "F.regexp_like(field, 'pattern')",
    "startswith": "F.startswith(field, 'text')",
    "endswith": "F.endswith(field, 'text')",
    "contains": "F.contains(field, 'text')",
    "substr": "F.substr(field, 1, 3)",
    "mean": "avg()",
    "average": "avg()",
    "otherwise": "F.when(condition, value, otherwise)",
}

_NO_FUNCTIONS: Mapping[str, str] = {
    "col": "Write F.name, or F['name']",
    "column": "Write F.name, or F['name']",
    "expr": "Write the whole expression as a text, in place of F",
}

_NO_CHANGE = "a record does not change. Write map_values(amount=…, id=F.id): it names every field of the new value"

_Other = TypeVar("_Other")


class NoTruthValue(TypeError):
    """An expression was asked whether it is true, which only a record can tell. ``str()`` says what to write."""


@judged
class Expression:
    """An expression over the fields of a record, as ``F.amount > 0``: see :data:`F`.

    Its operators are ``+ - * / %``, ``== != < <= > >=``, and ``& | ~`` for and, or, not. A part of a field is an
    attribute, ``F.customer.name``, or in brackets, ``F.customer["odd name"]``, ``F.tags[0]``.

    Example: ``orders.filter((F.amount > 0) & F.address.city.is_not_null())``
    """

    _told_as_text = True
    """The texts that say what an argument takes need not name expressions: they stand for a text."""

    def __init__(
        self,
        sql: str,
        binding: int = _PRIMARY,
        paths: tuple[tuple[str, ...], ...] = (),
        mistakes: tuple[Diagnostic, ...] = (),
        path: tuple[str, ...] = (),
    ) -> None:
        """An expression is made with :data:`F`, and not with this constructor.

        Args:
            sql: The text.
            binding: How strongly its outermost operator binds.
            paths: The fields that it sees, each with the names of its parts.
            mistakes: What is wrong with the calls that have made it.
            path: For a field the names that lead to it.
        """
        self._sql = sql
        self._binding = binding
        self._paths = (path,) if path else tuple(dict.fromkeys(paths))
        self._path = path
        self._part = ""
        self._mistakes = mistakes

    # -- conditions

    def is_null(self) -> Expression:
        """Whether there is no value.

        Example: ``orders.filter(F.customer.is_null())``
        """
        return _made(f"{_operand(self, _SUM)} is null", _PREDICATE, self)

    def is_not_null(self) -> Expression:
        """Whether there is a value.

        Example: ``orders.filter(F.customer.is_not_null())``
        """
        return _made(f"{_operand(self, _SUM)} is not null", _PREDICATE, self)

    def is_in(self, *values: Any) -> Expression:
        """Whether it is one of some values.

        Example: ``orders.filter(F.country.is_in("DE", "FR"))``

        Args:
            values: Literals or expressions; also one list of them.
        """
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = tuple(values[0])
        elif len(values) == 1 and isinstance(values[0], set | frozenset):
            values = tuple(
                sorted(values[0], key=lambda each: _of(each)._sql)
            )  # a set has another order in each process
        if not values:
            return _wrong("is_in: no value is given", "For example F.country.is_in('DE', 'FR')", self)
        parts = [_of(value) for value in values]
        listed = ", ".join(part._sql for part in parts)
        return _made(f"{_operand(self, _SUM)} in ({listed})", _PREDICATE, self, *parts)

    def between(self, low: Any, high: Any) -> Expression:
        """Whether it is at least ``low`` and at most ``high``.

        Example: ``orders.filter(F.amount.between(1, 100))``

        Args:
            low: A literal or an expression.
            high: A literal or an expression.
        """
        least, most = _of(low), _of(high)
        sql = f"{_operand(self, _SUM)} between {_operand(least, _SUM)} and {_operand(most, _SUM)}"
        return _made(sql, _PREDICATE, self, least, most)

    def like(self, pattern: str) -> Expression:
        """Whether a text is like a pattern of SQL: ``%`` stands for any text, ``_`` for one character.

        Example: ``orders.filter(F.customer.like("A%"))``
        """
        return _made(f"{_operand(self, _SUM)} like {_of(pattern)._sql}", _PREDICATE, self, _of(pattern))

    def cast(self, field_type: str) -> Expression:
        """The value as another type.

        Example: ``orders.map_values(amount=F.amount.cast("decimal(10,2)"))``

        Args:
            field_type: A type of Spark's DDL.
        """
        if not re.fullmatch(r"[\w\s<>(),:`]+", field_type):
            return _wrong(f"cast: {field_type!r} is no type", "For example F.amount.cast('bigint')", self)
        return _made(f"cast({self._sql} as {field_type})", _PRIMARY, self)

    # -- aggregates

    def sum(self) -> Expression:
        """The sum of the values of a key's records.

        Example: ``orders.group_by(F.product).aggregate(total=F.amount.sum())``
        """
        return _call("sum", self)

    def count(self) -> Expression:
        """The number of a key's records that have a value. ``F.count()`` is the number of its records.

        Example: ``orders.group_by(F.product).aggregate(paid=F.paid.count())``
        """
        return _call("count", self)

    def count_if(self) -> Expression:
        """The number of a key's records for which the condition is true.

        Example: ``orders.group_by(F.product).aggregate(large=(F.amount > 100).count_if())``
        """
        return _call("count_if", self)

    def min(self) -> Expression:
        """The least value of a key's records.

        Example: ``orders.group_by(F.product).aggregate(least=F.amount.min())``
        """
        return _call("min", self)

    def max(self) -> Expression:
        """The greatest value of a key's records.

        Example: ``orders.group_by(F.product).aggregate(most=F.amount.max())``
        """
        return _call("max", self)

    def avg(self) -> Expression:
        """The mean of the values of a key's records.

        Example: ``orders.group_by(F.product).aggregate(mean=F.amount.avg())``
        """
        return _call("avg", self)

    def min_by(self, by: Any) -> Expression:
        """The value of that record of a key for which another expression is least.

        Example: ``orders.group_by(F.product).aggregate(cheapest=F.id.min_by(F.amount))``

        Args:
            by: The other expression.
        """
        return _call("min_by", self, by)

    def max_by(self, by: Any) -> Expression:
        """The value of that record of a key for which another expression is greatest.

        Example: ``orders.group_by(F.product).aggregate(largest=F.id.max_by(F.amount))``

        Args:
            by: The other expression.
        """
        return _call("max_by", self, by)

    def bool_and(self) -> Expression:
        """Whether the condition is true for all of a key's records.

        Example: ``orders.group_by(F.product).aggregate(all_paid=F.paid.bool_and())``
        """
        return _call("bool_and", self)

    def bool_or(self) -> Expression:
        """Whether the condition is true for one of a key's records.

        Example: ``orders.group_by(F.product).aggregate(one_paid=F.paid.bool_or())``
        """
        return _call("bool_or", self)

    # -- parts of a field, and functions

    def __getattr__(self, name: str) -> Expression:
        """A part of the field."""
        if name.startswith("_"):
            raise AttributeError(f"F has no attribute {name!r}. Write ['{name}'] for a part of that name")
        return self[name]

    def __getitem__(self, part: str | int) -> Expression:
        """A part of the field by its name, or an element of an array by its place, from 0."""
        whole = _operand(self, _PRIMARY)
        match part:
            case str():
                if not self._path:
                    made = _made(f"{whole}.{_quoted(part)}", _PRIMARY, self)
                    made._part = part
                    return made
                return Expression(f"{whole}.{_quoted(part)}", mistakes=self._mistakes, path=(*self._path, part))
            case int() if not isinstance(part, bool):
                return _made(f"{whole}[{int(part)}]", _PRIMARY, self)
            case Expression():
                return _made(f"{whole}[{part._sql}]", _PRIMARY, self, part)
            case slice():
                of = whole if not self._path else f"F.{whole}"
                hint = f"Write F.substr({of}, 1, 2) for a part of a text, and F.slice({of}, 1, 2) for one of an array"
                return _wrong(f"[{shown(part)}] is no part of a field", hint, self)
        return _wrong(f"[{shown(part)}] is no part of a field", "Write a name or a number", self)

    if not TYPE_CHECKING:  # a type checker goes on refusing them

        def __setattr__(self, name: str, value: object) -> None:
            """Refused: a record does not change."""
            if not name.startswith("_"):
                raise NoTruthValue(f"{self._sql}.{name} = …: {_NO_CHANGE}")
            object.__setattr__(self, name, value)

        def __setitem__(self, name: object, value: object) -> NoReturn:
            """Refused: a record does not change."""
            raise NoTruthValue(f"{self._sql}[{shown(name)}] = …: {_NO_CHANGE}")

        def _of_python(function: str, write: str) -> Any:
            def refused(self: Expression, *arguments: object) -> NoReturn:
                field = shown(self) if self._path else "F.name"
                raise NoTruthValue(
                    f"{self._sql}: {function}() is a function of Python, and an expression has no value here. "
                    f"Write {write.format(field)}"
                )

            return refused

        __len__ = _of_python("len", "F.length({0}) for a text, and F.size({0}) for an array")
        __int__ = _of_python("int", "{0}.cast('bigint')")
        __float__ = _of_python("float", "{0}.cast('double')")
        __round__ = _of_python("round", "F.round({0}, 2)")
        __abs__ = _of_python("abs", "F.abs({0})")
        del _of_python

    if not TYPE_CHECKING:  # of an expression it is a mistake, which a type checker tells: see Name

        def __call__(self, *arguments: Any, **named: Any) -> Expression:
            """A function of Spark SQL: ``F.upper(F.name)``. ``F.count()`` counts records."""
            if len(self._path) != 1 or not _PLAIN_NAME.fullmatch(self._path[0]):
                return self._no_method(*arguments)
            function = self._path[0]
            if function in _NO_FUNCTIONS:
                return _wrong(f"F.{function}(…) is not what fields are written with", _NO_FUNCTIONS[function])
            if named:
                hint = f"Write F.{function}({', '.join(map(shown, named.values()))})"
                return _wrong(f"F.{function}: there is no argument {next(iter(named))!r}", hint)
            if function == "lit" and len(arguments) == 1:
                return _of(arguments[0])
            return _call(function, *arguments)

    def _no_method(self, *arguments: Any) -> Expression:
        """What is said of a call of a part of a field."""
        *before, name = self._path or ("", self._part)
        field = ".".join(["F", *before]) if self._path else self._sql.rpartition(".")[0]
        if not name:
            return _wrong(f"{self._sql}(…): an expression is no function", "Call a function as F.upper(F.name)", self)
        methods = [each for each in vars(Expression) if not each.startswith("_")]
        close = get_close_matches(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(), methods, 1, 0.75)
        if name in ("alias", "name"):
            hint = _named_so(field, next((each for each in arguments if isinstance(each, str)), "new_name"))
        elif name in _METHODS_OF_PYSPARK:
            write = _METHODS_OF_PYSPARK[name].replace("(field", f"({field}")
            hint = f"Write {write if write.startswith('F.') else f'{field}.{write}'}"
        elif close:
            hint = f"Did you mean {field}.{close[0]}(…)?"
        else:
            hint = f"Write a function of Spark SQL as F.{name}({field})"
        return _wrong(f"{field}.{name}(…): an expression has no method {name!r}", hint, self)

    # -- operators

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        """Whether both are equal. ``== None`` asks for no value."""
        return self.is_null() if other is None else _binary(self, "=", other, _COMPARISON)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        """Whether both differ. ``!= None`` asks for a value."""
        return self.is_not_null() if other is None else _binary(self, "!=", other, _COMPARISON)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Expression:
        """Whether it is less."""
        return _binary(self, "<", other, _COMPARISON)

    def __le__(self, other: Any) -> Expression:
        """Whether it is less or equal."""
        return _binary(self, "<=", other, _COMPARISON)

    def __gt__(self, other: Any) -> Expression:
        """Whether it is greater."""
        return _binary(self, ">", other, _COMPARISON)

    def __ge__(self, other: Any) -> Expression:
        """Whether it is greater or equal."""
        return _binary(self, ">=", other, _COMPARISON)

    def __add__(self, other: Any) -> Expression:
        """The sum of numbers."""
        return _binary(self, "+", other, _SUM)

    def __radd__(self, other: Any) -> Expression:
        """The sum of numbers."""
        return _binary(other, "+", self, _SUM)

    def __sub__(self, other: Any) -> Expression:
        """The difference of numbers."""
        return _binary(self, "-", other, _SUM)

    def __rsub__(self, other: Any) -> Expression:
        """The difference of numbers."""
        return _binary(other, "-", self, _SUM)

    def __mul__(self, other: Any) -> Expression:
        """The product of numbers."""
        return _binary(self, "*", other, _PRODUCT)

    def __rmul__(self, other: Any) -> Expression:
        """The product of numbers."""
        return _binary(other, "*", self, _PRODUCT)

    def __truediv__(self, other: Any) -> Expression:
        """The quotient of numbers, with its fraction."""
        return _binary(self, "/", other, _PRODUCT)

    def __rtruediv__(self, other: Any) -> Expression:
        """The quotient of numbers, with its fraction."""
        return _binary(other, "/", self, _PRODUCT)

    def __mod__(self, other: Any) -> Expression:
        """The remainder. It has the sign of the dividend, as in Spark and Java, and not that of the divisor."""
        return _binary(self, "%", other, _PRODUCT)

    def __rmod__(self, other: Any) -> Expression:
        """The remainder; see :meth:`__mod__`."""
        return _binary(other, "%", self, _PRODUCT)

    def __floordiv__(self, other: Any) -> Expression:
        """Told: Spark's division of whole numbers rounds towards 0, and Python's does not."""
        return _wrong("// is no operator of Spark SQL", "Write F.floor(F.a / F.b), or F.div(F.a, F.b)", self, other)

    __rfloordiv__ = __floordiv__

    def __pow__(self, other: Any) -> Expression:
        """Told: Spark has a function for it."""
        return _wrong("** is no operator of Spark SQL", "Write F.pow(F.a, 2)", self, other)

    __rpow__ = __pow__

    def __neg__(self) -> Expression:
        """The negative number."""
        return _made(f"-{_operand(self, _PRIMARY)}", _UNARY, self)

    def __and__(self, other: Any) -> Expression:
        """Whether both conditions are true."""
        return _binary(self, "and", other, _AND)

    def __rand__(self, other: Any) -> Expression:
        """Whether both conditions are true."""
        return _binary(other, "and", self, _AND)

    def __or__(self, other: Any) -> Expression:
        """Whether one of the conditions is true."""
        return _binary(self, "or", other, _OR)

    def __ror__(self, other: Any) -> Expression:
        """Whether one of the conditions is true."""
        return _binary(other, "or", self, _OR)

    def __invert__(self) -> Expression:
        """Whether the condition is false."""
        return _made(f"not {_operand(self, _PRIMARY)}", _PREDICATE, self)

    # -- what an expression is not

    def __bool__(self) -> bool:
        """Refused: only a record can tell.

        Raises:
            NoTruthValue: Always.
        """
        raise NoTruthValue(
            f"{self._sql}: an expression is true or false for a record, and not here. Write & for "
            "'and', | for 'or', ~ for 'not', with each comparison in parentheses: (F.a > 0) & (F.b > 0); "
            "F.a.between(0, 5) for a chain 0 <= F.a <= 5; F.a.is_in(1, 2) for 'in'; F.when(condition, value, "
            "otherwise) for 'if'; and F.greatest(F.a, F.b) for max, F.least(F.a, F.b) for min"
        )

    def __iter__(self) -> Iterator[NoReturn]:
        """Refused: only a record has elements.

        Raises:
            NoTruthValue: Always.
        """
        raise NoTruthValue(
            f"{self._sql}: an expression has no elements here. Write F.field[0] for an element, "
            "F.array_contains(F.field, value) for 'in', and flat_map_values for a record of each"
        )

    def __contains__(self, value: object) -> bool:
        """Refused, as its elements are.

        Raises:
            NoTruthValue: Always.
        """
        raise self.__iter__()  # type: ignore[misc]  # it never returns

    def __dir__(self) -> list[str]:
        """The methods, and what Python has."""
        return [name for name in object.__dir__(self) if name.startswith("__") or not name.startswith("_")]

    def __repr__(self) -> str:
        """The text."""
        return f"<Expression {self._sql}>"

    def __str__(self) -> str:
        """The text, as it stands in an expression that is written as a text."""
        return self._sql

    def _mistaken(self, mistakes: tuple[Diagnostic, ...], operation: str, returns: Any) -> Expression:
        """What stands for the result of a wrong call. The operation that is given it tells the mistakes."""
        return Expression("null", mistakes=(*self._mistakes, *mistakes))


if TYPE_CHECKING:

    class Name(Expression):
        """What ``F.upper`` is for a type checker: a field, and a function of Spark SQL where it is called.

        An expression that could be called would be one of the functions that ``filter`` takes, and a type checker
        would not know what a lambda there is given.
        """

        def __call__(self, *arguments: Any) -> Expression:
            """A function of Spark SQL."""
            raise NotImplementedError
else:
    Name = Expression


class Fields:
    """The fields of a record, by their names: see :data:`F`."""

    _told_as_text = True
    _no_value = "Write a field of it: F.amount"
    """What to write where F itself is given."""

    if not TYPE_CHECKING:  # a type checker goes on refusing them

        def __setattr__(self, name: str, value: object) -> NoReturn:
            """Refused: a record does not change."""
            raise NoTruthValue(f"F.{name} = …: {_NO_CHANGE}")

        def __delattr__(self, name: str) -> NoReturn:
            """Refused: a record does not change."""
            raise NoTruthValue(f"del F.{name}: {_NO_CHANGE}")

        def __setitem__(self, name: object, value: object) -> NoReturn:
            """Refused: a record does not change."""
            raise NoTruthValue(f"F[{shown(name)}] = …: {_NO_CHANGE}")

    def __getattr__(self, name: str) -> Name:
        """A field, or a function of Spark SQL."""
        if name.startswith("_"):
            raise AttributeError(f"F has no attribute {name!r}. Write F['{name}'] for a field of that name")
        return Name(_quoted(name), path=(name,))

    def __getitem__(self, name: str) -> Expression:
        """A field whose name is no word of Python, or begins with an underscore."""
        if not isinstance(name, str) or not name:
            return _wrong(f"F[{shown(name)}]: it is no name of a field", "Write a text: F['odd name']")
        return Expression(_quoted(name), path=(name,))

    if not TYPE_CHECKING:  # a type checker goes on refusing it

        def __call__(self, *arguments: Any) -> Expression:
            """Told: a field is an attribute."""
            fields = " and ".join(f"F.{each}" if str(each).isidentifier() else f"F[{each!r}]" for each in arguments)
            return _wrong(f"F({', '.join(map(shown, arguments))}): F is no function", f"Write {fields or 'F.name'}")

    def __iter__(self) -> Iterator[NoReturn]:
        """Refused: F has every name."""
        raise NoTruthValue("F has no elements. Write F.name for a field")

    def __dir__(self) -> list[str]:
        """What Python has: the fields of records are not known here."""
        return [name for name in object.__dir__(self) if name.startswith("__")]

    def __repr__(self) -> str:
        """The name under which it is imported."""
        return "F"


F: Final = Fields()
"""The fields of a record: ``F.amount``, ``F.customer.name``, ``F["odd name"]``. What is called is a function of Spark
SQL: ``F.upper(F.name)``, ``F.count()``, ``F.lit("a text")``.

Example: ``orders.filter(F.amount > 0).group_by(F.product).aggregate(total=F.amount.sum(), n=F.count())``
"""

Text: TypeAlias = str | Expression
"""An expression in Spark SQL, as a text or written with :data:`F`."""


def plain(value: Expression | _Other) -> str | _Other:
    """Return the text of an expression, and anything else as it is.

    Args:
        value: What an operation was given.
    """
    return value._sql if isinstance(value, Expression) else value


def paths_of(value: object) -> tuple[tuple[str, ...], ...]:
    """Return the fields that an expression sees, each with the names of its parts; none of a text.

    Args:
        value: What an operation was given.
    """
    return value._paths if isinstance(value, Expression) else ()


def _named_so(field: str, name: str) -> str:
    """How an expression is given a name: ``field`` is a field of F, or a text."""
    text = field[1:-1] if field.startswith("(") and field.endswith(")") else field
    function = text.partition("(")[0]
    is_aggregate = function in AGGREGATES
    operation = "aggregate" if is_aggregate else "map_values"
    path = text.removeprefix(f"{function}(").removesuffix(")").split(".")
    if is_aggregate and all(map(_PLAIN_NAME.fullmatch, path)):
        field = f"F.{'.'.join(path)}.{function}()"
    if field.startswith("F.") and name.isidentifier():
        return f"Write {operation}({name}={field}): the argument names it"
    return f"Write {operation}({{{name!r}: {text.removeprefix('F.')!r}}}): the key of the mapping names it"


def _quoted(name: str) -> str:
    """A name as Spark SQL reads it."""
    is_plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in _NO_NAMES
    return name if is_plain else f"`{name.replace('`', '``')}`"


def _operand(value: Expression, binding: int) -> str:
    """The text of an operand, in parentheses where its operator binds more loosely."""
    return value._sql if value._binding >= binding else f"({value._sql})"


def _binary(left: Any, operator: str, right: Any, binding: int) -> Expression:
    this, that = _of(left), _of(right)
    if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
        parts = ", ".join(shown(each) if isinstance(each, str) else f"F.{each._sql}" for each in (left, right))
        return _wrong("+ adds numbers, and a text is given", f"Write F.concat({parts})", this, that)
    if binding == _COMPARISON and operator not in ("=", "!=") and (left is None or right is None):
        return _wrong(f"{operator} with None is true for no record", "Write is_null() or is_not_null()", this, that)
    # A comparison of comparisons stands in parentheses, and so does the right side of another operator like this one.
    of_left, of_right = (_SUM, _SUM) if binding == _COMPARISON else (binding, binding + 1)
    return _made(f"{_operand(this, of_left)} {operator} {_operand(that, of_right)}", binding, this, that)


def _call(function: str, *arguments: Any) -> Expression:
    parts = [_of(argument) for argument in arguments]
    named = [each for each in arguments if isinstance(each, str)]
    if function == "count" and named == ["*"]:
        parts = []
    elif named and len(named) == len(arguments) and all(map(str.isidentifier, named)):  # in PySpark these are fields
        fields, texts = (", ".join(form.format(each) for each in named) for form in ("F.{0}", "F.lit({0!r})"))
        return _wrong(
            f"F.{function}({', '.join(map(repr, named))}): a text is the same for each record",
            f"Write F.{function}({fields}) for a field, or F.{function}({texts}) for the text",
        )
    listed = ", ".join(part._sql for part in parts)
    return _made(f"{function}({listed or ('*' if function == 'count' else '')})", _PRIMARY, *parts)


def _made(sql: str, binding: int, *of: Expression) -> Expression:
    paths = tuple(path for each in of for path in each._paths)
    return Expression(sql, binding, paths, tuple(mistake for each in of for mistake in mistakes_of(each)))


def _wrong(message: str, hint: str, *of: Any) -> Expression:
    """What stands for an expression that cannot be written so. The operation that is given it tells the mistake."""
    before = tuple(mistake for each in of for mistake in mistakes_of(each))
    return Expression("null", mistakes=(*before, Diagnostic(caller_location(), message, hint)))


def _of(value: Any) -> Expression:
    """A value of Python as an expression: a literal of Spark SQL."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | bool():
            return Expression("null" if value is None else str(value).lower())
        case int():
            return _number(str(int(value)), value < 0, len(str(abs(value))))
        case float() if math.isfinite(value):
            # Spark reads 0.5 as the exact number. Its digits are those by which Python knows the same double.
            return _number(repr(float(value)), value < 0, 0)
        case float():
            return Expression(f"double('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}')")
        case Decimal() if value.is_finite():
            digits = format(value, "f")
            whole, _, fraction = digits.lstrip("-").partition(".")
            written = digits if fraction else f"{digits}BD"
            return _number(written, value.is_signed(), len(whole.lstrip("0")) + len(fraction))
        case str() if value.isascii() or _is_unicode(value):
            return Expression(_text(value))
        case bytes():
            return Expression(f"X'{value.hex()}'")
        case datetime() if value.tzinfo is None:
            hint = "Write one as in datetime(2026, 1, 31, tzinfo=UTC)"
            return _wrong(f"{shown(value)} has no time zone, so it is no moment", hint)
        case datetime():
            return Expression(f"timestamp'{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ')}Z'")
        case date():
            return Expression(f"date'{value.isoformat()}'")
    if isinstance(value, Fields):
        return _wrong("F is no part of an expression", value._no_value)
    if is_not_called(value):
        return _wrong(f"{described(value)}, is no part of an expression", f"Write {value.__name__}() behind the field")
    if callable(value):
        hint = 'Write the whole expression as a text: "transform(lines, line -> line.sku)"'
        return _wrong(f"{shown(value)} is a function of Python, and no part of an expression", hint)
    return _wrong(
        f"{shown(value)} is no literal of Spark SQL",
        "Write a text, a number, a Decimal, True, False, None, a datetime, a date or bytes",
    )


def _number(digits: str, is_negative: bool, count: int) -> Expression:
    if count > _GREATEST_DIGITS:
        hint = f"A number of Spark SQL has at most {_GREATEST_DIGITS} digits"
        return _wrong(f"{digits[:20]}… has {count} digits", hint)
    return Expression(digits, _UNARY if is_negative else _PRIMARY)


def _text(value: str) -> str:
    escaped = str.__str__(value).replace("\\", "\\\\").replace("'", "\\'")
    # Spark would put a setting or a variable of its environment in the place of ${…}, also within a text.
    return "'" + escaped.replace("${", "\\u0024{") + "'"


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
