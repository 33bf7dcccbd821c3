"""Compaction: does each changelog have the policy that its store needs, and does compaction happen?

Some configs defeat compaction, in the topic or as a default of the brokers. They are a fault in themselves, before a
superseded record is there. The rules are those of ``LogCleanerManager`` (``grabFilthiestCompactedLog``,
``cleanableOffsets``, ``maxCompactionDelay``) and ``LogConfig`` of Kafka 4.3:

- A closed segment is compacted only when its latest record is older than ``min.compaction.lag.ms``, whatever else is
  set. ``max.compaction.lag.ms`` cannot help: Kafka refuses one that is less (``LogConfig.validateValues``).
- A log is compacted when its dirty share is greater than ``min.cleanable.dirty.ratio``. No share is greater than 1. A
  log of which nothing was compacted yet has a share of 1. So a ratio just below 1 leaves the log to grow to many times
  its live records.
- A log is also compacted when a dirty closed segment is older than ``max.compaction.lag.ms``, whatever the ratio is.
  This config closes segments, too (``LogConfig.maxSegmentMs``).
- ``segment.ms`` does not defeat compaction: ``segment.bytes``, 2 GiB at most, closes the segment
  (``LogSegment.shouldRoll``).
- With the policy ``compact,delete`` a segment older than ``retention.ms`` is deleted. Where compaction comes later than
  that, it never comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from streamplan.checks.discovery.changelogs import resolve_policy
from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckContext, NotApplicable, Observation, existing
from streamplan.checks.framework.consistent_cut import Deadline, attempt, some_of
from streamplan.checks.framework.log_cleaner import CleanerBacklog, Columns, CompactionRules, assess
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.model.topics import ObservedTopic, TopicRole, TopicSpec, same_value, words

CLEANER_DEADLINE = Deadline(seconds=60.0, interval=5.0)
"""The cleaner wakes every ``log.cleaner.backoff.ms`` (15 s). What is still due after this time is overdue."""

CONFIGS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes", "min.compaction.lag.ms"})
"""The configs of compacted topics that belong to this check. The others belong to the check `topics`."""

MINIMA = frozenset({"retention.ms", "min.compaction.lag.ms"})
"""Of these a greater value is as good (``InternalTopicManager.validateCleanupPolicyFor…Changelogs``). -1: for ever."""

LONGEST_LAG_MS = 10 * 365 * 86_400_000
"""Ten years. Where Kafka lets superseded records be for longer, compaction is as good as switched off."""

MOST_DIRTY_RATIO = 0.99
"""With a greater ratio a log grows to more than 100 times its live records before it is compacted."""

_CONSEQUENCES = {
    "cleanup.policy": "this policy deletes what a restore needs, or keeps too much",
    "retention.ms": "windows that are still open can be deleted",
    "retention.bytes": "windows that are still open can be deleted",
    "min.compaction.lag.ms": "versions that can still be read are compacted",
}

_DEFEATED = (
    "Kafka never compacts the topic: it grows, and restores read all of it. Set the config of the topic, or the"
    " brokers' default {default}"
)

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
        "Every changelog has the cleanup policy that its store needs, the topic of a table is compacted, no config"
        " defeats compaction, and Kafka removes superseded records when min.cleanable.dirty.ratio and"
        " max.compaction.lag.ms of the topic say so."
    )
    advice = Advice.COMPACTION
    every_minutes = 60

    full: bool = False
    deadline: Deadline = CLEANER_DEADLINE
    now: Callable[[], float] = time.time

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Require a changelog, or a topic that is declared to be a table."""
        return None if any(map(is_compacted, application.topics)) else NotApplicable("there is no changelog or table")

    def configure(self, context: CheckContext) -> Check:
        """Take whether to read every record, and who is told of the wait."""
        return replace(self, full=context.full, deadline=self.deadline.reporting(context.report))

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
            compacted = "compact" in words(expected["cleanup.policy"]) and configs[0].agrees
            if compacted:
                rows += _undefeated(topic, expected)
            offsets = cluster.offsets(spec.name)
            if any(partition.high_watermark for partition in offsets.values()):
                written = True
                if compacted:
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
        yield _allowed(subject, value, observed, agrees, _CONSEQUENCES[config])


def _undefeated(topic: ObservedTopic, expected: Mapping[str, str]) -> Iterable[Observation]:
    """Yield whether the configs of a compacted topic let Kafka compact it at all. The module says the rules.

    The lag of a versioned store is what its history needs, however long that is.
    """
    rules = CompactionRules.of(topic.configs)
    retention_ms = int(topic.configs.get("retention.ms", -1)) if "delete" in words(expected["cleanup.policy"]) else -1
    longest = min(LONGEST_LAG_MS, retention_ms) if retention_ms >= 0 else LONGEST_LAG_MS
    needed = int(expected.get("min.compaction.lag.ms", 0))
    yield _allowed(
        f"{topic.name}: min.compaction.lag.ms, the age at which Kafka may compact a record",
        f"at most {max(longest, needed)}",
        str(rules.min_lag_ms),
        rules.min_lag_ms <= max(longest, needed),
        _DEFEATED.format(default="log.cleaner.min.compaction.lag.ms"),
    )
    yield _allowed(
        f"{topic.name}: min.cleanable.dirty.ratio or max.compaction.lag.ms, by which Kafka compacts",
        f"a ratio of at most {MOST_DIRTY_RATIO} or a lag of at most {longest}",
        f"a ratio of {rules.dirty_ratio:g} and a lag of {rules.max_lag_ms}",
        rules.dirty_ratio <= MOST_DIRTY_RATIO or rules.max_lag_ms <= longest,
        _DEFEATED.format(default="log.cleaner.min.cleanable.ratio"),
    )


def _allowed(subject: str, expected: str, observed: str, agrees: bool, consequence: str) -> Observation:
    return Observation(subject, expected, expected if agrees else observed, "" if agrees else consequence)


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
        due = some_of([f"{topic.name}-{partition}" for partition in sorted(waiting)])
        for _ in deadline.waits(f"the log cleaner removes superseded records of {due}"):
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
        yield Observation(subject, 0, backlog.due, _STOPPED if backlog.due else "", advice=Advice.LOG_CLEANER)


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
