"""A re-drive: dead letters are processed again, each once, however often it dies or is run.

What is made of a record and the mark of its dead letter are written in one transaction, with the transactional id
``<application.id>-redrive``. Opening it fences an earlier re-drive and ends its transaction. The marks are read after
that, and no transaction may be open in the dead-letter topic then: so whoever reads them sees all that there are.

The committed positions do not move, and the stream tasks keep their transactional ids and their generation. So an
aggregator that sleeps through a re-drive goes on where it was. Its transactions are fenced first all the same: one that
it left open would hide marks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamplan.checks.framework.cluster import Cluster, Record, read_records_at, records_of
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import fence
from streamplan.kafka.membership import GroupMember
from streamplan.kafka.topics import refuse_unfinished_repartition, resolve_pipeline
from streamplan.kafka.transactions import DEADLINE_SECONDS, transactional_producer
from streamplan.maintenance.redrive_plan import (
    BY_RESET,
    Choice,
    Judged,
    Letter,
    RedrivePlan,
    Verdict,
    plan_redrive,
    refusal,
    without_repeated,
)
from streamplan.maintenance.require_stopped import require_stopped
from streamplan.model.dead_letters import (
    OMITTED,
    REASON,
    LetterPlace,
    Origin,
    Redrive,
    dead_letter_digest,
    is_mark,
    mark_headers,
    own_headers,
    parse_mark,
    parse_origin,
    parse_subtopology,
    record_digest,
)
from streamplan.model.generation import Generation
from streamplan.model.pipeline import Pipeline
from streamplan.settings import Settings
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.redrive import Results, process_records
from streamplan.spark.sink.transaction import PRODUCER_CONFIGS, produce_records

TRANSACTION_LETTERS = 1_000
"""So many dead letters are processed in one transaction at most."""

_TRANSACTION_BYTES = 16 * 1024 * 1024

_STABLE_SECONDS = 70.0
"""For so long transactions in the dead-letter topic are waited for: longer than the time-out of one."""

_Report: TypeAlias = Callable[[str], None]


def observe_redrive(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    spark: SparkSession,
    choice: Choice,
    *,
    report: _Report = lambda line: None,
    runs: Sequence[str] = (),
) -> RedrivePlan:
    """Plan what a re-drive would do now. Changes nothing.

    Args:
        pipeline: The pipeline.
        brokers: The brokers.
        settings: The deployment's directories.
        spark: A session that computes what the declaration makes of the records.
        choice: The dead letters.
        report: Is told what is waited for.
        runs: Active runs of DAGs that work on the application.

    Raises:
        Refused: The application runs, a repartition is under way, or there is no such dead letter.
        BrokersUnavailable: The brokers did not answer.
    """
    pipeline = _resolve_stopped(pipeline, brokers, settings, report, runs)
    cluster = KafkaCluster(brokers)
    letters = read_letters(cluster, pipeline.topology.dead_letter_topic)
    return plan_redrive(pipeline, choice, list(_Judge(pipeline, cluster, spark).judge(choice.select(letters))))


def apply_redrive(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    spark: SparkSession,
    approved: RedrivePlan,
    *,
    by: str,
    run: str,
    report: _Report,
    runs: Sequence[str] = (),
) -> RedrivePlan:
    """Process again what was approved.

    While it works it is a member of the consumer group. So a reset or a repartition is refused meanwhile.

    Args:
        pipeline: The pipeline.
        brokers: The brokers.
        settings: The deployment's directories.
        spark: As for :func:`observe_redrive`.
        approved: The plan that a person approved.
        by: Who approved it. It stands in the marks.
        run: Names this run. It stands in the marks.
        report: Is told each step.
        runs: Active runs of DAGs that work on the application.

    Returns:
        What was done.

    Raises:
        Refused: More would be processed again than was approved, another re-drive has begun, or
            :func:`observe_redrive` refuses.
        BrokersUnavailable: The brokers did not answer.
    """
    pipeline = _resolve_stopped(pipeline, brokers, settings, report, runs)
    topology, cluster = pipeline.topology, KafkaCluster(brokers)
    sources = sorted({topic for each in topology.subtopologies for topic in pipeline.source_topics(each)})
    instance = Generation.of_this_process(None).instance
    with (
        GroupMember(brokers, topology.application_id, sources, instance) as member,
        transactional_producer(
            brokers, f"{topology.application_id}-redrive", transaction_timeout_ms=60_000, **PRODUCER_CONFIGS
        ) as producer,
    ):
        member.await_join(report)
        if others := member.others():
            raise Refused(
                f"the re-drive of {pipeline.name}",
                expected=f"no other member of consumer group {topology.application_id}",
                observed=", ".join(map(str, others)),
                remedy="It has begun just now: let it end. Nothing was changed.",
            )
        fence(brokers, topology.application_id, pipeline.tasks())
        _await_stable(cluster, topology.dead_letter_topic)
        letters = read_letters(cluster, topology.dead_letter_topic)
        judge = _Judge(pipeline, cluster, spark)
        judged = list(judge.judge(approved.choice.select(letters)))
        plan = plan_redrive(pipeline, approved.choice, judged)
        if more := plan.more_than(approved):
            raise Refused(
                f"the re-drive of {pipeline.name}",
                expected="no more to process again than was approved",
                observed="; ".join(more),
                remedy="The declaration or the dead letters are others than before: look at a new plan.",
            )
        done = 0
        for same in _in_transactions([each.letter for each in judged if each.verdict.is_done]):
            redrive = Redrive(by, datetime.now(UTC).isoformat(timespec="milliseconds"), run)
            _process_again(judge, producer, same, redrive)
            done += len(same)
            report(f"{done:,} of {plan.done:,} dead letters are processed again")
    report(f"{pipeline.name}: {plan.done:,} of {plan.chosen:,} chosen dead letters are re-driven")
    return plan


def read_letters(cluster: Cluster, topic: str) -> list[Letter]:
    """Read all dead letters of a topic that are committed, without their records.

    Args:
        cluster: The brokers.
        topic: The dead-letter topic.
    """
    letters: list[Letter] = []
    marks: dict[tuple[int | None, Origin | None], Redrive] = {}
    ranges = {number: (at.log_start, at.last_stable) for number, at in cluster.offsets(topic).items()}
    for batch in cluster.read(topic, ranges):
        for record in records_of(batch):
            letter = _letter_of(record)
            if is_mark(record.headers):
                marks[letter.record] = parse_mark(record.headers)
            else:
                letters.append(letter)
    return [replace(letter, redriven=marks.get(letter.record)) for letter in letters]


def _letter_of(record: Record) -> Letter:
    named = dict(record.headers)
    subtopology = parse_subtopology(record.headers)
    return Letter(
        LetterPlace(record.partition, record.offset),
        int(subtopology) if subtopology.isdigit() else None,
        parse_origin(record.headers),
        (named.get(REASON) or b"").decode("utf-8", "backslashreplace"),
        OMITTED not in named,
        len(record.key or b"") + len(record.value or b""),
    )


def _resolve_stopped(
    pipeline: Pipeline, brokers: Brokers, settings: Settings, report: _Report, runs: Sequence[str]
) -> Pipeline:
    pipeline = resolve_pipeline(pipeline, brokers)
    require_stopped(pipeline, brokers, settings, action="the re-drive", report=report, runs=runs)
    refuse_unfinished_repartition(brokers, pipeline)
    topic = pipeline.topology.dead_letter_topic
    if topic not in KafkaCluster(brokers).names():
        raise Refused(
            f"the re-drive of {pipeline.name}",
            expected=f"topic {topic}",
            observed="none",
            remedy=f"{pipeline.name}_deploy creates it.",
        )
    return pipeline


def _await_stable(cluster: Cluster, topic: str) -> None:
    """Wait until no transaction is open in a topic: behind the first record of one, nothing can be read."""
    deadline = time.monotonic() + _STABLE_SECONDS
    while open_in := [n for n, at in cluster.offsets(topic).items() if at.last_stable < at.high_watermark]:
        if time.monotonic() > deadline:
            raise Refused(
                f"the dead letters in {topic}",
                expected=f"no open transaction within {_STABLE_SECONDS:g} s",
                observed=f"one in partition {', '.join(map(str, open_in))}",
                remedy="The brokers abort it when it times out. Until then nobody can say which dead letters are open.",
            )
        time.sleep(0.2)


def _in_transactions(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    """Divide dead letters in their order into runs of one sub-topology that are not too large."""
    run: list[Letter] = []
    size = 0
    for letter in letters:
        too_much = len(run) == TRANSACTION_LETTERS or size + letter.size > _TRANSACTION_BYTES
        if run and (too_much or letter.subtopology != run[0].subtopology):
            yield run
            run, size = [], 0
        run.append(letter)
        size += letter.size
    if run:
        yield run


class _Judge:
    """Finds out what the declaration in force makes of the records of dead letters."""

    def __init__(self, pipeline: Pipeline, cluster: Cluster, spark: SparkSession) -> None:
        self.pipeline = pipeline
        self._cluster = cluster
        self._spark = spark
        self._schemas = resolve_schemas(spark, pipeline)
        self._subtopologies = {each.id: each for each in pipeline.topology.subtopologies}

    def judge(self, letters: Sequence[Letter]) -> Iterator[Judged]:
        """Yield for each dead letter what a re-drive does with it, in an order in which they can be processed."""
        letters, repeated = without_repeated(letters)
        yield from repeated
        possible = []
        for letter in letters:
            if why := refusal(letter, self.pipeline):
                yield Judged(letter, Verdict.REFUSED, why)
            else:
                possible.append(letter)
        for same in _in_transactions(possible):
            results = self.results(same)
            for letter in same:
                yield _judged(letter, results[letter.place])

    def results(self, letters: Sequence[Letter]) -> Mapping[LetterPlace, Results | str]:
        """Return by the place of each dead letter what its record becomes, or why it cannot be processed.

        Args:
            letters: Of one sub-topology, which :func:`refusal` does not refuse.
        """
        records = self._records(letters)
        found = process_records(
            self._spark,
            self.pipeline,
            self._subtopologies[letters[0].subtopology or 0],
            self._schemas,
            [(origin, record) for origin, record in records.items() if isinstance(record, Record)],
        )
        results: dict[LetterPlace, Results | str] = {}
        for letter in letters:
            record = records[_origin(letter)]
            results[letter.place] = record if isinstance(record, str) else found[_origin(letter)]
        return results

    def marks(
        self, letters: Sequence[Letter], redrive: Redrive
    ) -> Mapping[LetterPlace, list[tuple[str, str | bytes | None]]]:
        """Return the headers of the mark of each dead letter."""
        marks: dict[LetterPlace, list[tuple[str, str | bytes | None]]] = {}
        for place, written in self._written(letters).items():
            digest = dead_letter_digest(written.key, written.value, written.headers)
            marks[place] = mark_headers(written.headers, place, digest, redrive)
        return marks

    def _records(self, letters: Sequence[Letter]) -> Mapping[Origin, Record | str]:
        """Return the record of each dead letter, or why there is none."""
        originals: dict[Origin, Record] = {}
        origins = [_origin(letter) for letter in letters]
        for topic in {origin.topic for origin in origins}.intersection(self._cluster.names()):
            places = [(origin.partition, origin.offset) for origin in origins if origin.topic == topic]
            for found in read_records_at(self._cluster, topic, places):
                originals[Origin(topic, found.partition, found.offset)] = found
        written = self._written(letters)
        return {
            origin: _record(letter, written[letter.place], originals.get(origin))
            for origin, letter in zip(origins, letters, strict=True)
        }

    def _written(self, letters: Sequence[Letter]) -> Mapping[LetterPlace, Record]:
        """Return the dead letters as they lie in their topic."""
        topic = self.pipeline.topology.dead_letter_topic
        found = read_records_at(self._cluster, topic, [letter.place for letter in letters])
        return {LetterPlace(record.partition, record.offset): record for record in found}


def _origin(letter: Letter) -> Origin:
    assert letter.origin is not None, "a dead letter without an origin is refused before"
    return letter.origin


def _record(letter: Letter, written: Record, original: Record | None) -> Record | str:
    """Return the record that a dead letter is about, or why it cannot be processed again.

    Args:
        letter: The dead letter.
        written: The dead letter as it lies in its topic.
        original: What lies at its origin; None where that was deleted.
    """
    if original is not None:
        if record_digest(original.key, original.value) == dead_letter_digest(
            written.key, written.value, written.headers
        ):
            return original
        return f"another record lies at its origin now: {BY_RESET}"
    if not letter.is_whole:
        return "its record was deleted, and the dead letter has only a part of it"
    if letter.reason.startswith("the timestamp "):
        return "its record was deleted, and the dead letter has another timestamp"
    return written._replace(headers=own_headers(written.headers))


def _judged(letter: Letter, results: Results | str) -> Judged:
    if isinstance(results, str):
        return Judged(letter, Verdict.REFUSED, results)
    if results.outputs and results.reasons:
        said = f"one of its results would be rejected ({results.reasons[0]}): {BY_RESET}"
        return Judged(letter, Verdict.REFUSED, said)
    if results.reasons:
        return Judged(letter, Verdict.REJECTED, "; ".join(dict.fromkeys(results.reasons)))
    return Judged(letter, Verdict.PROCESSED if results.outputs else Verdict.LEFT_OUT)


def _process_again(judge: _Judge, producer: Producer, letters: Sequence[Letter], redrive: Redrive) -> None:
    """Write what the declaration makes of the records, and the mark of each, in one transaction."""
    results, marks = judge.results(letters), judge.marks(letters, redrive)
    topic = judge.pipeline.topology.dead_letter_topic
    producer.begin_transaction()
    for letter in letters:
        found = results[letter.place]
        assert isinstance(found, Results), f"{letter.place} could be processed a moment ago"
        assert not found.reasons, f"{letter.place} was accepted a moment ago"
        for made in found.outputs:
            produce_records(
                producer,
                made.output,
                _origin(letter).partition,
                [made.key],
                [made.value],
                [made.timestamp],
                [made.headers or None],
            )
        producer.produce(topic, partition=letter.place.partition, headers=marks[letter.place])
    producer.commit_transaction(DEADLINE_SECONDS)
