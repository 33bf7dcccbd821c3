"""JSON objects as keys: each key has one form of bytes, the compact one with the fields as they are declared.

A key is found by its bytes: they decide its partition, and they name it in a store. So a key in another form (with
spaces, in another order, with a further field or without one) is no key of :class:`streamplan.serdes.json.Json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streamplan.serdes.field_types import FieldType
from streamplan.serdes.json_values import write_object
from streamplan.serdes.serde import KEY_FIELD_TYPES

_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


class KeyFields(dict[str, Any]):
    """The fields of a key. They are attributes, too, and equal fields are the same key of a dictionary."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the key has no field {name!r}; it has {', '.join(self)}") from None

    def __hash__(self) -> int:  # type: ignore[override]  # nobody changes a key
        return hash(frozenset(self.items()))


def fault_of_key_fields(types: Mapping[str, FieldType]) -> str | None:
    """Return why fields cannot be those of a key; None where they can.

    Each value of a field has one text: a double has many.
    """
    for name, of_field in types.items():
        if not name.isidentifier():
            return f"a field of a key cannot be named {name!r}"
        if str(of_field) not in KEY_FIELD_TYPES:
            return f"{name} is of type {of_field}; the fields of a key are of {', '.join(KEY_FIELD_TYPES)}"
    return None


def written_key(types: Mapping[str, FieldType], key: Mapping[str, Any]) -> str:
    """Return the one form of a key, as Spark's ``to_json`` writes it.

    Args:
        key: A value for each field.

    Raises:
        ValueError: It is no such key.
    """
    if key.keys() != types.keys() or not all(_fits(str(types[name]), value) for name, value in key.items()):
        raise ValueError(f"{dict(key)!r} is no key with the fields {', '.join(types)}")
    text = write_object(types, key)
    return _ESCAPED.sub(_with_capital_digits, text)


def _with_capital_digits(escaped: re.Match[str]) -> str:
    return f"\\u{escaped[0][2:].upper()}" if escaped[0].startswith("\\u") else escaped[0]


def _fits(of_field: str, value: Any) -> bool:
    match of_field:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
    limit = 1 << (31 if of_field == "int" else 63)
    return type(value) is int and -limit <= value < limit
