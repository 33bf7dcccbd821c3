"""The pages of the reference that are made from the code, besides those of the operations."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import streamplan
from streamplan.checks import CHECKS
from streamplan.checks.framework.advice import Advice
from streamplan.cli import COMMANDS
from streamplan.cli.command import Commands
from streamplan.cli.program import Parser
from streamplan.observability.metrics import AGGREGATOR_METRICS, METRICS
from streamplan.observability.prometheus import prometheus_name
from streamplan.programs import ExitStatus
from streamplan.settings import Settings

from website.docstrings import parse
from website.operations import index_page, operations, page_of

PIPELINE_CLASSES = ("Pipeline", "Limits", "TestData")
WINDOW_CLASSES = (
    "TimeWindows",
    "CalendarWindows",
    "CustomWindows",
    "SlidingWindows",
    "SessionWindows",
    "JoinWindows",
    "OnWindowClose",
    "UntilTimeLimit",
    "UntilWindowCloses",
    "Versioned",
)
SERDE_CLASSES = (
    "Json",
    "String",
    "Integer",
    "Long",
    "Double",
    "UUID",
    "Bytes",
    "TimeWindowed",
    "SessionWindowed",
    "Avro",
    "JsonSchema",
    "Protobuf",
)
FUNCTION_CLASSES = (
    "Processor",
    "ProcessorContext",
    "Cancellable",
    "Record",
    "KeyValueStore",
    "WindowStore",
    "SessionStore",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VersionedKeyValueStore",
    "arrow_batch",
)

GIVEN_CLASSES = frozenset({"Record"})
"""Streamplan makes their objects: there is nothing that a reader has to give."""

_NOT_DECLARED = re.compile("It is not declared|They are not declared")
"""How a docstring speaks of a field that Streamplan sets itself."""


def write_pages(folder: Path) -> list[str]:
    """Write all generated pages, and delete those of an earlier call.

    Args:
        folder: Where they are written. It is made.

    Returns:
        The paths of the pages in it.
    """
    made = pages()
    for earlier in folder.rglob("*.md"):
        earlier.unlink()
    for path, text in made.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return sorted(made)


def pages() -> Mapping[str, str]:
    """Return the Markdown of each generated page by its path."""
    return {
        "operations/index.md": index_page(),
        **{operation.path: page_of(operation) for operation in operations()},
        "reference/pipeline.md": _classes(
            "Pipeline and Limits",
            "A pipeline is a topology and what deploying it needs, field by field.",
            PIPELINE_CLASSES,
        ),
        "reference/windows.md": _classes(
            "Windows",
            "A duration is a text such as `5 minutes`. The operations that take windows are "
            "[`windowed_by`](../operations/KGroupedStream-windowed_by.md), "
            "[`emit_strategy`](../operations/WindowedKStream-emit_strategy.md) and "
            "[`join`](../operations/KStream-join.md).",
            WINDOW_CLASSES,
        ),
        "reference/serdes.md": _classes(
            "Serdes",
            "A serde reads and writes values. [The language](../language.md#types-of-fields) has the types of fields, "
            "and [the page on schemas](../schema-registry.md) what a Schema Registry adds.",
            SERDE_CLASSES,
        ),
        "reference/processors.md": _classes(
            "Processors and functions",
            "What a Python class of [`process`](../operations/KStream-process.md) is given, and how a function takes "
            "many records at once.",
            FUNCTION_CLASSES,
        ),
        "reference/command-line.md": _command_line(),
        "reference/settings.md": _settings(),
        "reference/metrics.md": _metrics(),
        "reference/checks.md": _checks(),
    }


def _classes(title: str, sentence: str, names: tuple[str, ...]) -> str:
    lines = [f"# {title}", "", sentence, ""]
    for name in names:
        lines += _class(name)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _class(name: str) -> Iterator[str]:
    documented = getattr(streamplan, name)
    docstring = parse(documented)
    yield from [f"## {name}", ""]
    for example in docstring.examples:
        yield from ["```python", *example.splitlines(), "```", ""]
    yield from [docstring.text, ""]
    if told := {key: text for key, text in docstring.arguments.items() if not _NOT_DECLARED.search(text)}:
        defaults = {} if name in GIVEN_CLASSES else _defaults(documented)
        yield from ["| Field | Default | |", "|---|---|---|"]
        yield from (f"| `{field}` | {defaults.get(field, '')} | {_cell(text)} |" for field, text in told.items())
        yield ""
    for method, function in vars(documented).items():
        if isinstance(documented, type) and name in FUNCTION_CLASSES and _is_public(method, function):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            yield from [f"### {name}.{method}({', '.join(each.name for each in parameters)})", ""]
            of_method = parse(function)
            yield from [of_method.text, ""]
            yield from (f"- `{argument}`: {text}" for argument, text in of_method.arguments.items())
            yield from ["", f"**Returns** {of_method.returns}" if of_method.returns else "", ""]


def _is_public(name: str, value: object) -> bool:
    return inspect.isfunction(value) and not name.startswith("_")


def _defaults(documented: Any) -> Mapping[str, str]:
    """The defaults of a dataclass, as Python writes them.

    A constructor may require a field that has a default: an inherited field before it has one.
    """
    if not hasattr(documented, "__dataclass_fields__"):
        return {}
    made: dict[str, str] = {}
    parameters = inspect.signature(documented).parameters
    for field in fields(documented):
        if field.name in parameters and parameters[field.name].default is inspect.Parameter.empty:
            made[field.name] = "required"
        elif field.default is not MISSING:
            made[field.name] = f"`{field.default!r}`"
        elif field.default_factory is not MISSING:
            made[field.name] = f"`{field.default_factory()!r}`"
    return made


def parser_of_commands() -> Parser:
    """Return the parser of the command line with all of its commands."""
    parser = Parser(prog="streamplan")
    parser.add_argument("--version", action="version", version=streamplan.__version__)
    commands = Commands(parser)
    for command in COMMANDS:
        import_module(f"streamplan.cli.{command}").register(commands)
    return parser


def _command_line() -> str:
    actions = parser_of_commands()._actions
    [choices] = [action.choices for action in actions if isinstance(action, argparse._SubParsersAction)]
    lines = [
        "# The command line",
        "",
        "This page has the help of each command. [Commands](../commands.md) says in one table what each one is for.",
        "",
        "## Exit statuses",
        "",
        "```text",
        ExitStatus.table(wrong=ExitStatus.WRONG.meaning).rstrip(),
        "```",
        "",
    ]
    for command in COMMANDS:
        lines += [f"## {command}", "", "```text", choices[command].format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "A deployment reads its settings from the environment of its processes. [Settings](../deploy.md#settings) has "
        "those of single jobs, too.",
        "",
        "| Setting | |",
        "|---|---|",
    ]
    told = parse(Settings).arguments
    lines += [f"| `{field.name}` | {_cell(told[field.name])} |" for field in fields(Settings)]
    return "\n".join([*lines, ""])


def _metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "`streamplan exporter` serves these metrics. [Metrics and alerts](../metrics.md) says what each is for, and "
        "which alerts there are.",
        "",
        "| In Prometheus | In OpenTelemetry | Unit | | Whose |",
        "|---|---|---|---|---|",
    ]
    for metric in METRICS:
        whose = "aggregator" if metric in AGGREGATOR_METRICS else "exporter"
        unit = metric.unit.strip("{}")
        lines.append(
            f"| `{prometheus_name(metric)}` | `{metric.name}` | {unit} | {_cell(metric.description)} | {whose} |"
        )
    return "\n".join([*lines, ""])


def _checks() -> str:
    lines = [
        "# The checks in short",
        "",
        "What healthy means for each check, and what to do when a check is red. [The checks](../checks.md) says how "
        "each one knows.",
        "",
    ]
    for check in CHECKS:
        lines += [f"## {check.name}", "", f"**{check.title}.** {check.healthy}", "", f"**Red**: {check.advice}", ""]
    general = {check.advice for check in CHECKS}
    lines += ["## For single rows", "", "Some rows of a check have a sentence of their own:", ""]
    lines += [f"- {advice.value}" for advice in Advice if advice.value not in general]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
