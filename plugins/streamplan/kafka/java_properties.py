"""The syntax of Java's properties files and of the text that Kafka's JVM client takes as ``sasl.jaas.config``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamplan.errors import Refused

_PAIR = re.compile(r"(?P<name>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Read text in the syntax of Java's properties: comments, escapes, and lines that go on after a backslash."""
    pairs = (_PAIR.fullmatch(line) for line in _logical_lines(text))
    return {_unescaped(pair["name"]): _unescaped(pair["value"]) for pair in pairs if pair is not None}


def _logical_lines(text: str) -> Iterator[str]:
    begun: str | None = None
    for line in re.split(r"\r\n|\r|\n", text):
        part = line.lstrip(_BLANKS)
        if begun is None and (not part or part[0] in "#!"):
            continue
        logical = (begun or "") + part
        # An even number of backslashes are escaped backslashes.
        if (len(part) - len(part.rstrip("\\"))) % 2:
            begun = logical[:-1]
        else:
            yield logical
            begun = None
    if begun is not None:
        yield begun


def _unescaped(text: str) -> str:
    def unescape(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        return _ESCAPES.get(escape[2] or "", escape[2] or "")

    return _ESCAPE.sub(unescape, text)


def jaas_config(module: str, options: Mapping[str, str]) -> str:
    r"""Return the text of ``sasl.jaas.config``.

    Kafka reads it with Java's ``StreamTokenizer``: a backslash begins an escape, and a line must not end in quotes.
    """
    quoted = (f'{name}="{_escaped(value)}"' for name, value in options.items())
    return " ".join([module, "required", *quoted]) + ";"


def _escaped(value: str) -> str:
    for plain, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escape)
    return value


def parse_jaas_config(text: str) -> tuple[str, dict[str, str]]:
    """Read ``sasl.jaas.config`` as Kafka does: one login module, its flag, and options.

    Returns:
        The class of the login module, and its options.

    Raises:
        Refused: The text has another form.
    """
    tokens = list(_jaas_tokens(text))
    malformed = Refused(
        "sasl.jaas.config",
        expected='<login module> required <option>="<value>" ... ;',
        observed="another form",
        remedy="Put each value that has other characters than letters and digits into quotes. End the text with a "
        "semicolon.",
    )
    if len(tokens) < 3 or tokens[-1] != (";", False) or (len(tokens) - 3) % 3:
        raise malformed
    options: dict[str, str] = {}
    for at in range(2, len(tokens) - 1, 3):
        (name, _), equals, (value, _) = tokens[at : at + 3]
        if equals != ("=", False):
            raise malformed
        options[name] = value
    return tokens[0][0], options


_JAAS_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)|(?P<word>[\w.$-]+)|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'"""
    r"|(?P<mark>.)",
    re.DOTALL,
)

_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _jaas_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each token, and whether it is a text (and no mark)."""

    def unescape(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPES.get(code, code)

    for token in _JAAS_TOKEN.finditer(text):
        quoted = token["double"] if token["double"] is not None else token["single"]
        if quoted is not None:
            yield _JAAS_ESCAPE.sub(unescape, quoted), True
        elif token["word"] is not None:
            yield token["word"], True
        elif token["mark"] is not None:
            yield token["mark"], False
