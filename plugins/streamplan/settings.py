"""Where a deployment keeps its files. Read from the environment when asked for, never at import."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamplan.errors import Refused

PROJECT = Path(__file__).resolve().parents[2]
"""The directory that holds ``plugins/``, ``jobs/`` and ``dags/``."""


@dataclass(frozen=True)
class Settings:
    """The directories of one deployment.

    ``home``         working directory (``STREAMPLAN_HOME``, by default ``.streamplan`` in the project)
    ``checkpoints``  Spark checkpoints, a path or a URI that every executor reaches (``STREAMPLAN_CHECKPOINTS``)
    ``reports``      results of checks and Data Docs (``STREAMPLAN_REPORTS``)
    ``run``          one JSON file a process that was started: name, pid, start time
    ``logs``         every log
    ``jars``         Spark's Kafka connector (``STREAMPLAN_JARS``); None where Spark already has it
    ``instances``    of the aggregator on a standalone cluster, executors of one core (``STREAMPLAN_INSTANCES``); None
                     for as many cores as Spark gives
    ``aggregator_options``  more options of ``jobs/aggregator.py``, as in a shell (``STREAMPLAN_AGGREGATOR_OPTIONS``)
    """

    home: Path
    checkpoints: str
    reports: Path
    jars: Path | None
    instances: int | None = None
    aggregator_options: tuple[str, ...] = ()

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        env = os.environ if environment is None else environment
        home = Path(env.get("STREAMPLAN_HOME") or PROJECT / ".streamplan").absolute()
        jars = env.get("STREAMPLAN_JARS")
        return cls(
            home=home,
            checkpoints=env.get("STREAMPLAN_CHECKPOINTS") or str(home / "checkpoints"),
            reports=Path(env.get("STREAMPLAN_REPORTS") or home / "reports").absolute(),
            jars=Path(jars) if jars else None,
            instances=_instances(env.get("STREAMPLAN_INSTANCES")),
            aggregator_options=tuple(shlex.split(env.get("STREAMPLAN_AGGREGATOR_OPTIONS", ""))),
        )


def _instances(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise Refused("STREAMPLAN_INSTANCES", expected="a number, 1 or more", observed=repr(text))
    return int(text)
