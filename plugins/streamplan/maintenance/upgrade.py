"""An upgrade: the state of a changed declaration is built beside the old application, compared, and takes over.

Each step looks at Kafka first and does what is left to do, so that a run that died is completed by the next one:

- The new application's positions begin where the old application began to read. They are set in one commit.
- It is built by the aggregator itself, up to the positions of the old application, exactly once as always.
- The old one ends, and the new one takes over, in one commit each: :func:`~streamplan.kafka.task_ownership.set_beside`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from streamplan.checks.discovery.discover import own_topics
from streamplan.checks.framework.consistent_cut import Deadline, await_consistent_cut
from streamplan.errors import CouldNotLook, Refused, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka.cluster import KafkaCluster, unprocessed
from streamplan.kafka.copying import write_all
from streamplan.kafka.groups import members, set_positions
from streamplan.kafka.membership import drain_application
from streamplan.kafka.task_ownership import StreamTasks, claim_transactional_id, set_beside
from streamplan.kafka.topics import apply_specs, apply_topics, delete_topics, resolve_pipeline
from streamplan.maintenance.deployed import held_stores
from streamplan.maintenance.operation import Maintenance
from streamplan.maintenance.require_stopped import require_stopped
from streamplan.maintenance.upgrade_comparison import Ends, compare_stores, old_changelogs
from streamplan.maintenance.upgrade_plan import UPGRADED_ALONE, Comparison, Stage, UpgradePlan
from streamplan.maintenance.upgrade_waiting import plan_waiting
from streamplan.model.committed_positions import CommittedPosition, latest_generation
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import TopicRole, words
from streamplan.model.topology import Topology
from streamplan.reports.results import state_files
from streamplan.reports.sink_offsets import record_switch
from streamplan.serdes.subscriptions import REGISTRATION_TOPIC
from streamplan.spark.state import checkpoint_files as checkpoints

if TYPE_CHECKING:
    from streamplan.spark.session import LateSession

QUIET_SECONDS = 30.0
"""How long a moment is waited for at which the old application has processed all of its repartition topics."""

_LOOK_SECONDS = 5.0

_TRIGGER_INTERVAL_MS = 500

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class _Application:
    """What Kafka has of one of the two applications: its positions, by topic and partition."""

    application_id: str
    committed: Mapping[Place, CommittedPosition]

    @property
    def latest(self) -> Generation | None:
        return latest_generation(self.committed.values())

    @property
    def is_beside(self) -> bool:
        return self.latest is not None and self.latest.is_beside

    @property
    def offsets(self) -> dict[Place, int]:
        return {place: position.offset for place, position in self.committed.items()}

    @property
    def repartition_topics(self) -> list[str]:
        topics = {topic for topic, _ in self.committed}
        return sorted(
            topic for topic in topics if topic.startswith(f"{self.application_id}-") and topic.endswith("-repartition")
        )


@dataclass(frozen=True)
class _Cut:
    """Up to where the old application has processed its input, and its changelogs go at that moment.

    ``ends`` is None where there was no moment at which the two belong together.
    """

    positions: Mapping[Place, int]
    ends: Ends | None


@dataclass(frozen=True)
class Upgrader(Maintenance):
    """Upgrades a pipeline whose declaration names by ``upgrade_from`` the application that it takes over from.

    Attributes:
        quiet_seconds: How long :meth:`build` waits for a moment at which the stores can be compared.
        max_offsets: The most records of a micro-batch of the build; None for what an aggregator takes. Behind a
            repartition topic records are late by the order in which micro-batches have written them.
    """

    quiet_seconds: float = QUIET_SECONDS
    max_offsets: int | None = None

    alone = UPGRADED_ALONE

    def observe(self) -> UpgradePlan:
        """Plan what is to be done. Changes nothing.

        Raises:
            Refused: The declaration has no ``upgrade_from``, or the two applications are not one beside the other.
            BrokersUnavailable: The brokers did not answer.
        """
        stage = self._stage()
        if stage in (Stage.DONE, Stage.HALFWAY):
            left_over = self._left_over() if stage is Stage.DONE else ()
            return UpgradePlan(self._resolved.name, self._new_id, self._old_id, stage, left_over=left_over)
        begin = self._new.offsets if stage is Stage.BESIDE else self._begin
        cut = self._shared(self._old.offsets)
        records: dict[str, int] = {}
        for place, end in sorted(cut.items()):
            records[place[0]] = records.get(place[0], 0) + max(0, end - begin.get(place, 0))
        staging, notes = self._resolved.staging_topics, tuple(self._notes())
        missing = self._missing(self._begin if stage is Stage.NOT_BEGUN else _starts(self._new))
        return UpgradePlan(self._resolved.name, self._new_id, self._old_id, stage, records, staging, missing, notes)

    def build(self, spark: LateSession, *, stop: threading.Event | None = None) -> Comparison | None:
        """Build the state up to where the old application is now, which goes on meanwhile, and compare the stores.

        Run it again to come closer: each run processes what the old application has processed since the last one.

        Args:
            spark: The session in which the new application is built. A function that starts one is called when the
                new application was found stopped.
            stop: Ends the run when it is set. The next run goes on from there.

        Returns:
            What the comparison found; None where there is nothing to build.

        Raises:
            Refused: :meth:`observe` refuses; the new application runs or has left-over topics.
            StreamplanError: The brokers did not answer, or the run was stopped.
        """
        if self._stage() in (Stage.DONE, Stage.HALFWAY):
            return None
        self._require_stopped(self._new_id, "the upgrade", self.active_runs())
        self._prepare()
        cut = self._moving_cut()
        self._process(spark, cut, stop or threading.Event())
        return self._compare(cut.ends, is_final=False)

    def switch(
        self,
        spark: LateSession,
        *,
        accept_differences: bool = False,
        stop: threading.Event | None = None,
    ) -> Comparison | None:
        """Process the last records that the old application has processed, compare, and take over.

        Args:
            spark: The session in which the new application is built. A function that starts one is called when the
                new application was found stopped.
            accept_differences: Whether it takes over where stores that mean the same differ.
            stop: Ends the run when it is set. The next run goes on from there.

        Returns:
            What the comparison found; None where there was nothing left to compare.

        Raises:
            Refused: The old application has not processed its repartition topics, or stores differ. It can go on.
            StreamplanError: The brokers did not answer, or the run was stopped.
        """
        comparison = None
        stage = self._stage()
        if stage is Stage.DONE:
            return None
        self._require_stopped(self._new_id, "the upgrade", self.active_runs())
        self._end_old()
        if stage is not Stage.HALFWAY:
            self._require_drained()
            self._prepare()
            positions = self._application(self._old_id).offsets
            self._process(spark, _Cut(positions, None), stop or threading.Event())
            comparison = self._compare(None, is_final=True)
            self._require_equal(comparison, accept_differences)
            self._hand_over()
            self._retire(positions)
        self._take_over()
        return comparison

    # -- what there is

    @property
    def _new_id(self) -> str:
        return self.pipeline.topology.application_id

    @property
    def _old_id(self) -> str:
        if self.pipeline.upgrade_from is None:
            raise Refused(
                f"pipeline {self.pipeline.name} declares no upgrade",
                expected="the application that runs, and another application id for the changed topology",
                observed="upgrade_from is not set",
                remedy=f"Give the topology a new application id, such as {self._new_id + '-2'!r}, and declare "
                f"upgrade_from={self._new_id!r}. Then run this again.",
            )
        return self.pipeline.upgrade_from

    @cached_property
    def _resolved(self) -> Pipeline:
        """The declaration with the partition counts of external topics."""
        return resolve_pipeline(self.pipeline, self.brokers)

    @cached_property
    def _staged(self) -> Pipeline:
        """The declaration with staging topics in place of the topics that it writes."""
        existing = self._cluster().topics(self._resolved.topology.sink_topics)
        return self._resolved.staged({name: topic.partitions for name, topic in existing.items()})

    def _cluster(self) -> KafkaCluster:
        """Open a new cluster: one asks for partition counts only once, and topics are created here."""
        return KafkaCluster(self.brokers)

    def _application(self, application_id: str) -> _Application:
        return _Application(application_id, self._cluster().committed_positions(application_id))

    @property
    def _new(self) -> _Application:
        return self._application(self._new_id)

    @property
    def _old(self) -> _Application:
        return self._application(self._old_id)

    def _stage(self) -> Stage:
        old, new = self._old, self._new
        prefix = f"{old.application_id}-"
        read = [topic for topic, _ in old.committed]
        if subscriptions := [topic for topic in read if REGISTRATION_TOPIC.fullmatch(topic.removeprefix(prefix))]:
            raise Refused(
                f"application {old.application_id}, which {self.pipeline.name} is to take over from",
                expected="no join of tables by a foreign key",
                observed=subscriptions[0],
                remedy="Its two sub-topologies read what each other writes, so that there is no moment at which both "
                "are done. Declare the new application without upgrade_from, with other sink topics, and let both run.",
            )
        if new.committed and not new.is_beside:
            if old.committed and not old.is_beside:
                raise Refused(
                    f"the upgrade of {self.pipeline.name}",
                    expected=f"{new.application_id} as the candidate, while {old.application_id} writes the outputs",
                    observed="both of them write the outputs",
                    remedy=f"To build {new.application_id} again, remove upgrade_from from the declaration, reset the "
                    "application, and declare upgrade_from again.",
                )
            return Stage.DONE
        foreign = [place for place, at in old.committed.items() if PositionMetadata.parse(at.metadata) is None]
        if not old.committed or foreign:
            raise Refused(
                f"application {old.application_id}, which {self.pipeline.name} is to take over from",
                expected="positions that an aggregator committed",
                observed=f"those of another program in {', '.join(sorted({topic for topic, _ in foreign}))}"
                if foreign
                else "none",
                remedy="A Kafka Streams application is taken over first, under its own application id. Where there is "
                "nothing to take over from, leave upgrade_from out.",
            )
        if not old.is_beside:
            return Stage.BESIDE if new.committed else Stage.NOT_BEGUN
        if new.committed and self._shared(new.offsets) == self._shared(old.offsets):
            return Stage.HALFWAY
        raise Refused(
            f"application {old.application_id}, which {self.pipeline.name} is to take over from",
            expected="the application that writes the outputs",
            observed=f"{old.application_id} is a candidate application itself",
            remedy="Name that other application in upgrade_from. If it is the pipeline's own application, which was "
            "reset since, leave upgrade_from out.",
        )

    def _shared(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The offsets in topics from outside that both applications read."""
        topics = {topic for topic, _ in self._old.committed} & {*self._resolved.topology.source_topics}
        return {place: offset for place, offset in offsets.items() if place[0] in topics}

    @property
    def _begin(self) -> dict[Place, int]:
        """Where the new application begins: where the old one did, or at the first record that there is."""
        old, cluster, begin = self._old, self._cluster(), dict[Place, int]()
        starts = _starts(old)
        internal = {spec.name for spec in self._resolved.internal_topics()}
        for group in self._resolved.topology.subtopologies:
            for topic in self._resolved.source_topics(group):
                if topic in internal:
                    begin |= {(topic, number): 0 for number in range(self._resolved.partition_counts[topic])}
                    continue
                for number, offsets in cluster.offsets(topic).items():
                    begin[topic, number] = max(offsets.log_start, starts.get((topic, number), 0))
        missing = [place for place in begin if place[0] in {topic for topic, _ in starts} and place not in starts]
        if missing:
            raise Refused(
                f"the positions of {old.application_id}",
                expected="one in each partition of the topics that it reads",
                observed=f"none in {', '.join(f'{topic}-{number}' for topic, number in sorted(missing))}",
                remedy="A topic has more partitions than before: reset the application.",
            )
        return begin

    def _left_over(self) -> tuple[str, ...]:
        """What the old application, and the build of the new one, have left in Kafka."""
        cluster, positions = self._cluster(), self._old.offsets
        groups = cluster.groups()
        internal = own_topics(self._old_id, cluster.names(), groups, {topic for topic, _ in positions})
        dead_letters = Topology(self._old_id).dead_letter_topic
        others = cluster.topics([dead_letters, *self._resolved.staging_topics.values()])
        group = (f"group {self._old_id}",) if self._old_id in groups else ()
        return *(f"topic {topic}" for topic in sorted({*internal, *others})), *group

    def _missing(self, begin: Mapping[Place, int]) -> tuple[str, ...]:
        """Say where the new application begins later than the old one did, for records were deleted meanwhile."""
        return tuple(
            f"`{topic}-{number}` begins at offset {begin[topic, number]:,}, and {self._old_id} began at {start:,}"
            for (topic, number), start in sorted(_starts(self._old).items())
            if begin.get((topic, number), 0) > start
        )

    def _notes(self) -> Sequence[str]:
        old = {topic for topic, _ in self._old.committed}
        added = {*self._resolved.topology.source_topics} - old
        notes = [f"`{topic}` is new: it is read up to where it ends at each step" for topic in sorted(added)]
        shared = old & {*self._resolved.topology.source_topics}
        notes += [
            f"`{name}` is compacted: if a key has a newer record, its older records may be deleted. The new state does "
            "not have them, and a stream that is joined with the table does not find them"
            for name, topic in sorted(self._cluster().topics(sorted(shared)).items())
            if "compact" in words(topic.configs.get("cleanup.policy", ""))
        ]
        return notes

    # -- what stands against it

    def _require_stopped(self, application_id: str, action: str, runs: Sequence[str] = ()) -> None:
        require_stopped(
            self._resolved,
            self.brokers,
            self.settings,
            action=action,
            report=self.report,
            runs=runs,
            application_id=application_id,
            jobs=(),  # where a process that is being started is not a member yet, its start is refused later
        )

    def _end_old(self) -> None:
        """Ask the old application to end, if it runs. One that is killed now stays a member for some seconds."""
        if members(self.brokers, self._old_id):
            topics = sorted({topic for topic, _ in self._old.committed})
            drain_application(self.brokers, self._old_id, topics, self.report)
        self._require_stopped(self._old_id, "the switch")

    def _require_drained(self) -> None:
        old = self._old
        positions = {topic: _of_topic(old.offsets, topic) for topic in old.repartition_topics}
        if left := unprocessed(self._cluster(), positions):
            raise Refused(
                f"the repartition topics of {old.application_id}",
                expected="that all of their records are processed",
                observed=", ".join(f"{count:,} records of {topic} are not processed" for topic, count in left.items()),
                remedy="Their results would never be written. Start the application once more as it was declared, and "
                "let it run until the lag is 0; or start its job `aggregator` with the further option "
                "--available-now. Then switch. Nothing was changed.",
            )

    def _require_equal(self, comparison: Comparison, accept_differences: bool) -> None:
        if comparison.differing and not accept_differences:
            raise Refused(
                f"the stores of {self._new_id}",
                expected=f"the values of {self._old_id} where both mean the same",
                observed="; ".join(
                    f"{store.different:,} keys of {store.store} differ, such as {store.examples[0]}"
                    for store in comparison.differing
                ),
                remedy="Where a filter or an expression before them was changed, or records of the input are gone, "
                f"they must differ: switch with accept_differences. Nothing was changed, and {self._old_id} can go on.",
            )
        if comparison.incomplete and not accept_differences:
            raise Refused(
                f"the stores of {self._new_id}, {', '.join(store.store for store in comparison.incomplete)}",
                expected=f"values of the whole input, as {self._old_id} has read it",
                observed="; ".join(comparison.missing).replace("`", ""),
                remedy="The stores lack the deleted records, and no comparison shows that these records are of no "
                "importance. To accept that, switch with accept_differences. Nothing was changed, and "
                f"{self._old_id} can go on.",
            )

    # -- the steps

    def _prepare(self) -> None:
        """Create the topics, and let the new application begin where the old one did."""
        apply_topics(self.brokers, self._resolved)
        is_new = not self._new.committed
        if is_new:  # what an earlier one that was reset has written would be there twice
            delete_topics(self.brokers, [*self._resolved.staging_topics.values()])
        staging = [spec for spec in self._staged.topics() if spec.role is TopicRole.SINK]
        apply_specs(self.brokers, self._resolved.name, staging)
        if not is_new:
            return
        cluster = self._cluster()
        left_over = [
            spec.name
            for spec in self._resolved.internal_topics()
            if any(offsets.high_watermark for offsets in cluster.offsets(spec.name).values())
        ]
        if left_over:
            raise Refused(
                f"the topics of {self._new_id}",
                expected="empty, because it has no positions",
                observed=f"records in {', '.join(left_over)}",
                remedy=f"Reset {self._resolved.name} first, or give its topology an application id of its own.",
            )
        begin, generation = self._begin, Generation.of_this_process(None, beside=True)
        metadata = {place: PositionMetadata(generation, start=offset).text for place, offset in begin.items()}
        set_positions(self.brokers, self._new_id, begin, metadata=metadata)
        self.report(f"{self._new_id} begins as the candidate, while {self._old_id} runs")

    def _moving_cut(self) -> _Cut:
        """Return where the old application is, if possible at a moment at which its stores are as far as its input."""
        old, cluster = self._old, self._cluster()
        topics = sorted({topic for topic, _ in old.committed})
        changelogs = [*old_changelogs(self._resolved, cluster).values()]
        deadline = Deadline(self.quiet_seconds, 0.2, report=lambda text: self.report(text) if text else None)
        a_look = Deadline(min(_LOOK_SECONDS, self.quiet_seconds))
        for _ in deadline.waits(f"{old.application_id} has processed its repartition topics"):
            try:
                cut = await_consistent_cut(cluster, old.application_id, topics, changelogs, a_look)
            except CouldNotLook:
                continue
            if not unprocessed(cluster, {topic: cut.positions[topic] for topic in old.repartition_topics}):
                positions = {
                    (topic, number): offset for topic, at in cut.positions.items() for number, offset in at.items()
                }
                return _Cut(positions, cut.ends)
        return _Cut(self._old.offsets, None)

    def _process(self, spark: LateSession, cut: _Cut, stop: threading.Event) -> None:
        """Let the new application process its input up to a cut."""
        from streamplan.spark.aggregator import run
        from streamplan.spark.deployment import Deployment
        from streamplan.spark.session import started

        until = self._shared(cut.positions)
        if self._behind(until):
            # Spark's stream reads beyond the cut and leaves that out. So the checkpoint is ahead of the positions, and
            # the state is restored from the changelogs, also after a run that died.
            checkpoints.delete(self.settings.checkpoints, self._new_id)
            run(
                started(spark),
                Deployment(self._staged, self.brokers, self.settings.checkpoints, self.max_offsets, until=until),
                available_now=True,
                trigger_interval_ms=_TRIGGER_INTERVAL_MS,
                stop=stop,
                report=self.report,
            )
        checkpoints.delete(self.settings.checkpoints, self._new_id)
        if behind := self._behind(until):
            raise StreamplanError(
                f"the candidate application {self._new_id}",
                expected=f"as far as {self._old_id}, {_listed(until)}",
                observed="; ".join(behind),
                remedy="The run was stopped. Run this again: it goes on from there.",
            )
        self.report(f"{self._new_id} has processed what {self._old_id} had processed: {_listed(until)}")

    def _behind(self, until: Mapping[Place, int]) -> list[str]:
        """Say where the new application is not as far as a cut. One that died may have left repartition topics."""
        new = self._new
        shared = self._shared(new.offsets)
        behind = [
            f"{topic}-{number} at {shared.get((topic, number), 0):,}"
            for (topic, number), end in sorted(until.items())
            if shared.get((topic, number)) != end
        ]
        left = unprocessed(self._cluster(), {topic: _of_topic(new.offsets, topic) for topic in new.repartition_topics})
        return behind + [f"{count:,} records of {topic} are not processed" for topic, count in left.items()]

    def _compare(self, ends: Ends | None, *, is_final: bool) -> Comparison:
        if ends is None and not is_final:
            busy = f"for {self.quiet_seconds:g} s {self._old_id} had records in its repartition topics at every moment"
            return Comparison((), is_final, busy)
        held = held_stores(self.settings.checkpoints, self._old_id, self._old.committed)
        stores = compare_stores(self._resolved, self._cluster(), held, ends)
        return Comparison(stores, is_final, missing=self._missing(_starts(self._new)))

    def _hand_over(self) -> None:
        """Let the records wait in left and outer joins that wait in the old application. It has passed the others."""
        for waiting in plan_waiting(self._resolved, self._cluster()):
            if waiting.rows:
                writer = claim_transactional_id(self._new_id)
                write_all(
                    self.brokers, waiting.changelog, waiting.rows, transactional_id=writer, in_one_transaction=True
                )
            self.report(f"in {waiting.store} the same records wait as in {self._old_id}")
            if waiting.left_out:
                self.report(f"{waiting.left_out:,} keys do not wait there: {self._new_id} does not have their records")

    def _retire(self, positions: Mapping[Place, int]) -> None:
        """Let the old application end where the new one was built up to. From now on none of its aggregators starts."""
        tasks = StreamTasks.observed(self._old_id, positions)
        set_beside(tasks, self.brokers, beside=True, expected=positions)
        self.report(f"{self._old_id} has ended at {_listed(self._shared(positions))}. It keeps all that it has")

    def _take_over(self) -> None:
        checkpoints.delete(self.settings.checkpoints, self._new_id)
        paths = ReportPaths(self.settings.reports, self._resolved.name)
        for path in state_files(self.settings.reports, self._resolved.name):
            path.unlink(missing_ok=True)
        record_switch(paths.sink_offsets, self._resolved, self._cluster())
        tasks = StreamTasks.of(self._resolved)
        set_beside(tasks, self.brokers, beside=False, expected=self._new.offsets)
        self.report(
            f"{self._new_id} has taken over from {self._old_id}. Start its aggregator: it restores its state from the "
            "changelogs, and writes what comes from now on"
        )


def _starts(application: _Application) -> dict[Place, int]:
    """Where an application began to read each partition."""
    parsed = {place: PositionMetadata.parse(at.metadata) for place, at in application.committed.items()}
    return {place: metadata.start for place, metadata in parsed.items() if metadata is not None}


def _of_topic(offsets: Mapping[Place, int], topic: str) -> dict[int, int]:
    return {number: offset for (name, number), offset in offsets.items() if name == topic}


def _listed(offsets: Mapping[Place, int]) -> str:
    return ", ".join(f"{topic}-{number} at {offset:,}" for (topic, number), offset in sorted(offsets.items()))
