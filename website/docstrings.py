"""Docstrings in Google's style as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent

import streamplan

_SECTIONS = ("Args", "Attributes", "Returns", "Raises")
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)}):\n", re.MULTILINE)
_EXAMPLE = re.compile(r"^Examples?:.*?(?=\n\n(?! )|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(\w+): ", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_CODE = re.compile(r"``(.+?)``", re.DOTALL)
_AS_FOR = re.compile(r"As for :meth:`([\w.]+)`\.")
_AS = re.compile(r"\A\w+ as :meth:`([\w.]+)` does")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring, in Markdown.

    Attributes:
        text: The sentences before the sections, without the example.
        examples: The code of the examples.
        arguments: What is said of each argument, or of each attribute of a class.
        returns: What is returned; empty where nothing is said of it.
    """

    text: str
    examples: tuple[str, ...]
    arguments: Mapping[str, str]
    returns: str


def parse(documented: object) -> Docstring:
    """Return the docstring of a class or a function.

    Args:
        documented: The class or the function. Without a docstring all parts are empty.
    """
    source = inspect.getdoc(documented) or ""
    head, *rest = _SECTION.split(source)
    sections = dict(zip(rest[::2], map(dedent, rest[1::2]), strict=True))
    found = _EXAMPLE.search(head)
    examples = _examples(found[0]) if found else ()
    entries = _ENTRY.split("\n" + sections.get("Args", sections.get("Attributes", "")))
    return Docstring(
        text=re.sub(r"\n{3,}", "\n\n", markdown(_EXAMPLE.sub("", head))).strip(),
        examples=examples,
        arguments={name: markdown(text) for name, text in zip(entries[1::2], map(_line, entries[2::2]), strict=True)},
        returns=markdown(_line(sections.get("Returns", ""))),
    )


def arguments_of(cls: type, method: str) -> Mapping[str, str]:
    """Return what is said of each argument of a method. What refers to another method has that one's words.

    Args:
        cls: The class of the language.
        method: The name of the method.
    """
    documented = getattr(cls, method)
    raw = inspect.getdoc(documented) or ""
    told = dict(parse(documented).arguments)
    if not told and (same := _AS.search(raw)):
        told = dict(_arguments_there(cls, same[1]))
    for name in told:
        entry = re.search(rf"^ +{name}: (As for :meth:`[\w.]+`\.)", raw, re.MULTILINE)
        refers = _AS_FOR.match(entry[1]) if entry else None
        if refers and refers[1] != method and (there := _arguments_there(cls, refers[1]).get(name)):
            told[name] = told[name].replace(markdown(refers[0]), there)
    return {name: text for name, text in told.items() if name in inspect.signature(documented).parameters}


def _arguments_there(cls: type, method: str) -> Mapping[str, str]:
    """The arguments of a method that a docstring of a class names: ``filter``, or ``KStream.filter``."""
    of_class, _, name = method.rpartition(".")
    return arguments_of(getattr(streamplan, of_class) if of_class else cls, name)


def markdown(text: str) -> str:
    """Return a text of a docstring, whose code stands between two backticks, as Markdown."""
    return _CODE.sub(lambda code: f"`{' '.join(code[1].split())}`", _ROLE.sub(_name, text))


def _name(role: re.Match[str]) -> str:
    target: str = role[1]
    name = target.rpartition(".")[2] if target.startswith("streamplan.") or role[0].count("~") else target
    return f"`{name}`"


def _examples(paragraph: str) -> tuple[str, ...]:
    first, _, block = paragraph.partition("\n\n")
    if first.endswith("::"):
        return (inspect.cleandoc(block),)
    return tuple(_CODE.findall(paragraph))


def _line(text: str) -> str:
    return " ".join(text.split())
