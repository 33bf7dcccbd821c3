"""The headers of a record as text, in the form that :data:`streamplan.spark.sources.HEADERS` describes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence


def headers_from_text(text: str | None) -> list[tuple[str, str | bytes | None]]:
    """Return headers from their text."""
    listed = json.loads(text or "[]")
    return [(header["key"], b64decode(header["value"]) if "value" in header else None) for header in listed]


def headers_as_text(headers: Sequence[tuple[str, str | bytes | None]]) -> str | None:
    """Return the text of headers, as Spark makes it of those of a record; None for a record without headers."""
    if not headers:
        return None
    listed = [{"key": name, **({} if value is None else {"value": as_base64(value)})} for name, value in headers]
    return json.dumps(listed, separators=(",", ":"))


def as_base64(data: str | bytes) -> str:
    """Return bytes, or text in UTF-8, as JSON carries them for Spark."""
    return b64encode(data.encode() if isinstance(data, str) else data).decode()
