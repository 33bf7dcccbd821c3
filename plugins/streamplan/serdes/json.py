"""JSON objects as values (RFC 8259, UTF-8).

:meth:`Json.decode` is the reference: one value at a time, on the standard library. :mod:`streamplan.serdes.json_arrow`
reads whole Arrow arrays and must agree with it record for record (tests/unit/serdes compares the two).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Never

from streamplan.serdes.serde import FIELD_TYPES, MAX_BYTES, Undecodable, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn, KeyColumn

_INTEGER_BITS = {"int": 31, "bigint": 63}
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "bigint": (int,),
    "double": (int, float),
    "boolean": (bool,),
}


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")  # json.loads would accept NaN and Infinity.


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: ``json.loads`` with an argument makes a decoder for each record."""


@dataclass(frozen=True)
class Json:
    """A JSON object in the value of a record; a :class:`streamplan.serdes.serde.Serde`.

    Example: ``Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})``

    Attributes:
        schema: The fields that may be used, in Spark's DDL. Other fields are ignored. A field may be absent or null. A
            record with a field of another type is rejected.
        allowed: For a field the values that are allowed, each with its label. A record with another value is rejected.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together, so that no
            record can stop the stream at its next topic.
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
    def fields(self) -> Mapping[str, str]:
        """Field name to type. Raises ValueError where the schema is not a list of names with types."""
        fields: dict[str, str] = {}
        for part in self.schema.split(","):
            words = part.split()
            if len(words) != 2:
                raise ValueError(f"{part.strip()!r} is not a field: write a name and a type, as in 'Id string'")
            name, field_type = words[0], words[1].lower()
            if field_type not in FIELD_TYPES:
                raise ValueError(f"{name}: type {field_type!r} is not one of {', '.join(FIELD_TYPES)}")
            if name in fields:
                raise ValueError(f"the field {name!r} is declared twice")
            fields[name] = field_type
        return fields

    @property
    def format(self) -> str:
        """Any two serdes of this class read each other's bytes."""
        return "json"

    def unrestricted(self) -> Json:
        """The same without :attr:`allowed`."""
        return replace(self, allowed={})

    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value: every declared field, None where it is absent or null.

        Raises:
            Undecodable: The bytes are not one JSON object, or a field has a type or a value that is not allowed.
        """
        document = _document(data)
        return {name: self._field(name, field_type, document.get(name)) for name, field_type in self.fields.items()}

    def encode(self, value: Value) -> bytes:
        """Writes one value as Spark's ``to_json`` does: a field that is None is left out."""
        present = {name: value[name] for name in self.fields if value.get(name) is not None}
        return json.dumps(present, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records, nulls allowed."""
        from streamplan.serdes.arrow import binary_array
        from streamplan.serdes.json_arrow import decode_json

        return decode_json(self, binary_array(values))

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Writes a struct array of the declared fields as a binary array."""
        from streamplan.serdes.arrow import encode_each

        return encode_each(self, values)

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """The keys that grouping by ``field`` gives these values."""
        from streamplan.serdes.arrow import key_column

        return key_column(self, field, values)

    @staticmethod
    def spark_expression(columns: Sequence[str]) -> str:
        """The Spark SQL expression that writes the columns of these names as a JSON object in bytes."""
        return f"CAST(to_json(struct({', '.join(f'`{name}`' for name in columns)})) AS BINARY)"

    def _field(self, name: str, field_type: str, value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in _PYTHON_TYPES[field_type]:  # Exactly: to isinstance a bool is an int.
            raise Undecodable(f"{name} is not of type {field_type}")
        bits = _INTEGER_BITS.get(field_type)
        if bits is not None and not -(1 << bits) <= value < 1 << bits:
            raise Undecodable(f"{name} is not of type {field_type}")
        if field_type == "double":
            value = _double(name, value)
        if field_type == "string":
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:  # Half of a surrogate pair.
                raise Undecodable(f"{name} is not valid Unicode") from error
        if name in self.allowed and value not in self.allowed[name]:
            known = ", ".join(str(allowed) for allowed in self.allowed[name])
            raise Undecodable(f"{name} is not one of {known}")
        return value


def _document(data: bytes | None) -> dict[str, Any]:
    if data is None:
        raise Undecodable("the value is null")
    try:
        document = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Undecodable("the value is not JSON") from error
    if not isinstance(document, dict):
        raise Undecodable("the value is not a JSON object")
    return document


def _double(name: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Undecodable(f"{name} is not of type double")
    return number
