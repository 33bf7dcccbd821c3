"""The headers of a record as text, in the form that :data:`streamplan.spark.sources.HEADERS` describes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence

from streamplan.kafka_types import Header


def headers_from_text(text: str | None) -> list[Header]:
    """Return headers from their text."""
    listed = json.loads(text or "[]")
    return [(header["key"], b64decode(header["value"]) if "value" in header else None) for header in listed]


def headers_as_text(headers: Sequence[Header]) -> str | None:
    """Return the text of headers, as Spark makes it of those of a record; None for a record without headers."""
    if not headers:
        return None
    listed = [{"key": name, **({} if value is None else {"value": as_base64(value)})} for name, value in headers]
    return json.dumps(listed, separators=(",", ":"))


def as_base64(data: bytes) -> str:
    """Return bytes as JSON carries them for Spark."""
    return b64encode(data).decode()
