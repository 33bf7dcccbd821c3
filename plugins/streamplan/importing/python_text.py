"""The Python text of a declaration, as a person writes it: calls are chained where a result is used once."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from streamplan.importing.calls import TOPOLOGY, Argument, Call, Code, Result, literal

_LINE_LENGTH = 120
_RESERVED = ("topology", "streamplan")


def python_text(
    application_id: str, calls: Sequence[Call], topic_partitions: Mapping[str, int | None], *, tried: bool = False
) -> str:
    """Return the text of a module that declares a pipeline.

    Args:
        calls: The calls that declare its topology.
        topic_partitions: The partition counts of topics that have to be declared; None for one that is not known.
        tried: Whether valid texts stand where a person has to write something. The lines are the same.
    """
    statements = _statements(calls)
    variables = _variables(statements)
    lines = [
        f'"""The topology of the Kafka Streams application {application_id}. Replace what is marked with TODO."""',
        "",
        f"from streamplan import {', '.join(_imported(calls))}",
        "",
        f"topology = Topology({literal(application_id).written})",
    ]
    for statement in statements:
        lines += _lines(statement, variables, tried=tried)
    lines += [
        "",
        "PIPELINE = Pipeline(",
        f"    name={literal(pipeline_name(application_id)).written},",
        "    topology=topology,",
        f"    description={literal(f'The topology of {application_id}.').written},",
    ]
    if topic_partitions:
        lines.append("    topic_partitions={")
        for topic, count in topic_partitions.items():
            shown = (2 if tried else 0) if count is None else count
            lines.append(f"        {literal(topic).written}: {shown},{'' if count else '  # TODO: its partitions'}")
        lines.append("    },")
    return "\n".join([*lines, ")", ""])


def pipeline_name(application_id: str) -> str:
    """Return the name of the pipeline of an application: the prefix of the ids of its DAGs."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", application_id)
    return name if name[:1].isalpha() or name[:1] == "_" else f"app-{name}"


def _imported(calls: Sequence[Call]) -> list[str]:
    names = {"Pipeline", "Topology"}
    for call in calls:
        for argument in (*call.arguments, *call.options.values()):
            if isinstance(argument, Code):  # a class, or a mapping of stores
                code = re.sub(r'"(?:[^"\\]|\\.)*"', "", argument.written)
                names |= {*re.findall(r"(?:^|[{(,:] ?)([A-Z]\w+)(?=\(|$)", code)}
    return sorted(names)


def _statements(calls: Sequence[Call]) -> list[list[Call]]:
    """Divide calls into chains. A call goes on a chain if nothing else uses the result before it."""
    uses = Counter(call.on for call in calls)
    for call in calls:
        uses.update(argument.of for argument in call.arguments if isinstance(argument, Result))
    statements: list[list[Call]] = []
    for call in calls:
        before = statements[-1][-1].result if statements else TOPOLOGY
        if before != TOPOLOGY and call.on == before and uses[before] == 1:
            statements[-1].append(call)
        else:
            statements.append([call])
    return statements


def _variables(statements: Sequence[Sequence[Call]]) -> dict[str, str]:
    """Return the variable of each result that a later statement uses."""
    used = {statement[0].on for statement in statements}
    for statement in statements:
        for call in statement:
            used |= {argument.of for argument in call.arguments if isinstance(argument, Result)}
    variables = {TOPOLOGY: "topology"}
    for statement in statements:
        last = statement[-1]
        if last.result in used and last.result != TOPOLOGY:
            wanted = re.sub(r"\W", "_", last.variable.lower(), flags=re.ASCII) or "stream"
            wanted = f"_{wanted}" if wanted[0].isdigit() else wanted
            number, variable = 2, wanted
            while variable in variables.values() or variable in _RESERVED or keyword.iskeyword(variable):
                variable, number = f"{wanted}_{number}", number + 1
            variables[last.result] = variable
    return variables


def _lines(statement: Sequence[Call], variables: Mapping[str, str], *, tried: bool) -> list[str]:
    first, last = statement[0], statement[-1]
    assigned = f"{variables[last.result]} = " if variables.get(last.result, "topology") != "topology" else ""
    written = [_call_text(call, variables, tried=False) for call in statement]
    shown = [_call_text(call, variables, tried=tried) for call in statement]
    on = variables[first.on]
    # The layout is that of the written text in either case.
    is_short = len(f"{assigned}{on}{''.join(written)}") <= _LINE_LENGTH
    if len(statement) == 1 or (is_short and not any(call.comment for call in statement[1:])):
        return [*_comment(first, ""), f"{assigned}{on}{''.join(shown)}"]
    start = [*_comment(first, "    "), f"    {on}{shown[0]}"] if first.on == TOPOLOGY else [f"    {on}"]
    rest = list(zip(statement, shown, strict=True))[int(first.on == TOPOLOGY) :]
    lines = [line for call, text in rest for line in (*_comment(call, "    "), f"    {text}")]
    return [f"{assigned}(", *start, *lines, ")"]


def _comment(call: Call, indent: str) -> list[str]:
    return [f"{indent}# {call.comment}"] if call.comment else []


def _call_text(call: Call, variables: Mapping[str, str], *, tried: bool) -> str:
    def text(argument: Argument) -> str:
        if isinstance(argument, Result):
            return variables[argument.of]
        return argument.tried if tried else argument.written

    arguments = [*map(text, call.arguments), *(f"{name}={text(value)}" for name, value in call.options.items())]
    item = f"[{literal(call.item).written}]" if call.item else ""
    return f".{call.method}({', '.join(arguments)}){item}"
