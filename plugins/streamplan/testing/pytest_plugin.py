"""The fixture ``topology_test_driver`` for pytest, and a silent end. The entry point ``pytest11`` names this module.

Whatever it needs is imported when a test asks for it: other tests do not wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streamplan.model.pipeline import Pipeline
    from streamplan.testing.topology_test_driver import TopologyTestDriver


def pytest_unconfigure() -> None:
    """Let the end of the process be silent.

    py4j logs when Python collects its connections, which is after the last test. By then pytest has closed the streams
    to which handlers write, and logging prints a traceback for each line.
    """
    logging.getLogger("py4j").propagate = False


@pytest.fixture
def topology_test_driver() -> Iterator[Callable[..., TopologyTestDriver]]:
    """Give a function that makes drivers. They are closed when the test is over.

    Example: ``driver = topology_test_driver(PIPELINE)``
    """
    from streamplan.testing.topology_test_driver import TopologyTestDriver

    with ExitStack() as drivers:

        def make(pipeline: Pipeline, **options: Any) -> TopologyTestDriver:
            return drivers.enter_context(TopologyTestDriver(pipeline, **options))

        yield make
