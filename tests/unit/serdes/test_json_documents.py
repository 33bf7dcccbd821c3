"""What JSON is depends on the bytes alone, and the reason names the cause."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from typing import Any

import pytest
from streamplan.serdes.json import Json
from streamplan.serdes.json_documents import MOST_LEVELS
from streamplan.serdes.json_schema import JsonSchema, text_of_document
from streamplan.serdes.serde import Undecodable, key_of
from streamplan.testing.declared_schemas import DeclaredSchemas

SERDE = Json("Id string, v int")
TOO_DEEP = f"the value nests deeper than {MOST_LEVELS} levels"
SHAPES = [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"), (b' [\n"]]]]",', b"]")]


def nested(shape: tuple[bytes, bytes], levels: int) -> bytes:
    """A document that nests so deep, its own object included."""
    opened, closed = shape
    count = (levels - 1) // (opened.count(b"{") + opened.count(b"["))
    return b'{"v":1,"x":' + opened * count + b"0" + closed * count + b"}"


def at_depth(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else at_depth(frames - 1, call)


def told(serde: Json | JsonSchema, data: bytes) -> str:
    try:
        serde.decode(data)
    except Undecodable as rejection:
        return str(rejection)
    return ""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("levels", [2, 249, 251, 499, MOST_LEVELS, MOST_LEVELS + 1, 801, 991, 3000])
def test_how_deep_a_value_may_nest_depends_on_no_path_and_no_stack(shape: tuple[bytes, bytes], levels: int) -> None:
    data = nested(shape, levels)
    exact = 1 + (levels - 1) // (len(shape[1])) * len(shape[1])
    expected = TOO_DEEP if exact > MOST_LEVELS else ""
    column = SERDE.decode_column([b'{"v":0}', data, b'{"v":2}'])
    assert column.rejected == ({1: expected} if expected else {})
    assert SERDE.key_column("v", [data]).rejected == ({0: expected} if expected else {})
    frames = sys.getrecursionlimit() - _depth()
    for at in (0, 100, frames - 400, frames - 60):
        assert at_depth(at, lambda: told(SERDE, data)) == expected
        assert at_depth(at, lambda: SERDE.decode_column([data]).rejected.get(0, "")) == expected


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


TYPES = ("int", "bigint", "double", "decimal(38,0)", "timestamp", "string")


@pytest.mark.parametrize("limit", [0, 640, 4300])  # of the process: PYTHONINTMAXSTRDIGITS
@pytest.mark.parametrize("digits", [600, 640, 641, 4300, 4301, 20_000])
def test_an_integer_of_any_length_is_read_alike_whatever_the_limit_of_the_process_is(digits: int, limit: int) -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        for number in (b"7" * digits, b"-" + b"7" * digits):
            data = b'{"v":%s}' % number
            assert Json("x int").decode(data) == {"x": None}
            assert Json("x int").decode_column([data, b"{}"]).rejected == {}
            for of_type in TYPES:
                why = ": the number has more digits" if of_type.startswith("decimal") else ""
                serde, reason = Json(f"v {of_type}"), f"v is not of type {of_type}{why}"
                assert told(serde, data) == reason
                assert serde.decode_column([data, b"{}"]).rejected == {0: reason}
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", ": it is empty"),
        (b" \n", ": it is empty"),
        (b"x", ""),
        (b'\xef\xbb\xbf{"v":1}', ": it begins with a byte order mark"),
        ('{"v":1}'.encode("utf-16"), ": it is UTF-16, and JSON is UTF-8"),
        ('{"v":1}'.encode("utf-16-le"), ": it is UTF-16, and JSON is UTF-8"),
        ('{"v":1}'.encode("utf-16-be"), ": it is UTF-16, and JSON is UTF-8"),
        (gzip.compress(b'{"v":1}', mtime=0), ": it was compressed (gzip) before it was given to the Kafka client"),
        (
            b'\0\0\0\x01\x02{"v":1}',
            ": it begins with the byte 0 and the id of a schema (258), as Confluent's serializers write it; Avro,"
            " JsonSchema and Protobuf read that",
        ),
        (b"\0\0\0\0\x07\x02\x0eorder_1\x02", ": it begins with the byte 0 and the id of a schema (7), as Confluent's"),
        (b'{"v":"\xe4"}', ": it is not UTF-8"),
        (b'{"v":NaN}', ": it has NaN"),
        (b'{"v":1,"x":-Infinity}', ": it has -Infinity"),
    ],
)
def test_the_reason_names_a_frequent_cause(data: bytes, cause: str) -> None:
    reason = told(SERDE, data)
    assert reason.startswith(f"the value is not JSON{cause}")
    assert SERDE.decode_column([data, b'{"v":1}']).rejected == {0: reason}
    assert SERDE.key_column("v", [data, b'{"v":1}']).rejected == {0: reason}
    with pytest.raises(Undecodable, match=r"^the value is not JSON"):
        key_of(SERDE, "v", data)


@pytest.mark.parametrize("limit", [0, 640, 4300])  # of the process: PYTHONINTMAXSTRDIGITS
def test_a_document_with_a_schema_is_judged_by_its_bytes_alone(limit: int) -> None:
    known = JsonSchema('{"type":"object","properties":{"v":{"type":"integer"}}}')
    serde = known.with_schemas(DeclaredSchemas((known.declared,)), "t")
    prefix = b"\0\0\0\0\1"
    documents = [nested(shape, levels) for shape in SHAPES for levels in (2, 499, MOST_LEVELS + 1, 991)]
    documents += [b'{"v":1,"x":%s}' % (b"7" * digits) for digits in (600, 641, 4301, 20_000)]
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        frames = sys.getrecursionlimit() - _depth()
        for document in documents:
            reason, data = told(SERDE, document), prefix + document
            for at in (0, frames - 400, frames - 80):
                assert at_depth(at, lambda: told(serde, data)) == reason  # noqa: B023
                assert at_depth(at, lambda: serde.decode_column([data]).rejected.get(0, "")) == reason  # noqa: B023
            assert (text_of_document(data, known.declared) is None) == bool(reason)
    finally:
        sys.set_int_max_str_digits(before)
