"""The keys of stores as `streamplan demo` prints them."""

from __future__ import annotations

import pytest
from streamplan.cli.tables import read_key
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES

AT = 1_767_268_800_000  # 2026-01-01T12:00:00Z
MINUTE_LATER = AT + 60_000


def changelog(window_bytes: int = 0, key_type: str = "string") -> TopicSpec:
    return TopicSpec("counted-changelog", TopicRole.CHANGELOG, 1, {}, window_bytes, key_type)


@pytest.mark.parametrize(
    ("spec", "key", "text"),
    [
        (changelog(), b"ann", "ann"),
        (changelog(key_type="long"), (-7).to_bytes(8, "big", signed=True), "-7"),
        (changelog(STORED_WINDOW_BYTES), b"ann" + AT.to_bytes(8, "big") + bytes(4), "ann at 2026-01-01 12:00:00"),
        (
            changelog(STORED_WINDOW_BYTES, "int"),
            (7).to_bytes(4, "big") + AT.to_bytes(8, "big") + bytes(4),
            "7 at 2026-01-01 12:00:00",
        ),
        (
            changelog(STORED_SESSION_BYTES),
            b"ann" + MINUTE_LATER.to_bytes(8, "big") + AT.to_bytes(8, "big"),
            "ann from 2026-01-01 12:00:00 to 2026-01-01 12:01:00",
        ),
    ],
)
def test_a_key_is_shown_with_its_window_or_session(spec: TopicSpec, key: bytes, text: str) -> None:
    assert read_key(key, spec) == text
