"""The fields of JSON objects, inferred from examples. It reads no cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from streamplan.model.kstream import RESERVED_FIELDS
from streamplan.serdes.field_types import ArrayType, FieldType, Scalar, StructType
from streamplan.serdes.json import Json
from streamplan.serdes.json_documents import parse_plain
from streamplan.serdes.serde import Undecodable

_TYPES: Mapping[type, str] = {str: "string", int: "bigint", float: "double", Decimal: "bigint", bool: "boolean"}

_DEEPEST = 10
"""Values that are nested deeper are not looked at."""

_MOST_NAMES = 50
"""An object with more names is rather a map, and what its values mean cannot be told."""


def infer_schema(values: Iterable[bytes | None]) -> tuple[str, str]:
    """Infer the fields of JSON objects from examples.

    Text is a string, and a number a bigint or a double: that it means a timestamp or a decimal cannot be told.

    Args:
        values: The values of some records. A null value tells nothing.

    Returns:
        The fields with their types, as ``Json`` takes them, and why fields are left out. Each may be empty.
    """
    present = [value for value in values if value is not None]
    if not present:
        return "", "there are no records"
    seen = _Seen()
    for value in present:
        try:
            document = parse_plain(value)
        except Undecodable:
            document = None
        if not isinstance(document, dict):
            return "", "there are values that are no JSON objects"
        seen.add(document, 0)
    told: list[str] = []
    left_out: list[str] = []
    for name, of_field in seen.fields.items():
        if not name.isidentifier() or name in RESERVED_FIELDS:
            left_out.append(f"{name} (it cannot be the name of a field)")
            continue
        field_type = of_field.field_type(name, left_out)
        if field_type is None:
            continue
        if _is_decoded(present, f"{name} {field_type}"):
            told.append(f"{name} {field_type}")
        else:
            left_out.append(f"{name} (not every value is a {field_type})")
    return ", ".join(told), f"left out {', '.join(left_out)}" if left_out else ""


@dataclass
class _Seen:
    """What was seen of a field: the kinds of its contents, and the same of the parts of objects and arrays."""

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, _Seen] = field(default_factory=dict)
    elements: _Seen | None = None

    def add(self, content: Any, depth: int) -> None:
        """Look at one content."""
        if content is None:
            return
        if depth > _DEEPEST:
            self.kinds.add("nested too deep")
        elif isinstance(content, dict):
            self.kinds.add("object")
            for name, part in content.items():
                self.fields.setdefault(name, _Seen()).add(part, depth + 1)
        elif isinstance(content, list):
            self.kinds.add("array")
            self.elements = self.elements or _Seen()
            for part in content:
                self.elements.add(part, depth + 1)
        else:
            self.kinds.add(_TYPES[type(content)])

    def field_type(self, path: str, left_out: list[str]) -> FieldType | None:
        """Return the type; None where the field, or every part of it, is added to ``left_out``."""
        kinds = {"double"} if self.kinds == {"bigint", "double"} else self.kinds
        if kinds == {"array"} and self.elements is not None:
            element = self.elements.field_type(f"{path}[]", left_out)
            return None if element is None else ArrayType(element)
        if kinds == {"object"} and len(self.fields) <= _MOST_NAMES:
            types = {name: part.field_type(f"{path}.{name}", left_out) for name, part in self.fields.items()}
            parts = tuple((name, part) for name, part in types.items() if part is not None)
            if not self.fields:
                left_out.append(f"{path} (always empty)")
            return StructType(parts) if parts else None
        if len(kinds) == 1 and kinds <= set(_TYPES.values()):
            return Scalar(*kinds)
        too_many = kinds == {"object"}
        reason = f"more than {_MOST_NAMES} names: a map?" if too_many else " and ".join(sorted(kinds)) or "always null"
        left_out.append(f"{path} ({reason})")
        return None


def _is_decoded(values: Iterable[bytes], schema: str) -> bool:
    try:
        serde = Json(schema)
        _ = serde.fields
        for value in values:
            serde.decode(value)
    except (Undecodable, ValueError):  # a value is beyond the type, or a name cannot be written
        return False
    return True
