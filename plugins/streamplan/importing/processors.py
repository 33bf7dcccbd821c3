"""The calls of operations that work record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamplan.importing.calls import Argument, Code, Questions, Result
from streamplan.importing.nodes import number_of
from streamplan.importing.operations import Operation
from streamplan.importing.stand_ins import reason_of


@dataclass(frozen=True)
class Processor:
    """How a processor is written.

    Attributes:
        method: The method.
        arguments: Its arguments.
        options: Its arguments with a name.
        comment: What a reader should know of it.
    """

    method: str
    arguments: tuple[Argument, ...] = ()
    options: dict[str, Argument] = field(default_factory=dict)
    comment: str = ""


def processor_of(operation: Operation, questions: Questions, on_tables: Sequence[bool]) -> Processor:
    """Return how an operation is written that has one processor without a state store.

    Args:
        questions: Takes what cannot be told.
        on_tables: Of each result that it goes on from whether that is a table.
    """
    name, ask = operation.node.name, questions
    match operation.word:
        case "filter":
            return Processor("filter", (ask.text(name, "which records {} passes", "true"),))
        case "old_split":
            comment = "branch() of older versions. The filters behind it are its branches."
            return Processor("filter", (Code('"true"', '"true"'),), comment=comment)
        case "old_branch":
            advice = ": those of its predicate that no branch before it takes. split() gives other names"
            return Processor("filter", (ask.text(name, "which records {} takes", "true", advice),))
        case "map_values":
            return Processor("map_values", (ask.fields(name, "the value that {} gives"),))
        case "select_key":
            return Processor("select_key", (ask.text(name, "the key that {} gives", "count"),))
        case "map":
            key = ask.text(name, "the key that {} gives", "count")
            return Processor("map", (key, ask.fields(name, "the value that {} gives")))
        case "flat_map":
            each = ask.text(name, "the array of whose elements {} makes records", "array(count)")
            key = ask.text(name, "the key that {} gives", "element")
            value = ask.fields(name, "the value that {} gives", "element")
            return Processor("flat_map", (each,), {"key": key, "value": value})
        case "flat_map_values":
            each = ask.text(name, "the array of whose elements {} makes records", "array(count)")
            return Processor("flat_map_values", (each, ask.fields(name, "the value that {} gives", "element")))
        case "foreach":
            asked = ask.text(name, "the function that {} calls", "")
            return Processor("foreach", (Code(asked.written, "len"),))
        case "print":
            ask.note(name, "its label, and whether it prints to a file")
            return Processor("print")
        case "peek":
            advice = "what it does with each record: a function; the declaration logs how many there are"
            ask.note(name, advice)
            return Processor("peek", (Code('{"records": "count(*)"}', '{"records": "count(*)"}'),))
        case "merge":
            return Processor("merge", (Result(operation.on[-1]),))
        case "to_stream":
            if number_of(name) is None:
                ask.note(name, "whether it is to_stream(): the application named it")
            return Processor("to_stream")
        case "unknown":
            advice = ": the application named it. Where it is no filter(), write its operation with the same name="
            return Processor("filter", (ask.text(name, "what {} does", "true", advice),))
    return _stand_in(operation, ask, on_tables)


def _stand_in(operation: Operation, ask: Questions, on_tables: Sequence[bool]) -> Processor:
    """An operation in the place of one that the language does not have, so that later names and numbers agree."""
    name, reason = operation.node.name, reason_of(operation.node.name)
    if operation.word == "behind_stand_in":
        reason = "It goes on from an operation that the language does not have. Replace that one first."
    if on_tables[0]:
        ask.note(name, reason)
        return Processor("to_stream", comment=reason)
    if [*on_tables] == [False, False]:
        ask.note(name, reason)
        return Processor("merge", (Result(operation.on[1]),), comment=reason)
    return Processor("filter", (ask.text(name, "what stands for {}", "true", f". {reason}"),), comment=reason)
