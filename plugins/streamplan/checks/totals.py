"""Totals: is every record of the source counted once, or dead-lettered once, or still on its way?

Where everything agrees, the cut is stored. The next run then reads what has come since, and no more. So its cost
follows the number of new records, and input that was verified may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckContext, NotApplicable, Observation, SparkJob
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.checks.framework.verified import NoVerifiedStore, StateStoreTotals, VerifiedStore
from streamplan.checks.recount.reader import TotalsReader
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster


@dataclass(frozen=True)
class TotalsCheck(Check):
    """Recounts what has come since the last verified cut and compares; exact, also while the stream runs.

    Where only Spark can compute a topology anew, its rows are those of ``jobs/recount.py``.
    """

    name = "totals"
    title = "Totals"
    healthy = (
        "Every record up to the committed positions has its effect exactly once in what the pipeline holds and writes,"
        " or stands in the dead-letter topic."
    )
    advice = Advice.TOTALS
    distributed = True
    stores_verified_cut = True

    full: bool = False
    verified: VerifiedStore = field(default_factory=NoVerifiedStore)
    state_store: StateStoreTotals | None = None
    recounted: Callable[[], Iterable[Observation]] | None = None
    deadline: Deadline = field(default_factory=Deadline)

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Require a count that can be recounted here, or the rows of a recount by Spark."""
        if application.aggregations or self.recounted is not None:
            return None
        if application.declared:
            return NotApplicable(
                "only Spark can recount this pipeline",
                f"the tasks recount and totals of {application.name}_health do it in Airflow",
            )
        return NotApplicable("there is no count that can be recounted without Spark", "describe a count with --count")

    def spark_jobs(self, application: Application) -> frozenset[SparkJob]:
        """Return the job that reads the state store, as a third opinion on a count; else the recount."""
        return frozenset({SparkJob.STATE_STORE if application.aggregations else SparkJob.RECOUNT})

    def configure(self, context: CheckContext) -> Check:
        """Take the verified cut, every other opinion on the totals, and who is told of the wait."""
        return replace(
            self,
            full=context.full,
            verified=context.verified,
            state_store=context.state_store,
            recounted=context.recounted,
            deadline=self.deadline.reporting(context.report),
        )

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the total of each key; see :class:`Check`."""
        if not application.aggregations and self.recounted is not None:
            yield from self.recounted()
            return
        if not application.aggregations:
            raise CouldNotLook(
                f"the totals of {application.name}",
                expected="a count of records by a field or by their key",
                observed="a topology that only Spark can compute again",
                remedy="Run the job recount, as the task totals does.",
            )
        for aggregation in application.aggregations:
            reader = TotalsReader(aggregation, cluster, self.verified, self.deadline, self.state_store)
            yield from reader.observe(full=self.full)


CHECK = TotalsCheck()
