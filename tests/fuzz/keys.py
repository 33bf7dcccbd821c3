"""Keys: what is written is read as the same key, and its text names it. Other bytes are ``Undecodable``."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from streamplan.serdes.field_types import StructType, parse_type
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import KEY_SERDES, KeySerde
from streamplan.serdes.serde import Undecodable

from tests.fuzz.bytes_and_values import mutated, value_of
from tests.fuzz.judging import same, shown

NAME = "keys"
SERDES: tuple[KeySerde, ...] = (
    *KEY_SERDES.values(),
    Json("a string"),
    Json("a string, n int"),
    Json("large bigint, sure boolean, a string"),
)
PIECES = (b"9" * 700, b"9" * 5000, b"[" * 600, b'{"a":', b"\\u0041", b" ", b"NaN", b"1.0", b'"')


def findings(random: Random) -> Iterator[str]:
    """Some keys of one serde."""
    serde = random.choice(SERDES)
    for _ in range(10):
        key = _key(random, serde)
        data = serde.write_key(key)
        if not same(key, dict(found) if isinstance(found := serde.read_key(data), dict) else found):
            yield f"{serde!r} writes the key {shown(key)} as {data!r}, and reads that as {shown(found)}"
        if not same(found, again := serde.key_of_text(serde.key_text(found))):
            yield f"{serde!r}: the text of the key {shown(found)} is that of {shown(again)}"
        changed = mutated(random, data, PIECES)
        try:
            other = serde.read_key(changed)
        except Undecodable:
            continue
        if serde.write_key(other) != changed and serde.key_type != "uuid":  # a UUID in capitals is the same key
            yield f"{serde!r} reads {shown(changed)} as {shown(other)}, which it writes otherwise"


def _key(random: Random, serde: KeySerde) -> Any:
    match serde.key_type:
        case "bytes":
            return random.randbytes(random.choice((0, 1, 9)))
        case "uuid":
            digits = f"{random.getrandbits(128):032x}"
            return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    of_key = parse_type(serde.field_type)
    if isinstance(of_key, StructType):
        return {name: value_of(random, of_field, 0) for name, of_field in of_key.fields}
    return value_of(random, of_key, 0)
