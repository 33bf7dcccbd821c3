"""Compaction: does each changelog have the policy that its store needs, and does compaction happen?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from streamplan.checks.discovery.changelogs import resolve_policy
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckContext, NotApplicable, Observation, existing
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.framework.consistent_cut import Deadline, attempt
from streamplan.checks.framework.log_cleaner import CleanerBacklog, Columns, CompactionRules, assess
from streamplan.errors import CouldNotLook
from streamplan.model.topics import ObservedTopic, TopicRole, TopicSpec, same_value, words

CLEANER_DEADLINE = Deadline(seconds=60.0, interval=5.0)
"""The cleaner wakes every ``log.cleaner.backoff.ms`` (15 s). What is still due after this time is overdue."""

CONFIGS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes", "min.compaction.lag.ms"})
"""The configs of compacted topics that belong to this check. The others belong to the check `topics`."""

MINIMA = frozenset({"retention.ms", "min.compaction.lag.ms"})
"""Of these a greater value is as good (``InternalTopicManager.validateCleanupPolicyFor…Changelogs``). -1: for ever."""

_CONSEQUENCES = {
    "cleanup.policy": "another policy loses what a restore needs, or keeps what nobody does; kafka-configs sets it",
    "retention.ms": "windows that are still open can be deleted; kafka-configs sets it",
    "retention.bytes": "windows that are still open can be deleted; kafka-configs sets it",
    "min.compaction.lag.ms": "versions that can still be asked for are compacted; kafka-configs sets it",
}

_STOPPED = "has the log cleaner stopped? The leader's log-cleaner.log tells; uncleanable-partitions-count should be 0"


def is_compacted(spec: TopicSpec) -> bool:
    """Whether a topic is a changelog, or was declared to be a table."""
    compacted = "compact" in words(spec.configs.get("cleanup.policy", ""))
    return spec.role is TopicRole.CHANGELOG or (spec.role is TopicRole.SOURCE and compacted)


@dataclass(frozen=True)
class CompactionCheck(Check):
    """Looks at the policy of every changelog and table, then at the records of each of its partitions."""

    name = "compaction"
    title = "Changelog compaction"
    healthy = (
        "Every changelog has the cleanup policy that its store needs, the topic of a table is compacted, and Kafka"
        " removes superseded records when min.cleanable.dirty.ratio and max.compaction.lag.ms of the topic say so."
    )
    every_minutes = 60

    full: bool = False
    deadline: Deadline = CLEANER_DEADLINE
    now: Callable[[], float] = time.time

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Require a changelog, or a topic that is declared to be a table."""
        return None if any(map(is_compacted, application.topics)) else NotApplicable("there is no changelog or table")

    def configure(self, context: CheckContext) -> Check:
        """Take whether to read every record."""
        return replace(self, full=context.full)

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the configs and the superseded records of compacted topics; see :class:`Check`."""
        specs = [spec for spec in application.topics if is_compacted(spec)]
        if not specs:
            raise CouldNotLook(
                f"{application.application_id} has nothing that is compacted",
                expected="a changelog or a table",
                observed="none",
            )
        if self.full:
            application = application.without_bounds()
        observed = existing(cluster, [spec.name for spec in specs])
        rows: list[Observation] = []
        written = False
        for spec in specs:
            topic = observed[spec.name]
            expected = _expected(application, cluster, spec, topic)
            configs = list(_configs(topic, expected))
            rows += configs
            offsets = cluster.offsets(spec.name)
            if any(partition.high_watermark for partition in offsets.values()):
                written = True
                if "compact" in words(expected["cleanup.policy"]) and configs[0].agrees:
                    most = max(application.limits.scanned_records // len(offsets), 1)
                    rows += _backlogs(cluster, topic, sorted(offsets), most, self.deadline, self.now)
        if not written and all(row.agrees for row in rows):
            listed = ", ".join(observed)
            raise CouldNotLook(f"the compaction of {listed}", expected="at least 1 record", observed="none")
        return rows


def _expected(application: Application, cluster: Cluster, spec: TopicSpec, topic: ObservedTopic) -> Mapping[str, str]:
    """Return the expected values of :data:`CONFIGS`, the policy first."""
    if application.declared:
        policy = spec.configs["cleanup.policy"]
        declared = {config: value for config, value in spec.configs.items() if config in CONFIGS}
    else:
        policy = attempt(partial(resolve_policy, cluster, topic))
        declared = {}
    unlimited = {"retention.bytes": "-1"} if "delete" in words(policy) else {}
    return {"cleanup.policy": policy, **unlimited, **declared}


def _configs(topic: ObservedTopic, expected: Mapping[str, str]) -> Iterable[Observation]:
    for config, value in expected.items():
        observed = topic.configs.get(config, "not set")
        subject = f"{topic.name}: {config}"
        if config in MINIMA:
            value = f"at least {value}"
            agrees = observed == "-1" or (observed != "not set" and int(observed) >= int(expected[config]))
        else:
            agrees = same_value(observed, value)
        yield Observation(subject, value, value if agrees else observed, "" if agrees else _CONSEQUENCES[config])


def _backlogs(
    cluster: Cluster,
    topic: ObservedTopic,
    partitions: Sequence[int],
    most: int,
    deadline: Deadline,
    now: Callable[[], float],
) -> Iterable[Observation]:
    """Read the first ``most`` records of each partition: the oldest ones must have been compacted."""
    rules = CompactionRules.of(topic.configs)
    backlogs: dict[int, CleanerBacklog] = {}
    complete: dict[int, bool] = {}
    for partition in partitions:
        columns = attempt(partial(_read, cluster, topic.name, partition, most))
        backlogs[partition] = assess(columns, rules, int(now() * 1000))
        complete[partition] = columns.complete
    # The cleaner may be about to begin, or at work: then what is due becomes less.
    waiting = {partition for partition, backlog in backlogs.items() if backlog.due}
    if waiting:
        for _ in deadline.waits():
            for partition in tuple(waiting):
                backlog = backlogs[partition]
                left = attempt(partial(_read, cluster, topic.name, partition, most, backlog.due_until))
                if left.superseded_below(backlog.due_until) < backlog.due:
                    backlogs[partition] = replace(backlog, due=0, being_cleaned=backlog.due)
                    waiting.remove(partition)
            if not waiting:
                break
    for partition, backlog in backlogs.items():
        described = _described(backlog, rules, complete=complete[partition])
        subject = f"{topic.name}-{partition}: superseded records overdue for compaction ({described})"
        yield Observation(subject, 0, backlog.due, _STOPPED if backlog.due else "")


def _described(backlog: CleanerBacklog, rules: CompactionRules, *, complete: bool) -> str:
    records = f"{backlog.records:,} records" if complete else f"the first {backlog.records:,} records"
    parts = [records, f"{backlog.live_keys:,} live keys"]
    parts += [f"{backlog.tombstones:,} tombstones"] if backlog.tombstones else []
    ratio = f"min.cleanable.dirty.ratio={rules.dirty_ratio:g}, at least {backlog.dirty_percent}% is dirty"
    why = {
        "perhaps in the active segment": backlog.active,
        f"perhaps within min.compaction.lag.ms={rules.min_lag_ms}": backlog.lagging,
        f"perhaps clean enough: {ratio}": backlog.clean_enough,
        "being compacted": backlog.being_cleaned,
        f"overdue below offset {backlog.due_until:,}: {ratio}": backlog.due,
    }
    kept = [f"{count:,} {reason}" for reason, count in why.items() if count]
    superseded = f"{backlog.superseded:,} superseded"
    parts.append(f"{superseded}: {'; '.join(kept)}" if kept else superseded)
    return ", ".join(parts)


def _read(cluster: Cluster, topic: str, partition: int, most: int, until: int | None = None) -> Columns:
    offsets = cluster.offsets(topic)[partition]
    last = offsets.last_stable if until is None else min(offsets.last_stable, until)
    columns = Columns(offsets.log_start)
    for batch in cluster.read(topic, {partition: (offsets.log_start, last)}):
        columns.add(batch)
        if len(columns) >= most and batch.offsets[-1] + 1 < last:
            columns.complete = False
            break
    return columns


CHECK = CompactionCheck()
