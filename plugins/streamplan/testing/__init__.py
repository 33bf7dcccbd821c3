"""For users' tests: a topology without brokers, and whether an application is well.

``TopologyTestDriver``  runs a pipeline on one local Spark, record by record, without Kafka
``as_text``             is what was written as stable text, to be compared with what is expected
``assert_healthy``      fails where a deployed application is not healthy

docs/testing.md shows them. Each name is imported when it is first used: pytest loads this package wherever Streamplan
is installed, for the fixture in ``pytest_plugin.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamplan.testing.health import assert_healthy
    from streamplan.testing.records import DeadLetter, SessionKey, TestRecord, WindowedKey, as_text
    from streamplan.testing.topology_test_driver import TopologyTestDriver

__all__ = ["DeadLetter", "SessionKey", "TestRecord", "TopologyTestDriver", "WindowedKey", "as_text", "assert_healthy"]

_MODULES = {
    "DeadLetter": "streamplan.testing.records",
    "TestRecord": "streamplan.testing.records",
    "SessionKey": "streamplan.testing.records",
    "TopologyTestDriver": "streamplan.testing.topology_test_driver",
    "WindowedKey": "streamplan.testing.records",
    "as_text": "streamplan.testing.records",
    "assert_healthy": "streamplan.testing.health",
}


if not TYPE_CHECKING:  # a type checker would take every name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "TopologyTestDriver":
            from streamplan.spark.submit import pyspark_home

            pyspark_home()  # says which extra is missing
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
