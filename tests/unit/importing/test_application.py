from __future__ import annotations

import ast
import re
from contextlib import suppress
from random import Random

import pytest
from streamplan.errors import Refused
from streamplan.importing.application import ImportedApplication, import_application
from streamplan.importing.facts import COUNT, SESSIONS, WINDOWS, Facts

from tests.support.described import described
from tests.support.examples import PIPELINES

# ruff: noqa: E501
# These four were printed by Kafka Streams 4.3.1.
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


BY_FOREIGN_KEY = """\
Topologies:
   Sub-topology: 0
    Source: KTABLE-SOURCE-0000000016 (topics: [KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic])
      --> KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-0000000017
    Source: KSTREAM-SOURCE-0000000000 (topics: [purchases])
      --> KSTREAM-TOTABLE-0000000001
    Processor: KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-0000000017 (stores: [KSTREAM-TOTABLE-STATE-STORE-0000000002])
      --> KTABLE-FK-JOIN-OUTPUT-0000000018
      <-- KTABLE-SOURCE-0000000016
    Processor: KSTREAM-TOTABLE-0000000001 (stores: [KSTREAM-TOTABLE-STATE-STORE-0000000002])
      --> KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000007
      <-- KSTREAM-SOURCE-0000000000
    Processor: KTABLE-FK-JOIN-OUTPUT-0000000018 (stores: [])
      --> KTABLE-TOSTREAM-0000000020
      <-- KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-0000000017
    Processor: KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000007 (stores: [])
      --> KTABLE-SINK-0000000008
      <-- KSTREAM-TOTABLE-0000000001
    Processor: KTABLE-TOSTREAM-0000000020 (stores: [])
      --> KSTREAM-SINK-0000000021
      <-- KTABLE-FK-JOIN-OUTPUT-0000000018
    Sink: KSTREAM-SINK-0000000021 (topic: output)
      <-- KTABLE-TOSTREAM-0000000020
    Sink: KTABLE-SINK-0000000008 (topic: KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic)
      <-- KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000007

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000003 (topics: [buyers])
      --> KSTREAM-TOTABLE-0000000004
    Source: KTABLE-SOURCE-0000000009 (topics: [KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic])
      --> KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000011
    Processor: KSTREAM-TOTABLE-0000000004 (stores: [KSTREAM-TOTABLE-STATE-STORE-0000000005])
      --> KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000013
      <-- KSTREAM-SOURCE-0000000003
    Processor: KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000011 (stores: [KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000010])
      --> KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000012
      <-- KTABLE-SOURCE-0000000009
    Processor: KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000012 (stores: [KSTREAM-TOTABLE-STATE-STORE-0000000005])
      --> KTABLE-SINK-0000000015
      <-- KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000011
    Processor: KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000013 (stores: [KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000010])
      --> KTABLE-SINK-0000000015
      <-- KSTREAM-TOTABLE-0000000004
    Sink: KTABLE-SINK-0000000015 (topic: KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic)
      <-- KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000012, KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000013
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
    with pytest.raises(Refused, match="'TODO: the fields of users' is not a field"):
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


SUBTOPOLOGY_0 = """\
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [parcels])
      --> KSTREAM-FILTER-0000000001
    Processor: KSTREAM-FILTER-0000000001 (stores: [])
      --> KSTREAM-SINK-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000002 (topic: late-parcels)
      <-- KSTREAM-FILTER-0000000001
"""


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-01-02 10:11:12.123  INFO 1 --- [main] c.e.App : ",
        "[2026-01-02 10:11:12,123] INFO Topologies (c.e.App) ",
        "app_1  | ",
        "10:11:12.123 [main] DEBUG App - Source: ",
        " * ",
        "// ",
    ],
)
def test_the_prefix_of_each_line_does_not_matter(prefix: str) -> None:
    """An empty line has the prefix, too. Another thread has logged a line between."""
    lines = f"Topologies:\n{SUBTOPOLOGY_0}\n".splitlines()
    lines.insert(4, "and what another thread has logged")
    given = "\n".join(prefix + line for line in lines)
    imported = import_application("my-app", given)
    assert (imported.is_verified, imported.differences) == (True, [])


def test_a_description_in_strings_of_java_is_read() -> None:
    given = "".join(f'            "{line}\\n" +\n' for line in f"Topologies:\n{SUBTOPOLOGY_0}".splitlines())
    assert import_application("my-app", given).differences == []


@pytest.mark.parametrize(
    ("given", "line", "repeated"),
    [
        (f"Topologies:\n{SUBTOPOLOGY_0}\nTopologies:\n{SUBTOPOLOGY_0}", 12, "Sub-topology: 0"),
        (f"{SUBTOPOLOGY_0}{SUBTOPOLOGY_0.replace('0000', '1000')}", 9, "Sub-topology: 0"),
        (SUBTOPOLOGY_0 + SUBTOPOLOGY_0.replace("y: 0", "y: 1"), 10, "Source: KSTREAM-SOURCE-0000000000"),
        (SUBTOPOLOGY_0.replace("KSTREAM-SINK-0000000002 (", "KSTREAM-FILTER-0000000001 ("), 7, "Sink: KSTREAM-FILTER"),
        ("".join(f"INFO {line}\n" for line in SUBTOPOLOGY_0.splitlines()) * 2, 9, "Sub-topology: 0"),
    ],
)
def test_a_number_or_a_name_that_is_there_twice_is_refused_with_its_line(given: str, line: int, repeated: str) -> None:
    with pytest.raises(
        Refused, match=f"line {line} of the topology.*{repeated}.* again, which line .* Delete the lines"
    ):
        import_application("my-app", given)


@pytest.mark.parametrize("names", [("Source", "Process", "Sink"), ("SOURCE", "counting-processor", "out")])
def test_a_store_before_a_sink_is_that_of_a_processor(names: tuple[str, str, str]) -> None:
    source, process, sink = names
    given = f"""\
Topologies:
   Sub-topology: 0
    Source: {source} (topics: [source-topic])
      --> {process}
    Processor: {process} (stores: [Counts])
      --> {sink}
      <-- {source}
    Sink: {sink} (topic: sink-topic)
      <-- {process}

"""
    imported = import_application("my-app", given)
    assert (imported.is_verified, imported.differences) == (True, [])
    assert ".process(" in imported.text
    assert "aggregate" not in imported.text


def test_operations_behind_one_that_the_language_does_not_have_are_listed() -> None:
    """Of a transformer whose store is joined by a foreign key."""
    imported = import_application("my-app", BY_FOREIGN_KEY.replace("TOTABLE", "TRANSFORM"))
    assert not imported.is_verified
    told = missing(imported)
    assert told["KSTREAM-TRANSFORM-0000000001"].endswith("use map_values(), map() or flat_map() instead.")
    assert told["KTABLE-FK-JOIN-OUTPUT-0000000018"].startswith(
        "It goes on from an operation that the language does not"
    )
    assert told["number 2"] == (
        "no node has it: 2 is that of KSTREAM-TRANSFORM-STATE-STORE-0000000002, a store of an operation that the "
        "language does not have"
    )


def test_streams_as_tables_that_a_foreign_key_joins_are_written_and_refused() -> None:
    imported = import_application("my-app", BY_FOREIGN_KEY)
    assert imported.text.count(".to_table()") == 2
    assert imported.differences == []
    assert "by a foreign key with this table being the result of to_table" in imported.refusal


def test_a_table_with_a_store_is_no_aggregate() -> None:
    """``table.mapValues(…, Materialized.as("pages-store"))``, joined by a processor that the application named."""
    given = JOINED.replace("KSTREAM-JOIN-0000000005", "with-page").replace(
        "      --> none\n",
        "      --> KTABLE-MAPVALUES-0000000007\n",
    )
    given = given.replace("users-STATE-STORE-0000000000", "pages-store").replace(
        "Processor: KTABLE-SOURCE-0000000002 (stores: [pages-store])",
        "Processor: KTABLE-SOURCE-0000000002 (stores: [])",
    )
    given = f"""{given.rstrip()}
    Processor: KTABLE-MAPVALUES-0000000007 (stores: [pages-store])
      --> none
      <-- KTABLE-SOURCE-0000000002
"""
    imported = import_application("my-app", given)
    assert imported.refusal == ""
    assert '.map_values({"TODO": "TODO: the value that KTABLE-MAPVALUES-0000000007 gives"}, store="pages-store")' in (
        imported.text
    )
    assert "aggregate" not in imported.text


SUPPRESSED = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> KSTREAM-AGGREGATE-0000000001
    Processor: KSTREAM-AGGREGATE-0000000001 (stores: [counts])
      --> KTABLE-SUPPRESS-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KTABLE-SUPPRESS-0000000002 (stores: [KTABLE-SUPPRESS-STATE-STORE-0000000003])
      --> KTABLE-TOSTREAM-0000000004
      <-- KSTREAM-AGGREGATE-0000000001
    Processor: KTABLE-TOSTREAM-0000000004 (stores: [])
      --> KSTREAM-SINK-0000000005
      <-- KTABLE-SUPPRESS-0000000002
    Sink: KSTREAM-SINK-0000000005 (topic: counts)
      <-- KTABLE-TOSTREAM-0000000004

"""


@pytest.mark.parametrize("name", ["", "closed"])
def test_what_is_suppressed_is_an_aggregate_of_windows(name: str) -> None:
    given = SUPPRESSED
    if name:
        given = given.replace("KTABLE-SUPPRESS-STATE-STORE-0000000003", "closed-store")
        given = given.replace("KTABLE-SUPPRESS-0000000002", "closed").replace("0000000004", "0000000002")
        given = given.replace("0000000005", "0000000003")
    imported = import_application("my-app", given)
    assert imported.is_verified, imported.differences
    named = ', name="closed"' if name else ""
    assert f".suppress(UntilWindowCloses(){named})" in imported.text
    assert "windowed_by(TimeWindows(" in imported.text


def test_a_table_without_windows_is_suppressed_until_a_time_limit() -> None:
    imported = import_application("my-app", SUPPRESSED, Facts(stores={"counts": frozenset({COUNT})}))
    assert imported.is_verified, imported.differences
    assert "windowed_by" not in imported.text
    assert '.suppress(UntilTimeLimit("TODO: the time limit of KTABLE-SUPPRESS-0000000002, ' in imported.text


WITH_GRACE = """Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000002 (topics: [orders])
      --> KSTREAM-JOIN-0000000003
    Processor: KSTREAM-JOIN-0000000003 (stores: [KSTREAM-JOIN-0000000003-Buffer, prices])
      --> KSTREAM-SINK-0000000004
      <-- KSTREAM-SOURCE-0000000002
    Source: KSTREAM-SOURCE-0000000000 (topics: [prices])
      --> KTABLE-SOURCE-0000000001
    Sink: KSTREAM-SINK-0000000004 (topic: priced)
      <-- KSTREAM-JOIN-0000000003
    Processor: KTABLE-SOURCE-0000000001 (stores: [prices])
      --> none
      <-- KSTREAM-SOURCE-0000000000
"""


def test_a_join_with_a_grace_period_has_a_versioned_table() -> None:
    imported = import_application("my-app", WITH_GRACE)
    assert imported.is_verified, imported.differences
    assert 'store=Versioned("prices", "TODO: how long KTABLE-SOURCE-0000000001 keeps a value ' in imported.text
    assert 'grace="TODO: how long KSTREAM-JOIN-0000000003 waits for late rows, ' in imported.text


def test_sessions_that_are_suppressed_are_told_by_their_changelog() -> None:
    imported = import_application("my-app", SUPPRESSED, Facts(stores={"counts": frozenset({SESSIONS, COUNT})}))
    assert imported.is_verified, imported.differences
    assert "windowed_by(SessionWindows(" in imported.text
    assert ".suppress(UntilWindowCloses())" in imported.text


def test_a_filter_of_windows_is_written() -> None:
    text = described(
        "KSTREAM-SOURCE-0<clicks> > KSTREAM-AGGREGATE-1[counts] > KTABLE-FILTER-2 > KTABLE-TOSTREAM-3 > KSTREAM-SINK-4<often>"
    )
    imported = import_application("my-app", text, Facts(stores={"counts": frozenset({WINDOWS, COUNT})}))
    assert imported.is_verified, imported.differences
    assert ".windowed_by(TimeWindows(" in imported.text
    assert '.filter("TODO: which values KTABLE-FILTER-0000000002 ' in imported.text


@pytest.mark.parametrize("seed", range(40))
def test_whatever_text_is_given_the_answer_is_a_declaration_or_a_refusal(seed: int) -> None:
    """Descriptions with lines, names, words and stores lost, exchanged and doubled."""
    random = Random(seed)
    descriptions = [pipeline.topology.describe() for pipeline in PIPELINES]
    for _ in range(25):
        given = mutated(random.choice([*descriptions, JOINED, READ_TWICE, COUNTED, BY_FOREIGN_KEY, SUPPRESSED]), random)
        with suppress(Refused):
            imported = import_application("my-app", given)
            ast.parse(imported.text)
            assert imported.is_verified or imported.refusal or imported.differences


PREFIXES = (
    *("KSTREAM-FILTER-", "KSTREAM-MAP-", "KSTREAM-AGGREGATE-", "KSTREAM-REDUCE-", "KSTREAM-JOIN-", "KSTREAM-MERGE-"),
    *("KSTREAM-TOTABLE-", "KSTREAM-PROCESSOR-", "KSTREAM-BRANCH-", "KSTREAM-WINDOWED-", "KSTREAM-JOINTHIS-"),
    *("KTABLE-SOURCE-", "KTABLE-TOSTREAM-", "KTABLE-FILTER-", "KTABLE-MAPVALUES-", "KTABLE-MERGE-", "KTABLE-JOINTHIS-"),
    *("KTABLE-FK-JOIN-OUTPUT-", "COGROUPKSTREAM-MERGE-", "COGROUPKSTREAM-AGGREGATE-", "KTABLE-SUPPRESS-", "own-"),
)


def mutated(description: str, random: Random) -> str:
    """A description as another application, or a careless copy, could have it."""
    for _ in range(random.randint(1, 4)):
        names = sorted(set(re.findall(r"[\w-]+-\d{10}|[a-z]+(?:-[a-z]+)+", description)))
        lines = description.splitlines()
        match random.randrange(5):
            case 0 if names:  # another operation of the same shape
                name = random.choice(names)
                description = description.replace(name, random.choice(PREFIXES) + name[-10:])
            case 1 if names:  # a name of the application's own
                description = description.replace(random.choice(names), f"own{random.randrange(9)}")
            case 2:
                del lines[random.randrange(len(lines))]
                description = "\n".join(lines)
            case 3:
                lines.insert(random.randrange(len(lines)), random.choice(lines))
                description = "\n".join(lines)
            case _:
                stores = re.findall(r"stores: \[(.+)\]", description)
                description = description.replace("stores: []", f"stores: [{random.choice(stores or ['s'])}]", 1)
    return description


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
    assert missing(imported)["KTABLE-SOURCE-0000000002"] == "the fields of rates"
    assert "the topology reads nothing" in imported.refusal
    assert not imported.is_verified


def test_an_illegal_application_id_is_refused() -> None:
    with pytest.raises(Refused, match="the name 'my app' contains ' '"):
        import_application("my app", JOINED)


def test_processors_with_several_or_shared_stores_are_written_with_all_of_them() -> None:
    given = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-PROCESSOR-0000000002
    Source: KSTREAM-SOURCE-0000000001 (topics: [rules])
      --> KSTREAM-PROCESSOR-0000000003
    Processor: KSTREAM-PROCESSOR-0000000002 (stores: [counts, rules])
      --> KSTREAM-SINK-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-PROCESSOR-0000000003 (stores: [rules])
      --> none
      <-- KSTREAM-SOURCE-0000000001
    Sink: KSTREAM-SINK-0000000004 (topic: found)
      <-- KSTREAM-PROCESSOR-0000000002

"""
    imported = import_application("my-app", given)
    assert (imported.refusal, imported.is_verified) == ("", True)
    assert "from streamplan import Json, KeyValueStore, Pipeline, Processor, String, Topology" in imported.text
    counts = '"counts": KeyValueStore(String(), Json("TODO: the fields of the values in counts"))'
    rules = '"rules": KeyValueStore(String(), Json("TODO: the fields of the values in rules"))'
    assert f"stores={{{counts}, {rules}}}" in imported.text
    assert f"stores={{{rules}}}" in imported.text


def test_processors_without_a_store_are_written_with_what_they_forward() -> None:
    given = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-PROCESSOR-0000000001, KSTREAM-PROCESSVALUES-0000000003
    Processor: KSTREAM-PROCESSOR-0000000001 (stores: [])
      --> KSTREAM-SINK-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-PROCESSVALUES-0000000003 (stores: [])
      --> KSTREAM-PROCESSOR-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-PROCESSOR-0000000004 (stores: [])
      --> none
      <-- KSTREAM-PROCESSVALUES-0000000003
    Sink: KSTREAM-SINK-0000000002 (topic: words)
      <-- KSTREAM-PROCESSOR-0000000001

"""
    imported = import_application("my-app", given)
    assert (imported.refusal, imported.is_verified) == ("", True)
    fields = 'schema="TODO: the fields of the records that KSTREAM-PROCESSOR-0000000001 gives"'
    assert f".process(Processor, {fields})" in imported.text
    assert '.process_values(Processor, schema="TODO: ' in imported.text
    assert imported.text.count(".process(Processor)") == 1


def test_values_that_are_processed_with_a_store_are_written_with_its_serdes() -> None:
    given = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-PROCESSVALUES-0000000001
    Processor: KSTREAM-PROCESSVALUES-0000000001 (stores: [seen])
      --> KSTREAM-SINK-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000002 (topic: words)
      <-- KSTREAM-PROCESSVALUES-0000000001

"""
    imported = import_application("my-app", given)
    assert (imported.refusal, imported.is_verified) == ("", True)
    assert '.process_values(Processor, stores={"seen": KeyValueStore(String(), Json(' in imported.text
