"""Where a deployment keeps its files. The environment is read when the settings are asked for, never at import."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamplan.errors import Refused

PACKAGE = Path(__file__).resolve().parent
"""The directory of the package ``streamplan``, in a clone or where it is installed."""

PROJECT = PACKAGE.parents[1]
"""The clone that the package is in. An installed package is in none."""


@dataclass(frozen=True)
class Settings:
    """The directories and options of one deployment.

    Attributes:
        home: The directory of everything that is kept (``STREAMPLAN_HOME``; by default ``streamplan`` in
            ``AIRFLOW_HOME``, and without that ``.streamplan`` in the working directory).
        checkpoints: Spark's checkpoints, a path or a URI that every executor reaches (``STREAMPLAN_CHECKPOINTS``; by
            default ``checkpoints`` in ``home``).
        reports: Results of checks and Data Docs (``STREAMPLAN_REPORTS``; by default ``reports`` in ``home``).
        jars: The jars of Spark's Kafka connector (``STREAMPLAN_JARS``); None where Spark already has them.
        instances: How many executors of one core the aggregator gets on a standalone cluster or on Kubernetes
            (``STREAMPLAN_INSTANCES``); None for as many as Spark gives.
        driver_memory: The heap of each Spark driver, as Spark's ``--driver-memory`` takes it
            (``STREAMPLAN_DRIVER_MEMORY``; by default ``1g``).
        aggregator_options: More options of the job ``aggregator``, split as a shell splits them
            (``STREAMPLAN_AGGREGATOR_OPTIONS``).
        deferrable: Whether the tasks of supervised processes defer to a trigger, and hold no worker
            (``STREAMPLAN_DEFERRABLE``, ``true`` or ``false``; by default true). Where the driver is a pod, its task
            always defers.
        token_callbacks: Dotted paths of the functions that a connection or a properties file may name as ``oauth_cb``
            (``STREAMPLAN_TOKEN_CALLBACKS``, with commas between them; by default none).
    """

    home: Path
    checkpoints: str
    reports: Path
    jars: Path | None
    instances: int | None = None
    driver_memory: str = "1g"
    aggregator_options: tuple[str, ...] = ()
    deferrable: bool = True
    token_callbacks: frozenset[str] = frozenset()

    @property
    def run(self) -> Path:
        """The directory with one JSON file for each process that was started: its name, pid and start time."""
        return self.home / "run"

    @property
    def logs(self) -> Path:
        """The directory of all logs."""
        return self.home / "logs"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables, by default those of this process.

        Raises:
            Refused: ``STREAMPLAN_INSTANCES`` is not a number above 0, ``STREAMPLAN_DRIVER_MEMORY`` no size with a unit,
                or ``STREAMPLAN_DEFERRABLE`` no truth value.
        """
        env = os.environ if environment is None else environment
        # All processes of an Airflow have one AIRFLOW_HOME. Their working directories may differ.
        default = Path(env["AIRFLOW_HOME"], "streamplan") if env.get("AIRFLOW_HOME") else ".streamplan"
        home = Path(env.get("STREAMPLAN_HOME") or default).absolute()
        jars = env.get("STREAMPLAN_JARS")
        return cls(
            home=home,
            checkpoints=env.get("STREAMPLAN_CHECKPOINTS") or str(home / "checkpoints"),
            reports=Path(env.get("STREAMPLAN_REPORTS") or home / "reports").absolute(),
            jars=Path(jars) if jars else None,
            instances=_instances(env.get("STREAMPLAN_INSTANCES")),
            driver_memory=_memory(env.get("STREAMPLAN_DRIVER_MEMORY") or "1g"),
            aggregator_options=tuple(shlex.split(env.get("STREAMPLAN_AGGREGATOR_OPTIONS", ""))),
            deferrable=_deferrable(env.get("STREAMPLAN_DEFERRABLE") or "true"),
            token_callbacks=_names(env.get("STREAMPLAN_TOKEN_CALLBACKS", "")),
        )


def _instances(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise Refused("STREAMPLAN_INSTANCES", expected="a number, 1 or more", observed=repr(text))
    return int(text)


def _memory(text: str) -> str:
    if not re.fullmatch("[1-9][0-9]*[mgMG]", text):  # without a unit spark-submit would take bytes
        raise Refused("STREAMPLAN_DRIVER_MEMORY", expected="a size with a unit, as 512m or 2g", observed=repr(text))
    return text


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _deferrable(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Refused("STREAMPLAN_DEFERRABLE", expected="true or false", observed=repr(text))
    return text.lower() == "true"
