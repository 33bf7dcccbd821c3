"""A supervised job whose process cannot be seen here: Kafka shows whether it lives, and takes the request to stop it.

The process is in another PID namespace: in another container, or on another host.
"""

from __future__ import annotations

import time
from typing import Protocol

from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.groups import members
from streamplan.kafka.membership import SESSION_SECONDS
from streamplan.kafka.task_ownership import stop_application
from streamplan.kafka.test_data import fence_producer, next_number
from streamplan.kafka.topics import resolve_pipeline
from streamplan.model.pipeline import Pipeline
from streamplan.registry import pipeline_named

STOP_SECONDS = 25.0
"""An aggregator that was asked to stop has so long to end. It looks every five seconds, and Spark ends its queries.
Airflow's triggerer gives a trigger 30 s (``triggerer.on_kill_timeout``)."""

ASK_SECONDS = 300.0
"""Where the brokers do not take a request to stop, it is made again for so long. Nobody makes it later, because
its run has ended. A later run's aggregator that obeys such a request is restarted by Airflow."""

PRODUCER_SECONDS = 60.0
"""A producer that has begun and writes no record for so long has ended."""

_POLL_SECONDS = 0.5


class RemoteJob(Protocol):
    """What Kafka shows of a job."""

    @property
    def patience_seconds(self) -> float:
        """After so long without a sign of life the job has ended."""

    @property
    def has_begun(self) -> bool:
        """Whether it has shown life that is not a predecessor's."""

    def shows_life(self) -> bool:
        """Ask Kafka for a sign of life since the last call."""

    def stop(self, ask_seconds: float = ASK_SECONDS) -> None:
        """Ask the job to stop, and wait until it has.

        Args:
            ask_seconds: For so long the request is made again where the brokers do not take it.
        """


class RemoteAggregator:
    """The aggregator of a pipeline: while it lives it is a member of its consumer group."""

    patience_seconds = SESSION_SECONDS + 5.0
    """A driver that was suspended for longer than its session is no member until it has joined again."""

    def __init__(self, pipeline: Pipeline, brokers: Brokers) -> None:
        self._pipeline = pipeline
        self._brokers = brokers
        self._first: set[str] | None = None  # of the first look: of a predecessor, or of the job itself
        self._first_at = 0.0
        self.has_begun = False

    @property
    def _group(self) -> str:
        return self._pipeline.topology.application_id

    def instances(self) -> list[str]:
        """Return the instances of the aggregators that are members of the group, each as ``<host>:<pid>:<random>``.

        Raises:
            BrokersUnavailable: The brokers did not answer.
        """
        return sorted(member.instance for member in members(self._brokers, self._group) if member.instance is not None)

    def shows_life(self) -> bool:
        """Whether an aggregator is a member of the group. A killed one stays a member until its session is over.

        Raises:
            BrokersUnavailable: The brokers did not answer.
        """
        instances = set(self.instances())
        now = time.monotonic()
        if self._first is None:
            self._first, self._first_at = instances, now
        outlives_session = bool(instances) and now - self._first_at > self.patience_seconds
        self.has_begun |= bool(instances - self._first) or outlives_session
        return bool(instances)

    def stop(self, ask_seconds: float = ASK_SECONDS) -> None:
        """Fence the aggregator with the request to stop, and wait until no aggregator is a member.

        One that is being started finds the request when it has started. An application without positions has none to
        hold the request, so its first aggregator is waited for.

        Args:
            ask_seconds: For so long the request is made again where no position holds it.

        Raises:
            Refused: An external topic that the application reads does not exist.
            StreamplanError: No position held the request within ``ask_seconds``, or an aggregator is a member still
                :data:`STOP_SECONDS` after it.
            BrokersUnavailable: The brokers did not take the request within ``ask_seconds``, or did not answer.
        """
        pipeline = resolve_pipeline(self._pipeline, self._brokers)
        self._ask_to_stop(pipeline, ask_seconds)
        deadline = time.monotonic() + STOP_SECONDS
        while instances := self.instances():
            if time.monotonic() > deadline:
                raise StreamplanError(
                    f"application {self._group}",
                    expected=f"stopped within {STOP_SECONDS:g} s",
                    observed=f"{', '.join(instances)} in its consumer group",
                    remedy="End its process on its host. It commits nothing after a request to stop.",
                )
            time.sleep(_POLL_SECONDS)

    def _ask_to_stop(self, pipeline: Pipeline, ask_seconds: float) -> None:
        deadline = time.monotonic() + ask_seconds
        while True:
            error = StreamplanError(
                f"application {self._group}",
                expected="a position that holds the request to stop",
                observed="none",
                remedy="If its first aggregator is being started on another host, end that process there.",
            )
            try:
                if stop_application(pipeline, self._brokers) is not None:
                    return
            except StreamplanError as refused:
                error = refused
            if time.monotonic() > deadline:
                raise error
            time.sleep(_POLL_SECONDS)


class RemoteProducer:
    """The producer of a pipeline's test data. It joins no group, so its records are its sign of life."""

    def __init__(self, pipeline: Pipeline, brokers: Brokers, until: int | None) -> None:
        """Look at no record yet.

        Args:
            until: The first record number that the producer does not write; None for one without end.
        """
        self._pipeline = pipeline
        self._brokers = brokers
        self._until = until
        self._next: int | None = None
        self.has_begun = False

    @property
    def patience_seconds(self) -> float:
        """None when all records are there. A transaction takes seconds, and the smallest rate is a record a second."""
        is_done = self._until is not None and self._next is not None and self._next >= self._until
        return 0.0 if is_done else PRODUCER_SECONDS

    def shows_life(self) -> bool:
        """Whether there are more records than at the last call.

        Raises:
            Refused: A topic does not exist.
            BrokersUnavailable: The brokers did not answer.
        """
        before, self._next = self._next, next_number(self._pipeline, self._brokers)
        grows = before is not None and self._next > before
        self.has_begun |= grows or not self.patience_seconds
        return grows

    def stop(self, ask_seconds: float = ASK_SECONDS) -> None:
        """Fence the producer. It can commit nothing any more, and ends with its next transaction.

        Raises:
            BrokersUnavailable: The brokers did not answer.
        """
        fence_producer(self._pipeline, self._brokers)


def pipeline_of(job: str) -> Pipeline:
    """Return the pipeline of a job.

    Args:
        job: The name of the job: ``<pipeline>-aggregator`` or ``<pipeline>-producer``.

    Raises:
        Refused: There is no such pipeline.
    """
    return pipeline_named(job.rpartition("-")[0])


def remote_job(name: str, brokers: Brokers, *, until: int | None = None) -> RemoteJob:
    """Return a job by its name.

    Args:
        name: ``<pipeline>-aggregator`` or ``<pipeline>-producer``.
        until: The first record number that a producer does not write; None for one without end.

    Raises:
        Refused: There is no such pipeline.
    """
    if name.endswith("-producer"):
        return RemoteProducer(pipeline_of(name), brokers, until)
    return RemoteAggregator(pipeline_of(name), brokers)
