"""Lag and liveness: is the position of every stream task right, and does it move?

Positions are those of the consumer group ``<application.id>``. A position may stay before the last offsets of a
partition when these offsets hold only transaction markers or aborted records. (Kafka Streams' ``StreamTask.findOffset``
passes them, other libraries do not.) So the check reads the committed records behind a position: they are unprocessed.

The members of the group are those who run. The aggregator of a declared application is a member under a client id that
it is known by. Any other member could move the positions: nothing keeps a member from committing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckContext, Observation, existing, limit
from streamplan.checks.framework.consistent_cut import Deadline, some_of
from streamplan.checks.framework.task_inputs import TaskInput, count_unprocessed, read_inputs, task_moves, watch_inputs
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.model.group_member import Member
from streamplan.model.status import HEARTBEAT_TIMEOUT_SECONDS, AggregatorState, AggregatorStatus

LAG_DEADLINE = Deadline(seconds=90.0, interval=0.25)
"""Longer than the ``commit.interval.ms`` of ``at_least_once`` (30 s), than a slow micro-batch, and than a restart."""

LAG_RECORDS, LAG_SECONDS = "lag_records", "lag_seconds"
"""The figures of a stream task: how many records it has to process, and the age of the oldest of them."""

_HEALTHY = "caught up or moving"

_SEPARATE = "stop them, or give them a group of their own"


@dataclass(frozen=True)
class LagCheck(Check):
    """Looks at the aggregator's status, then at every partition that is read, until nothing is suspicious."""

    name = "lag"
    title = "Lag and liveness"
    healthy = (
        "Every stream task has processed all records, or its position moves; no position is missing or out of range, no"
        " transaction hangs, an aggregator that says it runs sends heartbeats and holds no partition back, and its"
        " group has no foreign member."
    )
    advice = Advice.LAG

    aggregator: AggregatorStatus | None = None
    deadline: Deadline = LAG_DEADLINE
    now: Callable[[], float] = time.time
    unreadable_status: str = ""

    def configure(self, context: CheckContext) -> Check:
        """Take the aggregator's status, and who is told of the wait."""
        return replace(
            self,
            aggregator=context.aggregator,
            unreadable_status=context.unreadable_status,
            deadline=self.deadline.reporting(context.report),
        )

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the aggregator and each stream task; see :class:`Check`."""
        rows = list(_alive(self.aggregator, self.now()))
        if self.unreadable_status:
            rows.append(
                Observation("the status of the aggregator", "can be read", "cannot be read", self.unreadable_status)
            )
        existing(cluster, application.sources)
        inputs = read_inputs(application, cluster)
        count_unprocessed(application.application_id, cluster, inputs)
        seen_at = self.now()
        watch_inputs(application.application_id, cluster, inputs, self.deadline)
        suspects = [item for item in inputs if item.unprocessed.records and not item.moved]
        if suspects:
            count_unprocessed(application.application_id, cluster, suspects)
            seen_at = self.now()
        members = cluster.members(application.application_id)  # after the wait, so that it says who is there now
        runs = f"group {application.application_id}: {_described(members)}"
        rows.append(_member_row(application, runs, members))
        for item in inputs:
            rows += _rows(application, item, inputs, self.deadline, seen_at, runs)
        if not any(item.offsets.high_watermark for item in inputs) and all(row.agrees for row in rows):
            subject = f"the lag of {application.application_id}"
            raise CouldNotLook(subject, expected="at least 1 record", observed="none")
        return rows


def _alive(status: AggregatorStatus | None, now: float) -> Iterable[Observation]:
    if status is None:
        return
    expected = f"a heartbeat within {HEARTBEAT_TIMEOUT_SECONDS:g} s"
    age = status.age(now)
    dead = status.is_silent(now)
    yield Observation(
        f"the aggregator, pid {status.pid} on {status.host}, says {status.state}",
        expected,
        f"none for {age:,.0f} s: it was killed, is stopped or hangs" if dead else expected,
    )
    if status.state is AggregatorState.RUNNING and not dead:
        for error in status.held:
            yield Observation("the partitions of the aggregator", "none is held back", error, advice=Advice.HELD)


def _described(members: Sequence[Member] | None) -> str:
    if members is None:
        return "its members cannot be seen, because its protocol is streams"
    if not members:
        return "no member, so no instance runs"
    return f"{len(members):,} member{'s' if len(members) > 1 else ''}, {some_of([str(member) for member in members])}"


def _member_row(application: Application, subject: str, members: Sequence[Member] | None) -> Observation:
    """Return the row about the members. Those of an application that nobody declared are its own, whoever they are."""
    if not application.declared:
        return Observation(subject, "members of the application", "members of the application")
    expected = "only aggregators of this application"
    if members is None:
        observed = "a group of Kafka Streams: its members can move the positions"
        return Observation(subject, expected, observed, _SEPARATE, advice=Advice.FOREIGN_MEMBER)
    foreign = [str(member) for member in members if member.instance is None]
    if not foreign:
        return Observation(subject, expected, expected)
    observed = f"a foreign member: {some_of(foreign)}: it can move the positions"
    return Observation(subject, expected, observed, _SEPARATE, advice=Advice.FOREIGN_MEMBER)


def _rows(
    application: Application, item: TaskInput, inputs: Sequence[TaskInput], deadline: Deadline, now: float, runs: str
) -> Iterable[Observation]:
    unprocessed, group = item.unprocessed, application.application_id
    age = now - unprocessed.oldest / 1000 if unprocessed.oldest is not None and unprocessed.oldest >= 0 else None
    figures: dict[str, float] = {LAG_RECORDS: unprocessed.records}
    if age is not None or not unprocessed.records:
        figures[LAG_SECONDS] = round(max(age or 0.0, 0.0), 1)
    subject = f"{item.title}: "
    if unprocessed.records:
        records = f"{unprocessed.records:,} record{'s' if unprocessed.records > 1 else ''} to process"
        subject += records if unprocessed.exact else f"up to {records}"
        subject += f", the oldest {_duration(age)} old" if age is not None else ""
    else:
        subject += "no record to process"
    within = f"within {deadline.seconds:g} s"
    if item.beyond_end:
        yield Observation(
            f"{item.title}: position of group {group}",
            f"at most {item.offsets.high_watermark}, the end of the partition",
            f"{item.position}: was the topic recreated or truncated?",
            advice=Advice.POSITIONS,
        )
    elif item.deleted:
        yield Observation(
            f"{item.title}: position of group {group}",
            f"at least {item.offsets.log_start}, the start of the partition",
            f"{item.position}: {item.deleted:,} offsets were deleted before they were processed",
            advice=Advice.POSITIONS,
        )
    elif not unprocessed.records or task_moves(item, inputs):
        yield Observation(subject, _HEALTHY, _HEALTHY, figures=figures)
    elif item.position is None:
        yield Observation(subject, f"a committed position of group {group}", f"none {within}", runs, figures=figures)
    else:
        since = f"since {item.name} offset {item.position}; {runs}"
        yield Observation(subject, _HEALTHY, f"has not moved {within}", since, figures=figures)
    if item.open_transaction:
        yield Observation(
            f"{item.name}: transactions",
            f"each ends {within}",
            f"one is open since offset {item.offsets.last_stable}, and what follows cannot be read",
            advice=Advice.HANGING_TRANSACTION,
        )
    bound = application.limits.lag_seconds
    if bound is not None:
        seconds = round(max(age or 0.0, 0.0), 1)
        yield limit(f"{item.title}: age of the oldest record to process", seconds, bound, " s")


def _duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``2 days``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


CHECK = LagCheck()
