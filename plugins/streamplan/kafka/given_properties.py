"""Client properties as they were given: in a file, an environment variable or a connection, with the place of each.

No value is judged here: :mod:`streamplan.kafka.connection_properties` says which ones are used.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from streamplan.errors import Refused
from streamplan.kafka.java_properties import parse_properties


@dataclass(frozen=True)
class GivenProperties:
    """Names and values, of which nothing is left out.

    Attributes:
        values: A value is a text, or what JSON has: a truth value, a number, a list, an object.
        source: Where they stand, for errors.
        lines: The line of each name in a properties file.
    """

    values: Mapping[str, object] = field(repr=False)
    source: str
    lines: Mapping[str, int] = field(default_factory=dict)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Add to an error of the body where the property stands that it is about."""
        try:
            yield
        except Refused as error:
            words = error.subject.replace(",", " ").split()
            lines = sorted({self.lines[word] for word in words if word in self.lines})
            place = self.source
            if lines:
                place += f", line{'s' if lines[1:] else ''} {', '.join(map(str, lines))}"
            raise Refused(
                f"{error.subject} ({place})",
                expected=error.expected,
                observed=error.observed,
                remedy=error.remedy,
            ) from error.__cause__


def read_properties(file: Path) -> GivenProperties:
    """Read a file with client properties: in the syntax of Java's properties, or a JSON object.

    Raises:
        Refused: The file cannot be read, it is not a JSON object, or an escape is malformed.
    """
    content = read_file(str(file), "client properties")
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    # Java reads its properties in Latin-1, and so do Kafka's own tools. A mark of an encoding says otherwise.
    encoding = next((name for mark, name in marks.items() if content.startswith(mark)), "latin-1")
    text = content.decode(encoding, errors="replace")
    if text.lstrip().startswith("{"):
        return parse_json(content, str(file))
    found = parse_properties(text, str(file))
    values = {name: value for name, (value, _) in found.items()}
    return GivenProperties(values, str(file), {name: line for name, (_, line) in found.items()})


def parse_json(text: str | bytes, source: str) -> GivenProperties:
    """Read a JSON object with client properties. A JSON text that has such an object as its text is read, too.

    Raises:
        Refused: The text is not a JSON object. The error names the source.
    """
    try:
        found = json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)
        if isinstance(found, str):
            found = json.loads(found)
    except (ValueError, RecursionError):  # the message would show a part of the text
        found = None
    if not isinstance(found, dict):
        raise Refused(
            source,
            expected='client properties as a JSON object: {"bootstrap.servers": "host:port"}',
            observed="a list" if isinstance(found, list) else "other text",
        )
    return GivenProperties(found, source)


def read_file(file: str, name: str) -> bytes:
    """Return the content of a file that a property names.

    Raises:
        Refused: It cannot be read.
    """
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise Refused(
            f"{name} {file}",
            expected="a file that can be read",
            observed=getattr(error, "strerror", None) or str(error),
            remedy="Look at its path and its permissions, on this host.",
        ) from error
