"""What a value makes a serde raise rejects this value alone; only what is wrong with the deployment stops the query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from streamplan.errors import Refused
from streamplan.serdes import json_arrow
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Integer, String
from streamplan.serdes.rejection import refuses_values, rejects_values
from streamplan.serdes.serde import Undecodable


class OfALibrary(Exception):
    """Nobody has documented that it is raised."""


@dataclass(frozen=True)
class Faulty(Json):
    """Raises for the value ``{"v":13}``."""

    error: type[BaseException] = OfALibrary

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        if data == b'{"v":13}':
            raise self.error("13 \ud800 " + "x" * 1000)
        return super().decode(data)

    @refuses_values
    def encode(self, value: Any) -> bytes:
        raise self.error("13")


@dataclass(frozen=True)
class OfAnotherType(Json):
    """Gives a value that the declared type cannot hold."""

    def decode(self, data: bytes | None) -> dict[str, Any]:
        return {"v": 1 << 40 if data == b'{"v":13}' else 7}


VALUES = [b'{"v":7}', b'{"v":13}', b'{"v":7}']


def test_minus_nan_beside_a_timestamp_is_rejected_as_the_reference_rejects_it() -> None:
    serde = Json("at timestamp, v double")
    for value in (b'{"at":1,"v":-NaN}', b'{"at":-NaN}', b'{"at":1,"x":-NaN}', b'{"at":-Infinity,"v":1}'):
        column = serde.decode_column([b'{"at":1,"v":2}', value])
        assert column.rejected.keys() == {1}, value
        assert column.fields.is_valid().to_pylist() == [True, False]
        with pytest.raises(Undecodable) as rejection:
            serde.decode(value)
        assert column.rejected[1] == str(rejection.value)


def test_an_exception_of_one_value_rejects_it_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = r"^the value cannot be read: OfALibrary: 13 \\ud800 x{250,300}… \(cut after 300 of 1,022 characters\)$"
    with pytest.raises(Undecodable, match=reason):
        Faulty("v int").decode(VALUES[1])
    assert Faulty("v int").decode_column(VALUES).rejected == {}  # nobody asks the reference
    monkeypatch.setattr(json_arrow, "_decode_batch", lambda *_: None)
    assert Faulty("v int").decode_column(VALUES).rejected.keys() == {1}


@pytest.mark.parametrize("error", [OfALibrary, pa.ArrowNotImplementedError, RecursionError, AssertionError, KeyError])
def test_an_exception_of_a_column_leaves_each_value_to_the_reference(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise error("of the column")

    monkeypatch.setattr(json_arrow, "_decode_batch", fail)
    monkeypatch.setattr(Integer, "_column", fail)
    assert Json("v int").decode_column([*VALUES, b"x"]).fields.to_pylist() == [{"v": 7}, {"v": 13}, {"v": 7}, None]
    assert Json("v int").key_column("v", VALUES).keys.to_pylist() == [b"7", b"13", b"7"]
    assert Integer().decode_column([b"\0\0\0\1", b"x"]).fields.to_pylist() == [{"value": 1}, None]


def test_a_value_that_is_not_of_its_type_is_rejected_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_arrow, "_decode_batch", lambda *_: None)
    column = OfAnotherType("v int").decode_column(VALUES)
    assert column.fields.to_pylist() == [{"v": 7}, None, {"v": 7}]
    assert "the value is not of its type" in column.rejected[1]


@pytest.mark.parametrize("error", [Refused, OSError, ConnectionResetError, ModuleNotFoundError, MemoryError])
def test_what_is_wrong_with_the_deployment_is_raised(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    with pytest.raises(error):
        Faulty("v int", error=error).decode(VALUES[1])
    with pytest.raises(error):
        Faulty("v int", error=error).encode({})
    monkeypatch.setattr(json_arrow, "_decode_batch", lambda *_: None)
    with pytest.raises(error):
        Faulty("v int", error=error).decode_column(VALUES)


def test_an_exception_of_writing_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="OfALibrary: 13"):
        Faulty("v int").encode({"v": 1})
    with pytest.raises(ValueError, match="surrogates not allowed"):
        String().encode({"value": "\ud800"})
    with pytest.raises(ValueError, match="v: expected dict, observed int"):
        Json("v map<string, int>").encode({"v": 1})
