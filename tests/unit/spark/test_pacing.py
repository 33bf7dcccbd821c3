"""When the next micro-batch of a query begins. The interval is so long here that a test which waits for it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from streamplan.errors import StreamplanError
from streamplan.model.topology import Topology
from streamplan.registry import pipeline_named
from streamplan.serdes.json import Json
from streamplan.spark.pacing import Pacing

TOPOLOGY = pipeline_named("orders").topology
REKEYED = "orders-aggregator-orders-products-quantities-repartition"
TOTALS = "orders-aggregator-products-total-quantity-changelog"
FIRST, SECOND = 0, 1
NEVER_MS = 3_600_000


def _in_background(rest: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=rest, daemon=True)
    thread.start()
    return thread


def test_a_sub_topology_goes_on_when_the_one_before_has_committed() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    pacing.begin(SECOND)
    pacing.committed(SECOND, {TOTALS})
    resting = _in_background(lambda: pacing.rest(SECOND, 0))
    pacing.begin(FIRST)
    pacing.committed(FIRST, {})  # there is nothing to read
    assert resting.is_alive()
    pacing.begin(FIRST)
    pacing.committed(FIRST, {REKEYED})
    resting.join(60)
    assert not resting.is_alive()


def test_what_was_committed_during_a_micro_batch_is_not_waited_for() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    pacing.begin(SECOND)
    pacing.begin(FIRST)
    pacing.committed(FIRST, {REKEYED})
    pacing.committed(SECOND, {TOTALS})
    pacing.rest(SECOND, 0)


def test_the_first_sub_topology_waits_until_what_it_wrote_is_handled() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    pacing.begin(SECOND)
    pacing.begin(FIRST)
    pacing.committed(FIRST, {REKEYED})
    resting = _in_background(lambda: pacing.rest(FIRST, 0))
    pacing.committed(SECOND, {TOTALS})  # it began before and has not read these records
    assert resting.is_alive()
    pacing.begin(SECOND)
    pacing.committed(SECOND, {TOTALS})
    resting.join(60)
    assert not resting.is_alive()


def test_a_sub_topology_that_has_written_nothing_waits_for_nobody() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    pacing.begin(FIRST)
    pacing.committed(FIRST, {})
    pacing.rest(FIRST, 0)


def test_nobody_waits_for_a_sub_topology_that_has_been_given_nothing() -> None:
    """The records of the micro-batch went to other topics, so that Spark does not even call the query."""
    topology = Topology("app")
    sold = topology.stream("sold", value=Json("shop string, kind string"))
    sold.to("copied")
    sold.filter("shop is not null").group_by("shop", name="by-shop").count()
    sold.group_by("kind", name="by-kind").count()
    pacing = Pacing(topology, NEVER_MS)
    for topics, readers in (({"copied"}, []), ({"copied", "app-by-kind-repartition"}, [2])):
        pacing.begin(0)
        pacing.committed(0, topics)
        resting = _in_background(lambda: pacing.rest(0, 0))
        for reader in readers:
            pacing.begin(reader)
            pacing.committed(reader, {})
        resting.join(60)
        assert not resting.is_alive()


def test_two_sub_topologies_write_what_a_third_one_reads() -> None:
    """Either is waited for, and each waits for its own records."""
    topology = Topology("app")
    for name in ("sold", "returned"):
        topology.stream(name, value=Json("shop string")).to("both")
    topology.stream("both", value=Json("shop string")).to("copied")
    writers = [each.id for each in topology.subtopologies if "both" in each.sink_topics]
    (reader,) = (each.id for each in topology.subtopologies if "both" in each.source_topics)
    pacing = Pacing(topology, NEVER_MS)
    for writer in writers:
        pacing.begin(writer)
        pacing.committed(writer, {"both"})
        pacing.begin(reader)
        pacing.committed(reader, {"copied"})
    resting = [_in_background(lambda writer=writer: pacing.rest(writer, 0)) for writer in writers]  # type: ignore[misc]
    for thread in resting:
        thread.join(60)
        assert not thread.is_alive()


def test_the_first_sub_topology_does_not_wait_while_more_records_are_there() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    pacing.begin(FIRST)
    pacing.committed(FIRST, {REKEYED})
    pacing.rest(FIRST, 0, more=True)


def test_nobody_waits_after_the_end() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    for number in (FIRST, SECOND):
        pacing.begin(number)
        pacing.committed(number, {REKEYED, TOTALS})
    resting = [_in_background(lambda number=number: pacing.rest(number, 0)) for number in (FIRST, SECOND)]  # type: ignore[misc]
    pacing.end()
    for thread in resting:
        thread.join(60)
        assert not thread.is_alive()


def test_without_an_interval_nobody_waits() -> None:
    pacing = Pacing(TOPOLOGY, 0)
    for number in (FIRST, SECOND):
        pacing.begin(number)
        pacing.committed(number, {REKEYED, TOTALS})
        pacing.rest(number, 0)
        assert pacing.rest_after(number, 0) == 0


def test_a_query_without_records_waits_for_them_and_not_beyond_the_pause() -> None:
    pacing, asked = Pacing(TOPOLOGY, 1), list[int]()

    def has_records() -> bool:
        asked.append(1)
        return len(asked) == 3

    pacing.rest_until(1, 7, has_records, 60)
    assert len(asked) == 3
    pacing.rest_until(1, 8, lambda: False, 0.01)
    pacing.end()
    pacing.rest_until(1, 9, lambda: False, 3600)
    assert pacing.rest_after(1, 9) < 3600


def test_a_query_that_is_to_end_commits_its_micro_batch_and_begins_no_other() -> None:
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    pacing.begin(FIRST)
    ending = _in_background(lambda: pacing.let_end(FIRST, 60))
    ending.join(0.2)
    assert ending.is_alive()
    pacing.committed(FIRST, {REKEYED})
    ending.join(60)
    assert not ending.is_alive()
    with pytest.raises(StreamplanError, match="sub-topology 0 ends"):
        pacing.begin(FIRST)


def test_a_query_of_both_sub_topologies_does_not_wait_for_itself() -> None:
    """It begins the second one when the first has committed."""
    pacing = Pacing(TOPOLOGY, NEVER_MS)
    for batch in range(3):
        pacing.begin(FIRST)
        pacing.committed(FIRST, {REKEYED})
        pacing.begin(SECOND)
        pacing.committed(SECOND, {TOTALS})
        pacing.rest(FIRST, batch)
