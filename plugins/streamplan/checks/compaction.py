"""Compaction: is it the policy that the store needs, and does it happen?"""

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
"""The cleaner wakes every ``log.cleaner.backoff.ms`` (15 s): what is due is overdue when it is still due after this."""

CONFIGS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes", "min.compaction.lag.ms"})
"""Configs of the topics it looks at that are this check's; the others are the check `topics`'s."""

MINIMA = frozenset({"retention.ms", "min.compaction.lag.ms"})
"""Of these more is as good (``InternalTopicManager.validateCleanupPolicyFor…Changelogs``); -1 is for ever."""

_OTHERWISE = {
    "cleanup.policy": "another policy loses what a restore needs, or keeps what nobody does; kafka-configs sets it",
    "retention.ms": "windows that are still open can be deleted; kafka-configs sets it",
    "retention.bytes": "windows that are still open can be deleted; kafka-configs sets it",
    "min.compaction.lag.ms": "versions that can still be asked for are compacted; kafka-configs sets it",
}

_STOPPED = "has the log cleaner stopped? The leader's log-cleaner.log tells; uncleanable-partitions-count should be 0"


def is_compacted(spec: TopicSpec) -> bool:
    """Changelogs, and topics that were declared to be tables."""
    compacted = "compact" in words(spec.configs.get("cleanup.policy", ""))
    return spec.role is TopicRole.CHANGELOG or (spec.role is TopicRole.SOURCE and compacted)


@dataclass(frozen=True)
class CompactionCheck(Check):
    """Looks at the policy of every changelog and table, then at the records of each of its partitions."""

    name = "compaction"
    title = "Changelog compaction"
    healthy = (
        "Every changelog has the cleanup policy that its store needs, a table's topic is compacted, and superseded"
        " records go when the topic's own configs say so: those outside the active segment, once they are more than"
        " min.cleanable.dirty.ratio of it or older than max.compaction.lag.ms."
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
            if any(found.high_watermark for found in offsets.values()):
                written = True
                if "compact" in words(expected["cleanup.policy"]) and configs[0].agrees:
                    most = max(application.limits.scanned_records // len(offsets), 1)
                    rows += _piles(cluster, topic, sorted(offsets), most, self.deadline, self.now)
        if not written and all(row.agrees for row in rows):
            listed = ", ".join(observed)
            raise CouldNotLook(f"the compaction of {listed}", expected="at least 1 record", observed="none")
        return rows


def _expected(application: Application, cluster: Cluster, spec: TopicSpec, topic: ObservedTopic) -> Mapping[str, str]:
    """Of :data:`CONFIGS`, the policy first."""
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
        found = topic.configs.get(config, "not set")
        subject = f"{topic.name}: {config}"
        if config in MINIMA:
            value = f"at least {value}"
            agrees = found == "-1" or (found != "not set" and int(found) >= int(expected[config]))
        else:
            agrees = same_value(found, value)
        yield Observation(subject, value, value if agrees else found, "" if agrees else _OTHERWISE[config])


def _piles(
    cluster: Cluster,
    topic: ObservedTopic,
    partitions: Sequence[int],
    most: int,
    deadline: Deadline,
    now: Callable[[], float],
) -> Iterable[Observation]:
    """Of each partition the first ``most`` records: the oldest are what must have been compacted."""
    rules = CompactionRules.of(topic.configs)
    piles: dict[int, CleanerBacklog] = {}
    complete: dict[int, bool] = {}
    for partition in partitions:
        columns = attempt(partial(_read, cluster, topic.name, partition, most))
        piles[partition] = assess(columns, rules, int(now() * 1000))
        complete[partition] = columns.complete
    # The cleaner may be about to begin, or at work: then what is due becomes less.
    waiting = {partition for partition, pile in piles.items() if pile.due}
    if waiting:
        for _ in deadline.waits():
            for partition in tuple(waiting):
                pile = piles[partition]
                left = attempt(partial(_read, cluster, topic.name, partition, most, pile.due_until))
                if left.superseded_below(pile.due_until) < pile.due:
                    piles[partition] = replace(pile, due=0, being_cleaned=pile.due)
                    waiting.remove(partition)
            if not waiting:
                break
    for partition, pile in piles.items():
        described = _described(pile, rules, complete=complete[partition])
        subject = f"{topic.name}-{partition}: superseded records overdue for compaction ({described})"
        yield Observation(subject, 0, pile.due, _STOPPED if pile.due else "")


def _described(pile: CleanerBacklog, rules: CompactionRules, *, complete: bool) -> str:
    records = f"{pile.records:,} records" if complete else f"the first {pile.records:,} records"
    parts = [records, f"{pile.live_keys:,} live keys"]
    parts += [f"{pile.tombstones:,} tombstones"] if pile.tombstones else []
    ratio = f"min.cleanable.dirty.ratio={rules.dirty_ratio:g}, at least {pile.dirty_percent}% is dirty"
    why = {
        "perhaps in the active segment": pile.active,
        f"perhaps within min.compaction.lag.ms={rules.min_lag_ms}": pile.lagging,
        f"perhaps clean enough: {ratio}": pile.clean_enough,
        "being compacted": pile.being_cleaned,
        f"overdue below offset {pile.due_until:,}: {ratio}": pile.due,
    }
    kept = [f"{count:,} {reason}" for reason, count in why.items() if count]
    superseded = f"{pile.superseded:,} superseded"
    parts.append(f"{superseded}: {'; '.join(kept)}" if kept else superseded)
    return ", ".join(parts)


def _read(cluster: Cluster, topic: str, partition: int, most: int, until: int | None = None) -> Columns:
    found = cluster.offsets(topic)[partition]
    last = found.last_stable if until is None else min(found.last_stable, until)
    columns = Columns(found.log_start)
    for batch in cluster.read(topic, {partition: (found.log_start, last)}):
        columns.add(batch)
        if len(columns) >= most and batch.offsets[-1] + 1 < last:
            columns.complete = False
            break
    return columns


CHECK = CompactionCheck()
