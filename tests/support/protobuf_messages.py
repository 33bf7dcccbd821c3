"""A message of Protobuf with all types that a field can have, random values of it, and Google's own way to make it."""

from __future__ import annotations

import random
import string
import struct
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";

message Other { string name = 1; }

message Everything {
  message Line { string sku = 1; optional int32 number = 2; }
  enum State { NEW = 0; PAID = 1; SETTLED = 1; LOST = -7; option allow_alias = true; }
  string text = 1;
  int32 i32 = 2;
  sint32 s32 = 3;
  sfixed32 sf32 = 4;
  uint32 u32 = 5;
  fixed32 f32 = 6;
  int64 i64 = 7;
  sint64 s64 = 8;
  sfixed64 sf64 = 9;
  uint64 u64 = 10;
  fixed64 f64 = 11;
  float rough = 12;
  double exact = 13;
  bool yes = 14;
  State state = 15;
  optional string maybe_text = 16;
  optional int64 maybe_number = 17;
  optional State maybe_state = 18;
  google.protobuf.Timestamp at = 19;
  google.type.Date day = 20;
  google.protobuf.StringValue wrapped_text = 21;
  google.protobuf.Int32Value wrapped_i32 = 22;
  google.protobuf.UInt64Value wrapped_u64 = 23;
  google.protobuf.DoubleValue wrapped_double = 24;
  google.protobuf.BoolValue wrapped_bool = 25;
  Line line = 26;
  repeated Line lines = 27;
  repeated string texts = 28;
  repeated sint64 numbers = 29;
  repeated State states = 30;
  repeated google.protobuf.Timestamp moments = 31;
  map<string, double> rates = 32;
  map<string, Line> by_name = 33;
  map<int32, string> by_number = 34;
  map<bool, State> by_bool = 35;
  oneof contact {
    string mail = 36;
    int64 phone = 37;
    Line parcel = 38;
  }
  int32 late = 536870911;
}
"""

MESSAGE = "Everything"

FIELDS = {
    "text": "string",
    **dict.fromkeys(("i32", "s32", "sf32"), "int"),
    **dict.fromkeys(("u32", "f32", "i64", "s64", "sf64"), "bigint"),
    **dict.fromkeys(("u64", "f64"), "decimal(20,0)"),
    **dict.fromkeys(("rough", "exact"), "double"),
    "yes": "boolean",
    "state": "string",
    "maybe_text": "string",
    "maybe_number": "bigint",
    "maybe_state": "string",
    "at": "timestamp",
    "day": "date",
    "wrapped_text": "string",
    "wrapped_i32": "int",
    "wrapped_u64": "decimal(20,0)",
    "wrapped_double": "double",
    "wrapped_bool": "boolean",
    "line": "struct<sku: string, number: int>",
    "lines": "array<struct<sku: string, number: int>>",
    "texts": "array<string>",
    "numbers": "array<bigint>",
    "states": "array<string>",
    "moments": "array<timestamp>",
    "rates": "map<string, double>",
    "by_name": "map<string, struct<sku: string, number: int>>",
    "by_number": "map<string, string>",
    "by_bool": "map<string, string>",
    "mail": "string",
    "phone": "bigint",
    "parcel": "struct<sku: string, number: int>",
    "late": "int",
}

ABSENT: dict[str, Any] = {
    "text": "",
    **dict.fromkeys(("i32", "s32", "sf32", "u32", "f32", "i64", "s64", "sf64", "late"), 0),
    **dict.fromkeys(("u64", "f64"), Decimal(0)),
    **dict.fromkeys(("rough", "exact"), 0.0),
    "yes": False,
    "state": "NEW",
    **dict.fromkeys(("maybe_text", "maybe_number", "maybe_state", "at", "day", "line", "mail", "phone", "parcel")),
    **dict.fromkeys(("wrapped_text", "wrapped_i32", "wrapped_u64", "wrapped_double", "wrapped_bool")),
    **{name: [] for name in ("lines", "texts", "numbers", "states", "moments")},
    **{name: {} for name in ("rates", "by_name", "by_number", "by_bool")},
}
"""The fields of a message without bytes."""


def message_class(texts: Mapping[str, str], file: str, name: str, folder: Path) -> Any:
    """The class of a message, by Google's compiler and library alone.

    Args:
        texts: Files and their texts.
        file: The one with the message.
        name: The full name of the message.
        folder: An empty folder for the files.
    """
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    libraries = [path for path in sys.path if (Path(path) / "google" / "type").is_dir()]
    arguments = [*(f"-I{path}" for path in (folder, *libraries)), "--include_imports"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments, f"--descriptor_set_out={folder / 'set'}", file]
    subprocess.run(command, check=True, timeout=60)
    pool: Any = DescriptorPool()
    for each in FileDescriptorSet.FromString((folder / "set").read_bytes()).file:
        pool.Add(each)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def made(of_class: Any, value: Mapping[str, Any]) -> Any:
    """A message that Google's library makes of the JSON of a value."""
    return ParseDict(json_of(value), of_class())


def json_of(value: Any) -> Any:
    """A value as Protobuf's JSON has it (https://protobuf.dev/programming-guides/json/)."""
    match value:
        case dict():
            return {name: json_of(each) for name, each in value.items() if each is not None}
        case list():
            return [json_of(each) for each in value]
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
        case date():
            return {"year": value.year, "month": value.month, "day": value.day}
        case Decimal():
            return int(value)
    return value


def random_value(generator: random.Random) -> dict[str, Any]:
    """A value with all its fields: limits, defaults and what lies between."""

    def integer(first: int, last: int) -> int:
        return generator.choice((first, last, 0, 1, max(first, -1), generator.randint(first, last)))

    def text() -> str:
        return "".join(generator.choices(string.ascii_letters + "äß€𝄞\0 ", k=generator.choice((0, 1, 5, 40, 200))))

    def double() -> float:
        return generator.choice((0.0, -0.0, 0.1, 1e300, 5e-324, generator.uniform(-1e6, 1e6)))

    def rough() -> float:
        number: float = struct.unpack("<f", struct.pack("<f", generator.uniform(-1e6, 1e6)))[0]
        return generator.choice((0.0, 0.5, number))

    def moment() -> datetime:
        first = datetime(1, 1, 1, tzinfo=UTC)
        whole = timedelta(microseconds=generator.randint(0, 315_537_897_599_999_999))
        return generator.choice((first, datetime(1970, 1, 1, tzinfo=UTC), first + whole))

    def day() -> date:
        return date.fromordinal(generator.randint(1, 3_652_059))

    def state() -> str:
        return generator.choice(("NEW", "PAID", "LOST"))

    def line() -> dict[str, Any]:
        return {"sku": text(), "number": generator.choice((None, 0, 7, -1))}

    def several(make: Any) -> list[Any]:
        return [make() for _ in range(generator.choice((0, 1, 2, 5)))]

    def maybe(make: Any) -> Any:
        return generator.choice((None, make()))

    i32, i64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
    u32, u64 = (0, (1 << 32) - 1), (0, (1 << 64) - 1)
    chosen = generator.choice((None, "mail", "phone", "parcel"))
    return {
        "text": text(),
        **{name: integer(*i32) for name in ("i32", "s32", "sf32", "late")},
        **{name: integer(*u32) for name in ("u32", "f32")},
        **{name: integer(*i64) for name in ("i64", "s64", "sf64")},
        **{name: Decimal(integer(*u64)) for name in ("u64", "f64")},
        "rough": rough(),
        "exact": double(),
        "yes": generator.choice((True, False)),
        "state": state(),
        "maybe_text": maybe(text),
        "maybe_number": maybe(lambda: integer(*i64)),
        "maybe_state": maybe(state),
        "at": maybe(moment),
        "day": maybe(day),
        "wrapped_text": maybe(text),
        "wrapped_i32": maybe(lambda: integer(*i32)),
        "wrapped_u64": maybe(lambda: Decimal(integer(*u64))),
        "wrapped_double": maybe(double),
        "wrapped_bool": generator.choice((None, True, False)),
        "line": maybe(line),
        "lines": several(line),
        "texts": several(text),
        "numbers": several(lambda: integer(*i64)),
        "states": several(state),
        "moments": several(moment),
        "rates": {text(): double() for _ in range(generator.choice((0, 1, 3)))},
        "by_name": {text(): line() for _ in range(generator.choice((0, 1, 3)))},
        "by_number": {str(integer(*i32)): text() for _ in range(generator.choice((0, 1, 3)))},
        "by_bool": {key: state() for key in generator.choice(((), ("true",), ("true", "false")))},
        "mail": text() if chosen == "mail" else None,
        "phone": integer(*i64) if chosen == "phone" else None,
        "parcel": line() if chosen == "parcel" else None,
    }
