"""What is said of the words of the library's driver, which ours does not have."""

from __future__ import annotations

import pytest
from streamplan.testing import TopologyTestDriver


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("createInputTopic", ". Write driver.pipe('topic', value, key=…, at='12:00')"),
        ("create_output_topic", ". Write driver.output('topic')"),
        ("getKeyValueStore", ". Write driver.store('name')"),
        ("advanceWallClockTime", ". Write driver.advance_wall_clock('30 seconds')"),
        ("_nothing", ""),
    ],
)
def test_a_word_of_the_library_is_answered_with_what_to_write(name: str, advice: str) -> None:
    driver = object.__new__(TopologyTestDriver)
    with pytest.raises(AttributeError) as raised:
        getattr(driver, name)
    assert str(raised.value).startswith(f"'TopologyTestDriver' object has no attribute {name!r}{advice}")
