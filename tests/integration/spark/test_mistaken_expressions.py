"""Mistakes in Spark SQL and what is said of each. The page below is both the test and what one reads.

The other mistakes of a declaration stand in ``tests/unit/model/test_mistakes.py``: those need no Spark.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.spark.planning.validation import topology_diagnostics

BEFORE = """
from streamplan import *

topology = Topology("orders-counter")
orders = topology.stream("orders", value=Json(
    "id string, customer string, amount bigint, price double, at timestamp, tags array<string>, "
    "address struct<city: string, zip: string>, attributes map<string, string>"
))
customers = topology.table("customers", value=Json("name string, city string"))
"""

PAGE = r"""
# Functions

orders.map_values({"x": "uppper(customer)"})
→ map_values, x: there is no function uppper. Did you mean upper?

orders.map_values({"x": "customer.upper()"})
→ map_values, x: there is no function customer.upper. Write upper(customer)

orders.map_values({"x": "str(amount)"})
→ map_values, x: there is no function str. Write cast(amount as string)

orders.map_values({"x": "col('amount')"})
→ map_values, x: there is no function col. Write the name of the field alone: amount

orders.map_values({"x": "upper(customer, 1)"})
→ map_values, x: upper takes 1 argument, and 2 are given. Give the function as many arguments as it takes

orders.map_values({"x": "upper()"})
→ map_values, x: upper takes 1 argument, and 0 are given. Give the function as many arguments as it takes

orders.map_values({"x": "substring(customer)"})
→ map_values, x: substring takes 2 or 3 arguments, and 1 are given. Give the function as many arguments as it takes

orders.map_values({"x": "if(amount > 1, 1)"})
→ map_values, x: if takes 3 arguments, and 2 are given. Give the function as many arguments as it takes

orders.map_values({"x": "map(1)"})
→ map_values, x: map takes pairs of arguments, and 1 are given. Give the function as many arguments as it takes

orders.map_values({"x": "cast(amount, 'string')"})
→ map_values, x: cast takes a value and a type. Write cast(amount as string)

orders.map_values({"x": "my.udf(amount)"})
→ map_values, x: there is no function my.udf. Write a function of Spark SQL, or give map_values a function of Python

# Fields

orders.filter("AMOUNT > 5")
→ filter: the value has no field 'AMOUNT'. It has: id, customer, amount, price, at, tags, address, attributes. Did you mean amount?

orders.filter("orders.amount > 5")
→ filter: the value has no field 'orders'. Write amount

orders.filter("value.amount > 5")
→ filter: the value has no field 'value'. Write amount

orders.map_values({"x": "F.amount * 2"})
→ map_values, x: the value has no field 'F'. F stands outside of texts. Write amount

orders.filter("key = 'a'")
→ filter: the value has no field 'key'. Write record.key

orders.filter("timestamp > at")
→ filter: the value has no field 'timestamp'. Write record.timestamp

orders.filter("record.ke = 'a'")
→ filter: record has no part 'ke'. It has: key, timestamp, topic, partition, offset. Did you mean key?

orders.filter("record.headers['x'] = 'a'")
→ filter: record.headers is of type string, and has no parts. Leave out what stands behind it: only a struct, an array or a map has parts

orders.filter("address.town = 'x'")
→ filter: the struct has no part 'town'. It has: city, zip

orders.filter("customer.name = 'x'")
→ filter: customer is of type string, and has no parts. Leave out what stands behind it: only a struct, an array or a map has parts

orders.filter("tags['a'] = 'x'")
→ filter: tags['a'] = 'x': a is of type string, and a whole number is expected. The elements of an array have numbers, from 0: tags[0]

orders.filter("tags[a] = 'x'")
→ filter: the value has no field 'a'. It has: id, customer, amount, price, at, tags, address, attributes. Did you mean at?

orders.map_values({"x": "struct(amount)"}).filter("x.amnt > 1")
→ filter: the struct has no part 'amnt'. It has: amount. Did you mean amount?

orders.flat_map_values("tags", {"y": "element.a"})
→ flat_map_values, y: element is of type string, and has no parts. Leave out what stands behind it: only a struct, an array or a map has parts

orders.join(customers, {"x": "id || table.id"})
→ join, x: the struct has no part 'id'. It has: name, city

orders.to("concat('a-', nothing)", topics=("a-x",))
→ to: the value has no field 'nothing'. It has: id, customer, amount, price, at, tags, address, attributes

# Groups and windows

orders.group_by("customer").count(store="s").to_stream().filter("record.window.start > timestamp '2026-01-31'")
→ filter: record has no part 'window'. It has: key, timestamp, topic, partition, offset. This stream has no windows: write windowed_by(TimeWindows('5 minutes')) before the aggregate

orders.group_by("customer").windowed_by(TimeWindows("5 minutes")).count().to_stream().filter("record.windows.start > at")
→ filter: record has no part 'windows'. It has: key, timestamp, topic, partition, offset, window. Did you mean window?

orders.group_by("customer").count().to_stream().filter("customer = 'a'")
→ filter: the value has no field 'customer'. It has: count. The key of the group is record.key

orders.group_by("customer").windowed_by(TimeWindows("5 minutes")).count().to_stream().map_values({"x": "upper(customer)", "y": "date(window.start)"})
→ map_values, x: the value has no field 'customer'. It has: count. The key of the group is record.key. The window is record.window.start
→ map_values, y: the value has no field 'window'. Write record.window.start

orders.filter("customer = DE")
→ filter: the value has no field 'DE'. It has: id, customer, amount, price, at, tags, address, attributes. For the text write 'DE'

orders.filter("customer in ('FR', DE)")
→ filter: the value has no field 'DE'. It has: id, customer, amount, price, at, tags, address, attributes. For the text write 'DE'

# Types

orders.filter("amount")
→ filter: the condition is of type bigint, and not a boolean. Write a condition, as in "amount > 0"

orders.filter("upper(customer)")
→ filter: the condition is of type string, and not a boolean. Write a condition, as in "amount > 0"

orders.filter("null")
→ filter: the condition is of type void, and not a boolean. Write a condition, as in "amount > 0"

orders.filter("customer like")
→ filter: the condition is of type string, and not a boolean. Write what follows it: the expression ends too early

orders.filter("0 < amount < 5")
→ filter: 0 < amount < 5: the two sides are of types boolean and int. Compare twice: 0 < amount and amount < 5

orders.filter("amount = 1 = 2")
→ filter: amount = 1 = 2: the two sides are of types boolean and int. Compare twice: 0 < amount and amount < 5

orders.filter("amount > 0 || amount < -5")
→ filter: amount > 0 || amount < -5: the two sides are of types boolean and int. Write or in place of ||, which joins texts

orders.map_values({"x": "customer + '-' + id"})
→ map_values, x: customer + '-' + id: a number or an interval is expected, and string is given. Write customer || '-' || id to join texts

orders.map_values({"x": "tags + 1"})
→ map_values, x: tags + 1: the two sides are of types array<string> and int. Give it the type that is required, as in "cast(amount as bigint)"

orders.map_values({"x": "-tags"})
→ map_values, x: -tags: tags is of type array<string>, and a number or an interval is expected. Give it the type that is required, as in "cast(amount as bigint)"

orders.map_values({"x": "at + 5"})
→ map_values, x: at + 5: the two sides are of types timestamp and int. Write an interval: at + interval 5 minutes

orders.map_values({"x": "at + '5 minutes'"})
→ map_values, x: at + '5 minutes': a number or an interval is expected, and timestamp is given. Write an interval: at + interval 5 minutes

orders.map_values({"x": "at - amount"})
→ map_values, x: at - amount: amount is of type bigint, and a timestamp is expected. Write an interval: at + interval 5 minutes

orders.map_values({"x": "if(amount, 1, 2)"})
→ map_values, x: if(amount, 1, 2): amount is of type bigint, and boolean is expected. Write a condition, as in amount > 0

orders.map_values({"x": "coalesce(amount, tags)"})
→ map_values, x: coalesce(amount, tags): the types differ: bigint or array<string>. Give it the type that is required, as in "cast(amount as bigint)"

orders.map_values({"x": "cast(amount as array<string>)"})
→ map_values, x: amount is of type bigint, which cannot be cast to array<string>. Cast it to another type

orders.map_values({"x": "cast(amount as number)"})
→ map_values, x: there is no type number. Write double

orders.map_values({"x": "cast(amount as decimal(40, 2))"})
→ map_values, x: Decimal precision 40 exceeds max precision 38. Spark's decimals have at most 38 digits: decimal(38,2)

orders.map_values({"x": "cast(amount as decimal(5, 8))"})
→ map_values, x: Decimal scale (8) cannot be greater than precision (5). Write Spark SQL over the fields there are

orders.flat_map_values("customer", {"y": "element"})
→ flat_map_values, each: customer is of type string, and has no elements. Write an expression of an array, as in split(line, ' ')

orders.to("amount", topics=("a-x",))
→ to: the topic amount is of type bigint. It is a text: cast it

# Aggregates, and what sees other records

orders.filter("max(amount) > 3")
→ filter: an aggregate of several records stands where one record is seen. Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')

orders.map_values({"x": "sum(amount)"})
→ map_values, x: an aggregate of several records stands where one record is seen. Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')

orders.group_by("count(*)")
→ the key: an aggregate of several records stands where one record is seen. Fold the records of a key with aggregate({'total': 'sum(field)'}), behind group_by('key')

orders.peek({"x": "amount"})
→ peek, x: this is no aggregate of records. Write an aggregate of the records, as in {'records': 'count(*)'}

orders.map_values({"x": "row_number() over (partition by customer order by at)"})
→ map_values, x: over (…) compares a record with others of its micro-batch. Records are seen one by one. Compare them with those before in an aggregate, or in a processor with a store

orders.map_values({"x": "lag(amount)"})
→ map_values, x: lag(amount, 1, NULL) compares a record with others. Records are seen one by one. Compare them with those before in an aggregate, or in a processor with a store

orders.filter("amount > (select avg(amount) from orders)")
→ filter: a query stands in the expression, and there are no tables that it could read. Join the stream with a table: stream.join(topology.table('topic', value=…), {…})

orders.filter("id in (select id from others)")
→ filter: a query stands in the expression, and there are no tables that it could read. Join the stream with a table: stream.join(topology.table('topic', value=…), {…})

orders.filter("exists (select 1)")
→ filter: a query stands in the expression, and there are no tables that it could read. Join the stream with a table: stream.join(topology.table('topic', value=…), {…})

orders.map_values({"x": "*"})
→ map_values, x: * stands for no fields. Name them: struct(id, customer, amount, price, at, tags, address, attributes)

orders.map_values({"x": "explode(tags)"})
→ map_values, x: explode makes several records of one. Write flat_map_values('array', {'field': 'element'})

orders.filter("explode(tags) = 'a'")
→ filter: explode makes several records of one. Write flat_map_values('array', {'field': 'element'})

orders.map_values({"x": "window(at, '5 minutes')"})
→ map_values, x: window is a window of Spark's own streams. Write group_by('key').windowed_by(TimeWindows('5 minutes'))

# Functions of elements

orders.map_values({"x": "t -> upper(t)"})
→ map_values, x: a function of elements stands where a value is expected. Write transform(tags, tag -> upper(tag)), or give map_values a function of Python

orders.map_values({"x": "upper(t -> t)"})
→ map_values, x: a function of elements is given to a function that takes none. Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))

orders.map_values({"x": "transform(tags, t => upper(t))"})
→ map_values, x: the value has no field 't'. Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))

orders.map_values({"x": "transform(tags, (a, b, c) -> a)"})
→ map_values, x: the function of elements has 3 arguments, and 1 are given to it. Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))

orders.map_values({"x": "transform(tags, lambda t: upper(t))"})
→ map_values, x: Syntax error at or near 't': 'transform(tags, lambda t: upper(t))'. Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))

orders.map_values({"x": "transform(tags, upper)"})
→ map_values, x: the value has no field 'upper'. It has: id, customer, amount, price, at, tags, address, attributes

# Constants that fail

orders.filter("amount == 'abc'")
→ filter: a constant part fails: 'abc' cannot be cast from string to bigint. Write a value of that type, or cast the other side

orders.map_values({"x": "coalesce(amount, 'none')"})
→ map_values, x: a constant part fails: 'none' cannot be cast from string to bigint. Write a value of that type, or cast the other side

orders.map_values({"x": "case when amount > 1 then 'a' else 5 end"})
→ map_values, x: a constant part fails: 'a' cannot be cast from string to bigint. Write a value of that type, or cast the other side

orders.map_values({"x": "1 / 0"})
→ map_values, x: a constant part fails: Division by zero. Write try_divide(a, b), which is null there

orders.map_values({"x": "9223372036854775807 + 1"})
→ map_values, x: a constant part fails: overflow. Write a larger type, as in cast(amount as decimal(38,0))

orders.map_values({"x": "at + interval '5 minuts'"})
→ map_values, x: The value of the typed literal "INTERVAL" is invalid: '5 minuts'. For example date '2026-01-31', timestamp '2026-01-31 12:00:00', interval '5 minutes'

orders.filter("customer rlike '('")
→ filter: '(' is no regular expression. Correct the pattern. A \ before a character takes away its meaning

orders.map_values({"x": "regexp_extract(customer, '(a', 1)"})
→ map_values, x: '(a' is no regular expression. Correct the pattern. A \ before a character takes away its meaning

orders.map_values({"x": "date_format(at, 'yyyy-bb')"})
→ map_values, x: 'yyyy-bb' is no pattern of a time. Write a pattern such as 'yyyy-MM-dd HH:mm:ss'

orders.map_values({"x": "to_timestamp(customer, 'QQQQQQ')"})
→ map_values, x: the pattern of a time is wrong. Write a pattern such as 'yyyy-MM-dd HH:mm:ss'

orders.map_values({"x": "customer collate nothing"})
→ map_values, x: The value nothing does not represent a correct collation name. Suggested valid collation names: [hi]. Write Spark SQL over the fields there are

# Texts that are read as something else: warnings

orders.filter("amount = customer")
→ 'amount = customer' reads the text customer as bigint, and stops the application where it is none. Write try_cast(customer as bigint)

orders.map_values({"x": "customer * 2", "y": "at > customer"})
→ 'customer * 2' reads the text customer as bigint, and stops the application where it is none. Write try_cast(customer as bigint)
→ 'at > customer' reads the text customer as timestamp, and stops the application where it is none. Write try_cast(customer as timestamp)

orders.map_values({"x": "date_add(address.zip, 1)"})
→ 'date_add(address.zip, 1)' reads the text address.zip as date, and stops the application where it is none. Write try_cast(address.zip as date)

orders.group_by("id").aggregate({"x": "sum(customer)"})
→ 'sum(customer)' reads the text customer as double, and stops the application where it is none. Write try_cast(customer as double)

orders.map_values({"x": "cast(customer as int) + try_cast(id as int) + length(customer)", "y": "concat(customer, amount)", "z": "to_date(id)"})

# Syntax: tests/unit/spark/test_syntax_advice.py has the others

orders.filter("customer = 'abc")
→ filter: Syntax error at or near ''': "customer = 'abc". Close the quote '.

orders.filter("(amount > 1")
→ filter: Syntax error at or near end of input: '(amount > 1'. Close the ( with )

orders.filter("customer is None")
→ filter: Syntax error at or near 'None': 'customer is None'. Write is null

orders.filter("'x' in customer")
→ filter: Syntax error at or near 'customer': "'x' in customer". Write contains(customer, 'x'), or array_contains(tags, 'x')

orders.filter("amount > {minimum}")
→ filter: Syntax error at or near '{': 'amount > {minimum}'. Write f before the quote, f"amount > {minimum}", so that Python puts the value into the text

orders.filter("amount > 0 && customer = 'a'")
→ filter: Syntax error at or near '&': "amount > 0 && customer = 'a'". Write and in place of &&

orders.map_values({"x": "amount, customer"})
→ map_values, x: Syntax error at or near ',': 'amount, customer'. Write one expression. A key of several fields is 'struct(a, b)'

orders.map_values({"x": ":amount"})
→ map_values, x: a parameter stands where a field is expected: amount. Write the name of the field alone: amount

orders.filter("amount in ()")
→ filter: in () has no value. Write at least one value: amount in (1, 2)

orders.group_by("customer, id")
→ the key: Syntax error at or near ',': 'customer, id'. Write one expression. A key of several fields is 'struct(a, b)'
"""  # noqa: E501


def blocks() -> list[tuple[str, list[str]]]:
    """The declarations of the page, each with its answers."""
    found = []
    for block in PAGE.strip().split("\n\n"):
        lines = block.splitlines()
        if not block.startswith("#"):
            found.append((lines[0], [line.removeprefix("→ ") for line in lines[1:]]))
    return found


def answers_to(declaration: str, spark: SparkSession) -> list[str]:
    """What is said of a declaration, without its line."""
    names: dict[str, Any] = {}
    exec(compile(BEFORE, "before.py", "exec"), names)
    exec(compile(declaration, "orders.py", "exec"), names)
    assert names["topology"].faults == ()
    told = [str(fault) for fault in topology_diagnostics(spark, names["topology"])]
    assert all(each.startswith("orders.py:1: ") for each in told)
    return [each.removeprefix("orders.py:1: ") for each in told]


@pytest.mark.parametrize(("declaration", "answers"), blocks(), ids=lambda each: None)
def test_a_mistake_in_an_expression_is_answered_with_what_to_write(
    declaration: str, answers: list[str], spark: SparkSession
) -> None:
    assert answers_to(declaration, spark) == answers


def test_the_page_has_eighty_mistakes() -> None:
    assert len(blocks()) >= 80
