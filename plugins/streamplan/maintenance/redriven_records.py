"""Dead letters and the records that they are about, and what the declaration in force makes of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from streamplan.kafka.brokers import Brokers
from streamplan.kafka_port import Cluster, read_records_at, records_of
from streamplan.kafka_types import UNREADABLE_HEADERS, Record
from streamplan.maintenance.redrive_plan import BY_RESET, Judged, Letter, Verdict, refusal, without_repeated
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
from streamplan.model.pipeline import Pipeline
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.redrive import Results, process_records

TRANSACTION_LETTERS = 1_000
"""At most this many dead letters are processed in one transaction."""

_TRANSACTION_BYTES = 16 * 1024 * 1024


def read_letters(cluster: Cluster, topic: str) -> list[Letter]:
    """Read all dead letters of a topic that are committed, without their records.

    Args:
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


def in_transactions(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
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


class Judge:
    """Finds out what the declaration in force makes of the records of dead letters."""

    def __init__(self, pipeline: Pipeline, cluster: Cluster, spark: SparkSession, brokers: Brokers) -> None:
        self.pipeline = pipeline
        self._cluster = cluster
        self._spark = spark
        self._brokers = brokers
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
        for same in in_transactions(possible):
            results = self.results(same, acts=False)
            for letter in same:
                yield judged(letter, results[letter.place])

    def results(self, letters: Sequence[Letter], *, acts: bool) -> Mapping[LetterPlace, Results | str]:
        """Return by the place of each dead letter what its record becomes, or why it cannot be processed.

        Args:
            letters: Of one sub-topology, which :func:`refusal` does not refuse.
            acts: Whether the functions of ``foreach`` and ``peek`` are called.
        """
        records = self._records(letters)
        found = process_records(
            self._spark,
            self.pipeline,
            self._subtopologies[letters[0].subtopology or 0],
            self._schemas,
            [(origin, record) for origin, record in records.items() if isinstance(record, Record)],
            acts=acts,
            brokers=self._brokers,
        )
        results: dict[LetterPlace, Results | str] = {}
        for letter in letters:
            record = records[origin_of(letter)]
            results[letter.place] = record if isinstance(record, str) else found[origin_of(letter)]
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
        origins = [origin_of(letter) for letter in letters]
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


def origin_of(letter: Letter) -> Origin:
    """Return where the record of a dead letter lies that :func:`refusal` does not refuse."""
    assert letter.origin is not None, "a dead letter without an origin is refused before"
    return letter.origin


def _record(letter: Letter, written: Record, original: Record | None) -> Record | str:
    """Return the record that a dead letter is about, or why it cannot be processed again.

    Args:
        written: The dead letter as it lies in its topic.
        original: What lies at its origin; None where that was deleted.
    """
    if original is not None:
        if record_digest(original.key, original.value) == dead_letter_digest(
            written.key, written.value, written.headers
        ):
            if original.headers != UNREADABLE_HEADERS:
                return original
            if letter.is_whole:  # Spark has read the headers and has written them to the dead letter
                return original._replace(headers=own_headers(written.headers))
            return "the client cannot read its headers, and the dead letter has only a part of it"
        return f"another record is at its origin now: {BY_RESET}"
    if not letter.is_whole:
        return "its record was deleted, and the dead letter has only a part of it"
    if letter.reason.startswith("the timestamp "):
        return "its record was deleted, and the dead letter has another timestamp"
    return written._replace(headers=own_headers(written.headers))


def judged(letter: Letter, results: Results | str) -> Judged:
    """Return what is done with a dead letter, of whose record the declaration made this."""
    if isinstance(results, str):
        return Judged(letter, Verdict.REFUSED, results)
    if results.outputs and results.reasons:
        said = f"one of its results would be rejected ({results.reasons[0]}): {BY_RESET}"
        return Judged(letter, Verdict.REFUSED, said)
    if results.reasons:
        return Judged(letter, Verdict.REJECTED, "; ".join(dict.fromkeys(results.reasons)))
    return Judged(letter, Verdict.PROCESSED if results.outputs else Verdict.LEFT_OUT)
