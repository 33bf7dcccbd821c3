from __future__ import annotations

import pytest
from streamplan.model.dead_letters import (
    DIGEST,
    ERROR_MESSAGE,
    MAX_BYTES,
    OMITTED,
    REASON,
    LetterPlace,
    Origin,
    Redrive,
    dead_letter_digest,
    fit_record,
    is_mark,
    mark_headers,
    origin_headers,
    own_headers,
    parse_mark,
    parse_origin,
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


def test_a_mark_names_the_record_of_its_dead_letter_and_is_no_dead_letter() -> None:
    own = (("streamplan.reason", b"of the record itself"), ("streamplan.redriven.by", b"a header of the record"))
    added = (("streamplan.reason", b"why"), ("streamplan.task", b"0_1"), ("streamplan.source.topic", b"orders"))
    added += (("streamplan.source.partition", b"1"), ("streamplan.source.offset", b"7"))
    who = Redrive("ann", "2026-01-02T03:04:05.000+00:00", "manual__1")
    mark = mark_headers((*own, *added), LetterPlace(1, 4), record_digest(b"k", b"v"), who)
    as_read = tuple(
        (name, value if value is None or isinstance(value, bytes) else value.encode()) for name, value in mark
    )
    assert is_mark(as_read)
    assert not is_mark((*own, *added))
    assert not is_mark(())
    assert parse_origin(as_read) == ("orders", 1, 7)
    assert parse_mark(as_read) == who
    assert dict(as_read)["streamplan.redriven.letter"] == b"1@4"
    assert dead_letter_digest(None, None, as_read) == record_digest(b"k", b"v")
    assert own_headers((*own, *added)) == own


@pytest.mark.parametrize("text", ["", "1", "@", "1@", "@4", "a@4", "1@b", "-1@4", "1@4@5", "²@1"])
def test_a_text_that_names_no_dead_letter(text: str) -> None:
    assert LetterPlace.parse(text) is None
    assert LetterPlace.parse(str(LetterPlace(1, 4))) == LetterPlace(1, 4)


def test_the_headers_that_are_added_give_way_before_the_record() -> None:
    reason = "€" * 4000
    added = {REASON: reason, ERROR_MESSAGE: reason, **origin_headers(Origin("t" * 249, 1, 7))}
    value = b"x" * (MAX_BYTES - 1024 - 3000)
    fitted = fit_record(b"k", value, [("a", b"b")], added)
    assert (fitted.key, fitted.value, fitted.headers) == (b"k", value, [("a", b"b")])
    assert OMITTED not in fitted.added
    assert ERROR_MESSAGE not in fitted.added
    assert fitted.added[REASON].startswith("€" * 250 + "… (cut")
    assert parse_origin([(name, text.encode()) for name, text in fitted.added.items()]) == ("t" * 249, 1, 7)
    assert len(value) + header_bytes(fitted.added.items()) < MAX_BYTES
