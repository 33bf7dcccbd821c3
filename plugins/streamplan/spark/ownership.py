"""One application has one aggregator: the newest."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from streamplan.kafka.task_ownership import Application, outdone
from streamplan.model.generation import Generation
from streamplan.spark.query import Deployment

LOOK_SECONDS = 5.0
"""So often an aggregator looks whether it is still the newest; one that writes sees it with every transaction, too."""

RENEW_SECONDS = 24 * 3600.0
"""The brokers forget a position that is not committed for 7 days, and a transactional id likewise."""


class Ownership:
    """The claim of this aggregator on every stream task, from its start until a newer aggregator comes."""

    def __init__(self, deployment: Deployment, spark: SparkSession, report: Callable[[str], None]) -> None:
        self._application = Application(
            deployment.pipeline,
            deployment.brokers,
            transaction_timeout_ms=deployment.transaction_timeout_ms,
        )
        self.claimed = self._application.claim(
            {
                group.id: deployment.checkpoint(spark, group).last_planned() is not None
                for group in deployment.pipeline.topology.subtopologies
            }
        )
        report(f"{self._application.id}: {self.claimed.generation}")
        self._looked = self._renewed = time.monotonic()
        self._await_end_of(self.claimed.predecessor, report)

    def look(self) -> None:
        """Every few seconds: raises :class:`Refused` when there is a newer aggregator."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        newest = self._application.newest()
        if self.claimed.generation.yields_to(newest):
            raise outdone(self._application.id, self.claimed.generation, newest)
        if now - self._renewed >= RENEW_SECONDS:
            self._renewed = now
            self._application.renew(self.claimed.generation)

    def _await_end_of(self, predecessor: Generation | None, report: Callable[[str], None]) -> None:
        """An older aggregator on this machine stops by itself in a moment: until then it may write its checkpoint."""
        deadline = time.monotonic() + 3 * LOOK_SECONDS
        if predecessor is None or predecessor.host != socket.gethostname() or predecessor.pid == os.getpid():
            return
        while _is_running(predecessor.pid) and time.monotonic() < deadline:
            report(f"waiting for {predecessor}, which has been outdone, to stop")
            time.sleep(1)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's, and maybe another program's: the deadline ends the wait
    return True
