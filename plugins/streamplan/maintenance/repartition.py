"""A move to another number of partitions: observed, refused where it would lose something, applied step by step.

Every step leaves a position in the ledger (``repartitioning.ledger_group``) when it is complete, and is begun again
where there is none; so a run that died at any point is completed by the next one. The dead-letter topic is the gate: it
is the first to go and the last to come back, and an aggregator does not start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka import copying
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import delete_group, fence, set_positions
from streamplan.kafka.topics import apply_specs, delete_topics, observe_topics
from streamplan.maintenance.movable import require_movable
from streamplan.maintenance.repartition_plan import (
    Moved,
    MovePlan,
    ledger_group,
    refuse_other_counts,
    require_declared,
)
from streamplan.maintenance.require_stopped import WATCHED_SECONDS, require_rest
from streamplan.model.diagnostics import name_fault
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import TaskId
from streamplan.model.topics import TopicRole, TopicSpec, staging_topic
from streamplan.reports.results import state_files
from streamplan.settings import Settings
from streamplan.spark.state import checkpoint_files as checkpoints


@dataclass(frozen=True)
class Move:
    """A pipeline whose declaration names a move, and where it is to take place."""

    pipeline: Pipeline
    brokers: Brokers
    settings: Settings
    watched_seconds: float = WATCHED_SECONDS

    def observe(self, *, runs: Sequence[str] = ()) -> MovePlan:
        """What is to be done. Raises :class:`Refused` where it must not be; changes nothing.

        ``runs``  active runs of DAGs that work on the application
        """
        pipeline = self.pipeline
        require_declared(pipeline)
        moved = pipeline.repartition_from
        require_rest(
            pipeline,
            self.brokers,
            self.settings,
            what="more partitions",
            runs=runs,
            jobs=("aggregator", "producer"),
            still=[*moved, *moved.values()],
            watched_seconds=self.watched_seconds,
        )
        specs = pipeline.topics()
        holding = [staging_topic(spec) for spec in pipeline.internal_topics()]
        for spec in holding:
            if fault := name_fault(spec.name):
                raise Refused(f"the topic that holds the records of {spec.name} meanwhile: {fault}")
        names = [*(spec.name for spec in (*specs, *holding)), *moved.values()]
        counts = {name: topic.partitions for name, topic in observe_topics(self.brokers, names).items()}
        refuse_other_counts(pipeline, counts)
        cluster, ledger = self._cluster(), self._ledger()
        begun = self._destroys(ledger)
        if not ledger and self._has_moved(counts, cluster):
            left_over = tuple(spec.name for spec in holding if spec.name in counts)
            return MovePlan(pipeline.name, self._id, (), (), begun=False, done=True, left_over=left_over)
        if not begun:
            require_movable(pipeline, cluster, counts, copied=ledger)
        return MovePlan(
            pipeline=pipeline.name,
            application_id=self._id,
            sources=tuple(
                Moved(old, new, counts[old], pipeline.partition_counts[new], _size(cluster, old))
                for new, old in moved.items()
            ),
            internal=tuple(
                Moved(
                    spec.name,
                    spec.name,
                    counts.get(spec.name, 0),
                    spec.partitions,
                    _size(cluster, spec.name) if spec.name in counts else 0,
                )
                for spec in self._to_make_anew(counts, ledger)
            ),
            begun=begun,
            done=False,
        )

    def apply(self, approved: Mapping[str, Any], *, say: Callable[[str], None], runs: Sequence[str] = ()) -> None:
        """Do what was approved."""
        plan = self.observe(runs=runs)
        if plan.done:
            delete_topics(self.brokers, plan.left_over)
            say(plan.text)
            return
        plan.refuse_other(approved)
        specs = {spec.name: spec for spec in self.pipeline.internal_topics()}
        anew = [specs[one.topic] for one in plan.internal]
        self._fence(plan)
        for one in plan.sources:
            self._copy_source(one, say)
        if not plan.begun:
            for spec in anew:
                self._hold(spec, say)
        gate = self.pipeline.topology.dead_letter_topic
        if gate not in self._ledger():  # else all is done, and the application may have run since
            delete_topics(self.brokers, [gate])
            for spec in anew:
                if spec.name != gate:
                    self._make_anew(spec, say)
            checkpoints.delete(self.settings.checkpoints, self._id)
            for path in state_files(self.settings.reports, self.pipeline.name):
                path.unlink(missing_ok=True)
            say("the checkpoints are deleted, and what the checks kept of the old topics")
            self._set_positions(plan, say)
            self._make_anew(specs[gate], say)
        # In this order: without a ledger a move is over, and what held records can only be deleted.
        delete_group(self.brokers, ledger_group(self.pipeline))
        delete_topics(self.brokers, [staging_topic(spec).name for spec in specs.values()])
        left = ", ".join(one.topic for one in plan.sources)
        say(f"{self.pipeline.name} has moved. {left} is left in place: delete it when nobody reads it any more")

    @property
    def _id(self) -> str:
        return self.pipeline.topology.application_id

    def _cluster(self) -> KafkaCluster:
        """A new one: it asks for partition counts once, and they change here."""
        return KafkaCluster(self.brokers)

    def _ledger(self) -> Mapping[str, Mapping[int, int]]:
        return self._cluster().committed_offsets(ledger_group(self.pipeline))

    def _note(self, topic: str) -> Mapping[int, int]:
        """That ``topic`` is complete up to its ends."""
        ends = {partition: found.high_watermark for partition, found in self._cluster().offsets(topic).items()}
        set_positions(
            self.brokers,
            ledger_group(self.pipeline),
            {(topic, partition): end for partition, end in ends.items()},
        )
        return ends

    def _destroys(self, ledger: Mapping[str, object]) -> bool:
        """Whether every copy is complete, so that topics may have been deleted."""
        gate = self.pipeline.topology.dead_letter_topic
        return any(staging_topic(spec).name in ledger for spec in self.pipeline.internal_topics() if spec.name == gate)

    def _to_make_anew(self, counts: Mapping[str, int], ledger: Mapping[str, object]) -> list[TopicSpec]:
        """Internal topics of another count, and the gate, which is the last that is copied."""
        gate = self.pipeline.topology.dead_letter_topic
        anew = [
            spec
            for spec in self.pipeline.internal_topics()
            if spec.name == gate or counts.get(spec.name) != spec.partitions or staging_topic(spec).name in ledger
        ]
        return sorted(anew, key=lambda spec: spec.name == gate)

    def _has_moved(self, counts: Mapping[str, int], cluster: KafkaCluster) -> bool:
        fits = all(counts.get(spec.name) == spec.partitions for spec in self.pipeline.topics())
        return fits and all(cluster.positions(self._id, new) for new in self.pipeline.repartition_from)

    def _fence(self, plan: MovePlan) -> None:
        counts = [*self.pipeline.partition_counts.values()]
        counts += [one.partitions_before for one in (*plan.sources, *plan.internal)]
        groups = self.pipeline.topology.subtopologies
        tasks = [TaskId(group.id, partition) for group in groups for partition in range(max(counts))]
        fence(self.brokers, self._id, tasks)

    def _copy_source(self, one: Moved, say: Callable[[str], None]) -> None:
        if one.to in self._ledger():
            return
        spec = next(spec for spec in self.pipeline.topics() if spec.name == one.to)
        apply_specs(self.brokers, self.pipeline.name, [spec])
        copying.copy_topic(
            self.brokers,
            one.topic,
            one.to,
            one.partitions,
            group=ledger_group(self.pipeline),
            transactional_id=f"{ledger_group(self.pipeline)}-copy",
            report=say,
        )
        if spec.configs.get("cleanup.policy") == "compact":  # records may go at any time, here as there
            self._note(one.to)
            return
        cluster = self._cluster()
        expected = copying.count_by_partition(cluster, one.topic, one.partitions)
        observed = copying.count_by_partition(cluster, one.to, None)
        if expected != observed:
            raise Refused(
                f"the copy of {one.topic} in {one.to}",
                expected=f"records by partition {expected}",
                observed=f"{observed}",
                remedy=f"Someone else has written to {one.to}, or {one.topic} lost records meanwhile. Nothing of the "
                f"application was changed: delete {one.to} and the group {ledger_group(self.pipeline)}, stop all "
                "producers, and run this again.",
            )
        self._note(one.to)
        say(f"{one.topic} to {one.to}: complete, {sum(observed.values()):,} records")

    def _hold(self, spec: TopicSpec, say: Callable[[str], None]) -> None:
        """Copy an internal topic to where it is held, with the new count. What an earlier run left there is no good."""
        # What just fitted into the topic comes to where it is held, and back.
        most = self._cluster().topics([spec.name])[spec.name].configs["max.message.bytes"]
        holder = staging_topic(spec, **{"max.message.bytes": most})
        if holder.name in self._ledger():
            return
        delete_topics(self.brokers, [holder.name])
        apply_specs(self.brokers, self.pipeline.name, [holder])
        written = copying.write_all(self.brokers, holder.name, self._rows(spec), transactional_id=self._writer(spec))
        self._note(holder.name)
        say(f"{spec.name}: {written:,} records are held in {holder.name}")

    def _rows(self, spec: TopicSpec) -> Iterator[copying.PlacedRecord]:
        cluster = self._cluster()
        if spec.role is TopicRole.CHANGELOG:
            yield from copying.last_values(cluster, spec.name, spec.partitions, spec.window_bytes)
        elif spec.role is TopicRole.DEAD_LETTER:
            moved = {old: new for new, old in self.pipeline.repartition_from.items()}
            yield from copying.relocated_dead_letters(cluster, spec.name, moved, spec.partitions)
        elif all(found.log_start == 0 for found in cluster.offsets(spec.name).values()):
            # All of it is processed. But totals that Spark recounts are recounted from here; and what was purged
            # in part must not look whole.
            for record in copying.all_records(cluster, spec.name):
                yield copying.PlacedRecord(copying.new_partition(record.key, record.partition, spec.partitions), record)

    def _make_anew(self, spec: TopicSpec, say: Callable[[str], None]) -> None:
        """Delete a topic, create it with the new count, and fill it from where its records are held."""
        if spec.name in self._ledger():
            return
        delete_topics(self.brokers, [spec.name])
        holder = self._cluster().topics([staging_topic(spec).name])[staging_topic(spec).name]
        configs = {**spec.configs, "max.message.bytes": holder.configs["max.message.bytes"]}
        apply_specs(self.brokers, self.pipeline.name, [replace(spec, configs=configs)])
        rows = (
            copying.PlacedRecord(one.partition, one)
            for one in copying.all_records(self._cluster(), staging_topic(spec).name)
        )
        gate = spec.role is TopicRole.DEAD_LETTER
        written = copying.write_all(
            self.brokers, spec.name, rows, transactional_id=self._writer(spec), in_one_transaction=gate
        )
        self._note(spec.name)
        say(f"{spec.name}: made again with {spec.partitions} partitions and {written:,} records")

    def _set_positions(self, plan: MovePlan, say: Callable[[str], None]) -> None:
        """Behind what was copied: all of it is processed."""
        ledger, cluster = self._ledger(), self._cluster()
        roles = {spec.name: spec.role for spec in self.pipeline.internal_topics()}
        topics = [one.to for one in plan.sources]
        if all(cluster.positions(self._id, topic) for topic in topics):
            return  # all were set in one commit, and may have moved since
        topics += [one.topic for one in plan.internal if roles[one.topic] is TopicRole.REPARTITION]
        positions = {
            (topic, partition): ledger.get(topic, {}).get(partition, -1)
            for topic in topics
            for partition in range(self.pipeline.partition_counts[topic])
        }
        if missing := [f"{topic}-{partition}" for (topic, partition), end in positions.items() if end < 0]:
            raise StreamplanError(
                f"the ledger {ledger_group(self.pipeline)}",
                expected="the ends of all that was made anew",
                observed=f"none of {', '.join(missing)}",
                remedy="Run this again: it makes those topics once more.",
            )
        set_positions(self.brokers, self._id, positions)
        say(f"group {self._id}: positions set in {', '.join(topics)}")

    def _writer(self, spec: TopicSpec) -> str:
        return f"{ledger_group(self.pipeline)}-{spec.role}"


def _size(cluster: KafkaCluster, topic: str) -> int:
    return sum(found.high_watermark - found.log_start for found in cluster.offsets(topic).values())
