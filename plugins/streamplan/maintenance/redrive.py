"""A re-drive: dead letters are processed again, each once, however often it dies or is run.

What is made of a record and the mark of its dead letter are written in one transaction, with the transactional id
``<application.id>-redrive``. Opening it fences an earlier re-drive and ends its transaction. The marks are read after
that, and no transaction may be open in the dead-letter topic then: so whoever reads them sees all that there are.

The committed positions do not move, and the stream tasks keep their transactional ids and their generation. So an
aggregator that sleeps through a re-drive goes on where it was. Its transactions are fenced first all the same: one that
it left open would hide marks. Positions in a topic that linked sub-topologies do not read back name no checkpoint any
more, see :func:`_positions_without_checkpoint`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

from streamplan.errors import Refused
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import fence
from streamplan.kafka.membership import GroupMember
from streamplan.kafka.topics import refuse_unfinished_repartition, resolve_pipeline
from streamplan.kafka.transactions import DEADLINE_SECONDS, send_positions, transactional_producer
from streamplan.kafka_port import Cluster
from streamplan.maintenance.operation import Operation
from streamplan.maintenance.redrive_plan import (
    REDRIVE_ALONE,
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
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.linking import links_of
from streamplan.model.pipeline import Pipeline
from streamplan.spark.redrive import Results
from streamplan.spark.session import LateSession, started
from streamplan.spark.sink.transaction import PRODUCER_CONFIGS, produce_records

_STABLE_SECONDS = 70.0
"""For so long transactions in the dead-letter topic are waited for: longer than the time-out of one."""


@dataclass(frozen=True, kw_only=True)
class Redriver(Operation):
    """Processes dead letters again.

    Attributes:
        spark: A session that computes what the declaration makes of the records. A function that starts one is called
            when the application was found stopped.
        choice: The dead letters.
        by: Who approved the plan. It stands in the marks.
        run: Names this run. It stands in the marks.
        looks_only: Whether the plan is only shown. Then it is made while the application runs, too.
    """

    spark: LateSession
    choice: Choice
    by: str = ""
    run: str = ""
    looks_only: bool = False

    alone = REDRIVE_ALONE

    def observe(self) -> RedrivePlan:
        """Plan what a re-drive would do now."""
        pipeline = self._resolved(stopped=not self.looks_only)
        cluster = KafkaCluster(self.brokers)
        letters = read_letters(cluster, pipeline.topology.dead_letter_topic)
        verdicts = Judge(pipeline, cluster, started(self.spark), self.brokers).judge(self.choice.select(letters))
        return plan_redrive(pipeline, self.choice, list(verdicts))

    def apply(self, approved: Mapping[str, Any]) -> RedrivePlan:
        """Process again what was approved. The choice is that of the approved plan.

        While it works it is a member of the consumer group. So a reset or a repartition is refused meanwhile.
        """
        pipeline, chosen = self._resolved(stopped=True), RedrivePlan.read(approved)
        topology, cluster = pipeline.topology, KafkaCluster(self.brokers)
        sources = sorted({topic for each in topology.subtopologies for topic in pipeline.source_topics(each)})
        instance = Generation.of_this_process(None).instance
        with (
            GroupMember(self.brokers, topology.application_id, sources, instance) as member,
            transactional_producer(
                self.brokers, f"{topology.application_id}-redrive", transaction_timeout_ms=60_000, **PRODUCER_CONFIGS
            ) as producer,
            closing(self.brokers.consumer(topology.application_id)) as consumer,
        ):
            member.await_join(self.report)
            if others := member.others():
                raise Refused(
                    f"the re-drive of {pipeline.name}",
                    expected=f"no other member of consumer group {topology.application_id}",
                    observed=", ".join(map(str, others)),
                    remedy="Another member has just joined the group. Wait until it has ended. Nothing was changed.",
                )
            fence(self.brokers, topology.application_id, pipeline.tasks())
            _await_stable(cluster, topology.dead_letter_topic)
            letters = read_letters(cluster, topology.dead_letter_topic)
            judge = Judge(pipeline, cluster, started(self.spark), self.brokers)
            verdicts = list(judge.judge(chosen.choice.select(letters)))
            plan = plan_redrive(pipeline, chosen.choice, verdicts)
            if more := plan.more_than(chosen):
                raise Refused(
                    f"the re-drive of {pipeline.name}",
                    expected="no more to process again than was approved",
                    observed="; ".join(more),
                    remedy="The declaration or the dead letters have changed since the approval: approve a new plan.",
                )
            unread = _positions_without_checkpoint(pipeline, cluster)

            def commit_positions() -> None:
                if unread:
                    send_positions(producer, unread, consumer.consumer_group_metadata())

            done = 0
            for same in in_transactions([each.letter for each in verdicts if each.verdict.is_done]):
                redrive = Redrive(self.by, datetime.now(UTC).isoformat(timespec="milliseconds"), self.run)
                done += _process_again(judge, producer, same, redrive, commit_positions)
                self.report(f"{done:,} of {plan.done:,} dead letters are processed again")
        self.report(f"{pipeline.name}: {done:,} of {plan.chosen:,} chosen dead letters are re-driven")
        return plan

    def _resolved(self, *, stopped: bool) -> Pipeline:
        """Return the resolved pipeline.

        Args:
            stopped: Whether the application must not run.

        Raises:
            Refused: The application runs, or there is nothing to process again.
        """
        pipeline = resolve_pipeline(self.pipeline, self.brokers)
        if stopped:
            require_stopped(
                pipeline,
                self.brokers,
                self.settings,
                action="the re-drive",
                report=self.report,
                runs=self.active_runs(),
            )
        refuse_unfinished_repartition(self.brokers, pipeline)
        topic = pipeline.topology.dead_letter_topic
        if topic not in KafkaCluster(self.brokers).names():
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


def _positions_without_checkpoint(pipeline: Pipeline, cluster: KafkaCluster) -> list[confluent_kafka.TopicPartition]:
    """Return the positions of sub-topologies that can be linked, in the topics that these do not read back then.

    They name no checkpoint. So the next start restores the state, and reads what a re-drive has written there.
    """
    topics = {topic for link in links_of(pipeline.topology) for topic in pipeline.source_topics(link.reader)}
    committed = cluster.committed_positions(pipeline.topology.application_id)
    parsed = {place: (at.offset, PositionMetadata.parse(at.metadata)) for place, at in committed.items()}
    return [
        confluent_kafka.TopicPartition(*place, offset, replace(metadata, checkpoint="", batch=None).text)
        for place, (offset, metadata) in sorted(parsed.items())
        if place[0] in topics and metadata is not None
    ]


def _process_again(
    judge: Judge,
    producer: Producer,
    letters: Sequence[Letter],
    redrive: Redrive,
    commit_positions: Callable[[], None],
) -> int:
    """Write what the declaration makes of the records, and the mark of each, in one transaction.

    Args:
        judge: Knows what the declaration makes of them.
        redrive: Stands in the marks.
        commit_positions: Adds positions to the transaction.

    Returns:
        The number of dead letters that are dealt with. A function of the declaration that is not deterministic may
        reject a record now; its dead letter stays open.
    """
    results, marks = judge.results(letters, acts=True), judge.marks(letters, redrive)
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
    commit_positions()
    producer.commit_transaction(DEADLINE_SECONDS)
    return len(accepted)
