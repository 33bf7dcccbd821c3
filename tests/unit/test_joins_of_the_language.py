"""Each sentence of docs/language.md on the join of two streams has a test. This names it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ORACLE = "tests/integration/testing/test_oracle_joins.py::test_"
RECORDS = _ORACLE + "two_streams_meet_as_in_the_library"
WAITING = _ORACLE + "what_waits_for_a_match_has_the_bytes_and_the_moments_of_the_library"
LATER = _ORACLE + "a_record_that_was_passed_without_a_match_may_still_find_one"
STATE = "tests/unit/spark/test_stream_stream_join.py::test_"
OUTER = "tests/unit/spark/test_outer_stream_join.py::test_"
OPERATIONS = "tests/integration/spark/test_operations.py::test_"
DECLARED = "tests/unit/model/test_declaration.py::test_"

SENTENCES = {
    "Each two records": RECORDS,
    "Its timestamp is the later": RECORDS,
    "`before=` and `after=`": DECLARED + "the_window_of_a_join_has_two_directions",
    "`grace` is how late": STATE + "a_record_that_is_older_than_the_retention_is_forgotten",
    "It is a day": DECLARED + "the_window_of_a_join_has_two_directions",
    "A null key or a null value": RECORDS,
    "Its stores are those": RECORDS,
    '`store="paid"`': OPERATIONS + "two_streams_meet_within_a_window",
    "The number tells": STATE + "records_of_one_key_and_time_are_numbered",
    "In the library this number": RECORDS,
    "`left_join` also": OUTER + "a_left_join_passes_this_stream_alone",
    "Its fields of the other": WAITING,
    "`outer_join` passes": WAITING,
    "Such a record keeps": WAITING,
    "A record without a match is passed once": OUTER
    + "a_record_without_a_match_is_passed_once_in_whatever_micro_batches_they_come",
    "While no record comes": OUTER + "what_is_exactly_at_the_end_of_the_window_and_the_grace_still_waits",
    "A record whose own window": OUTER + "a_late_record_that_can_meet_nothing_is_passed_at_once",
    "A match may still come": LATER,
    "A record that was passed": LATER,
    "A late record of the other": LATER,
    "It is then passed again": LATER,
    "A record may wait longer": WAITING,
    "The library remembers": WAITING,
    "It searches for records": WAITING,
    "After each search": WAITING,
    "So records without a match": WAITING,
    "Streamplan does the same": WAITING,
    "After a restore": OUTER + "a_restored_task_goes_on_as_the_one_that_was_lost",
    "The waiting records are in": DECLARED + "the_waiting_records_of_a_join_have_a_compacted_changelog",
    "The library searches once": WAITING,
    "Streamplan decides": WAITING,
    "The library does so, too": WAITING,
    "So the same records": OUTER + "a_record_without_a_match_is_passed_once_in_whatever_micro_batches_they_come",
    "Set this config": WAITING,
}
"""By the beginning of each sentence its test. A sentence that only names an example needs none."""


def sentences() -> list[str]:
    text = (ROOT / "docs" / "language.md").read_text()
    section = text.partition("\n## Two streams\n")[2].partition("\n## ")[0]
    paragraphs = re.split(r"\n\n|\n- ", "\n".join(line for line in section.splitlines() if not line.startswith("    ")))
    plain = (" ".join(paragraph.replace("**", "").removeprefix("- ").split()) for paragraph in paragraphs)
    return [one for paragraph in plain for one in re.split(r"(?<=[.])\s+(?=[A-Z`])", paragraph) if one]


def test_each_sentence_on_the_join_of_two_streams_has_a_test() -> None:
    told = [one for one in sentences() if not one.endswith("is such a join.")]
    assert len(told) == len(SENTENCES)
    assert [beginning for one, beginning in zip(told, SENTENCES, strict=True) if not one.startswith(beginning)] == []


def test_each_test_that_is_named_is_there() -> None:
    missing = []
    for named in SENTENCES.values():
        file, _, test = named.partition("::")
        if f"def {test}(" not in (ROOT / file).read_text():
            missing.append(named)
    assert missing == []
