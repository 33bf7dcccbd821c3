"""The declaration of a Python class without a store: names, what follows from it, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.kstream import KStream
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import STREAM_TIME, Processor, ProcessorContext, Record
from streamplan.model.stages import stages_of
from streamplan.model.topology import Topology
from streamplan.model.unused import unused
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long


@dataclass
class Word:
    word: str


class Words(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> Iterator[Word]:
        yield Word("")


class Silent(Processor):
    def process(self, record: Record) -> None: ...


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def lines(topology: Topology) -> KStream:
    return topology.stream("lines", value=Json("line string, amount bigint"), key="customer")


def pipeline_of(topology: Topology) -> Pipeline:
    return Pipeline("app", topology, "Words.", dict.fromkeys((*topology.source_topics, *topology.sink_topics), 2))


def test_the_fields_are_those_of_the_type_hint_or_of_the_schema(topology: Topology, lines: KStream) -> None:
    assert lines.process(Words)._fields == ("word",)
    assert lines.process(Words, schema="n bigint")._fields == ("n",)
    assert topology.faults == ()


def test_it_has_no_state_and_no_changelog(topology: Topology, lines: KStream) -> None:
    lines.process(Words).to("words")
    pipeline = pipeline_of(topology)
    assert [spec.name for spec in pipeline.topics() if "changelog" in spec.name] == []
    assert stages_of(topology.subtopologies[0]) == ()
    assert "Processor: KSTREAM-PROCESSOR-0000000001 (stores: [])\n" in topology.describe()


def test_a_grouping_behind_it_repartitions_and_one_behind_process_values_does_not(
    topology: Topology, lines: KStream
) -> None:
    lines.process(Words).group_by_key().count(store="anew")
    lines.process_values(Words).group_by_key().count(store="kept")
    assert topology.faults == ()
    described = topology.describe()
    assert "anew-repartition" in described
    assert "kept-repartition" not in described
    assert "KSTREAM-PROCESSVALUES-" in described


def test_what_it_forwards_has_keys_of_the_serde_that_is_declared(topology: Topology, lines: KStream) -> None:
    lines.process(Words, key_serde=Long()).to("words")
    pipeline = pipeline_of(topology)
    assert pipeline.key_types["words"] == Long().key_type


def test_each_field_and_the_key_may_come_from_every_field(topology: Topology, lines: KStream) -> None:
    lines.process(Words).to("words")
    every = {Column("lines", name) for name in ("key", "line", "amount")}
    assert column_lineage(topology)["words"] == {"key": every, "word": every}


def test_a_class_that_forwards_nothing_may_be_the_end(topology: Topology, lines: KStream) -> None:
    lines.process(Silent, name="silent")
    lines.process(Words, name="words")
    (warning,) = unused(pipeline_of(topology))
    assert "the result of process leads nowhere" in warning.message


def test_a_punctuator_needs_a_store(topology: Topology, lines: KStream) -> None:
    class Ticking(Words):
        def init(self, context: ProcessorContext) -> None:
            context.schedule("1 second", STREAM_TIME, self.tick)

        def tick(self, now: datetime) -> None: ...

    lines.process(Ticking)
    (fault,) = topology.faults
    assert "Ticking.init schedules a punctuator, and the processor has no store" in fault.message
