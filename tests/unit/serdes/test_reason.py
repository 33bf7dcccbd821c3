from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from streamplan.serdes.columns import DecodedColumn
from streamplan.serdes.reason import MAX_CHARACTERS, harmless, representation_of, text_of
from streamplan.serdes.serde import Undecodable

MB = 1024 * 1024


def raising(error: BaseException) -> Any:
    def method(_: object) -> str:
        raise error

    return type("Evil", (Exception,), {"__str__": method, "__repr__": method})()


class Text(str):
    """A text whose methods may do anything."""

    def __getitem__(self, _: object) -> str:
        raise ValueError("no part")

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        raise ValueError("no bytes")


OF_SUBCLASS = type("OfSubclass", (), {"__str__": lambda _: Text("told")})()
NO_TEXT = type("NoText", (), {"__str__": lambda _: 7, "__repr__": lambda _: None})()


@pytest.mark.parametrize("text", ["", "amount is missing", "größer als 3 €", "two\nlines\tand a tab", "🧥", "x" * 4000])
def test_a_harmless_text_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud800b", "a\\ud800b"),
        ("\udcff", "\\udcff"),
        ("\ud83e\udde5", "\\ud83e\\udde5"),
        ("a\0b", "a\\x00b"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\r\nb", "a\\r\nb"),
        ("\x7f\x9f", "\\x7f\\x9f"),
    ],
)
def test_what_some_place_refuses_is_escaped(text: str, expected: str) -> None:
    assert harmless(text) == expected


def test_a_long_text_is_cut_and_says_so() -> None:
    assert harmless("x" * 5 * MB) == "x" * MAX_CHARACTERS + "… (cut after 4,000 of 5,242,880 characters)"
    assert harmless("abcdef", 3) == "abc… (cut after 3 of 6 characters)"


def test_any_text_becomes_one_that_every_place_takes() -> None:
    chance = random.Random(38)
    for _ in range(500):
        text = "".join(chr(chance.randrange(0x110000)) for _ in range(chance.choice([1, 20, 5000])))
        made = harmless(text)
        assert pa.array([made], pa.string()).to_pylist() == [made]
        assert "\0" not in made
        assert len(made.encode()) < 50_000
        assert harmless(made, len(made)) == made


@pytest.mark.parametrize("function", [text_of, representation_of])
@pytest.mark.parametrize(
    "value",
    [raising(each) for each in (ValueError("x"), RecursionError(), SystemExit(1), MemoryError(), GeneratorExit())]
    + [raising(raising(ValueError())), NO_TEXT],
)
def test_what_has_no_text_is_named_by_its_class(function: Any, value: object) -> None:
    assert type(value).__name__ in function(value)
    assert "raised" in function(value)


def test_a_text_of_a_subclass_is_taken_as_its_characters() -> None:
    assert text_of(OF_SUBCLASS) == "told"
    assert type(text_of(Text("a"))) is str


def test_a_person_may_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        text_of(raising(KeyboardInterrupt()))


def test_the_reason_of_a_value_that_cannot_be_read_is_harmless() -> None:
    assert str(Undecodable(f"{'x' * MB} \ud800")).startswith("x" * MAX_CHARACTERS + "… (cut")
    column = DecodedColumn(pa.nulls(2, pa.struct([("a", pa.int32())])), {1: "a is '\ud800'"})
    assert column.reasons().to_pylist() == [None, "a is '\\ud800'"]
