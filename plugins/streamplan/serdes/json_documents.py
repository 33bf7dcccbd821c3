"""The bytes of a value as a JSON document, or the reason why they are none. On the standard library alone.

What is accepted depends on the bytes alone: not on the caller's stack, and not on the limits of the process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Never

from streamplan.serdes.json_values import Number
from streamplan.serdes.serde import Undecodable

MOST_LEVELS = 500
"""A value may nest so deep: its objects and arrays, one within the other."""

LONG_NUMBER = 600
"""Integers of more digits are kept as text. Python can be told to refuse them from 640 digits on."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x82SNAPPY\x00": "Snappy",
}
"""The first bytes of compressed data."""

_UTF_8_MARK, _UTF_16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")

_UTF_16_BYTES = ([True, False, True, False], [False, True, False, True])
"""Which of the first bytes are not 0."""

_PREFIX_BYTES = 5
"""The byte 0 and the id of a schema, as Confluent's serializers write them."""


class _Constant(ValueError):
    """NaN, or an infinity."""


def _refuse_constant(constant: str) -> Never:
    raise _Constant(constant)  # json.loads would accept it.


class Parser:
    """Parses values, and says of each one the same whatever it makes of the numbers.

    Its decoders are made once: ``json.loads`` with an argument makes a decoder for each value.

    Args:
        parse_float: Makes a number that is no integer of its text.
        parse_long: Makes an integer of more than :data:`LONG_NUMBER` digits of its text.
    """

    def __init__(self, parse_float: Callable[[str], Any], parse_long: Callable[[str], Any]) -> None:
        def parse_int(text: str) -> Any:
            return int(text) if len(text) <= LONG_NUMBER else parse_long(text)

        self._decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=parse_float).decode
        self._decode_long_numbers = json.JSONDecoder(
            parse_constant=_refuse_constant, parse_float=parse_float, parse_int=parse_int
        ).decode

    def __call__(self, data: bytes) -> Any:
        """Return the document that a value is.

        Raises:
            Undecodable: It is no JSON, or nests too deep.
        """
        if data.count(b"[") + data.count(b"{") > MOST_LEVELS and _levels(data) > MOST_LEVELS:
            raise Undecodable(f"the value nests deeper than {MOST_LEVELS} levels")
        try:
            return self._parse(data.decode("utf-8"))
        except ValueError as error:
            raise Undecodable(_fault(data, error)) from error

    def _parse(self, text: str) -> Any:
        try:
            return self._decode(text)
        except (json.JSONDecodeError, _Constant):
            raise
        except ValueError:  # An integer has more digits than Python takes.
            return self._decode_long_numbers(text)
        except RecursionError:  # The caller's stack has not left enough. A thread has a stack of its own.
            with ThreadPoolExecutor(1) as executor:
                return executor.submit(self._decode_long_numbers, text).result()


parse_document = Parser(Number, Number)
"""Parses a value whose fields are read: a number that is no integer, or is a long one, is a :class:`Number`."""

parse_plain = Parser(float, Decimal)
"""Parses a value as ``json.loads`` does: into floats and integers. A long integer is a ``Decimal``."""


def exact_number(text: str) -> float | Decimal | str:
    """Return the number that a text is: a double where people write the double so, and else a decimal.

    Args:
        text: A number of JSON. One that not even a decimal can be stays a text.
    """
    try:
        exact = Decimal(text)
    except InvalidOperation:  # The exponent has more digits than a decimal takes.
        return text
    return double if math.isfinite(double := float(text)) and Decimal(repr(double)) == exact else exact


parse_shown = Parser(exact_number, Decimal)
"""Parses a value for people: none of its numbers is rounded (:func:`exact_number`)."""


def _levels(data: bytes) -> int:
    brackets = _TEXT.sub(b"", data).translate(None, _BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _fault(data: bytes, error: ValueError) -> str:
    """Why a value is no JSON, with the cause where it is a frequent one."""
    cause = _cause(data, error)
    return f"the value is not JSON: it {cause}" if cause else "the value is not JSON"


def _cause(data: bytes, error: ValueError) -> str | None:
    if not data.strip():
        return "is empty"
    if data.startswith(_UTF_8_MARK):
        return "begins with a byte order mark"
    if data.startswith(_UTF_16_MARKS) or [bool(each) for each in data[:4]] in _UTF_16_BYTES:
        return "is UTF-16, and JSON is UTF-8"
    for mark, name in _COMPRESSED.items():
        if data.startswith(mark):
            return f"was compressed ({name}) before it was given to the Kafka client"
    if data[0] == 0 and len(data) > _PREFIX_BYTES:
        schema_id = int.from_bytes(data[1:_PREFIX_BYTES], "big")
        return (
            f"begins with the byte 0 and the id of a schema ({schema_id}), as Confluent's serializers write it;"
            " Avro, JsonSchema and Protobuf read that"
        )
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8"
    return f"has {error}" if isinstance(error, _Constant) else None
