"""Users counted by country, with every name left to the library."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

COUNTRIES = ("DE", "FR", "IT", "PL", "SE", "US", "BR", "JP")

topology = Topology("users-by-country")
topology.stream("users", value=Json("id string, country string")).group_by("country").count()


def user(n: int) -> tuple[str, bytes, bytes]:
    """User ``n``, keyed by id; countries in turn."""
    country = COUNTRIES[n % len(COUNTRIES)].encode()
    return "users", b"user_%d" % n, b'{"id": "user_%d", "country": "%b"}' % (n, country)


PIPELINE = Pipeline(
    name="users",
    topology=topology,
    description="Counts users by country; names are left to the library.",
    topic_partitions={"users": 2},
    test_data=TestData(("users",), record=user, number="id"),
)
