"""How the bytes of a record are read.

This is the reference: one record at a time, on the standard library. What runs on Spark reads whole Arrow batches
and must agree with it record for record (tests/unit/serdes compares the two).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Never

MAX_BYTES = 1_048_000
"""Of key and value that fit uncompressed, with headers, into the brokers' default ``max.message.bytes`` of 1048588."""

_RANGES = {"int": 31, "bigint": 63}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "bigint": (int,),
    "double": (int, float),
    "boolean": (bool,),
}
KEY_TYPES = ("string", "int", "bigint", "boolean")
"""Types of which each value has one text, the same in Spark as in Python. A double has many."""


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")  # json.loads would take NaN and Infinity


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: ``json.loads`` with an argument makes one for each record."""


class Rejected(ValueError):
    """A record that cannot be aggregated. ``str()`` is the reason, as it stands in the dead-letter record."""


@dataclass(frozen=True)
class Json:
    """A JSON object (RFC 8259, UTF-8) in the value of a record.

    ``schema``   the fields that may be used, in Spark's DDL: ``"Id string, ProductType int"``; others are ignored. A
                 field may be absent or null; one of another type is rejected, and its record with it
    ``allowed``  for a field the values that are known, each with its label; any other value is rejected
    ``max_bytes``  of value and new key together, so that no record can stop the stream at its next topic
    """

    schema: str
    allowed: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        fields = self.fields
        for name in self.allowed:
            if name not in fields:
                raise ValueError(f"allowed names the field {name!r}; the schema has {', '.join(fields)}")

    @cached_property
    def fields(self) -> dict[str, str]:
        """Field name to type."""
        fields: dict[str, str] = {}
        for part in self.schema.split(","):
            words = part.split()
            if len(words) != 2:
                raise ValueError(f"{part.strip()!r} is not a field: write a name and a type, as in 'Id string'")
            name, kind = words[0], words[1].lower()
            if kind not in _TYPES:
                raise ValueError(f"{name}: type {kind!r} is not one of {', '.join(_TYPES)}")
            if name in fields:
                raise ValueError(f"the field {name!r} is declared twice")
            fields[name] = kind
        return fields

    def deserialize(self, value: bytes | None) -> dict[str, Any]:
        """The object's fields, or :class:`Rejected` when ``value`` is not one JSON object."""
        if value is None:
            raise Rejected("the value is null")
        try:
            document = _DECODER.decode(value.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise Rejected("the value is not JSON") from error
        if not isinstance(document, dict):
            raise Rejected("the value is not a JSON object")
        return document

    def read(self, value: bytes | None) -> dict[str, Any]:
        """Every declared field, None where absent or null; or :class:`Rejected`."""
        document = self.deserialize(value)
        return {name: self._field(name, kind, document.get(name)) for name, kind in self.fields.items()}

    def _field(self, name: str, kind: str, found: Any) -> Any:
        if found is None:
            return None
        if type(found) not in _TYPES[kind]:  # exactly: a bool is an int to isinstance
            raise Rejected(f"{name} is not of type {kind}")
        bits = _RANGES.get(kind)
        if bits is not None and not -(1 << bits) <= found < 1 << bits:
            raise Rejected(f"{name} is not of type {kind}")
        if kind == "double":
            found = _double(name, found)
        if kind == "string":
            try:
                found.encode("utf-8")
            except UnicodeEncodeError as error:  # half of a surrogate pair
                raise Rejected(f"{name} is not valid Unicode") from error
        if name in self.allowed and found not in self.allowed[name]:
            known = ", ".join(str(value) for value in self.allowed[name])
            raise Rejected(f"{name} is not one of {known}")
        return found


def _double(name: str, found: float) -> float:
    try:
        number = float(found)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Rejected(f"{name} is not of type double")
    return number


def text_of(found: Any) -> str:
    """The text of a field as Spark casts it to a string, for those types that have one text a value."""
    return str(found).lower() if isinstance(found, bool) else str(found)


def key_of(serde: Json, name: str, value: bytes | None) -> bytes:
    """The key that grouping by the field ``name`` gives a record: its text, in UTF-8; or :class:`Rejected`."""
    found = serde.read(value)[name]
    if found is None:
        raise Rejected(f"{name} is missing")
    key = text_of(found).encode()
    if len(key) + len(value or b"") > serde.max_bytes:
        raise Rejected(f"value and key are larger than {serde.max_bytes} bytes")
    return key
