"""What to write in place of a text that is no Spark SQL: of words of other languages, and of what is not closed.

The text is only read here when Spark has refused it, so that a guess can mislead nobody whose expression is right.
"""

from __future__ import annotations

import re

SYNTAX = 'Write an expression in Spark SQL, as in "amount > 0 and customer is not null"'
"""What to write where nothing tells what was meant."""

_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL)

_PARENTHESES = {")": "(", "]": "["}

_ADVICE: tuple[tuple[str, str], ...] = (
    (r"[“”‘’„]", "Write straight quotes: 'text'"),
    (r"/\*(?!.*\*/)", "End the comment with */"),
    (r"[{}]", "Write f before the quote, f\"amount > {minimum}\", so that Python puts the value into the text"),
    (r"\?.*:", "Write if(condition, 'a', 'b')"),
    (r"[$@]|(?:^|\W):\w|(?:^|\W)\?\W*$", "Write the name of the field alone: amount"),
    (r"&&", "Write and in place of &&"),
    (r"\bis\s+not\s+None\b|!=\s*None\b", "Write is not null"),
    (r"\bis\s+None\b|==?\s*None\b", "Write is null"),
    (r"\blambda\b", "Write a function of elements with an arrow, as in transform(tags, tag -> upper(tag))"),
    (r"\b(?:not\s+)?in\s*\[", "Write the values in parentheses: customer in ('a', 'b')"),
    (r"\bin\s*[^\s(\[]+\s*,", "Write the values in parentheses: amount in (1, 2)"),
    (r"^\s*§\s+(?:not\s+)?in\s+\w", "Write contains(customer, 'x'), or array_contains(tags, 'x')"),
    (r";\s*$", "Leave out the semicolon: an expression is no statement"),
    (r"#", "Leave out the comment, or write it behind the text, as a comment of Python"),
    (r"\*\*", "Write pow(amount, 2) in place of amount ** 2"),
    (r"//", "Write amount div 2 in place of amount // 2"),
    (r"\+\+|--\s*$|\+=|-=", "Write amount + 1: an expression changes nothing"),
    (r"^\s*(?:where|select|filter)\b", "Write the expression alone, without where and select"),
    (r"\bfrom\b.*|\b(?:order|group|partition)\s+by\b|\blimit\b", "Write the expression alone: what groups is an "
     "operation, such as group_by('key'), and a stream has no order"),
    (r"^\s*if\b(?!\s*\()|\bif\b.*\belse\b", "Write if(condition, 'a', 'b')"),
    (r"\bcase\b", "Write case when condition then 'a' else 'b' end"),
    (r"\[[^\]]*:[^\]]*\]", "Write substring(customer, 1, 3) for a part of a text, slice(tags, 1, 3) of an array"),
    (r"\bbetween\b(?!.*\band\b)", "Write both bounds: amount between 1 and 5"),
    (r"\bstarts?\s*with\s+§", "Write startswith(customer, 'a')"),
    (r"\bends?\s*with\s+§", "Write endswith(customer, 'a')"),
    (r"\bcontains\s+§", "Write contains(customer, 'a')"),
    (r"^\s*like\b", "Write customer like 'a%'"),
    (r"\bcast\s*\((?!.*\bas\b)", "Write cast(amount as string)"),
    (r"\binterval\s+\d+\s+\w+", "Write a unit of time, as in interval 5 minutes"),
    (r"[-+*/%<>=]\s*$|\b(?:and|or|not|like|in|is)\s*$", "Write what follows it: the expression ends too early"),
    (r"^[^()\[\]]*,", "Write one expression. A key of several fields is 'struct(a, b)'"),
    (r"[^=<>!]=\s*$|:=", "Write the expression alone: the name of the field stands before it, in the mapping"),
)  # fmt: skip
"""By what stands in the text, without its literals, for each of which stands a ``§``: what to write."""


def syntax_advice(expression: str) -> str:
    """Return what to write in place of a text that Spark cannot parse."""
    text = _LITERAL.sub("§", expression)
    found = (hint for pattern, hint in _ADVICE if re.search(pattern, text, re.IGNORECASE | re.DOTALL))
    return _unclosed(text) or next(found, SYNTAX)


def _unclosed(text: str) -> str:
    """What to write where a quote or a parenthesis has no other one. Empty where each has."""
    for quote, word in (("'", "quote"), ('"', "quote"), ("`", "backtick")):
        if quote in text:
            within = (
                ' A text that has a quote stands between the others: "it\'s"' if quote == "'" and "§" in text else ""
            )
            return f"Close the {word} {quote}.{within}"
    opened: list[str] = []
    for character in text:
        if character in _PARENTHESES.values():
            opened.append(character)
        elif character in _PARENTHESES and (not opened or opened.pop() != _PARENTHESES[character]):
            return f"Leave out a {character}, or open it with {_PARENTHESES[character]}"
    closing = {opening: closing for closing, opening in _PARENTHESES.items()}
    return f"Close the {opened[-1]} with {closing[opened[-1]]}" if opened else ""
