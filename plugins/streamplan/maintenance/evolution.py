"""What a changed declaration would do to its application, before anything happens.

The answers are those of the functions that a deployment and a start ask: :func:`plan_topics`,
:func:`resolve_positions`, :func:`resolve_start`. Nothing is written, claimed or created.

Kafka has no schema of a changelog. What a store holds stands in the identity of its checkpoint, so it is known where
this machine reaches the checkpoints that the committed positions name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from streamplan.errors import Refused
from streamplan.kafka.membership import foreign_member_error
from streamplan.kafka_port import Cluster
from streamplan.maintenance.deployed import Deployed, observe_deployed
from streamplan.maintenance.evolution_plan import Change, EvolutionPlan, Part, Verdict, in_words
from streamplan.maintenance.renumbering import Likeness, match_names
from streamplan.model.checkpoint_identity import checkpoint_identity, store_content
from streamplan.model.committed_positions import ResolvedPositions, latest_generation, resolve_positions
from streamplan.model.generation import Generation
from streamplan.model.linking import LINKED, linked_state, links_of_start
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages import repeats_its_state, stage_of
from streamplan.model.start_point import KafkaState, StartDecision, StartFrom, resolve_start
from streamplan.model.topics import TopicPlan, TopicRole, explain_differences, plan_topics, words
from streamplan.model.unnamed import REPARTITION, naming_of, unnamed

CHANGELOG = "-changelog"

_NOBODY = Generation(0, "")
"""The generation of a plan, which claims nothing."""

_NO_ID = "not created yet"
"""In place of the id of a topic that does not exist: no checkpoint has read it."""

_LISTED = 4
"""At most this many positions are named in one sentence."""


def observe_evolution(pipeline: Pipeline, cluster: Cluster, checkpoints: str) -> EvolutionPlan:
    """Compare a declaration with what its application has left in Kafka and in its checkpoints. Changes nothing.

    Args:
        checkpoints: The directory of all applications' checkpoints, a path or a URI.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    try:
        counts = {name: topic.partitions for name, topic in cluster.topics(pipeline.topics_of_others).items()}
        pipeline = pipeline.resolved(counts)
    except Refused as error:
        refused = _refused(Part.APPLICATION, pipeline.topology.application_id, error)
        return EvolutionPlan(pipeline.name, pipeline.topology.application_id, (refused,))
    return plan_evolution(pipeline, observe_deployed(pipeline, cluster, checkpoints))


def plan_evolution(pipeline: Pipeline, deployed: Deployed) -> EvolutionPlan:
    """Compare a declaration with what there is of its application.

    Args:
        pipeline: The pipeline, with the partition counts of the external topics.
        deployed: What there is.
    """
    comparison = _Comparison(pipeline, deployed)
    changes = (*comparison.application(), *comparison.subtopologies(), *comparison.topics(), *comparison.left_over())
    warnings = tuple(str(warning) for warning in unnamed(pipeline.topology))
    notes = tuple(comparison.notes(changes))
    return EvolutionPlan(pipeline.name, pipeline.topology.application_id, changes, warnings, notes)


def _refused(part: Part, name: str, error: Refused) -> Change:
    reason = str(error).removesuffix(f". {error.remedy}") if error.remedy else str(error)
    reason = in_words(reason.removeprefix(f"{part} {name}: "))
    return Change(part, name, Verdict.REFUSED, reason.rstrip("."), error.remedy)


@dataclass(frozen=True)
class _Start:
    """What the start of a sub-topology decides.

    ``decision`` is None where it cannot be known from here, because the checkpoint that Kafka names is elsewhere.
    """

    resolved: ResolvedPositions
    kafka: KafkaState
    decision: StartDecision | None


@dataclass(frozen=True)
class _Comparison:
    pipeline: Pipeline
    deployed: Deployed

    # -- the application as a whole

    def application(self) -> Iterator[Change]:
        name, members = self.pipeline.topology.application_id, self.deployed.members
        foreign = [member for member in members or () if member.instance is None]
        if members is None or foreign:
            yield _refused(Part.APPLICATION, name, foreign_member_error(name, foreign))
        if self.deployed.temporary:
            yield Change(
                Part.APPLICATION,
                name,
                Verdict.REFUSED,
                f"its topics are being moved to another number of partitions: {', '.join(self.deployed.temporary)}",
                f"Run {self.pipeline.name}_repartition: it goes on from where it stopped.",
            )
        old = self.pipeline.upgrade_from
        if self._stands_beside and old is not None:
            yield Change(
                Part.APPLICATION,
                name,
                Verdict.BESIDE,
                f"it is the candidate of an upgrade: {old} writes the outputs. No aggregator of the candidate starts",
                f"Run {self.pipeline.name}_upgrade: it builds the state, compares it with that of {old}, and lets this "
                "application take over.",
            )
        elif self._stands_beside:
            yield Change(
                Part.APPLICATION,
                name,
                Verdict.REFUSED,
                "another application has taken over from it, and writes the outputs. No aggregator of it starts",
                "Where it is to take over again, name that application in upgrade_from, and run "
                f"{self.pipeline.name}_upgrade.",
            )

    @cached_property
    def _stands_beside(self) -> bool:
        """Whether the start is refused for an upgrade (:class:`~streamplan.kafka.task_ownership.TaskOwnership`)."""
        latest = latest_generation(self.deployed.state.committed.values())
        return latest.is_beside if latest is not None else self.pipeline.upgrade_from is not None

    def notes(self, changes: Sequence[Change]) -> Iterator[str]:
        if self.deployed.is_running:
            listed = ", ".join(map(str, self.deployed.members or ()))
            yield (
                f"an aggregator runs: {listed}. A new start takes over from it. The plan shows what follows after it "
                "has ended in order"
            )
        if self._wrong_counts:
            yield "sub-topologies and stores are judged when the partition counts are as declared"
        if self.deployed.unreadable:
            yield f"the checkpoints cannot be read from here: {self.deployed.unreadable.rstrip('.')}"
        if any(each.part is Part.STORE and each.verdict in (Verdict.KEPT, Verdict.REBUILT) for each in changes):
            yield (
                "a changed filter, expression or function is not seen, because neither Kafka nor a "
                "checkpoint has it. A store keeps what it holds, and the records that come are processed in the new way"
            )

    # -- topics

    def topics(self) -> Iterator[Change]:
        others = [spec for spec in self.pipeline.topics() if not spec.owned]
        for name in dict.fromkeys(difference.topic for difference in self._topic_plan.differences):
            found = [difference for difference in self._topic_plan.differences if difference.topic == name]
            points = "; ".join(f"{each.point}: expected {each.expected}, observed {each.observed}" for each in found)
            remedy = explain_differences(self.pipeline.name, found, others)
            yield Change(Part.TOPIC, name, Verdict.REFUSED, f"{self.pipeline.name}_deploy refuses it: {points}", remedy)
        for spec in self._topic_plan.create:
            reason, remedy = f"{self.pipeline.name}_deploy creates it: {spec.role}, {spec.partitions} partitions", ""
            matches = self._repartition_matches.get(self._base(spec.name, REPARTITION), ())
            if spec.role is TopicRole.REPARTITION and matches:
                reason += f". It is probably the same one, renumbered: before it was {' or '.join(matches)}"
                remedy = f"To go on with it, declare {' or '.join(map(naming_of, matches))}."
            yield Change(Part.TOPIC, spec.name, Verdict.CREATED, reason, remedy)

    def left_over(self) -> Iterator[Change]:
        for name, records in self.deployed.records.items():
            held = self.deployed.held.get(self._base(name, CHANGELOG))
            of_what = f" of {in_words(held)}" if held else ""
            unread = self.deployed.unread.get(name, 0)
            lost = f". At most {unread:,} of them were not processed, and will not be" if unread else ""
            first = "To lose nothing, let the declaration of before process them first. " if unread else ""
            yield Change(
                Part.TOPIC,
                name,
                Verdict.ORPHANED,
                f"the declaration does not have it. It has at most {records:,} records{of_what}{lost}",
                f"{first}Nothing deletes what is orphaned, not even a reset. When it is of no more use: "
                "kafka-topics.sh --bootstrap-server HOST:PORT --delete --topic TOPIC.",
            )
        read = {topic for group in self._groups for topic in self.pipeline.source_topics(group)}
        for name in sorted({topic for topic, _ in self.deployed.state.committed} - read - self.deployed.records.keys()):
            yield Change(
                Part.TOPIC,
                name,
                Verdict.ORPHANED,
                "the group has positions in it, and the declaration does not read it. They stay until they expire",
            )

    # -- sub-topologies and their stores

    def subtopologies(self) -> Iterator[Change]:
        for group in () if self._wrong_counts else self._groups:
            try:
                yield from self._subtopology(group, self._start(group))
            except Refused as error:
                refused = _refused(Part.SUBTOPOLOGY, str(group.id), error)
                if {*group.source_topics} & self.pipeline.repartition_from.keys():
                    remedy = f"Run {self.pipeline.name}_repartition: it moves the records, and sets the positions."
                    refused = replace(refused, remedy=remedy)
                yield refused
                for node in self._stores_of(group):
                    held = self.deployed.held.get(str(node.store))
                    if held is not None and held != store_content(group, node):
                        yield self._other_content(group, node, held)

    def _start(self, group: Subtopology) -> _Start:
        """Ask what the start asks, in its order."""
        resolved, kafka = self._kafka(group)
        if kafka.checkpoint and not self.deployed.checkpoints:
            return _Start(resolved, kafka, None)
        name, aggregates, identity = f"sub-topology {group.id}", stage_of(group).aggregates, self._identity(group)
        link = next((each for each in links_of_start(self.pipeline.topology) if each.reader == group), None)
        found, repeats = self.deployed.checkpoint_of(group, kafka), repeats_its_state(group)
        if link is not None and found is not None and LINKED in found.identity:
            _, of_writer = self._kafka(link.writer)
            kafka, aggregates, repeats = linked_state(of_writer, kafka), False, link.repeats
            identity, found = (
                link.identity(self._identity(link.writer), identity),
                self.deployed.checkpoint_of(group, kafka),
            )
        decision = resolve_start(name, found, identity, kafka, aggregates=aggregates, repeats=repeats)
        return _Start(resolved, kafka, decision)

    def _kafka(self, group: Subtopology) -> tuple[ResolvedPositions, KafkaState]:
        deployed, reads = self.deployed, self.pipeline.source_topics(group)
        known = deployed.state.input_of(group, has_checkpoint=deployed.has_checkpoint(group, reads))
        resolved = resolve_positions(self.pipeline.topology.application_id, [known], deployed.state.committed)[group.id]
        return resolved, deployed.state.kafka_state(group, resolved, _NOBODY)

    def _identity(self, group: Subtopology) -> Mapping[str, str]:
        ids = {topic: self.deployed.topic_ids.get(topic, _NO_ID) for topic in self.pipeline.source_topics(group)}
        return checkpoint_identity(self.pipeline, group, ids)

    def _subtopology(self, group: Subtopology, start: _Start) -> Iterator[Change]:
        name, reads = str(group.id), f"it reads {', '.join(self.pipeline.source_topics(group))}"
        is_new = not start.resolved.metadata
        if is_new:
            yield Change(Part.SUBTOPOLOGY, name, Verdict.NEW, self._beginning(group), self._reset(group))
        elif start.decision is None:
            yield Change(
                Part.SUBTOPOLOGY,
                name,
                Verdict.UNKNOWN,
                f"{reads}. The committed positions name checkpoint {start.kafka.checkpoint}, and there is none in "
                f"{self.deployed.location}. Where the aggregator finds it, and the stores are declared as before, the "
                "state is kept. Without it the state is rebuilt from the changelogs",
                "Run this where the checkpoints are; STREAMPLAN_CHECKPOINTS names their directory.",
            )
        elif start.decision.start is StartFrom.RESTORE:
            because = f"Its state is rebuilt, because {start.decision.reason}"
            yield Change(Part.SUBTOPOLOGY, name, Verdict.REBUILT, f"{reads} from the committed positions on. {because}")
        else:
            yield Change(Part.SUBTOPOLOGY, name, Verdict.KEPT, f"{reads} from the committed positions on")
        for node in self._stores_of(group):
            yield self._store(group, node, start, is_new=is_new)

    def _store(self, group: Subtopology, node: Processor, start: _Start, *, is_new: bool) -> Change:
        store, topic = str(node.store), self.pipeline.topology.changelog_topic(str(node.store))
        held, offsets = self.deployed.held.get(store), self.deployed.state.offsets_of(topic)
        before = self._store_matches.get(store, ())
        if offsets and before and store not in before:
            return Change(
                Part.STORE,
                store,
                Verdict.REFUSED,
                f"the numbers in generated names have changed. {topic} exists, and probably belongs to another store. "
                f"The name of this store was {before[0]} before. The start does not see it and would use wrong values",
                f"Declare store={before[0]!r} here, and give each unnamed store the name that it had.",
            )
        if start.decision is not None and start.decision.start is StartFrom.CHECKPOINT:
            return Change(Part.STORE, store, Verdict.KEPT, f"nothing is restored. {topic} has {offsets:,} offsets")
        if is_new or offsets == 0:
            return self._empty_store(store, start.kafka)
        if held is None:
            declared = in_words(store_content(group, node))
            return Change(
                Part.STORE,
                store,
                Verdict.UNKNOWN,
                f"it is not known whether {topic} ({offsets:,} offsets) holds what is declared: {declared}. Kafka has "
                "no schema of a changelog, and this machine has no checkpoint that says it",
                f"Look at some values: python -m streamplan store {self.pipeline.name} --key KEY.",
            )
        if held != store_content(group, node):
            return self._other_content(group, node, held, is_noticed=False)
        return Change(Part.STORE, store, Verdict.REBUILT, f"from the {offsets:,} offsets of {topic}, at the next start")

    def _empty_store(self, store: str, kafka: KafkaState) -> Change:
        reason = "it begins empty"
        places = [place for place, at in sorted(kafka.positions.items()) if at > kafka.starts.get(place, 0)]
        if places:
            listed = ", ".join(
                f"{topic}-{number} at {kafka.positions[topic, number]:,}" for topic, number in places[:_LISTED]
            )
            reason += f", but the committed positions are later ({listed}): it lacks the records before them"
        remedy = ""
        if matches := self._store_matches.get(store):
            numbered = store in self.pipeline.topology.generated_names
            same = "It is probably the same store, renumbered" if numbered else "It may be the same store, renamed"
            reason += f". {same}: before it was {' or '.join(matches)}"
            remedy = f"To go on with it, declare {' or '.join(f'store={match!r}' for match in matches)}."
        return Change(Part.STORE, store, Verdict.NEW, reason, remedy)

    def _other_content(self, group: Subtopology, node: Processor, held: str, *, is_noticed: bool = True) -> Change:
        topic = self.pipeline.topology.changelog_topic(str(node.store))
        unnoticed = "" if is_noticed else ". The start does not notice it, and would go on with wrong values"
        return Change(
            Part.STORE,
            str(node.store),
            Verdict.REFUSED,
            f"{topic} holds {in_words(held)}, and {in_words(store_content(group, node))} is declared{unnoticed}",
            "Declare it as it was. Or upgrade the application: give the topology another application id and declare "
            f"upgrade_from={self.pipeline.topology.application_id!r}. Or reset it. Either way the store is "
            f"rebuilt from {self._origins(group)}.",
        )

    # -- where a new sub-topology begins

    def _beginning(self, group: Subtopology) -> str:
        parts = []
        for topic in self.pipeline.source_topics(group):
            writers = self._writers_of(topic)
            numbers = " and ".join(str(writer.id) for writer in writers)
            if self._stands_beside and not writers:
                begun = f"from where {self.pipeline.upgrade_from} began to read it"
                parts.append(f"{self.pipeline.name}_upgrade reads {topic} {begun}")
            elif any(map(self._has_positions, writers)):
                parts.append(f"{topic} gets what sub-topology {numbers} writes from its committed positions on")
            elif writers:
                parts.append(f"{topic} gets what sub-topology {numbers} writes, which is new, too")
            elif self.pipeline.start_moment.is_earliest or topic in self.pipeline.tables:
                parts.append(f"{topic} is read from its first record on")
            else:
                parts.append(f"{topic} is read from auto_offset_reset on, {self.pipeline.auto_offset_reset}")
        begins = "it begins with the upgrade" if self._stands_beside else "it begins now"
        return f"{begins}: {'; '.join(parts)}"

    def _reset(self, group: Subtopology) -> str:
        """What to do where a new sub-topology should have what was read before."""
        if any(store in self._store_matches for store in group.stores):
            return ""  # the store's own remedy is better
        topics = self.pipeline.source_topics(group)
        is_late = any(self._has_positions(writer) for topic in topics for writer in self._writers_of(topic))
        remedy = "If it must also have the earlier records, reset the application. Then the application reads {} again."
        return remedy.format(self._origins(group)) if is_late else ""

    def _writers_of(self, topic: str) -> Sequence[Subtopology]:
        """The sub-topologies that write a repartition topic; none for a topic from outside."""
        topology = self.pipeline.topology
        if topic in topology.source_topics:
            return ()
        return [group for group in self._groups if topic in map(topology.decorate, group.sink_topics)]

    def _origins(self, group: Subtopology) -> str:
        """The topics from outside from which the records of a sub-topology come."""
        waiting, found = [group], dict[int, Subtopology]()
        while waiting:
            current = waiting.pop()
            if current.id not in found:
                found[current.id] = current
                waiting += [
                    writer for topic in self.pipeline.source_topics(current) for writer in self._writers_of(topic)
                ]
        outside = {*self.pipeline.topology.source_topics}
        return ", ".join(sorted({topic for each in found.values() for topic in each.source_topics} & outside))

    def _has_positions(self, group: Subtopology) -> bool:
        topics = self.pipeline.source_topics(group)
        return any(topic in topics for topic, _ in self.deployed.state.committed)

    # -- what both sides have

    @property
    def _groups(self) -> Sequence[Subtopology]:
        return self.pipeline.topology.subtopologies

    def _stores_of(self, group: Subtopology) -> Sequence[Processor]:
        return [node for node in group.processors if node.writes_store]

    @cached_property
    def _topic_plan(self) -> TopicPlan:
        deployed = self.deployed
        return plan_topics(self.pipeline.topics(), deployed.topics, replication_factor=deployed.replication_factor)

    @property
    def _wrong_counts(self) -> bool:
        return any(difference.point == "partitions" for difference in self._topic_plan.differences)

    @cached_property
    def _store_matches(self) -> Mapping[str, Sequence[str]]:
        """By store that is new or has a number, the deployed store that it probably was."""
        contents = {str(node.store): store_content(group, node) for group, node in self.pipeline.stores}
        return self._matches(CHANGELOG, contents)

    @cached_property
    def _repartition_matches(self) -> Mapping[str, Sequence[str]]:
        return self._matches(REPARTITION, {})

    def _matches(self, suffix: str, operations: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Compare what is new, or has a number, with what is left over, or has a number."""
        new = {spec.name for spec in self._topic_plan.create}
        declared = [
            Likeness(base, spec.partitions, words(spec.configs["cleanup.policy"]), operations.get(base, ""))
            for spec in self.pipeline.internal_topics()
            for base in [self._base(spec.name, suffix)]
            if spec.name.endswith(suffix) and (spec.name in new or base in self.pipeline.topology.generated_names)
        ]
        numbered = {each.name for each in declared}
        deployed = [
            Likeness(
                base, topic.partitions, words(topic.configs.get("cleanup.policy", "")), self.deployed.held.get(base, "")
            )
            for name, topic in self.deployed.topics.items()
            for base in [self._base(name, suffix)]
            if name.endswith(suffix) and (name in self.deployed.records or base in numbered)
        ]
        return match_names(declared, deployed)

    def _base(self, topic: str, suffix: str) -> str:
        """The name of a store, or of a repartition topic, without the application id and the suffix."""
        return topic.removeprefix(f"{self.pipeline.topology.application_id}-").removesuffix(suffix)
