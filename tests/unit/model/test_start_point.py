from __future__ import annotations

from dataclasses import replace

import pytest
from streamplan.errors import Refused
from streamplan.model.start_point import (
    CheckpointState,
    KafkaState,
    OffsetMap,
    StartDecision,
    StartFrom,
    resolve_start,
)

T = "repartition"
OWN = {"application": "app", "topics": f"{T} (2 partitions, id)", "store totals": "count"}
FITS = CheckpointState(OWN, committed={(T, 0): 10, (T, 1): 20}, planned={(T, 0): 15, (T, 1): 25}, batch=4)
KAFKA = KafkaState(
    {(T, 0): 15, (T, 1): 20}, {(T, 0): 0, (T, 1): 0}, 7, checkpoint="1a2b3c4d", batches={(T, 0): 4, (T, 1): 2}
)


def decide(
    checkpoint: CheckpointState | None = FITS, committed: KafkaState = KAFKA, *, aggregates: bool = True
) -> StartDecision:
    return resolve_start("sub-topology 1", checkpoint, OWN, committed, aggregates=aggregates)


def test_a_checkpoint_that_tells_the_same_history_is_used() -> None:
    assert decide() == StartDecision(StartFrom.CHECKPOINT)


def test_one_without_a_micro_batch_knows_nothing_of_what_was_written_meanwhile() -> None:
    assert decide(CheckpointState(OWN)) == StartDecision(StartFrom.RESTORE, "its checkpoint has no micro-batch")


def test_one_without_a_micro_batch_is_made_anew_without_a_word() -> None:
    assert decide(CheckpointState(OWN), replace(KAFKA, changelog_offsets=0)) == StartDecision(StartFrom.POSITIONS)


def test_a_new_application_begins_without_a_word() -> None:
    new = replace(KAFKA, changelog_offsets=0, checkpoint="", batches={})
    assert decide(None, new) == StartDecision(StartFrom.POSITIONS, "")


def test_without_a_checkpoint_the_state_comes_from_the_changelog() -> None:
    assert decide(None) == StartDecision(StartFrom.RESTORE, "it has no complete checkpoint 1a2b3c4d")


def test_positions_of_an_older_version_name_no_checkpoint() -> None:
    older = replace(KAFKA, checkpoint="", batches={})
    assert decide(None, older) == StartDecision(StartFrom.RESTORE, "Kafka names no checkpoint")


def test_without_state_there_is_nothing_to_restore() -> None:
    assert decide(None, replace(KAFKA, changelog_offsets=0), aggregates=False).start is StartFrom.POSITIONS


def test_without_state_a_checkpoint_that_is_behind_is_left_without_a_word() -> None:
    """The driver re-keys more records than Spark knows of, so that this is so after each stop."""
    behind = replace(FITS, planned={(T, 0): 15, (T, 1): 19}, committed={(T, 0): 10, (T, 1): 19})
    assert decide(behind, replace(KAFKA, changelog_offsets=0), aggregates=False) == StartDecision(StartFrom.POSITIONS)


@pytest.mark.parametrize(
    ("checkpoint", "committed", "reason"),
    [
        (CheckpointState(corruption="offsets/3 is cut off"), KAFKA, "its checkpoint is damaged: offsets/3 is cut off"),
        (
            replace(FITS, identity={**OWN, "topics": f"{T} (2 partitions, other)"}),
            KAFKA,
            f"its checkpoint belongs to another query: topics is {T} (2 partitions, other), "
            f"and not {T} (2 partitions, id)",
        ),
        (
            replace(FITS, planned={(T, 0): 15, (T, 1): 19}, committed={(T, 0): 10, (T, 1): 19}),
            KAFKA,
            f"its checkpoint does not fit: it is behind Kafka, for it ends at 19 of {T}-1 and the group is at 20",
        ),
        (
            FITS,
            replace(KAFKA, positions={(T, 0): 12, (T, 1): 20}),
            f"its checkpoint does not fit: the group is at 12 of {T}-0, within its micro-batch from 10 to 15",
        ),
        (
            FITS,
            replace(KAFKA, log_starts={(T, 0): 15, (T, 1): 20}),
            f"its checkpoint does not fit: its unfinished micro-batch reads {T}-0 from 10, and the topic begins at 15 "
            "by now",
        ),
        (
            FITS,
            replace(KAFKA, batches={(T, 0): 4, (T, 1): 5}),
            "its checkpoint does not fit: it is an old copy, for its last micro-batch is 4 and Kafka has micro-batch 5 "
            "of it",
        ),
    ],
)
def test_a_checkpoint_of_no_use_is_replaced_and_it_says_why(
    checkpoint: CheckpointState, committed: KafkaState, reason: str
) -> None:
    assert decide(checkpoint, committed) == StartDecision(StartFrom.RESTORE, reason)


def test_after_a_sub_topology_was_added_in_front_the_state_is_restored() -> None:
    """Each number then belongs to another sub-topology, with other topics and other stores."""
    before = {"application": "app", "topics": "clicks (2 partitions, id)", "store clicks": "count"}
    decision = decide(replace(FITS, identity=before))
    reason = f"its checkpoint belongs to another query: topics is clicks (2 partitions, id), and not {OWN['topics']}"
    assert decision == StartDecision(StartFrom.RESTORE, reason)


def test_with_another_emit_strategy_the_state_is_restored() -> None:
    decision = decide(replace(FITS, identity={**OWN, "emit strategy": "on window close"}))
    reason = "its checkpoint belongs to another query: emit strategy is on window close, and not none"
    assert decision == StartDecision(StartFrom.RESTORE, reason)


def test_records_of_finished_micro_batches_may_be_gone() -> None:
    done = {(T, 0): 15, (T, 1): 20}
    finished = replace(FITS, committed=done, planned=done)
    assert decide(finished, replace(KAFKA, log_starts={(T, 0): 15, (T, 1): 20})) == StartDecision(StartFrom.CHECKPOINT)


def test_a_query_without_state_skips_what_is_committed_within_a_micro_batch() -> None:
    within = replace(KAFKA, positions={(T, 0): 12, (T, 1): 20})
    assert decide(FITS, within, aggregates=False) == StartDecision(StartFrom.CHECKPOINT)


def test_a_state_that_a_micro_batch_would_leave_otherwise_is_restored_once_a_part_of_it_is_committed() -> None:
    def decided(positions: OffsetMap) -> StartDecision:
        kafka = replace(KAFKA, positions=positions)
        return resolve_start("sub-topology 1", FITS, OWN, kafka, aggregates=False, repeats=False)

    assert decided({(T, 0): 10, (T, 1): 20}) == StartDecision(StartFrom.CHECKPOINT)
    for position in (12, 15):
        said = f"the group is at {position} of {T}-0, and its micro-batch from 10 may give other results now"
        restored = StartDecision(StartFrom.RESTORE, f"its checkpoint does not fit: {said}")
        assert decided({(T, 0): position, (T, 1): 20}) == restored


def test_positions_that_were_set_back_are_refused_with_both_figures() -> None:
    with pytest.raises(Refused, match=f"ahead of Kafka at {T}-0: expected a position of at least 10.* position 9 "):
        decide(committed=replace(KAFKA, positions={(T, 0): 9, (T, 1): 20}))


def test_records_that_were_deleted_unread_are_refused_with_both_figures() -> None:
    with pytest.raises(Refused, match=f"{T}-1 were deleted before.* position 20 .* begins at offset 21"):
        decide(committed=replace(KAFKA, log_starts={(T, 0): 0, (T, 1): 21}))


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ({**OWN, "store totals": "sum"}, "store totals .* expected count, observed sum"),
        ({**OWN, "topics": "another", "store totals": "sum"}, "store totals .* expected count, observed sum"),
        ({**OWN, "store added": "sum"}, "store added .* expected none, observed sum"),
        ({"application": "app", "topics": OWN["topics"]}, "store totals .* expected count, observed none"),
    ],
)
def test_stores_that_hold_something_else_are_refused(identity: dict[str, str], message: str) -> None:
    with pytest.raises(Refused, match=rf"{message}\. .*store="):
        decide(replace(FITS, identity=identity))
