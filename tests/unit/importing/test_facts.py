from __future__ import annotations

import pytest
from streamplan.importing.examples import infer_schema
from streamplan.importing.facts import COUNT, SAMPLED_RECORDS, SESSIONS, WINDOWS, observe_facts
from streamplan.model.description import parse_subtopologies

from tests.support.fake_cluster import FakeCluster
from tests.unit.importing.test_application import COUNTED

NOON = 1_700_000_000_000
CHANGELOG = "my-app-totals-changelog"


def eight(number: int) -> bytes:
    return number.to_bytes(8, "big")


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.create("orders", 3)
    found.create("my-app-by-country-repartition", 3)
    found.create(CHANGELOG, 3)
    return found


@pytest.mark.parametrize(
    ("values", "schema", "reason"),
    [
        ([b'{"a": "x", "b": 1, "c": 1.5, "d": true}'], "a string, b bigint, c double, d boolean", ""),
        ([b'{"a": 1}', b'{"b": "x"}', None], "a bigint, b string", ""),
        ([b'{"a": 1}', b'{"a": 1.5}'], "a double", ""),
        ([b'{"a": null}', b'{"a": "x"}'], "a string", ""),
        ([b'{"a": 1, "b": 2}', b'{"a": "x"}'], "b bigint", "left out a (bigint and string)"),
        ([b'{"a": {"b": 1}, "c": [1], "d": 1}'], "a struct<b: bigint>, c array<bigint>, d bigint", ""),
        (
            [b'{"a": {"b": 1, "c d": [{"e": true}, null]}}', b'{"a": {"b": 1.5}}', b'{"a": null}'],
            "a struct<b: double, `c d`: array<struct<e: boolean>>>",
            "",
        ),
        (
            [b'{"a": {"b": 1, "c": "x", "d": [1]}}', b'{"a": {"b": "x", "d": ["x"]}}'],
            "a struct<c: string>",
            "left out a.b (bigint and string), a.d[] (bigint and string)",
        ),
        ([b'{"a": {}, "b": [], "c": [[]]}'], "", "left out a (always empty), b[] (always null), c[][] (always null)"),
        ([b'{"a": {"b": 1}}', b'{"a": [1]}'], "", "left out a (array and object)"),
        (
            [b'{"a": {"`": 1}, "b": {"": 1}}'],
            "",
            "left out a (not every value is a struct<```: bigint>), b (not every value is a struct<``",
        ),
        (
            [b'{"a": {%s}}' % b",".join(b'"%d": 1' % n for n in range(51))],
            "",
            "left out a (more than 50 names: a map?)",
        ),
        ([b'{"a": ' + b"[" * 20 + b"1" + b"]" * 20 + b"}"], "", "left out a[][][][][][][][][][] (nested too deep)"),
        ([b'{"a": null}'], "", "left out a (always null)"),
        ([b'{"a b": 1, "record": 2}'], "", "left out a b (it cannot be the name of a field), record (it cannot"),
        ([b'{"a": 9223372036854775808}'], "", "left out a (not every value is a bigint)"),
        ([b'{"a": NaN}'], "", "there are values that are no JSON objects"),
        ([b'{"a": 1}', b"7"], "", "there are values that are no JSON objects"),
        ([b"\x00\x01"], "", "there are values that are no JSON objects"),
        ([b"[" * 100_000], "", "there are values that are no JSON objects"),
        ([None], "", "there are no records"),
        ([], "", "there are no records"),
    ],
)
def test_fields_are_inferred_from_examples(values: list[bytes | None], schema: str, reason: str) -> None:
    told, why = infer_schema(values)
    assert told == schema
    assert why.startswith(reason)
    assert bool(why) == bool(reason)


def test_the_last_records_tell_the_fields_of_a_source(cluster: FakeCluster) -> None:
    for n in range(3 * SAMPLED_RECORDS):
        cluster.produce("orders", b"%d" % n, b"no JSON" if n < SAMPLED_RECORDS else b'{"id": %d}' % n)
    facts = observe_facts(cluster, "my-app", parse_subtopologies(COUNTED))
    assert facts.schemas == {"orders": "id bigint"}
    assert facts.reasons == {}
    assert facts.partitions == {"orders": 3, "by-country-repartition": 3}
    assert facts.stores == {}


def test_a_topic_that_is_not_there_tells_nothing(cluster: FakeCluster) -> None:
    del cluster.existing["orders"], cluster.existing[CHANGELOG]
    facts = observe_facts(cluster, "my-app", parse_subtopologies(COUNTED))
    assert facts.reasons == {"orders": "topic orders does not exist"}
    assert facts.partitions == {"by-country-repartition": 3}
    assert facts.schemas == facts.stores == {}


@pytest.mark.parametrize(
    ("suffix", "value", "told"),
    [
        (b"", eight(5), {COUNT}),
        (b"", b'{"n": 1}', set()),  # 8 bytes that are text
        (b"", b"\x40\x0c\0\0\0\0\0\0", set()),  # 3.5 as DoubleSerializer writes it
        (b"", b'{"total": 17}', set()),
        (eight(NOON) + bytes(4), eight(5), {COUNT, WINDOWS}),
        (eight(NOON) + bytes(4), b"text", {WINDOWS}),
        (eight(NOON + 5) + eight(NOON), eight(5), {COUNT, SESSIONS}),
    ],
)
def test_a_changelog_tells_counts_and_windows(
    cluster: FakeCluster, suffix: bytes, value: bytes, told: set[str]
) -> None:
    from streamplan.model.partitioner import partition_for_key

    for n in range(50):
        key = b"key-%d" % n
        cluster.produce(CHANGELOG, key + suffix, value, partition=partition_for_key(key, 3))
    cluster.produce(CHANGELOG, b"key-0" + suffix, None, partition=partition_for_key(b"key-0", 3))
    facts = observe_facts(cluster, "my-app", parse_subtopologies(COUNTED))
    assert facts.stores == {"totals": told}


def test_one_value_that_is_no_count_is_enough(cluster: FakeCluster) -> None:
    for n in range(50):
        cluster.produce(CHANGELOG, b"key-%d" % n, eight(n) if n else b"12345")
    assert observe_facts(cluster, "my-app", parse_subtopologies(COUNTED)).stores == {"totals": frozenset()}
