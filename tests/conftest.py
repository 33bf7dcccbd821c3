"""Which tests go to one worker when several run them (``-n 2``), and which begin first."""

from __future__ import annotations

from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parent / "integration"
FIRST = ("stack", "spark/test_pipelines.py", "checks/test_faults.py", "checks/test_lag_and_skew.py", "spark")
"""What takes longest begins first, so that no worker is left alone with it at the end."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own hook of this name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares brokers, Spark or Airflow: a file, and all of the Airflow stack."""
    for item in items:
        if item.path.is_relative_to(INTEGRATION):
            name = item.path.relative_to(INTEGRATION).as_posix()
            item.add_marker(pytest.mark.xdist_group("stack" if name.startswith("stack/") else name))
    items.sort(key=_rank)  # stable: the order within a file stays


def _rank(item: pytest.Item) -> int:
    if not item.path.is_relative_to(INTEGRATION):
        return -1
    name = item.path.relative_to(INTEGRATION).as_posix()
    return next((number for number, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
