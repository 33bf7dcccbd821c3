"""What is written in place of Spark SQL is answered with what to write."""

from __future__ import annotations

import pytest
from streamplan.spark.planning.syntax_advice import SYNTAX, syntax_advice

PAGE = r"""
customer = 'abc
→ Close the quote '.

'it's'
→ Close the quote '. A text that has a quote stands between the others: "it's"

`amount
→ Close the backtick `.

(amount > 1
→ Close the ( with )

transform(tags, t -> upper(t)
→ Close the ( with )

tags[0
→ Close the [ with ]

amount > 1)
→ Leave out a ), or open it with (

“amount”
→ Write straight quotes: 'text'

amount /* in cents
→ End the comment with */

amount # in cents
→ Leave out the comment, or write it behind the text, as a comment of Python

amount > {minimum}
→ Write f before the quote, f"amount > {minimum}", so that Python puts the value into the text

$amount
→ Write the name of the field alone: amount

:amount
→ Write the name of the field alone: amount

amount > ?
→ Write the name of the field alone: amount

amount > 0 && customer = 'a'
→ Write and in place of &&

customer is None
→ Write is null

customer is not None
→ Write is not null

customer in ['a', 'b']
→ Write the values in parentheses: customer in ('a', 'b')

amount in 1, 2
→ Write the values in parentheses: amount in (1, 2)

'x' in customer
→ Write contains(customer, 'x'), or array_contains(tags, 'x')

transform(tags, lambda t: upper(t))
→ Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))

amount > 1;
→ Leave out the semicolon: an expression is no statement

amount ** 2
→ Write pow(amount, 2) in place of amount ** 2

amount // 2
→ Write amount div 2 in place of amount // 2

amount++
→ Write amount + 1: an expression changes nothing

amount > 1 ? 'a' : 'b'
→ Write if(condition, 'a', 'b')

'a' if amount > 1 else 'b'
→ Write if(condition, 'a', 'b')

if amount > 1 then 'a' else 'b'
→ Write if(condition, 'a', 'b')

case when amount > 1 then 'a'
→ Write case when condition then 'a' else 'b' end

where amount > 1
→ Write the expression alone, without where and select

amount > 1 order by amount
→ Write the expression alone: what groups is an operation, such as group_by('key'), and a stream has no order

customer[0:3]
→ Write substring(customer, 1, 3) for a part of a text, slice(tags, 1, 3) of an array

amount between 1, 5
→ Write both bounds: amount between 1 and 5

customer starts with 'a'
→ Write startswith(customer, 'a')

customer ends with 'a'
→ Write endswith(customer, 'a')

customer contains 'a'
→ Write contains(customer, 'a')

like customer 'a%'
→ Write customer like 'a%'

cast(amount string)
→ Write cast(amount as string)

at + interval 5 minuts
→ Write a unit of time, as in interval 5 minutes

amount >
→ Write what follows it: the expression ends too early

amount > 1 and
→ Write what follows it: the expression ends too early

customer, id
→ Write one expression. A key of several fields is 'struct(a, b)'

amount amount amount
→ Write an expression in Spark SQL, as in "amount > 0 and customer is not null"
"""


@pytest.mark.parametrize("block", PAGE.strip().split("\n\n"))
def test_a_text_that_is_no_expression(block: str) -> None:
    expression, answer = block.split("\n→ ")
    assert syntax_advice(expression) == answer


@pytest.mark.parametrize("expression", ["customer = 'a && b; [0:1] {x} None' amount", '"(" customer', "`a ? b : c` d"])
def test_what_stands_in_quotes_is_no_mistake(expression: str) -> None:
    assert syntax_advice(expression) == SYNTAX
