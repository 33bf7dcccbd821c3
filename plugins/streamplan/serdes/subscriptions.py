"""The bytes of a join of tables by a foreign key: subscriptions, responses, and the keys of the subscription store.

Source: ``SubscriptionWrapperSerde``, ``SubscriptionResponseWrapperSerde``, ``CombinedKeySchema`` and ``Murmur3`` of
Kafka Streams 4.3. tests/integration/testing/test_oracle_joins.py compares with the library.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from streamplan.serdes.columns import DecodedColumn, KeyColumn
from streamplan.serdes.field_types import FieldType
from streamplan.serdes.rejection import or_each_value, rejects_values
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import MAX_BYTES, Serde, Undecodable, Value

if TYPE_CHECKING:
    import pyarrow as pa

_TOPIC = re.compile(
    r"-(?:KTABLE-FK-JOIN-SUBSCRIPTION-|subscription-)"
    r"(REGISTRATION|RESPONSE|STATE-STORE|registration|response|store)(?:-\d{10})?-(?:topic|changelog)$"
)

REGISTRATION_TOPIC = re.compile(
    r"KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-\d{10}-topic|.+-subscription-registration-topic"
)
"""The names of registration topics, without the application id."""

LENGTH_BYTES = 4
"""The bytes of a number in these formats: the length of a foreign key, and a partition."""

HASH_BYTES = 16

_SUBSCRIPTION_VERSION, _RESPONSE_VERSION = 1, 0
_HASH_IS_NULL = 0x80

_SEED = 104729
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class Instruction(IntEnum):
    """What a subscription asks for (``SubscriptionWrapper.Instruction``)."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3

    @property
    def deletes(self) -> bool:
        """Whether it ends a subscription."""
        return self in (Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE)


class Subscription(NamedTuple):
    """A record of the registration topic. Its key is the foreign key (``SubscriptionWrapper``).

    Attributes:
        hash: That of the value of this table; None where the value was deleted.
        instruction: What is asked for.
        primary_key: The key of this table in bytes.
        partition: The partition of this table that has the key.
    """

    hash: bytes | None
    instruction: Instruction
    primary_key: bytes
    partition: int

    def __str__(self) -> str:
        """What people see of it."""
        key = self.primary_key.decode("utf-8", "backslashreplace")
        return f"{self.instruction.name} of {key} in partition {self.partition}"

    def written(self) -> bytes:
        """Return the value of the record."""
        first = _SUBSCRIPTION_VERSION | (_HASH_IS_NULL if self.hash is None else 0)
        return (
            bytes((first, self.instruction))
            + (self.hash or b"")
            + self.primary_key
            + self.partition.to_bytes(LENGTH_BYTES, "big", signed=True)
        )

    @classmethod
    def parse(cls, data: bytes) -> Subscription:
        """Read the value of a record.

        Raises:
            ValueError: It is no subscription, or one of another version.
        """
        if len(data) < 2 + LENGTH_BYTES or data[0] & ~_HASH_IS_NULL != _SUBSCRIPTION_VERSION:
            raise ValueError("the value is no subscription of version 1")
        begin = 2 if data[0] & _HASH_IS_NULL else 2 + HASH_BYTES
        found = None if data[0] & _HASH_IS_NULL else bytes(data[2:begin])
        partition = int.from_bytes(data[-LENGTH_BYTES:], "big", signed=True)
        return cls(found, Instruction(data[1]), bytes(data[begin:-LENGTH_BYTES]), partition)


class Response(NamedTuple):
    """A record of the response topic. Its key is that of this table (``SubscriptionResponseWrapper``).

    Attributes:
        hash: That of the subscription.
        value: The value of the other table in bytes; None where it has none.
    """

    hash: bytes | None
    value: bytes | None

    def written(self) -> bytes:
        """Return the value of the record."""
        first = _RESPONSE_VERSION | (_HASH_IS_NULL if self.hash is None else 0)
        return bytes((first,)) + (self.hash or b"") + (self.value or b"")

    @classmethod
    def parse(cls, data: bytes) -> Response:
        """Read the value of a record.

        Raises:
            ValueError: It is no response, or one of another version.
        """
        if not data or data[0] & ~_HASH_IS_NULL != _RESPONSE_VERSION:
            raise ValueError("the value is no response of version 0")
        begin = 1 if data[0] & _HASH_IS_NULL else 1 + HASH_BYTES
        return cls(None if begin == 1 else bytes(data[1:begin]), bytes(data[begin:]) or None)


def sent_in(topic: str, data: bytes) -> Subscription | Response | None:
    """Return what a record of a topic has; None for a topic of no join by a foreign key, or for another value.

    Args:
        topic: The name of a topic.
        data: The value of the record.
    """
    found = _TOPIC.search(topic)
    kind = Subscription if found is None or found[1].lower() != "response" else Response
    try:
        return None if found is None else kind.parse(data)
    except ValueError:
        return None


def combined_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Return the key of a subscription in its store."""
    return len(foreign_key).to_bytes(LENGTH_BYTES, "big") + foreign_key + primary_key


def parse_combined_key(key: bytes) -> tuple[bytes, bytes]:
    """Return the foreign key and the primary key of :func:`combined_key`."""
    end = LENGTH_BYTES + int.from_bytes(key[:LENGTH_BYTES], "big")
    return bytes(key[LENGTH_BYTES:end]), bytes(key[end:])


def value_hash(data: bytes) -> bytes:
    """Return the hash of a value: 128 bits (``Murmur3.hash128``)."""
    length = len(data)
    end = length & ~15
    one = two = _SEED
    for first, second in struct.iter_unpack("<QQ", data[:end]):
        one ^= _mixed_first(first)
        one = (_rotated(one, 27) + two) * 5 + 0x52DCE729 & _MASK
        two ^= _mixed_second(second)
        two = (_rotated(two, 31) + one) * 5 + 0x38495AB5 & _MASK
    rest = data[end:]
    two ^= _mixed_second(int.from_bytes(rest[8:], "little"))
    one ^= _mixed_first(int.from_bytes(rest[:8], "little"))
    one ^= length
    two ^= length
    one = one + two & _MASK
    two = two + one & _MASK
    one, two = _finished(one), _finished(two)
    one = one + two & _MASK
    two = two + one & _MASK
    return struct.pack(">QQ", one, two)


def _mixed_first(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_second(block: int) -> int:
    return _rotated(block * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _MASK


def _finished(number: int) -> int:
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33


class _Carried:
    """What the serdes of the topics of a join by a foreign key have in common: nobody but the join writes them."""

    @property
    def allowed(self) -> Mapping[str, Mapping[Any, str]]:
        """No value is excluded."""
        return {}

    @property
    def max_bytes(self) -> int:
        """The bound of all internal topics, in bytes."""
        return MAX_BYTES

    def prepare_to_write(self) -> None:
        """Nothing: the readers know the format."""

    def encode(self, value: Value) -> bytes:
        """Refused: the join writes the bytes."""
        raise ValueError("a join by a foreign key writes its topics itself")

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Refused: see :meth:`encode`."""
        raise ValueError("a join by a foreign key writes its topics itself")

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """Refused: nothing is grouped by a field of these values."""
        raise ValueError("nothing is grouped by a field of the topics of a join by a foreign key")

    def spark_expression(self, fields: Mapping[str, FieldType], prefix: str = "") -> str | None:
        """None: Spark does not write them."""
        return None


@dataclass(frozen=True)
class Subscriptions(_Carried):
    """Reads the values of a registration topic."""

    @property
    def fields(self) -> Mapping[str, str]:
        """The number of the instruction. The rest of a subscription is read by the join itself."""
        return {"instruction": "int"}

    @property
    def format(self) -> str:
        """The format of a subscription."""
        return "subscription"

    def unrestricted(self) -> Subscriptions:
        """The serde itself."""
        return self

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Subscriptions:
        """The serde itself: its values name no schema."""
        return self

    def prepare_to_read(self) -> None:
        """Nothing: values can always be read."""

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Read one value.

        Raises:
            Undecodable: The bytes are no subscription.
        """
        try:
            return {"instruction": int(Subscription.parse(data or b"").instruction)}
        except ValueError as error:
            raise Undecodable(str(error)) from error

    @or_each_value
    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Read the values of many records."""
        from streamplan.serdes.arrow import binary_array, decode_each

        return decode_each(self, binary_array(values))


@dataclass(frozen=True)
class Responses(_Carried):
    """Reads the values of the other table in a response topic.

    Attributes:
        topic: The topic that the other table is read from.
        value: The serde of its values.
    """

    topic: str
    value: Serde

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of the other table's values."""
        return self.value.fields

    @property
    def format(self) -> str:
        """The format of a response."""
        return "response"

    def unrestricted(self) -> Responses:
        """The same without values that are allowed."""
        return Responses(self.topic, self.value.unrestricted())

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Responses:
        """The same with the schemas that the values of the other table name."""
        return Responses(self.topic, self.value.with_schemas(schemas, self.topic))

    def prepare_to_read(self) -> None:
        """Make sure that values can be read."""
        self.value.prepare_to_read()

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Read one value. Without one of the other table all fields are None.

        Raises:
            Undecodable: The bytes are no response, or the value cannot be read.
        """
        try:
            response = Response.parse(data or b"")
        except ValueError as error:
            raise Undecodable(str(error)) from error
        if response.value is None:
            return dict.fromkeys(self.fields)
        return self.value.unrestricted().decode(response.value)

    @or_each_value
    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Read the values of many records. A response without a value has none."""
        import pyarrow as pa

        from streamplan.serdes.arrow import binary_array

        data = [Response.parse(each).value for each in binary_array(values).to_pylist()]
        decoded = self.value.unrestricted().decode_column(pa.array(data, pa.binary()))
        rejected = {row: reason for row, reason in decoded.rejected.items() if data[row] is not None}
        return DecodedColumn(decoded.fields, rejected)
