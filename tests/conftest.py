"""The pipelines that are registered for tests, and which tests go to one worker when several run them (``-n 2``)."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path

import pytest

# Before a test module asks for them. The processes that tests start inherit it.
os.environ["STREAMPLAN_PIPELINES"] = "streamplan.pipelines"
os.environ.pop("COLUMNS", None)  # xdist's processes inherit what the readline of their parent has set
os.environ.setdefault("SEED", str(random.randrange(1_000_000)))
CASES = int(os.environ.get("CASES", "0"))
"""Of each test at most this number of soak cases is run, and all of them if it is 0. ``SEED`` chooses them."""

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


def pytest_report_header() -> str | None:
    return f"soak: at most {CASES} cases of each test, SEED={os.environ['SEED']}" if CASES else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the cases of ``make soak``, and put first what takes longest."""
    if CASES and (left := _left_out(items)):
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
    items.sort(key=_rank)  # stable: the order within a file stays


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("soak"):
            cases[item.nodeid.partition("[")[0]].append(item)
    chosen = random.Random(os.environ["SEED"])
    return {item for each in cases.values() for item in chosen.sample(each, max(0, len(each) - CASES))}


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
