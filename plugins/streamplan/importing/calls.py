"""The calls of a declaration, as values: what is called on what, with which arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamplan.model.kstream import TODO

TOPOLOGY = ""
"""The result on which ``stream`` and ``table`` are called."""

_FIELD = "count"
"""The field of every value in a trial: the result of ``count()`` has it, so that any two streams can be merged."""


@dataclass(frozen=True)
class Code:
    """The Python text of an argument.

    Attributes:
        written: What is written into the file.
        tried: What stands in its place when the declaration is tried: it is always valid.
    """

    written: str
    tried: str


@dataclass(frozen=True)
class Result:
    """The result of an earlier call, as an argument."""

    of: str


Argument: TypeAlias = Code | Result


@dataclass(frozen=True)
class Call:
    """A call of a method.

    Attributes:
        result: By which later calls refer to its result; empty where nothing can.
        on: The result on which it is called; :data:`TOPOLOGY` for the topology.
        method: The method.
        arguments: Its arguments.
        options: Its arguments with a name.
        variable: What to call its result.
        comment: What a reader should know of it.
        item: The key of what is taken of its result, a mapping; empty where the result is taken whole.
    """

    result: str
    on: str
    method: str
    arguments: tuple[Argument, ...] = ()
    options: Mapping[str, Argument] = field(default_factory=dict)
    variable: str = ""
    comment: str = ""
    item: str = ""


def literal(value: str | int) -> Code:
    """A value that is known."""
    code = json.dumps(value, ensure_ascii=False)
    return Code(code, code)


def called(name: str, *arguments: Code) -> Code:
    """The call of a class of the public API, such as ``Json``."""
    written, tried = (
        ", ".join(texts) for texts in zip(*((each.written, each.tried) for each in arguments), strict=True)
    )
    return Code(f"{name}({written})", f"{name}({tried})")


def schema(fields: str) -> Code:
    """A schema that is known."""
    return Code(literal(fields).written, literal(f"{_FIELD} bigint").written)


@dataclass(frozen=True)
class Missing:
    """Something that the description does not tell.

    Attributes:
        node: The node that it is about.
        what: What is missing, and what to do about it.
    """

    node: str
    what: str


class Questions:
    """What a person has to write, or to know.

    Attributes:
        missing: All that was asked.
    """

    def __init__(self) -> None:
        self.missing: list[Missing] = []

    def note(self, node: str, what: str) -> None:
        """Say what is not told, where nothing has to be written for the declaration to be valid."""
        self.missing.append(Missing(node, what))

    def text(self, node: str, what: str, tried: str, advice: str = "") -> Code:
        """Ask for a text. What stands in its place is no expression, no schema and no duration, so that it is refused.

        Args:
            node: The name of the node that it is about.
            what: What the text says. ``{}`` stands for the node.
            tried: A valid text.
            advice: What else a person should know.
        """
        self.note(node, f"{what.replace('{}', 'it')}{advice}")
        return Code(literal(f"{TODO} {what.replace('{}', node)}").written, literal(tried).written)

    def fields(self, node: str, what: str, tried: str = _FIELD, advice: str = "") -> Code:
        """Ask for the fields of a value.

        Args:
            node: The name of the node that it is about.
            what: What they are. ``{}`` stands for the node.
            tried: A valid expression of a field.
            advice: What else a person should know.
        """
        asked = self.text(node, what, tried, advice)
        return Code(f'{{"TODO": {asked.written}}}', f'{{"{_FIELD}": {asked.tried}}}')
