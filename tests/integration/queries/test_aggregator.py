"""Queries of what the aggregator has written, beside a plain recount of its input."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.queries import open_queries
from streamplan.serdes.moments import as_milliseconds

from tests.support.queried import MINUTE, declare
from tests.support.tried_topology import EPOCH, Tried

USERS, PAGES = ("ann", "anna", "bob"), ("/", "/home", "/orders")


@pytest.fixture
def tried(bootstrap_servers: str, spark: SparkSession, tmp_path: Path) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path / "checkpoints", spark, restoring=False)
    yield made
    made.delete_topics()


def test_every_kind_of_store_has_what_a_recount_says(tried: Tried, brokers: Brokers) -> None:
    declare(tried.topology, tried.name)
    tried.create_topics()
    numbers = random.Random(3)
    visits = [(numbers.choice(USERS), numbers.choice(PAGES), numbers.randrange(60), 3 * n) for n in range(60)]
    tried.produce(
        "visits", [(None, {"user": user, "page": page, "seconds": took}, at) for user, page, took, at in visits]
    )
    tried.produce("users", [("ann", {"country": "DE"}, 0), ("bob", {"country": "AT"}, 0), ("bob", None, 1)])
    tried.drain()

    totals = Counter(user for user, *_ in visits)
    longest = {user: max(took for each, _, took, _ in visits if each == user) for user in USERS}
    minutes = Counter((user, (EPOCH + 1000 * at) // MINUTE * MINUTE) for user, _, _, at in visits)
    times = defaultdict[str, list[int]](list)
    for user, _, _, at in visits:
        times[user].append(EPOCH + 1000 * at)
    with open_queries(tried.pipeline, brokers) as queries:
        assert dict(queries.key_value_store("totals").all()) == totals
        assert {key: value["longest"] for key, value in queries.key_value_store("longest").all()} == longest
        windows = queries.window_store("per-minute")
        assert {(key.key, as_milliseconds(key.start)): count for key, count in windows.all()} == minutes
        assert all(as_milliseconds(key.end) - as_milliseconds(key.start) == MINUTE for key, _ in windows.all())
        for user in USERS:
            found = [*queries.session_store("sessions").fetch(user)]
            assert sum(count for _, count in found) == totals[user]
            (session, _), *_ = found
            assert as_milliseconds(session.start) == min(times[user])
        assert dict(queries.key_value_store("users").all()) == {"ann": {"country": "DE"}}
        assert {key for key, _ in queries.key_value_store("seen").all()} == {page for _, page, *_ in visits}
        timestamped = queries.timestamped_key_value_store("totals")
        for user in USERS:
            assert as_milliseconds(timestamped.get(user).timestamp) == max(times[user])
