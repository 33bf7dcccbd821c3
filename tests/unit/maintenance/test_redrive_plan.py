"""Which dead letters can be processed again, and what a person is shown."""

from __future__ import annotations

import pytest
from streamplan import Json, TimeWindows, Topology
from streamplan.errors import Refused
from streamplan.maintenance.redrive_plan import (
    Choice,
    Judged,
    Letter,
    RedrivePlan,
    Verdict,
    plan_redrive,
    possible_redrive,
    refusal,
    without_repeated,
)
from streamplan.model.dead_letters import LetterPlace, Origin, Redrive
from streamplan.model.pipeline import Pipeline

SALE = Json("shop string, items string, paid boolean")


def pipeline(topology: Topology) -> Pipeline:
    counts = dict.fromkeys((*topology.source_topics, *topology.sink_topics), 2)
    return Pipeline("app", topology, "", counts)


def passing() -> Topology:
    topology = Topology("app")
    topology.stream("sales", value=SALE).filter("paid").to("paid")
    return topology


def letter(
    offset: int, reason: str = "the value is not JSON", *, subtopology: int | None = 0, topic: str = "sales"
) -> Letter:
    return Letter(LetterPlace(0, offset), subtopology, Origin(topic, 0, 100 + offset), reason)


def test_a_stateless_subtopology_processes_a_dead_letter_again() -> None:
    assert refusal(letter(0), pipeline(passing())) == ""
    rekeyed = Topology("app")
    rekeyed.stream("sales", value=SALE).group_by("shop", name="shops").count(store="totals")
    assert refusal(letter(0, "shop is missing"), pipeline(rekeyed)) == ""


def counting_by_key() -> Topology:
    topology = Topology("app")
    topology.stream("sales", value=SALE).group_by_key().count(store="totals")
    return topology


def joining() -> Topology:
    topology = Topology("app")
    shops = topology.table("shops", value=Json("city string"), store="shops")
    topology.stream("sales", value=SALE).join(shops, {"paid": "paid", "city": "table.city"}).to("joined")
    return topology


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (counting_by_key, r"sub-topology 0 has state \(totals\): a reset processes it again"),
        (joining, "sub-topology 0 joins"),
    ],
)
def test_what_depends_on_other_records_is_refused(topology: object, why: str) -> None:
    import re

    assert re.match(why, refusal(letter(0), pipeline(topology())))  # type: ignore[operator]


def branching() -> Topology:
    topology = Topology("app")
    sales = topology.stream("sales", value=SALE)
    sales.to("all")
    sales.select_key("shop").to("by-shop")
    return topology


def exploding() -> Topology:
    topology = Topology("app")
    topology.stream("sales", value=SALE).flat_map("split(items, ',')", key="element", value={"shop": "shop"}).to(
        "items"
    )
    return topology


def exploding_values() -> Topology:
    topology = Topology("app")
    topology.stream("sales", value=SALE).flat_map_values("split(items, ',')", {"shop": "shop"}).to("items")
    return topology


def peeking() -> Topology:
    """A record for which the function raises is passed, too."""
    topology = Topology("app")
    topology.stream("sales", value=SALE).peek(len).to("all")
    return topology


def acting() -> Topology:
    topology = Topology("app")
    sales = topology.stream("sales", value=SALE)
    sales.foreach(len)
    sales.to("all")
    return topology


@pytest.mark.parametrize("topology", [branching, exploding, exploding_values, peeking, acting])
def test_where_a_record_has_several_results_only_what_could_not_be_read_is_processed_again(topology: object) -> None:
    """A record that an operation rejected may have results that were written. One that could not be read has none."""
    declared = pipeline(topology())  # type: ignore[operator]
    assert refusal(letter(0, "the value is not JSON"), declared) == ""
    of_functions = ("shops.parse raised ValueError in line 7: no", "shops.parse returned int, and not a list of values")
    of_operations = ("the key is null", "shop is missing", "key, value and headers are larger than 5 bytes")
    of_sinks = (
        "the topic 'c' is none of a, b",
        "the topic is null",
        "the value cannot be written: n is missing",
        "a moment of the value is not in the years 1 to 9999",
    )
    for reason in (*of_operations, *of_functions, *of_sinks, ""):
        assert "makes more than one result of a record" in refusal(letter(0, reason), declared)
    assert possible_redrive(declared.topology.subtopologies[0]).startswith("a re-drive of records that could not be re")


def test_a_record_that_goes_to_one_of_several_topics_has_one_result() -> None:
    topology = Topology("app")
    topology.stream("sales", value=SALE).to("shop", topics=("north", "south"))
    assert refusal(letter(0, "the topic west is none of north, south"), pipeline(topology)) == ""


def test_a_record_of_exclusive_branches_has_one_result() -> None:
    topology = Topology("app")
    branches = topology.stream("sales", value=SALE).split(name="by-").branch("paid", name="paid").default_branch()
    for name, branch in branches.items():
        branch.select_key("shop").to(name)
    assert refusal(letter(0, "shop is missing"), pipeline(topology)) == ""


def test_a_dead_letter_that_names_nothing_of_the_declaration_is_refused() -> None:
    declared = pipeline(passing())
    assert "no header says where its record is" in refusal(Letter(LetterPlace(0, 0), 0, None, ""), declared)
    assert "no header says where its record is" in refusal(letter(0, subtopology=None), declared)
    assert "no sub-topology 0 of the declaration reads others" in refusal(letter(0, topic="others"), declared)
    assert "no sub-topology 7 of the declaration reads sales" in refusal(letter(0, subtopology=7), declared)


def test_a_record_is_processed_again_once() -> None:
    done = Letter(LetterPlace(0, 0), 0, Origin("sales", 0, 5), "r", redriven=Redrive("ann", "2026-01-01", "run"))
    assert refusal(done, pipeline(passing())) == "ann re-drove it at 2026-01-01"
    again = Letter(LetterPlace(0, 9), 0, Origin("sales", 0, 100), "r")
    first, repeated = without_repeated([letter(0), letter(1), again])
    assert [each.place.offset for each in first] == [0, 1]
    assert [(each.letter, each.verdict) for each in repeated] == [(again, Verdict.REFUSED)]


def test_a_choice_is_all_that_are_open_or_a_reason_or_single_ones() -> None:
    done = Letter(LetterPlace(0, 2), 0, Origin("sales", 0, 1), "a", redriven=Redrive("ann", "", ""))
    letters = [letter(3, "a"), letter(1, "b"), done]
    assert [each.place.offset for each in Choice.of(None, ()).select(letters)] == [1, 3]
    assert [each.place.offset for each in Choice.of("", ()).select(letters)] == [1, 3]
    assert [each.place.offset for each in Choice.of("a", ()).select(letters)] == [3]
    assert [each.place.offset for each in Choice.of(None, ["0@2", "0@1", "0@1"]).select(letters)] == [2, 1]
    with pytest.raises(Refused, match="no dead letter at 0@9"):
        Choice.of(None, ["0@9"]).select(letters)
    with pytest.raises(Refused, match=r"PARTITION@OFFSET, for example 0@17, observed orders-0"):
        Choice.of(None, ["orders-0"])
    with pytest.raises(Refused, match="observed both"):
        Choice.of("a", ["0@1"])


def planned(*verdicts: Verdict) -> RedrivePlan:
    judged = [
        Judged(letter(number), verdict, "why" if verdict is Verdict.REFUSED else "")
        for number, verdict in enumerate(verdicts)
    ]
    return plan_redrive(pipeline(passing()), Choice(), judged)


def test_a_plan_groups_the_dead_letters_and_survives_json() -> None:
    plan = planned(*[Verdict.PROCESSED] * 7, Verdict.REFUSED, Verdict.LEFT_OUT)
    assert (plan.chosen, plan.done) == (9, 8)
    assert "- 7 × `the value is not JSON`: processed again (0@0, 0@1, 0@2, 0@3, 0@4, …)" in plan.text
    assert "- 1 × `the value is not JSON`: refused: why (0@7)" in plan.text
    assert RedrivePlan.read(plan.written()) == plan
    assert "there is nothing to do" in planned().text


def test_no_more_is_processed_than_was_approved() -> None:
    approved = planned(Verdict.PROCESSED, Verdict.REFUSED)
    assert planned(Verdict.LEFT_OUT).more_than(approved) == []
    assert planned(Verdict.PROCESSED, Verdict.PROCESSED).more_than(approved) == ["2 × the value is not JSON, not 1"]


def test_a_plan_says_that_windows_leave_out_late_records() -> None:
    topology = Topology("app")
    grouped = topology.stream("sales", value=SALE).group_by("shop", name="shops")
    grouped.windowed_by(TimeWindows("1 minute")).count(store="per-minute")
    plan = plan_redrive(pipeline(topology), Choice(), [Judged(letter(0), Verdict.PROCESSED)])
    assert "The windows of per-minute leave out a record that comes after their grace period" in plan.text
