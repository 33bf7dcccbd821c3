"""Expressions that Spark takes, and whose results surprise: a comparison with null, and what changes each time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamplan.judged_words import aliased
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.functions import PythonFunction
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source
from streamplan.model.unused import TEXT, used_by

_COMPARED_WITH_NULL = re.compile(r"(<=>|<>|!=|<=|>=|==|=|<|>)\s*null\b", re.IGNORECASE)

_CHANGES = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id|input_file_name"
    r"|now|curdate|current_timestamp|current_date|current_time|localtimestamp)\s*\(|\b(unix_timestamp)\s*\(\s*\)"
    r"|\b(current_timestamp|current_date|current_time|localtimestamp)\b",
    re.IGNORECASE,
)
"""The functions whose result is another one when they are computed again. Some are called without parentheses."""


def pitfalls(pipeline: Pipeline) -> tuple[Diagnostic, ...]:
    """Return a warning for each expression of a pipeline whose result surprises."""
    return tuple(dict.fromkeys(_warnings(pipeline)))


def _warnings(pipeline: Pipeline) -> Iterator[Diagnostic]:
    nodes = [node for group in pipeline.topology.subtopologies for node in group.nodes]
    fields = {
        name for node in nodes if isinstance(node, Source) and node.value is not None for name in node.value.fields
    }
    for node in nodes:
        for expression in used_by(node):
            if isinstance(expression, PythonFunction):
                continue
            if (named := aliased(expression)) is not None:
                said = (
                    f"'as {named[1]}' in {expression!r} names nothing: the name of the field is the key of the mapping"
                )
                yield Diagnostic(node.location, said, f"Write {{{named[1]!r}: {named[0]!r}}}")
            text = TEXT.sub("''", expression)
            if any(operator != "<=>" for operator in _COMPARED_WITH_NULL.findall(text)):
                said = f"{expression!r} compares with null, and the result is null for each record"
                yield Diagnostic(node.location, said, "Write customer is null, or customer is not null")
            for found in _CHANGES.finditer(text):
                name = found[1] or found[2] or found[3]
                if found[3] is not None and name in fields:
                    continue
                said = (
                    f"{name}() gives another result when it is computed again, as after a crash and in the check totals"
                )
                hint = "Write what the record has, such as record.timestamp, or a function with deterministic=False"
                yield Diagnostic(node.location, said, hint)
