"""What is said of the words of the library's driver, which ours does not have."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.model.topology import Topology
from streamplan.testing import TopologyTestDriver, as_text
from streamplan.testing.moments import milliseconds
from streamplan.testing.topology_test_driver import _encoded_headers
from streamplan.testing.written import StoreContent


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("createInputTopic", ". Write driver.pipe('topic', value, key=…, at='12:00')"),
        ("create_output_topic", ". Write driver.output('topic')"),
        ("getKeyValueStore", ". Write driver.store('name')"),
        ("advanceWallClockTime", ". Write driver.advance_wall_clock('30 seconds')"),
        ("dead_letter", ". Did you mean dead_letters?"),
        ("_nothing", ""),
    ],
)
def test_a_word_of_the_library_is_answered_with_what_to_write(name: str, advice: str) -> None:
    driver = object.__new__(TopologyTestDriver)
    with pytest.raises(AttributeError) as raised:
        getattr(driver, name)
    assert str(raised.value).startswith(f"'TopologyTestDriver' object has no attribute {name!r}{advice}")


@pytest.mark.parametrize("given", ["orders", Topology("orders"), None])
def test_what_is_no_pipeline_is_told_before_spark_starts(given: Any) -> None:
    with pytest.raises(Refused, match=r"expected a Pipeline, observed .* Write TopologyTestDriver\(PIPELINE\)"):
        TopologyTestDriver(given)


@pytest.mark.parametrize("headers", [5, ["a"], [("a", 5)], [("a", "b", "c")], "ab"])
def test_headers_that_are_none_are_told_with_their_form(headers: Any) -> None:
    with pytest.raises(Refused, match=r"expected pairs of a name, and of a text, bytes or None"):
        _encoded_headers(headers)


def test_headers_may_be_a_mapping() -> None:
    assert _encoded_headers({"a": "b", "c": None}) == (("a", b"b"), ("c", None))


def test_a_number_is_no_duration() -> None:
    with pytest.raises(Refused, match="a duration: expected as '5 minutes', or a timedelta, observed 5"):
        milliseconds(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [5, "text", TopologyTestDriver.output])
def test_what_has_no_records_has_no_text(given: Any) -> None:
    with pytest.raises(
        Refused, match=r"expected as_text\(driver\.output\('topic'\)\), or as_text\(driver\.dead_letters\)"
    ):
        as_text(given)


def test_a_store_is_filled_with_put() -> None:
    store = StoreContent("counts", {}, date(2026, 1, 1), lambda *_: None)
    with pytest.raises(TypeError, match=r"driver\.store\('counts'\)\.put\('a', 5\)"):
        store["a"] = 5  # type: ignore[index]
