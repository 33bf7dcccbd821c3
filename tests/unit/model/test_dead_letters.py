from __future__ import annotations

import pytest
from streamplan.model.dead_letters import (
    DIGEST,
    MAX_BYTES,
    OMITTED,
    REASON,
    dead_letter_digest,
    fit_record,
    record_digest,
)
from streamplan.serdes.serde import header_bytes

ADDED = {REASON: "the value is not JSON"}
MB = 1024 * 1024


def test_a_record_that_fits_is_kept_whole() -> None:
    headers = [("trace", b"7"), ("none", None), ("big", b"x" * MB)]
    assert fit_record(b"k", b"x" * MB, headers, ADDED) == (b"k", b"x" * MB, headers, ADDED)


@pytest.mark.parametrize(
    ("key", "value", "headers", "omitted"),
    [
        (b"k", b"x" * 5 * MB, [("trace", b"7")], "value of 5242880 bytes"),
        (b"k", b"v", [("big", b"x" * 3 * MB)], "headers of 3145737 bytes"),
        (b"k" * 3 * MB, None, [], "key of 3145728 bytes"),
        (b"k" * 4 * MB, b"x" * 5 * MB, [("a", b"")], "value of 5242880 bytes, key of 4194304 bytes"),
        (b"k", b"x" * 2 * MB, [("big", b"x" * MB)], "value of 2097152 bytes"),
    ],
)
def test_the_largest_parts_are_left_out_until_the_rest_fits(
    key: bytes, value: bytes | None, headers: list[tuple[str, bytes | str | None]], omitted: str
) -> None:
    fitted = fit_record(key, value, headers, ADDED)
    assert fitted.added[OMITTED] == omitted
    assert (fitted.key, fitted.value, fitted.headers) == (
        None if "key" in omitted else key,
        None if "value" in omitted else value,
        () if "headers" in omitted else headers,
    )
    own = header_bytes(fitted.added.items()) + header_bytes(fitted.headers)
    assert len(fitted.key or b"") + len(fitted.value or b"") + own < MAX_BYTES - 500
    # The record can be found by it, in its topic or in a copy of that.
    noted = [(REASON, b""), (DIGEST, fitted.added[DIGEST].encode())]
    assert dead_letter_digest(fitted.key, fitted.value, noted) == record_digest(key, value)


def test_the_digest_of_a_whole_record_is_its_own() -> None:
    assert dead_letter_digest(b"k", None, [(REASON, b"")]) == record_digest(b"k", None)
    assert record_digest(b"k", None) != record_digest(b"k", b"") != record_digest(None, b"k")
