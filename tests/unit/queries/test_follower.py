"""What is found out about changelogs while they are read, on a cluster in memory."""

from __future__ import annotations

import pytest
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordsGone
from streamplan.queries import follower
from streamplan.queries.follower import ChangelogChanged, Followed, read_to_the_ends
from streamplan.queries.queries import view_of

from tests.support.queried import PARTITIONS, Queried


@pytest.fixture
def queried() -> Queried:
    made = Queried()
    for number in range(20):
        made.count("totals", b"k%d" % (number % 3), number, partition=0)
    return made


def test_the_same_changelogs_are_the_same(queried: Queried) -> None:
    view = view_of(queried.pipeline, queried.cluster)
    followed = Followed(queried.cluster, view)
    assert followed.borders()[queried.changelog("totals")][0].last_stable == 20


def test_a_changelog_that_was_deleted_or_made_again_is_an_error_that_says_what_to_do(queried: Queried) -> None:
    topic = queried.changelog("totals")
    followed = Followed(queried.cluster, view_of(queried.pipeline, queried.cluster))
    before = queried.cluster.existing.pop(topic)
    with pytest.raises(ChangelogChanged, match=r"observed no such topic\. .*Start it again"):
        followed.borders()
    queried.cluster.create(topic, PARTITIONS)
    with pytest.raises(ChangelogChanged, match="observed another one of the same name"):
        followed.borders()
    queried.cluster.existing[topic] = before
    before.partitions.append(type(before.partitions[0])())
    with pytest.raises(ChangelogChanged, match="expected 3 partitions, observed 4"):
        followed.borders()


def test_records_that_are_deleted_while_they_are_read_are_read_again(queried: Queried) -> None:
    view = view_of(queried.pipeline, queried.cluster)
    topic = queried.changelog("totals")
    attempts = []

    def compact(method: str) -> None:
        if method == "read" and not attempts:
            attempts.append(method)
            queried.cluster.purge(topic, 0, 10)

    queried.cluster.before = compact
    read_to_the_ends(queried.cluster, view)
    assert len(view.store("totals")) == 3
    assert view.positions(topic) == {0: 20, 1: 0, 2: 0}


def test_how_far_a_long_changelog_was_read_is_told(queried: Queried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_TOLD_BATCHES", 1)
    told: list[str] = []
    read_to_the_ends(queried.cluster, view_of(queried.pipeline, queried.cluster, stores=["totals"]), told.append)
    assert told == ["queried-totals-changelog: 0 offsets are left"]


def test_records_that_are_gone_each_time_are_an_error(queried: Queried) -> None:
    partition = queried.cluster.existing[queried.changelog("totals")].partitions[0]

    def purge(method: str) -> None:
        if method == "read":
            partition.start += 1

    queried.cluster.before = purge
    with pytest.raises(RecordsGone):
        read_to_the_ends(queried.cluster, view_of(queried.pipeline, queried.cluster))


def test_a_compacted_changelog_has_the_same_values(queried: Queried) -> None:
    topic = queried.changelog("totals")
    queried.put("totals", b"k1", None, partition=0)
    whole = [*queried.open().key_value_store("totals").all()]
    queried.cluster.compact(topic, 0, 20)
    assert [*queried.open().key_value_store("totals").all()] == whole == [("k0", 18), ("k2", 17)]


def test_a_topic_that_does_not_answer_is_an_error(queried: Queried) -> None:
    view = view_of(queried.pipeline, queried.cluster)
    del queried.cluster.existing[queried.changelog("users")]
    with pytest.raises(CouldNotLook):
        read_to_the_ends(queried.cluster, view)
