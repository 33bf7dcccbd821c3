"""The executors of an application on a standalone cluster of Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from streamplan.errors import StreamplanError

NONE_SECONDS = 120.0
"""A master needs at most 60 s to recover its applications (``spark.worker.timeout``), and a worker some to start."""

_ASK_SECONDS = 1.0


class Executors:
    """Tells when a standalone cluster has taken all executors away and gives none back.

    A master that starts again without ``spark.deploy.recoveryMode`` has forgotten the application. Its workers end the
    executors, and Spark's driver waits for others without an end.
    """

    def __init__(self, context: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet.

        Args:
            context: The Spark context. Only where its master is ``spark://…`` it is asked. With dynamic allocation a
                query without records needs no executor.
            clock: Gives seconds.
        """
        is_dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        self._context = context if context.master.startswith("spark://") and not is_dynamic else None
        self._clock = clock
        self._asked = clock()
        self._seen: float | None = None

    def require_some(self) -> None:
        """Look for executors, at most once a second.

        Raises:
            StreamplanError: There were some, and for :data:`NONE_SECONDS` there is none. Another start helps.
        """
        now = self._clock()
        if self._context is None or now - self._asked < _ASK_SECONDS:
            return
        self._asked = now
        if self._context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one of them
            self._seen = now
        elif self._seen is not None and now - self._seen > NONE_SECONDS:
            raise StreamplanError(
                f"the executors of {self._context.master}",
                expected="the cluster starts others for those that it has lost",
                observed=f"none for {NONE_SECONDS:.0f} s",
                remedy="The next start registers the application again. A master that was started again keeps its "
                "applications with spark.deploy.recoveryMode FILESYSTEM.",
            )
