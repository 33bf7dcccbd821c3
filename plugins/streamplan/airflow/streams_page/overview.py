"""Looks at all pipelines for the overview, without asking the brokers more often than somebody can read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from streamplan.airflow.connections import brokers_in, connection
from streamplan.checks.framework.check import CheckResult
from streamplan.checks.lag import CHECK as LAG
from streamplan.checks.totals import CHECK as TOTALS
from streamplan.errors import BrokersUnavailable, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.pipeline import Pipeline
from streamplan.observability.observed import Observed
from streamplan.observability.overview import HOURS, ApplicationRow, not_asked, summarize
from streamplan.observability.sampler import Sampler
from streamplan.observability.verified_days import DAYS
from streamplan.reports.results import MOST_RESULTS, read_history

ROW_SECONDS = 15.0
"""A row is asked for again after this time."""

LOOK_SECONDS = 2.0
"""After this time no further pipeline is looked at for one answer. The next answer goes on with the oldest rows."""


class Overview:
    """The rows of all pipelines that somebody looks at. All who look share them.

    Args:
        connect: Makes the cluster that a connection names. The pipelines of a connection share it: fifty pipelines
            need no fifty clients.
    """

    def __init__(self, connect: Callable[[str], KafkaCluster]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._clusters: dict[str, tuple[Brokers, KafkaCluster]] = {}
        self._samplers: dict[str, tuple[Pipeline, KafkaCluster, Sampler]] = {}
        self._rows: dict[str, tuple[float, ApplicationRow]] = {}

    def rows(self, pipelines: Sequence[Pipeline], reports: Path) -> list[ApplicationRow]:
        """Return the rows of some pipelines. One that was not looked at yet is missing, and comes with a later answer.

        Args:
            pipelines: Those that a person may see.
            reports: The directory of all reports.
        """
        with self._lock:
            began = time.monotonic()
            away: dict[KafkaCluster, str] = {}
            for pipeline in sorted(pipelines, key=self._looked_at):
                if began - self._looked_at(pipeline) < ROW_SECONDS:
                    break
                _, cluster = self._clusters.get(pipeline.kafka_conn_id, (None, None))
                if time.monotonic() - began > LOOK_SECONDS and not (cluster and away.get(cluster)):
                    continue  # of brokers that are away there is nothing to wait for
                row = self._look(pipeline, reports, away)
                self._rows[pipeline.name] = time.monotonic(), row
            return [self._rows[each.name][1] for each in pipelines if each.name in self._rows]

    def _looked_at(self, pipeline: Pipeline) -> float:
        return self._rows[pipeline.name][0] if pipeline.name in self._rows else float("-inf")

    def _look(self, pipeline: Pipeline, reports: Path, away: dict[KafkaCluster, str]) -> ApplicationRow:
        now = datetime.now(UTC)
        try:
            cluster = self._cluster(pipeline.kafka_conn_id)
        except StreamplanError as error:  # there is no such connection; the other pipelines are shown all the same
            return not_asked(pipeline.name, now, " ".join(str(error).split()))
        if cluster not in away:
            away[cluster] = _problem(cluster)  # the brokers are asked once for all their pipelines
        snapshot = self._sampler(pipeline, cluster, reports).sample(problem=away[cluster])
        return summarize(snapshot, _history(reports, pipeline.name, now), now, answered=not away[cluster])

    def _cluster(self, kafka_conn_id: str) -> KafkaCluster:
        brokers = brokers_in(kafka_conn_id, connection(kafka_conn_id))  # somebody may have edited it
        known = self._clusters.get(kafka_conn_id)
        if known is None or known[0] != brokers:
            known = self._clusters[kafka_conn_id] = brokers, self._connect(kafka_conn_id)
        return known[1]

    def _sampler(self, pipeline: Pipeline, cluster: KafkaCluster, reports: Path) -> Sampler:
        known = self._samplers.get(pipeline.name)
        if known is None or known[0] is not pipeline or known[1] is not cluster:
            sampler = Sampler(Observed(pipeline.name, cluster, pipeline).find, pipeline.name, cluster, reports)
            known = self._samplers[pipeline.name] = pipeline, cluster, sampler
        return known[2]


def _problem(cluster: KafkaCluster) -> str:
    try:
        cluster.names()
    except BrokersUnavailable as error:
        return " ".join(str(error).split())
    return ""


def _history(reports: Path, pipeline: str, now: datetime) -> list[CheckResult]:
    """Return the results of the check `lag` in the last hours, and those of `totals` in the last days."""
    lags = read_history(reports, pipeline, last=MOST_RESULTS, check=LAG.name, since=now - timedelta(hours=HOURS))
    days = read_history(reports, pipeline, last=MOST_RESULTS, check=TOTALS.name, since=now - timedelta(days=DAYS))
    return [*days, *lags]
