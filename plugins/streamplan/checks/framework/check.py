"""What a check is, what it is given, and what comes out of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from threading import Thread

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.consistent_cut import tell_nobody
from streamplan.checks.framework.verified import NoVerifiedStore, StateStoreTotals, VerifiedStore
from streamplan.errors import CouldNotLook, StreamplanError
from streamplan.kafka_port import Cluster
from streamplan.model.status import AggregatorStatus
from streamplan.model.topics import ObservedTopic, TopicRole, resolve_replication_factor

NOT_JUDGED = "not judged"
"""What stands in a row about something that the check can tell nothing about."""


class Outcome(StrEnum):
    """What a check came to. A check that could not look neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_LOOK = "could not look"


NAMED_UNJUDGED = 10
"""The reason of a check names at most this many rows that are not judged. The others are counted."""

FOR_INFORMATION = "for information"
"""Expected and observed in a row that nothing can be wrong with."""


@dataclass(frozen=True)
class Observation:
    """One row of a check: healthy means that ``observed`` equals ``expected``.

    Attributes:
        subject: What was looked at.
        expected: A number, or words.
        observed: The same of what was found.
        where: Where to look if the row is wrong: ``"since orders-0 offset 120 and orders-1 offset 98"``.
        figures: Numbers that belong to the row and are kept in the history, by their name: ``{"lag_records": 12}``.
        topic: The topic in which it is wrong, where the subject names another topic, too.
        advice: What to do next if the row is wrong; empty for what its check says of every row.
    """

    subject: str
    expected: str | int
    observed: str | int
    where: str = field(default="", compare=False)
    figures: Mapping[str, float] = field(default_factory=dict, compare=False, kw_only=True)
    topic: str = field(default="", compare=False, kw_only=True)
    advice: str = field(default="", compare=False, kw_only=True)

    @property
    def agrees(self) -> bool:
        """Whether what was observed is what was expected, or nothing was judged."""
        return self.expected == self.observed

    @property
    def is_judged(self) -> bool:
        """Whether the row says anything about health. One of :func:`not_judged` says why it does not."""
        return self.observed != NOT_JUDGED

    @property
    def is_remark(self) -> bool:
        """Whether the row says what people should know although nothing is wrong. The reason of a pass names it."""
        return self.expected == self.observed == FOR_INFORMATION


@dataclass(frozen=True)
class NotApplicable:
    """Why a check has nothing to look at in an application.

    Attributes:
        reason: One sentence without a capital letter and a full stop.
        remedy: What the user can do so that the check applies; may be empty.
    """

    reason: str
    remedy: str = ""


class SparkJob(StrEnum):
    """A Spark job whose result a check takes from its context: its file in ``jobs/`` and its task id in Airflow."""

    RECOUNT = "recount"
    STATE_STORE = "state_store"


@dataclass(frozen=True)
class CheckContext:
    """What a check may be given besides the application and the cluster. Each check takes from it what it can use.

    Attributes:
        full: Look at every record: not at a sample, and not only at what came since the last verified cut.
        verified: The store of the last verified cut.
        verified_topics: The topics of every verified cut of an application that is not declared, each with where that
            stands.
        aggregator: The last status that the aggregator wrote; None where none is known.
        unreadable_status: Why the aggregator's status cannot be read; empty where it can, and where there is none.
        state_store: What Spark's state store held when ``jobs/state_store.py`` last read it.
        recounted: Reads the observations of ``jobs/recount.py``; None where that job is not run.
        report: Is told what the check waits for (:class:`streamplan.checks.framework.consistent_cut.Deadline`).
    """

    full: bool = False
    verified: VerifiedStore = field(default_factory=NoVerifiedStore)
    verified_topics: Mapping[str, str] = field(default_factory=dict)
    aggregator: AggregatorStatus | None = None
    unreadable_status: str = ""
    state_store: StateStoreTotals | None = None
    recounted: Callable[[], Iterable[Observation]] | None = None
    report: Callable[[str], None] = tell_nobody


class Check:
    """One question that is asked of a running application. A subclass for each check; ``CHECKS`` holds an instance.

    Attributes:
        name: The task id in Airflow and the file name of the check's results.
        title: A heading of a few words.
        healthy: One sentence that says what healthy means. Airflow, the Data Docs and the command line show it.
        advice: What to do next about a wrong row that has no advice of its own.
        every_minutes: How long a schedule leaves the check alone once it has passed; for checks that read much.
        distributed: Whether Spark's executors can share the reading (``jobs/check.py``).
        stores_verified_cut: Whether a pass moves the verified cut, below which repartition records may be purged.
    """

    name: str
    title: str
    healthy: str
    advice: str = ""
    every_minutes: int = 0
    distributed: bool = False
    stores_verified_cut: bool = False

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Return why the check has nothing to look at in the application, or None if it applies."""
        return None

    def spark_jobs(self, application: Application) -> frozenset[SparkJob]:
        """Return the Spark jobs that have to run before this check of a declared application."""
        return frozenset()

    def configure(self, context: CheckContext) -> Check:
        """Return the same check with what it takes from the context."""
        return self

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Look at the application. Reads only: writes nothing to Kafka and creates no topic.

        Returns:
            One observation for each thing that was looked at. No observation at all is a failure.

        Raises:
            CouldNotLook: The check could not decide.
        """
        raise NotImplementedError


class RecordedCheck(Check):
    """A check whose observations were made before, for example by a Spark job that wrote them to a file."""

    def __init__(self, check: Check, read: Callable[[], Iterable[Observation]]) -> None:
        self.name, self.title, self.healthy, self.advice = check.name, check.title, check.healthy, check.advice
        self._read = read

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Return the observations that were made before."""
        return self._read()


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one run of a check. The field names are keys in ``reports/<pipeline>/<check>.json``.

    Attributes:
        pipeline: The name of the application.
        check: The name of the check.
        outcome: Passed, failed or could not look.
        reason: One line.
        at: When the run began, ISO 8601 in UTC.
        observations: All rows.
        data_docs: The page of the run, relative to the directory of all reports.
        figures: The greatest of each figure of the rows. The history keeps them, also those of rows that agree.
        advice: What to do next: a sentence for each kind of wrong row.
        task: The DAG, the run and the task in Airflow that looked; empty where the command line did.
    """

    pipeline: str
    check: str
    outcome: Outcome
    reason: str
    at: str
    observations: tuple[Observation, ...]
    data_docs: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)
    advice: tuple[str, ...] = ()
    task: tuple[str, ...] = ()

    @property
    def not_judged(self) -> tuple[Observation, ...]:
        """The rows that judge nothing, and say why."""
        return tuple(row for row in self.observations if not row.is_judged)


def run_check(application: Application, check: Check, cluster: Cluster) -> CheckResult:
    """Run a check once.

    The command line, Airflow, Spark jobs and ``streamplan.testing`` all run checks with this function. The check is
    configured before (:meth:`Check.configure`).

    Returns:
        The result. A check that failed or could not look raises nothing: the outcome and the reason say so.
    """
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    observations: tuple[Observation, ...] = ()
    advice: dict[str, None] = {}
    try:
        observations = tuple(check.observe(application, cluster))
        outcome, reason = _outcome(observations), explain(observations)
        advice = {row.advice or check.advice: None for row in observations if not row.agrees}
    except StreamplanError as error:
        outcome, reason = Outcome.COULD_NOT_LOOK, " ".join(str(error).split())
    except Exception as error:  # noqa: BLE001  # a fault of one check takes nothing from what the others found
        outcome, reason = Outcome.COULD_NOT_LOOK, _unexpected(error)
    figures: dict[str, float] = {}
    for row in observations:
        figures |= {name: max(figure, figures.get(name, figure)) for name, figure in row.figures.items()}
    return CheckResult(
        application.name, check.name, outcome, reason, at, observations, None, figures, tuple(filter(None, advice))
    )


def _outcome(observations: Sequence[Observation]) -> Outcome:
    if not all(row.agrees for row in observations) or not observations:
        return Outcome.FAILED
    compared = any(row.is_judged and not row.is_remark for row in observations)
    return Outcome.PASSED if compared else Outcome.COULD_NOT_LOOK


def _unexpected(error: Exception) -> str:
    """Return one line about an exception that no check is expected to raise: its type, its text and its place."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}"
    text = " ".join(traceback.format_exception_only(error)[0].split())
    return f"an unexpected error: {text} ({place}). No other check is affected. Report it as a fault of Streamplan."


def run_checks(
    application: Application,
    checks: Sequence[Check],
    connect: Callable[[], Cluster],
    *,
    finished: Callable[[CheckResult], None] = lambda result: None,
) -> list[CheckResult]:
    """Run checks beside each other, each in a thread, so that one that has to wait holds no other up.

    Args:
        checks: The checks, configured.
        connect: Returns a cluster. Each check has its own, because a cluster belongs to one thread.
        finished: Is told each result at once, in the thread of the check.

    Returns:
        The results in the order of the checks.
    """

    def run(check: Check) -> CheckResult:
        result = run_check(application, check, connect())
        finished(result)
        return result

    futures = [_in_thread(partial(run, check)) for check in checks]
    return [future.result() for future in futures]


def _in_thread(run: Callable[[], CheckResult]) -> Future[CheckResult]:
    """Call a function in a thread that does not keep the process: who interrupts a command need not wait for it."""
    future: Future[CheckResult] = Future()

    def call() -> None:
        try:
            future.set_result(run())
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
            future.set_exception(error)

    Thread(target=call, daemon=True).start()
    return future


def existing(cluster: Cluster, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
    """Return the topics of these names.

    Raises:
        CouldNotLook: A topic is missing. That is a finding of the check `topics` alone.
    """
    topics = cluster.topics(names)
    if missing := [name for name in names if name not in topics]:
        raise CouldNotLook(
            f"topic {', '.join(missing)}",
            expected="exists",
            observed="missing",
            remedy="Look at the result of the check `topics`: it has a row for each missing topic.",
        )
    return topics


def expected_replication(application: Application, cluster: Cluster) -> int | None:
    """Return how many replicas the topics of an application should have.

    For a declared application it is what its topics are created with: a replica on each broker, up to 3. For a
    discovered one it is the greatest replication factor of the topics that it reads from outside: what is derived from
    their records is worth as much. (Its config ``replication.factor`` cannot be seen.)

    Returns:
        None where none of those topics exists.
    """
    if application.declared:
        return resolve_replication_factor(len(cluster.broker_ids()))
    sources = cluster.topics([spec.name for spec in application.with_role(TopicRole.SOURCE)])
    return max((topic.replication_factor for topic in sources.values()), default=None)


def not_judged(subject: str, reason: str, *, topic: str = "") -> Observation:
    """Return a row about something that the check can tell nothing about. It never counts as a healthy one."""
    return Observation(subject, NOT_JUDGED, NOT_JUDGED, reason, topic=topic)


def limit(subject: str, value: float, most: float, unit: str = "") -> Observation:
    """Return a row about a number that must not be greater than ``most``. The number is part of the subject."""
    allowed, shown = f"at most {_figure(most)}{unit}", f"{_figure(value)}{unit}"
    return Observation(f"{subject}: {shown}", allowed, allowed if value <= most else shown)


def at_least(subject: str, value: int, least: int, unit: str = "") -> Observation:
    """Return a row about a number that must not be less than ``least``. The number is part of the subject."""
    allowed, shown = f"at least {_figure(least)}{unit}", f"{_figure(value)}{unit}"
    return Observation(f"{subject}: {shown}", allowed, allowed if value >= least else shown)


def _figure(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def explain(observations: Sequence[Observation]) -> str:
    """Return one line: how many rows agree, or how many are wrong and the first of them.

    Behind that stand the remarks, and the rows that are not judged, each with the reason. Neither counts.
    """
    if not observations:
        return "nothing to look at: the check found no rows"
    judged = [row for row in observations if row.is_judged and not row.is_remark]
    others = [row for row in observations if not row.is_judged]
    wrong = [row for row in judged if not row.agrees]
    found = f"{len(judged)} of {len(judged)} as expected" if judged else ""
    if wrong:
        first = next((row for row in wrong if row.where), wrong[0])
        found = f"{len(wrong)} of {len(judged)} wrong: {sentence(first)}"
    remarks = [] if wrong else [row.subject for row in observations if row.is_remark]
    return "; ".join(filter(None, (found, *remarks, _unjudged(others))))


def _unjudged(rows: Sequence[Observation]) -> str:
    """Name the rows that are not judged, those with the same reason together; empty without one."""
    subjects: dict[str, list[str]] = {}
    for row in rows[:NAMED_UNJUDGED]:
        subjects.setdefault(row.where, []).append(row.subject)
    said = [": ".join(filter(None, (", ".join(of_reason), reason))) for reason, of_reason in subjects.items()]
    if len(rows) > NAMED_UNJUDGED:
        said.append(f"and {len(rows) - NAMED_UNJUDGED:,} more")
    return f"{len(rows):,} not judged: {'; '.join(said)}" if rows else ""


def sentence(row: Observation) -> str:
    """Return a wrong row in words."""
    difference = ""
    if isinstance(row.expected, int) and isinstance(row.observed, int) and row.expected:
        amount = row.observed - row.expected
        difference = f", {abs(amount):,} too {'many' if amount > 0 else 'few'}"
    where = f" ({row.where})" if row.where else ""
    return f"{row.subject}: expected {row.expected}, observed {row.observed}{difference}{where}"
