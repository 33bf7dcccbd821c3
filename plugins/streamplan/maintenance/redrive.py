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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import fence
from streamplan.kafka.membership import GroupMember
from streamplan.kafka.topics import refuse_unfinished_repartition, resolve_pipeline
from streamplan.kafka.transactions import DEADLINE_SECONDS, transactional_producer
from streamplan.kafka_port import Cluster
from streamplan.maintenance.redrive_plan import (
    Choice,
    Letter,
    RedrivePlan,
    plan_redrive,
)
from streamplan.maintenance.redriven_records import Judge, in_transactions, judged, origin_of, read_letters
from streamplan.maintenance.require_stopped import require_stopped
from streamplan.model.dead_letters import (
    Redrive,
)
from streamplan.model.generation import Generation
from streamplan.model.pipeline import Pipeline
from streamplan.settings import Settings
from streamplan.spark.redrive import Results
from streamplan.spark.sink.transaction import PRODUCER_CONFIGS, produce_records

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
    return plan_redrive(pipeline, choice, list(Judge(pipeline, cluster, spark).judge(choice.select(letters))))


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
                remedy="Another member has just joined the group. Wait until it has ended. Nothing was changed.",
            )
        fence(brokers, topology.application_id, pipeline.tasks())
        _await_stable(cluster, topology.dead_letter_topic)
        letters = read_letters(cluster, topology.dead_letter_topic)
        judge = Judge(pipeline, cluster, spark)
        verdicts = list(judge.judge(approved.choice.select(letters)))
        plan = plan_redrive(pipeline, approved.choice, verdicts)
        if more := plan.more_than(approved):
            raise Refused(
                f"the re-drive of {pipeline.name}",
                expected="no more to process again than was approved",
                observed="; ".join(more),
                remedy="The declaration or the dead letters have changed since the approval: approve a new plan.",
            )
        done = 0
        for same in in_transactions([each.letter for each in verdicts if each.verdict.is_done]):
            redrive = Redrive(by, datetime.now(UTC).isoformat(timespec="milliseconds"), run)
            done += _process_again(judge, producer, same, redrive)
            report(f"{done:,} of {plan.done:,} dead letters are processed again")
    report(f"{pipeline.name}: {done:,} of {plan.chosen:,} chosen dead letters are re-driven")
    return plan


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


def _process_again(judge: Judge, producer: Producer, letters: Sequence[Letter], redrive: Redrive) -> int:
    """Write what the declaration makes of the records, and the mark of each, in one transaction.

    Returns:
        The number of dead letters that are dealt with. A function of the declaration that is not deterministic may
        reject a record now; its dead letter stays open.
    """
    results, marks = judge.results(letters), judge.marks(letters, redrive)
    accepted = [
        (letter, found)
        for letter in letters
        if isinstance(found := results[letter.place], Results) and judged(letter, found).verdict.is_done
    ]
    topic = judge.pipeline.topology.dead_letter_topic
    producer.begin_transaction()
    for letter, found in accepted:
        for made in found.outputs:
            produce_records(
                producer,
                made.output,
                origin_of(letter).partition,
                [made.key],
                [made.value],
                [made.timestamp],
                [made.headers or None],
            )
        producer.produce(topic, partition=letter.place.partition, headers=marks[letter.place])
    producer.commit_transaction(DEADLINE_SECONDS)
    return len(accepted)
