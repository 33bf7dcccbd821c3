"""The pipelines that are registered for tests, and which tests go to one worker when several run them (``-n 2``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before a test module asks for them. The processes that tests start inherit it.
os.environ["STREAMPLAN_PIPELINES"] = "streamplan.pipelines"
os.environ.pop("COLUMNS", None)  # xdist's processes inherit what the readline of their parent has set

INTEGRATION = Path(__file__).parent / "integration"
FIRST = (
    "importing/test_running_application.py",
    "stack",
    "testing/test_oracle",
    "spark",
    "secured",
    "maintenance",
    "checks",
)
"""What takes longest begins first, so that no worker is left alone with it at the end.

Before it comes what is called back from Java by a gateway of its own: py4j waits for that with ``select``, which takes
descriptors below 1,024 alone, and after a thousand tests a process has more of them open.
"""

TOGETHER = ("stack", "secured")
"""Folders whose files share what takes long to start: Airflow, and secured brokers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest."""
    items.sort(key=_rank)  # stable: the order within a file stays


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep together what shares brokers, Spark or Airflow: a file, or a folder of :data:`TOGETHER`.

    xdist 3.8 has ``--dist loadgroup`` for that, which does nothing with pytest 9.2: it appends the group to a private
    attribute that pytest no longer reads.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if f"/{folder}/" in file), file)

    return ByFile(config, log)


def _rank(item: pytest.Item) -> int:
    if not item.path.is_relative_to(INTEGRATION):
        return -1
    name = item.path.relative_to(INTEGRATION).as_posix()
    return next((number for number, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
