"""A repartition: observed, refused where it would lose something, and applied step by step.

Each step commits an offset to the ledger (``Pipeline.repartition_group``) when it is complete, and is done again
where there is none. So the next run completes what a run that died has begun. The dead-letter topic is the gate: it is
deleted first and created last, and an aggregator does not start without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamplan.errors import Refused, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka import copying
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import delete_group, fence, set_positions
from streamplan.kafka.topics import apply_specs, delete_records, delete_topics, observe_topics, resolve_pipeline
from streamplan.kafka_types import Record
from streamplan.maintenance.operation import Operation
from streamplan.maintenance.repartition_plan import (
    MOVED_ALONE,
    RepartitionPlan,
    TopicMove,
    refuse_other_counts,
    require_declared,
)
from streamplan.maintenance.require_movable import require_movable
from streamplan.maintenance.require_stopped import WATCHED_SECONDS, require_stopped
from streamplan.model.committed_positions import latest_generation
from streamplan.model.diagnostics import name_fault
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.processor_topology import TaskId
from streamplan.model.topics import TopicRole, TopicSpec, temporary_topic
from streamplan.reports.results import state_files
from streamplan.reports.sink_offsets import record_moved_sources
from streamplan.spark.state import checkpoint_files as checkpoints

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Repartitioner(Operation):
    """Repartitions a pipeline whose declaration asks for it by ``repartition_from``.

    Attributes:
        watched_seconds: For how long the topics that others write are watched before they count as unchanged.
    """

    watched_seconds: float = WATCHED_SECONDS

    alone = MOVED_ALONE

    def observe(self) -> RepartitionPlan:
        """Plan what is to be done."""
        pipeline = self.pipeline
        require_declared(pipeline)
        if not pipeline.is_resolved:
            return self._resolved().observe()
        moved = pipeline.repartition_from
        require_stopped(
            pipeline,
            self.brokers,
            self.settings,
            action="more partitions",
            report=self.report,
            runs=self.active_runs(),
            jobs=("aggregator", "producer"),
            unchanged=[*moved, *moved.values()],
            watched_seconds=self.watched_seconds,
        )
        specs = pipeline.topics()
        temporary = [temporary_topic(spec) for spec in pipeline.internal_topics()]
        for spec in temporary:
            if fault := name_fault(spec.name):
                raise Refused(f"the topic that holds the records of {spec.name} during the move: {fault}")
        names = [*(spec.name for spec in (*specs, *temporary)), *moved.values()]
        counts = {name: topic.partitions for name, topic in observe_topics(self.brokers, names).items()}
        refuse_other_counts(pipeline, counts)
        cluster, ledger = self._cluster(), self._ledger()
        begun = self._has_destroyed(ledger)
        if not ledger and self._has_moved(counts, cluster):
            left_over = tuple(spec.name for spec in temporary if spec.name in counts)
            return RepartitionPlan(pipeline.name, self._id, (), (), begun=False, done=True, left_over=left_over)
        if not begun:
            require_movable(pipeline, cluster, counts, copied=ledger)
        return RepartitionPlan(
            pipeline=pipeline.name,
            application_id=self._id,
            sources=tuple(
                TopicMove(old, new, counts[old], pipeline.partition_counts[new], _size(cluster, old))
                for new, old in moved.items()
            ),
            internal=tuple(
                TopicMove(
                    spec.name,
                    spec.name,
                    counts.get(spec.name, 0),
                    spec.partitions,
                    _size(cluster, spec.name) if spec.name in counts else 0,
                )
                for spec in self._to_recreate(counts, ledger)
            ),
            begun=begun,
            done=False,
        )

    def _resolved(self) -> Repartitioner:
        """The same with the partition counts of external topics."""
        return replace(self, pipeline=resolve_pipeline(self.pipeline, self.brokers))

    def apply(self, approved: Mapping[str, Any]) -> RepartitionPlan:
        """Do what was approved."""
        if not self.pipeline.is_resolved:
            return self._resolved().apply(approved)
        plan = self.observe()
        if plan.done:
            delete_topics(self.brokers, plan.left_over)
            self.report(plan.text)
            return plan
        plan.refuse_other(approved)
        specs = {spec.name: spec for spec in self.pipeline.internal_topics()}
        recreated = [specs[move.topic] for move in plan.internal]
        self._fence(plan)
        for move in plan.sources:
            self._copy_source(move)
        if not plan.begun:
            for spec in recreated:
                self._fill_temporary_topic(spec)
        gate = self.pipeline.topology.dead_letter_topic
        if gate not in self._ledger():  # otherwise all is done, and the application may have run since
            delete_topics(self.brokers, [gate])
            for spec in recreated:
                if spec.name != gate:
                    self._recreate(spec)
            checkpoints.delete(self.settings.checkpoints, self._id)
            for path in state_files(self.settings.reports, self.pipeline.name):
                path.unlink(missing_ok=True)
            paths = ReportPaths(self.settings.reports, self.pipeline.name)
            record_moved_sources(paths.sink_offsets, self.pipeline, self._cluster())
            self.report("the checkpoints are deleted, and what the checks kept of the old topics")
            self._set_positions(plan)
            self._recreate(specs[gate])
        # The ledger goes first: without it the repartition is over, and temporary topics can only be deleted.
        delete_group(self.brokers, self.pipeline.repartition_group)
        delete_topics(self.brokers, [temporary_topic(spec).name for spec in specs.values()])
        left = ", ".join(move.topic for move in plan.sources)
        self.report(f"{self.pipeline.name} has moved. {left} is left in place: delete it when nobody reads it any more")
        return plan

    @property
    def _id(self) -> str:
        return self.pipeline.topology.application_id

    def _cluster(self) -> KafkaCluster:
        """Open a new cluster: one asks for partition counts only once, and they change here."""
        return KafkaCluster(self.brokers)

    def _ledger(self) -> Mapping[str, Mapping[int, int]]:
        return self._cluster().committed_offsets(self.pipeline.repartition_group)

    def _mark_complete(self, topic: str) -> Mapping[int, int]:
        """Commit to the ledger that a topic is complete up to its ends."""
        ends = self._ends(topic)
        set_positions(
            self.brokers,
            self.pipeline.repartition_group,
            {(topic, partition): end for partition, end in ends.items()},
        )
        return ends

    def _ends(self, topic: str) -> Mapping[int, int]:
        """Return the ends of a topic once no transaction is open in it.

        The brokers confirm a transaction before they have ended it in each partition. Until then its marker may be
        missing there, and whoever reads committed records finds none of the transaction.

        Raises:
            StreamplanError: A transaction stays open.
        """
        deadline = time.monotonic() + copying.TRANSACTION_SECONDS
        while True:
            found = self._cluster().offsets(topic)
            open_in = [number for number, offsets in found.items() if offsets.last_stable != offsets.high_watermark]
            if not open_in:
                return {number: offsets.high_watermark for number, offsets in found.items()}
            if time.monotonic() > deadline:
                raise StreamplanError(
                    topic,
                    expected=f"no open transaction {copying.TRANSACTION_SECONDS:.0f} s after all was written",
                    observed=f"one in partitions {', '.join(map(str, open_in))}",
                    remedy="Run this again: it goes on where it was.",
                )
            time.sleep(_POLL_SECONDS)

    def _has_destroyed(self, ledger: Mapping[str, object]) -> bool:
        """Tell whether every copy is complete, so that topics may have been deleted."""
        gate = self.pipeline.topology.dead_letter_topic
        return any(
            temporary_topic(spec).name in ledger for spec in self.pipeline.internal_topics() if spec.name == gate
        )

    def _to_recreate(self, counts: Mapping[str, int], ledger: Mapping[str, object]) -> list[TopicSpec]:
        """List the internal topics that need another count, and last of all the gate."""
        gate = self.pipeline.topology.dead_letter_topic
        recreated = [
            spec
            for spec in self.pipeline.internal_topics()
            if spec.name == gate or counts.get(spec.name) != spec.partitions or temporary_topic(spec).name in ledger
        ]
        return sorted(recreated, key=lambda spec: spec.name == gate)

    def _has_moved(self, counts: Mapping[str, int], cluster: KafkaCluster) -> bool:
        fits = all(counts.get(spec.name) == spec.partitions for spec in self.pipeline.topics())
        return fits and all(cluster.positions(self._id, new) for new in self.pipeline.repartition_from)

    def _fence(self, plan: RepartitionPlan) -> None:
        counts = [*self.pipeline.partition_counts.values()]
        counts += [move.partitions_before for move in (*plan.sources, *plan.internal)]
        groups = self.pipeline.topology.subtopologies
        tasks = [TaskId(group.id, partition) for group in groups for partition in range(max(counts))]
        fence(self.brokers, self._id, tasks)

    def _copy_source(self, move: TopicMove) -> None:
        if move.to in self._ledger():
            return
        spec = next(spec for spec in self.pipeline.topics() if spec.name == move.to)
        apply_specs(self.brokers, self.pipeline.name, [spec])
        copying.copy_topic(
            self.brokers,
            move.topic,
            move.to,
            move.partitions,
            group=self.pipeline.repartition_group,
            transactional_id=f"{self.pipeline.repartition_group}-copy",
            report=self.report,
        )
        if spec.configs.get("cleanup.policy") == "compact":  # records may go at any time, here as there
            self._mark_complete(move.to)
            return
        cluster = self._cluster()
        expected = copying.count_by_partition(cluster, move.topic, move.partitions)
        observed = copying.count_by_partition(cluster, move.to, None)
        if expected != observed:
            raise Refused(
                f"the copy of {move.topic} in {move.to}",
                expected=f"records by partition {expected}",
                observed=f"{observed}",
                remedy=f"Someone else has written to {move.to}, or {move.topic} has lost records. Nothing of the "
                f"application was changed: delete {move.to} and the group {self.pipeline.repartition_group}, stop all "
                "producers, and run this again.",
            )
        self._mark_complete(move.to)
        self.report(f"{move.topic} to {move.to}: complete, {sum(observed.values()):,} records")

    def _fill_temporary_topic(self, spec: TopicSpec) -> None:
        """Recreate the temporary topic of an internal topic and copy the records there: a partial copy is unusable."""
        # Every record that fitted into the topic must fit into the temporary topic, and fit back again.
        max_bytes = self._cluster().topics([spec.name])[spec.name].configs["max.message.bytes"]
        temporary = temporary_topic(spec, **{"max.message.bytes": max_bytes})
        if temporary.name in self._ledger():
            return
        delete_topics(self.brokers, [temporary.name])
        apply_specs(self.brokers, self.pipeline.name, [temporary])
        written = copying.write_all(self.brokers, temporary.name, self._rows(spec), transactional_id=self._writer(spec))
        self._mark_complete(temporary.name)
        self.report(f"{spec.name}: {written:,} records are held in {temporary.name}")

    def _rows(self, spec: TopicSpec) -> Iterator[copying.PlacedRecord]:
        cluster = self._cluster()
        if spec.role is TopicRole.CHANGELOG:
            yield from copying.last_values(cluster, spec)
        elif spec.role is TopicRole.DEAD_LETTER:
            moved = {old: new for new, old in self.pipeline.repartition_from.items()}
            yield from copying.relocated_dead_letters(cluster, spec.name, moved, spec.partitions)
        elif all(offsets.log_start == 0 for offsets in cluster.offsets(spec.name).values()):
            # All records are processed already. But Spark recounts some totals from this topic. A topic of which a
            # part was purged stays empty: it must not look complete.
            for record in copying.all_records(cluster, spec.name):
                yield copying.PlacedRecord(copying.new_partition(record.key, record.partition, spec.partitions), record)

    def _recreate(self, spec: TopicSpec) -> None:
        """Delete an internal topic, create it with the new count, and fill it from its temporary topic."""
        if spec.name in self._ledger():
            return
        delete_topics(self.brokers, [spec.name])
        temporary = self._cluster().topics([temporary_topic(spec).name])[temporary_topic(spec).name]
        configs = {**spec.configs, "max.message.bytes": temporary.configs["max.message.bytes"]}
        apply_specs(self.brokers, self.pipeline.name, [replace(spec, configs=configs)])
        rows = (
            copying.PlacedRecord(record.partition, record)
            for record in copying.all_records(self._cluster(), temporary_topic(spec).name)
        )
        gate = spec.role is TopicRole.DEAD_LETTER
        written = copying.write_all(
            self.brokers, spec.name, rows, transactional_id=self._writer(spec), in_one_transaction=gate
        )
        if spec.role is TopicRole.REPARTITION and not written:
            self._begin_after_purge(spec)
        self._mark_complete(spec.name)
        self.report(f"{spec.name}: made again with {spec.partitions} partitions and {written:,} records")

    def _begin_after_purge(self, spec: TopicSpec) -> None:
        """Let an empty repartition topic begin behind offset 0, so that it looks purged, as its predecessor was.

        An empty topic that begins at offset 0 has lost every record, as far as the check of totals can see.
        """
        none = Record(0, 0, 0, None, None)
        rows = [copying.PlacedRecord(partition, none) for partition in range(spec.partitions)]
        copying.write_all(self.brokers, spec.name, rows, transactional_id=self._writer(spec))
        ends = {number: offsets.high_watermark for number, offsets in self._cluster().offsets(spec.name).items()}
        delete_records(self.brokers, spec.name, ends)

    def _set_positions(self, plan: RepartitionPlan) -> None:
        """Set the application's positions to the ends of what was copied: all of it is processed."""
        ledger, cluster = self._ledger(), self._cluster()
        roles = {spec.name: spec.role for spec in self.pipeline.internal_topics()}
        topics = [move.to for move in plan.sources]
        if all(cluster.positions(self._id, topic) for topic in topics):
            return  # all were set in one commit, and may have moved since
        topics += [move.topic for move in plan.internal if roles[move.topic] is TopicRole.REPARTITION]
        positions = {
            (topic, partition): ledger.get(topic, {}).get(partition, -1)
            for topic in topics
            for partition in range(self.pipeline.partition_counts[topic])
        }
        if missing := [f"{topic}-{partition}" for (topic, partition), end in positions.items() if end < 0]:
            raise StreamplanError(
                f"the ledger {self.pipeline.repartition_group}",
                expected="the ends of all topics that were made again",
                observed=f"none of {', '.join(missing)}",
                remedy="Run this again: it makes those topics once more.",
            )
        committed = cluster.committed_positions(self._id)
        generation = Generation.of_this_process(latest_generation(committed.values()))
        metadata = {place: PositionMetadata(generation).text for place in positions}
        for move in plan.sources:
            if move.partitions == move.partitions_before:  # its stream tasks are the same, and so is their time
                for partition in range(move.partitions):
                    position = committed.get((move.topic, partition))
                    known = PositionMetadata.parse(position.metadata) if position is not None else None
                    time = known.time if known is not None else None
                    metadata[move.to, partition] = PositionMetadata(generation, time=time).text
        set_positions(self.brokers, self._id, positions, metadata=metadata)
        self.report(f"group {self._id}: positions set in {', '.join(topics)}")

    def _writer(self, spec: TopicSpec) -> str:
        return f"{self.pipeline.repartition_group}-{spec.role}"


def _size(cluster: KafkaCluster, topic: str) -> int:
    return sum(offsets.high_watermark - offsets.log_start for offsets in cluster.offsets(topic).values())
