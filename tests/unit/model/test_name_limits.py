"""Names that Kafka, Airflow or a file system would refuse are refused by the declaration, with the user's line."""

from __future__ import annotations

from typing import Any

import pytest
from streamplan import Json, Pipeline, Topology
from streamplan.errors import Refused
from streamplan.files import ReportPaths, require_file_name


def declare(
    *,
    name: str = "p",
    application_id: str = "app",
    topic: str = "in",
    repartition: str = "by-a",
    store: str = "totals",
    sink: str | None = None,
    **options: Any,
) -> Pipeline:
    topology = Topology(application_id)
    stream = topology.stream(topic, value=Json("a int"))
    stream.group_by("a", name=repartition).count(store=store)
    if sink is not None:
        stream.to(sink)
    counts = {topic: 2} | ({} if sink is None else {sink: 2})
    return Pipeline(name=name, topology=topology, description="d", topic_partitions=counts, **options)


def faults(**names: Any) -> list[str]:
    """The lines of the faults of a declaration; none where it is taken."""
    try:
        declare(**names)
    except Refused as error:
        return str(error).splitlines()[1:]
    return []


def longest(prefix: str, suffix: str, limit: int = 249) -> str:
    return "n" * (limit - len(prefix) - len(suffix))


@pytest.mark.parametrize(
    ("names", "limit"),
    [
        ({"name": "n" * 100}, 100),
        ({"name": "é" * 50}, 100),
        ({"topic": "n" * 249}, 249),
        ({"sink": "n" * 249}, 249),
        ({"store": longest("app-", "-changelog")}, 249),
        ({"repartition": longest("app-", "-repartition")}, 249),
        ({"application_id": longest("", "-totals-changelog")}, 249),
        ({"application_id": longest("", "-by-a-repartition")}, 249),
        ({"application_id": longest("", "-x-repartition"), "store": "x", "repartition": "x"}, 249),
        ({"application_id": "app", "sink": longest("app-staging-", ""), "upgrade_from": "old"}, 249),
        ({"kafka_conn_id": "n" * 250}, 250),
        ({"spark_conn_id": "n" * 250}, 250),
        ({"upgrade_from": "n" * 249}, 249),
    ],
    ids=str,
)
def test_the_longest_name_is_taken_and_one_more_character_is_refused(names: dict[str, str], limit: int) -> None:
    assert faults(**names) == []
    (longest_name, *_) = (option for option, value in names.items() if set(value) <= {"n", "é"})
    found = faults(**{**names, longest_name: names[longest_name] + "n"})
    assert found
    assert all("test_name_limits.py:" in line for line in found)
    assert any(str(limit) in line for line in found)


def test_the_dead_letter_topic_of_a_pipeline_without_state_has_the_limit_of_a_topic() -> None:
    def stateless(application_id: str) -> Pipeline:
        topology = Topology(application_id)
        topology.stream("in", value=Json("a int")).filter("a > 1").to("out")
        return Pipeline(name="p", topology=topology, description="d", topic_partitions={"in": 1, "out": 1})

    stateless("n" * (249 - len("-dead-letter")))
    with pytest.raises(Refused, match=r"test_name_limits\.py:\d+: .*-dead-letter' has 250 characters"):
        stateless("n" * (250 - len("-dead-letter")))


@pytest.mark.parametrize("option", ["application_id", "topic", "store", "repartition", "sink", "upgrade_from"])
@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "a\n", "ä", "a:b", "a\0b"])
def test_characters_that_kafka_refuses_are_named(option: str, name: str) -> None:
    found = faults(**{option: name})
    assert found
    assert all("test_name_limits.py:" in line for line in found if line.startswith("  "))


@pytest.mark.parametrize("option", ["application_id", "topic", "sink", "upgrade_from"])
@pytest.mark.parametrize("name", [".", ".."])
def test_the_names_of_directories_are_no_names(option: str, name: str) -> None:
    assert faults(**{option: name})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a b", "1a", "a.b", "a\n", "a\0"])
def test_a_name_of_a_pipeline_is_the_prefix_of_dag_ids_and_of_files(name: str) -> None:
    assert faults(name=name)


@pytest.mark.parametrize("conn_id", ["", "a b", "a\n", "a?b", "ä;"])
def test_an_id_of_a_connection_has_the_characters_that_airflow_keeps(conn_id: str) -> None:
    assert faults(kafka_conn_id=conn_id)
    assert faults(spark_conn_id=conn_id)


@pytest.mark.parametrize(
    ("topic", "sink"),
    [
        ("a.b", "a_b"),
        ("in", "my_app-totals-changelog"),
        ("in", "my_app-by-a-repartition"),
        ("my_app-dead-letter", "out"),
    ],
)
def test_topics_of_which_kafka_creates_one_only_are_named(topic: str, sink: str) -> None:
    (found,) = faults(application_id="my.app", topic=topic, sink=sink)
    assert "cannot both exist" in found
    assert faults(application_id="my.app", topic=topic.replace("_", "-"), sink=sink.replace("_", "-")) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "a/b", "/etc", "a\0b", "n" * 256, "é" * 128])
def test_no_name_leads_out_of_the_directory_of_reports(name: str, tmp_path: Any) -> None:
    with pytest.raises(Refused, match="a name of a directory"):
        ReportPaths(tmp_path, name)


@pytest.mark.parametrize("name", ["orders", "my.app", "...", "n" * 255, "é" * 127, "a b", "%2e%2e"])
def test_other_names_are_names_of_a_directory(name: str, tmp_path: Any) -> None:
    require_file_name(name)
    (tmp_path / name).mkdir()
    assert ReportPaths(tmp_path, name).directory.resolve().parent == tmp_path.resolve()
