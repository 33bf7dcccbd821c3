"""The syntax of Java's properties files and of the text that Kafka's JVM client takes as ``sasl.jaas.config``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamplan.errors import Refused

_PAIR = re.compile(r"(?P<name>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str, source: str = "the properties") -> dict[str, tuple[str, int]]:
    """Read text in the syntax of Java's properties: comments, escapes, and lines that go on after a backslash.

    Args:
        source: Where it is from, for the error.

    Returns:
        The value of each name, and the number of the line on which it begins. The last one of a name counts.

    Raises:
        Refused: An escape is malformed. Java's reader refuses the file, too.
    """
    found = {}
    for number, line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        assert pair is not None  # it takes any text
        try:
            found[_unescaped(pair["name"])] = (_unescaped(pair["value"]), number)
        except ValueError:
            raise Refused(
                f"{source}, line {number}",
                expected="four hexadecimal digits after \\u",
                observed="another character",
                remedy="Write a backslash as two: \\\\.",
            ) from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, first = "", 0
    continues = False
    # Java ends a line that goes on where the text ends, be it before or behind the end of the last line.
    ended = re.sub(r"\\[\r\n]\Z", r"\\", text)
    for number, line in enumerate(re.split(r"\r\n|\r|\n", ended), 1):
        part = line.lstrip(_BLANKS)
        # What follows a line of a single backslash is read as a first line.
        if not begun and (part.startswith(("#", "!")) or not (part or continues)):
            continues = False
            continue
        first = first if begun else number
        # An even number of backslashes are escaped backslashes.
        continues = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        begun += part[:-1] if continues else part
        if not continues:
            if begun:
                yield first, begun
            begun = ""
    if begun or continues:  # the last line ends with a backslash
        yield first, begun


def _unescaped(text: str) -> str:
    def unescape(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise ValueError
        return _ESCAPES.get(escape[2] or "", escape[2] or "")

    # Java has text in UTF-16: two escapes may be the two halves of one character.
    return _ESCAPE.sub(unescape, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
        remedy="Put each value that has other characters than letters and digits, or begins with a digit, into quotes. "
        "End the text with a semicolon.",
    )
    if len(tokens) < 3 or tokens[-1] != (";", False) or (len(tokens) - 3) % 3:
        raise malformed
    (module, is_named), (flag, is_flag) = tokens[:2]
    if not is_named or not is_flag or flag.lower() not in _FLAGS:
        raise malformed
    options: dict[str, str] = {}
    for at in range(2, len(tokens) - 1, 3):
        (name, is_name), equals, (value, is_value) = tokens[at : at + 3]
        if not is_name or equals != ("=", False) or not is_value:
            raise malformed
        options[name] = value
    return module, options


_FLAGS = ("required", "requisite", "sufficient", "optional")

# Java's StreamTokenizer, as Kafka's `JaasConfig` sets it. A single slash begins a comment, too.
_JAAS_TOKEN = re.compile(
    r"""(?P<blank>[\x00-\x20]+|/\*.*?(?:\*/|$)|/[^\r\n]*)"""
    r"""|(?P<number>-?(?=\.?[0-9])[0-9]*(?:\.[0-9]*)?)"""
    r"""|(?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z_$\u00a0-\U0010ffff0-9.-]*)"""
    r"""|"(?P<double>(?:\\.|[^"\\\r\n])*)(?:"|(?=[\r\n])|\\?\Z)"""
    r"""|'(?P<single>(?:\\.|[^'\\\r\n])*)(?:'|(?=[\r\n])|\\?\Z)"""
    r"""|(?P<mark>.)""",
    re.DOTALL,
)

_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _jaas_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each token, and whether it is a text (and no mark, nor a number, which Kafka takes for none)."""

    def unescape(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPES.get(code, code)

    for token in _JAAS_TOKEN.finditer(text):
        quoted = token["double"] if token["double"] is not None else token["single"]
        if quoted is not None:
            yield _JAAS_ESCAPE.sub(unescape, quoted), True
        elif token["word"] is not None:
            yield token["word"], True
        elif token["blank"] is None:
            yield token[0], False
