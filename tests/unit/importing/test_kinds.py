"""Kinds of descriptions in public code: of all versions of Kafka Streams, with their operations, in pages and logs."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from streamplan.cli import main
from streamplan.errors import Refused
from streamplan.importing.application import ImportedApplication, import_application

from tests.support.described import described

WORD_COUNT = (
    "KSTREAM-SOURCE-0<lines> > KSTREAM-FLATMAPVALUES-1 > KSTREAM-KEY-SELECT-2 > KSTREAM-FILTER-5 >"
    " KSTREAM-SINK-4<Counts-repartition>"
    "| KSTREAM-SOURCE-6<Counts-repartition> > KSTREAM-AGGREGATE-3[Counts] > KTABLE-TOSTREAM-7 > KSTREAM-SINK-8<counts>"
)
"""As Kafka Streams before KAFKA-9098 describes it: with numbers in the names around a topic that has a name."""

SHORT = "KSTREAM-SOURCE-0<orders> > KSTREAM-FILTER-1 > KSTREAM-SINK-2<large-orders>"


def imported(text: str) -> ImportedApplication:
    return import_application("my-app", described(text))


def told(application: ImportedApplication) -> str:
    return "\n".join(f"{missing.node}: {missing.what}" for missing in application.missing)


# -- operations


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("KSTREAM-TRANSFORM-1", ".process(Processor, schema="),
        ("KSTREAM-PROCESSOR-1", ".process(Processor, schema="),
        ("KSTREAM-TRANSFORMVALUES-1", ".process_values(Processor, schema="),
        ("KSTREAM-PROCESSVALUES-1", ".process_values(Processor, schema="),
        ("KSTREAM-TRANSFORM-1[seen]", '.process(Processor, store="seen"'),
        ("KSTREAM-TRANSFORMVALUES-1[seen]", ".process_values(Processor, stores={"),
        ("KSTREAM-PROCESSVALUES-1[seen, names]", ".process_values(Processor, stores={"),
        ("mine[seen, names]", ".process(Processor, stores={"),
    ],
)
def test_a_processor_of_any_version_is_written_with_its_name(text: str, written: str) -> None:
    application = imported(f"KSTREAM-SOURCE-0<orders> > {text} > KSTREAM-FILTER-2 > KSTREAM-SINK-3<out>")
    assert application.is_verified, (application.refusal, application.differences)
    assert written in application.text
    assert "does not have" not in told(application)


def test_a_processor_that_the_application_named_has_no_number() -> None:
    """``processValues(…, Named.as("first"))``: the numbers of the stores leave none for ``first`` and ``second``."""
    application = imported(
        "KSTREAM-SOURCE-0<a> > first > both-this-windowed[KSTREAM-JOINTHIS-4-store] >"
        " both-this-join[KSTREAM-JOINOTHER-5-store] > both-merge > out<out>;"
        "KSTREAM-SOURCE-1<b> > second > both-other-windowed[KSTREAM-JOINOTHER-5-store] >"
        " both-other-join[KSTREAM-JOINTHIS-4-store] > both-merge"
    )
    assert application.is_verified, application.differences
    assert application.text.count(".process_values(Processor, schema=") == 2


def test_a_new_key_of_a_processor_is_grouped_behind_a_repartition_topic() -> None:
    application = imported(
        "KSTREAM-SOURCE-0<orders> > KSTREAM-TRANSFORM-1 > KSTREAM-FILTER-5 >"
        " KSTREAM-SINK-4<KSTREAM-AGGREGATE-STATE-STORE-2-repartition>"
        "| KSTREAM-SOURCE-6<KSTREAM-AGGREGATE-STATE-STORE-2-repartition> >"
        " KSTREAM-AGGREGATE-3[KSTREAM-AGGREGATE-STATE-STORE-2]"
    )
    assert application.is_verified, application.differences
    assert ".repartition(" not in application.text


@pytest.mark.parametrize("shared", ["KSTREAM-PROCESSOR-2", "KSTREAM-TRANSFORMVALUES-2", "second"])
def test_processors_of_different_versions_share_a_store(shared: str) -> None:
    application = imported(
        "KSTREAM-SOURCE-0<orders> > KSTREAM-TRANSFORM-1[seen] > KSTREAM-SINK-3<a>;"
        f"KSTREAM-SOURCE-0 > {shared}[seen] > KSTREAM-SINK-4<b>"
    )
    assert {missing.node for missing in application.missing} >= {"KSTREAM-TRANSFORM-0000000001"}
    assert application.text.count("(Processor, stores={") == 2


@pytest.mark.parametrize(
    "text",
    [
        "A<a> > P[s] > S<out>; B<b> > P",
        "A<a> > P[s] > S<out>; B<b> > P; C<c> > Q > P",
        "A<a> > P[s] > S<out>; B<b> > Q[s] > S",
        "A<a> > P > S<out>; B<b> > P; C<c> > P",
    ],
)
def test_streams_before_a_node_of_the_processor_api_are_merged(text: str) -> None:
    """``Topology.addProcessor`` and ``addSink`` take several parents."""
    application = imported(text)
    assert (application.refusal, application.is_verified, application.is_same_in_kafka) == ("", False, True)
    assert "it stands behind several nodes: merge() before it is one more node" in told(application)


def test_values_of_a_table_are_transformed() -> None:
    application = imported(
        "KSTREAM-SOURCE-1<users> > KTABLE-SOURCE-2 > KTABLE-TRANSFORMVALUES-3[cities] > KTABLE-TRANSFORMVALUES-4 >"
        " KTABLE-TOSTREAM-5 > KSTREAM-SINK-6<out>"
    )
    assert application.is_verified, application.differences
    assert application.text.count(".map_values(") == 2
    assert 'store="cities"' in application.text


@pytest.mark.parametrize("named", ["large > city", "city[cities] > large", "city > large"])
def test_an_operation_of_a_table_that_the_application_named_gives_a_table(named: str) -> None:
    application = imported(
        f"KSTREAM-SOURCE-0<orders> > KSTREAM-AGGREGATE-1[counts] > {named} > KTABLE-TOSTREAM-4 > KSTREAM-SINK-5<out>"
    )
    assert application.is_verified, application.differences
    assert "city: whether it is map_values() or filter() of the table: the application named it" in told(application)
    assert application.text.count("to_stream(") == 1


def test_a_named_operation_between_a_table_and_a_sink_is_its_stream() -> None:
    application = imported(
        "KSTREAM-SOURCE-0<orders> > KSTREAM-AGGREGATE-1[counts] > updates > large > KSTREAM-SINK-4<out>"
    )
    assert application.is_verified, application.differences
    assert '.to_stream(name="updates")' in application.text


def test_a_stream_that_the_application_made_a_table_by_name_is_a_table() -> None:
    application = imported("KSTREAM-SOURCE-0<orders> > latest > KTABLE-FILTER-3 > KTABLE-TOSTREAM-4 > out<out>")
    assert application.is_verified, application.differences
    assert '.to_table(name="latest")' in application.text


@pytest.mark.parametrize("rekeyed", ["KSTREAM-KEY-SELECT-1", "KSTREAM-TRANSFORM-1", "by-city"])
@pytest.mark.parametrize("store", ["", "[latest]"])
def test_a_stream_with_a_new_key_is_made_a_table(store: str, rekeyed: str) -> None:
    number = 3 if store else 4
    sink, key_filter, source = (f"{kind}-{number + place}" for place, kind in enumerate(("SINK", "FILTER", "SOURCE")))
    application = imported(
        f"KSTREAM-SOURCE-0<orders> > {rekeyed} > KSTREAM-{key_filter} >"
        f" KSTREAM-{sink}<KSTREAM-TOTABLE-2-repartition>"
        f"| KSTREAM-{source}<KSTREAM-TOTABLE-2-repartition> > KSTREAM-TOTABLE-2{store} > KTABLE-TOSTREAM-{number + 3}"
        f" > KSTREAM-SINK-{number + 4}<out>"
    )
    assert application.is_verified, (application.refusal, application.differences)
    assert ".repartition(" not in application.text


def test_branches_of_older_versions_are_filters() -> None:
    application = imported(
        "KSTREAM-SOURCE-0<orders> > KSTREAM-BRANCH-1 > KSTREAM-BRANCHCHILD-2 > KSTREAM-SINK-4<a>;"
        "KSTREAM-BRANCH-1 > KSTREAM-BRANCHCHILD-3 > KSTREAM-SINK-5<b>"
    )
    assert application.is_verified, application.differences
    assert "KSTREAM-BRANCHCHILD-0000000003: which records it takes: those of its predicate" in told(application)
    assert "does not have" not in told(application)


def test_a_left_join_without_a_store_of_waiting_records_is_told() -> None:
    """``JoinWindows.of()``."""
    application = imported(
        "KSTREAM-SOURCE-0<a> > KSTREAM-WINDOWED-2[KSTREAM-JOINTHIS-4-store] >"
        " KSTREAM-JOINTHIS-4[KSTREAM-OUTEROTHER-5-store] > KSTREAM-MERGE-6 > KSTREAM-SINK-7<out>;"
        "KSTREAM-SOURCE-1<b> > KSTREAM-WINDOWED-3[KSTREAM-OUTEROTHER-5-store] >"
        " KSTREAM-OUTEROTHER-5[KSTREAM-JOINTHIS-4-store] > KSTREAM-MERGE-6"
    )
    assert ".left_join(" in application.text
    assert "it has two stores, and left_join() has three: JoinWindows.of()" in told(application)
    assert not application.is_verified


def test_stores_of_a_join_with_names_of_their_own_are_told() -> None:
    application = imported(
        "KSTREAM-SOURCE-0<a> > KSTREAM-WINDOWED-2[mine] > KSTREAM-JOINTHIS-4[yours] > KSTREAM-MERGE-6;"
        "KSTREAM-SOURCE-1<b> > KSTREAM-WINDOWED-3[yours] > KSTREAM-JOINOTHER-5[mine] > KSTREAM-MERGE-6"
    )
    assert "its stores mine and yours have names of their own" in told(application)
    assert not application.is_verified


def test_a_repartition_topic_that_no_node_reads_is_told() -> None:
    application = imported("KSTREAM-SOURCE-0<orders> > KSTREAM-KEY-SELECT-1 > mine<by-country-repartition>")
    assert "whether the text is complete: no node reads by-country-repartition" in told(application)


def test_a_global_table_with_a_name_for_its_store_may_be_a_store_of_a_processor() -> None:
    text = described("KSTREAM-SOURCE-0<rates> > KTABLE-SOURCE-1[rates-store] | KSTREAM-SOURCE-2<orders> > out<out>")
    text = text.replace("Sub-topology: 0", "Sub-topology: 0 for global store (will not generate tasks)")
    application = import_application("my-app", text.replace("\n\n  Sub", "\n  Sub"))
    assert application.is_verified, application.differences
    assert "whether it is globalTable(): addGlobalStore() has the same nodes" in told(application)


# -- versions and pages


def test_the_numbers_of_older_versions_around_a_repartition_topic_do_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    application = imported(WORD_COUNT)
    assert application.is_verified, application.differences
    assert application.renumbered == ["Counts-repartition"]
    (tmp_path / "topology.txt").write_text(described(WORD_COUNT))
    arguments = ["--topology", str(tmp_path / "topology.txt"), "--output", str(tmp_path / "app.py")]
    assert main(["import", "--application-id", "my-app", *arguments]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "but for the numbers that an older version gave to nodes around Counts-repartition." in shown


def test_the_first_form_of_descriptions_is_read() -> None:
    """Of Kafka Streams 1.0: the arrows of a node stand in its line."""
    text = re.sub(r"\n +(?=-->|<--)", " ", described(WORD_COUNT))
    text = re.sub(r" \(topics: \[(.*)\]\)", r"(topics: \1)", text).replace(" (", "(")
    text = text.replace("Topologies:", "Sub-topologies:") + "Global Stores:\n  none\n"
    assert "Source: KSTREAM-SOURCE-0000000000(topics: lines) --> KSTREAM-FLATMAPVALUES-0000000001\n" in text
    application = import_application("my-app", text)
    assert application.is_verified, application.differences


@pytest.mark.parametrize(
    "form",
    [
        lambda text: f"<pre><code>{text}</code></pre>",
        lambda text: f"<pre>{html.escape(text)}</pre>",
        lambda text: f"<p>{html.escape(text)}".replace("\n", "<br>\n") + "</p>",
        lambda text: html.escape(text).replace("\n", "<br/>"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(": K", ":  K").replace("--> ", "-->   "),
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"| {line} |\n" for line in text.splitlines()),
        lambda text: f"# My topology\n\n```\n{text}```\n\nIt reads orders.\n",
        lambda text: f"10:11:12 INFO App - {text}10:11:13 INFO KafkaStreams - State transition to RUNNING\n",
    ],
)
def test_what_a_page_or_a_log_has_around_a_description_does_not_matter(form: object) -> None:
    assert callable(form)
    application = import_application("my-app", form(described(SHORT)))
    assert application.is_verified, application.differences
    assert application.differences == []


def test_a_line_between_those_of_a_description_is_refused() -> None:
    text = described(SHORT).replace("    Processor:", "10:11:13 INFO KafkaStreams - State transition\n    Processor:")
    with pytest.raises(Refused, match=r"line 5 .*expected a line of Topology.describe\(\), observed '10:11:13 INFO"):
        import_application("my-app", text)


def test_a_text_that_powershell_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "topology.txt").write_text(described(SHORT), encoding="utf-16")
    arguments = ["--topology", str(tmp_path / "topology.txt"), "--output", str(tmp_path / "app.py")]
    assert main(["import", "--application-id", "my-app", *arguments]) == 0
