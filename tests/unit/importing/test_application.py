from __future__ import annotations

import ast

import pytest
from streamplan.errors import Refused
from streamplan.importing.application import ImportedApplication, import_application
from streamplan.importing.facts import COUNT, SESSIONS, WINDOWS, Facts
from streamplan.pipelines import PIPELINES

# These three were printed by Kafka Streams 4.3.1.
JOINED = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000003 (topics: [orders])
      --> KSTREAM-FILTER-0000000004
    Processor: KSTREAM-FILTER-0000000004 (stores: [])
      --> KSTREAM-JOIN-0000000005
      <-- KSTREAM-SOURCE-0000000003
    Processor: KSTREAM-JOIN-0000000005 (stores: [users-STATE-STORE-0000000000])
      --> KSTREAM-SINK-0000000006
      <-- KSTREAM-FILTER-0000000004
    Source: KSTREAM-SOURCE-0000000001 (topics: [users])
      --> KTABLE-SOURCE-0000000002
    Sink: KSTREAM-SINK-0000000006 (topic: joined)
      <-- KSTREAM-JOIN-0000000005
    Processor: KTABLE-SOURCE-0000000002 (stores: [users-STATE-STORE-0000000000])
      --> none
      <-- KSTREAM-SOURCE-0000000001

"""

READ_TWICE = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> KSTREAM-MAPVALUES-0000000003, KSTREAM-FILTER-0000000001
    Processor: KSTREAM-MAPVALUES-0000000003 (stores: [])
      --> KSTREAM-SINK-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-FILTER-0000000001 (stores: [])
      --> none
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000004 (topic: out)
      <-- KSTREAM-MAPVALUES-0000000003

"""

COUNTED = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> by-country
    Processor: by-country (stores: [])
      --> by-country-repartition-filter
      <-- KSTREAM-SOURCE-0000000000
    Processor: by-country-repartition-filter (stores: [])
      --> by-country-repartition-sink
      <-- by-country
    Sink: by-country-repartition-sink (topic: by-country-repartition)
      <-- by-country-repartition-filter

  Sub-topology: 1
    Source: by-country-repartition-source (topics: [by-country-repartition])
      --> KSTREAM-AGGREGATE-0000000002
    Processor: KSTREAM-AGGREGATE-0000000002 (stores: [totals])
      --> none
      <-- by-country-repartition-source
"""


def body(imported: ImportedApplication) -> str:
    """The lines that declare the topology."""
    return imported.text.partition('topology = Topology("my-app")\n')[2].partition("\nPIPELINE")[0]


def missing(imported: ImportedApplication) -> dict[str, str]:
    return {each.node: each.what for each in imported.missing}


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
def test_each_example_is_imported_from_its_description(pipeline: object) -> None:
    topology = pipeline.topology  # type: ignore[attr-defined]
    imported = import_application(topology.application_id, topology.describe())
    assert imported.is_verified
    assert imported.differences == []
    ast.parse(imported.text)


def test_a_chain_is_written_where_a_result_is_used_once() -> None:
    imported = import_application("my-app", JOINED)
    assert (
        body(imported)
        == """\
users = topology.table("users", value=Json("TODO: the fields of users"))
(
    topology.stream("orders", value=Json("TODO: the fields of orders"))
    .filter("TODO: which records KSTREAM-FILTER-0000000004 passes")
    .join(users, {"TODO": "TODO: the value that KSTREAM-JOIN-0000000005 gives"})
    .to("joined")
)
"""
    )
    assert missing(imported) == {
        "KTABLE-SOURCE-0000000002": "the fields of users",
        "KSTREAM-SOURCE-0000000003": "the fields of orders",
        "KSTREAM-FILTER-0000000004": "which records it passes",
        "KSTREAM-JOIN-0000000005": "the value that it gives",
    }
    assert imported.is_verified


def test_lines_before_the_description_and_its_indentation_do_not_matter() -> None:
    given = "INFO starting\n" + "\n".join(line.strip() for line in JOINED.splitlines())
    assert import_application("my-app", given).differences == []


def test_what_is_missing_is_refused_with_its_line() -> None:
    text = import_application("my-app", JOINED).text
    with pytest.raises(ValueError, match="'TODO: the fields of users' is not a field"):
        exec(compile(text, "my_app.py", "exec"), {})
    text = text.replace("TODO: the fields of users", "name string").replace("TODO: the fields of orders", "id string")
    with pytest.raises(Refused) as refused:
        exec(compile(text, "my_app.py", "exec"), {})
    assert str(refused.value).splitlines()[1:] == [
        "  my_app.py:9: filter: 'TODO: which records KSTREAM-FILTER-0000000004 passes'. Write the expression",
        "  my_app.py:10: join, TODO: 'TODO: the value that KSTREAM-JOIN-0000000005 gives'. Write the expression",
    ]


def test_a_count_and_a_plain_store_are_told_by_the_changelog() -> None:
    imported = import_application("my-app", COUNTED, Facts(stores={"totals": frozenset({COUNT})}))
    assert body(imported).endswith("""\
    .group_by("TODO: the key that by-country gives", name="by-country")
    # It looks like a count: the values of its changelog have 8 bytes.
    .count(store="totals")
)
""")
    assert missing(imported).keys() == {"KSTREAM-SOURCE-0000000000", "by-country"}
    unknown = missing(import_application("my-app", COUNTED))["KSTREAM-AGGREGATE-0000000002"]
    plain = missing(import_application("my-app", COUNTED, Facts(stores={"totals": frozenset()})))
    assert unknown == "what it computes: count() or aggregate(), and whether it has windows"
    assert plain["KSTREAM-AGGREGATE-0000000002"] == "what it computes: count() or aggregate()"


@pytest.mark.parametrize(
    ("kind", "windows", "parameter", "asked"),
    [
        (WINDOWS, "TimeWindows", "size", "the size of the windows of KSTREAM-AGGREGATE-0000000002, as in 1 minute"),
        (
            SESSIONS,
            "SessionWindows",
            "inactivity_gap",
            "the inactivity gap of the sessions of KSTREAM-AGGREGATE-0000000002, as in 5 minutes",
        ),
    ],
)
def test_windows_are_told_by_the_changelog(kind: str, windows: str, parameter: str, asked: str) -> None:
    imported = import_application("my-app", COUNTED, Facts(stores={"totals": frozenset({COUNT, kind})}))
    assert f'.windowed_by({windows}("TODO: {asked}' in imported.text
    names = ", ".join(sorted(["Json", "Pipeline", windows, "Topology"]))
    assert f"from streamplan import {names}\n" in imported.text
    assert imported.is_verified
    text = imported.text.replace("TODO: the fields of orders", "country string")
    with pytest.raises(Refused, match=rf"windowed_by: {parameter}: 'TODO: .* is not a duration"):
        exec(text.replace('"TODO: the key that by-country gives"', '"country"'), {})


def test_partition_counts_and_fields_are_told_by_the_cluster() -> None:
    facts = Facts({"orders": 4, "users": 1, "joined": 6}, {"orders": "id string"}, {"users": "there are no records"})
    imported = import_application("my-app", JOINED, facts)
    assert '    # orders has 4 partitions.\n    topology.stream("orders", value=Json("id string"))\n' in imported.text
    assert '# users has 1 partition.\nusers = topology.table("users", value=Json("TODO: ' in imported.text
    assert '    topic_partitions={\n        "joined": 6,\n    },\n' in imported.text
    assert missing(imported)["KTABLE-SOURCE-0000000002"] == "the fields of users: there are no records"


def test_a_topic_that_is_read_and_written_needs_a_count() -> None:
    imported = import_application("my-app", JOINED.replace("topic: joined", "topic: orders"))
    assert '        "orders": 0,  # TODO: its partitions\n' in imported.text
    assert missing(imported)["orders"] == "its number of partitions"
    assert "a cycle: what is read from 'orders' is written back into it" in imported.refusal
    assert not imported.is_verified


def test_numbers_that_no_node_has_are_taken() -> None:
    imported = import_application("my-app", READ_TWICE)
    assert (
        body(imported)
        == """\
orders = topology.stream("orders", value=Json("TODO: the fields of orders"))
orders.filter("TODO: which records KSTREAM-FILTER-0000000001 passes")
# No node has number 2: the application reads a topic again, or has an operation without a node.
topology.stream("orders", value=Json("TODO: the fields of orders"))
orders.map_values({"TODO": "TODO: the value that KSTREAM-MAPVALUES-0000000003 gives"}).to("out")
"""
    )
    assert missing(imported)["number 2"].startswith("no node has it")
    assert imported.differences == []


def test_a_name_is_given_where_the_language_draws_more_numbers() -> None:
    """As if the library of another version drew no number for the filter."""
    given = READ_TWICE.replace("MAPVALUES-0000000003", "MAPVALUES-0000000001").replace(
        "SINK-0000000004", "SINK-0000000002"
    )
    imported = import_application("my-app", given)
    assert 'name="KSTREAM-' in imported.text
    assert imported.is_verified


def test_a_processor_of_which_only_the_name_is_known_is_listed() -> None:
    imported = import_application("my-app", JOINED.replace("KSTREAM-FILTER-0000000004", "only-large"))
    assert '.filter("TODO: what only-large does", name="only-large")' in imported.text
    assert missing(imported)["only-large"].startswith("what it does: the application named it.")
    assert imported.is_verified


def test_names_cannot_leave_their_quotes() -> None:
    given = JOINED.replace("topics: [orders]", 'topics: [x"); raise SystemExit(1)  # {0} {} \\]')
    imported = import_application("my-app", given)
    assert "contains" in imported.refusal  # an illegal name of a topic, and no code
    ast.parse(imported.text)


@pytest.mark.parametrize(
    ("given", "observed"),
    [
        ("", "no 'Sub-topology: 0'"),
        (
            JOINED[: JOINED.index("    Processor: KTABLE")],
            "node KTABLE-SOURCE-0000000002 of the topology: expected its line",
        ),
        (
            JOINED.replace("      <-- KSTREAM-FILTER-0000000004\n", "      <-- KSTREAM-JOIN-0000000005\n"),
            "before itself",
        ),
        ("Sub-topology: 0\n  Processor: a (stores: [])\n    --> none\n", "observed none"),
    ],
)
def test_a_text_that_is_no_whole_description_is_refused(given: str, observed: str) -> None:
    with pytest.raises(Refused) as refused:
        import_application("my-app", given)
    assert observed in str(refused.value)


def test_a_topology_of_a_global_table_alone_is_told() -> None:
    given = """\
Topologies:
   Sub-topology: 0 for global store (will not generate tasks)
    Source: KSTREAM-SOURCE-0000000001 (topics: [rates])
      --> KTABLE-SOURCE-0000000002
    Processor: KTABLE-SOURCE-0000000002 (stores: [rates-STATE-STORE-0000000000])
      --> none
      <-- KSTREAM-SOURCE-0000000001
"""
    imported = import_application("my-app", given)
    assert missing(imported)["KSTREAM-SOURCE-0000000001"].startswith("a global table of rates")
    assert "the topology reads nothing" in imported.refusal
    assert not imported.is_verified


def test_an_illegal_application_id_is_refused() -> None:
    with pytest.raises(Refused, match="the name 'my app' contains ' '"):
        import_application("my app", JOINED)
