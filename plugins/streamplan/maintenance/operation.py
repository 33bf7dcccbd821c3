"""What the operations have in common that change what a pipeline has in Kafka.

Each looks (``observe``), shows a plan that a person approves, and does what was approved (``apply``). So the command
line, the Spark job and the tasks of Airflow run all of them in one way. An upgrade has two steps that change something,
and its plan is what the first one has built: it is a :class:`Maintenance`, and no :class:`Operation`. A purge asks
nobody, and is a function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from streamplan.kafka.brokers import Brokers
from streamplan.model.pipeline import Pipeline
from streamplan.settings import Settings


class Plan(Protocol):
    """What an operation would do."""

    @property
    def application_id(self) -> str:
        """The application that it changes."""

    @property
    def text(self) -> str:
        """The plan for people, as Markdown."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do, so that nobody is asked."""

    def written(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it. :meth:`Operation.apply` takes it when it is approved."""


def active_runs(pipeline: str, kinds: Iterable[str], is_active: Callable[[str], bool]) -> list[str]:
    """Return those DAGs of a pipeline that have an active run.

    Args:
        pipeline: The name of the pipeline.
        kinds: The kinds of DAGs to ask for.
        is_active: Says whether a DAG has an active run, by its id.
    """
    return [dag_id for kind in kinds if is_active(dag_id := f"{pipeline}_{kind}")]


@dataclass(frozen=True)
class Maintenance:
    """A pipeline whose application is changed while it stands still.

    Attributes:
        pipeline: The pipeline.
        brokers: The brokers.
        settings: The deployment's directories.
        report: Is told each step, and what is waited for.
        is_active: Says whether a DAG has an active run, by its id.
        alone: The kinds of DAGs of the pipeline beside whose active runs the operation is refused.
    """

    pipeline: Pipeline
    brokers: Brokers
    settings: Settings
    report: Callable[[str], None] = lambda line: None
    is_active: Callable[[str], bool] = lambda dag_id: False

    alone: ClassVar[tuple[str, ...]]

    def active_runs(self) -> list[str]:
        """Return those DAGs that would start the aggregator, or change the topics, meanwhile."""
        return active_runs(self.pipeline.name, self.alone, self.is_active)


class Operation(Maintenance, ABC):
    """A change in three steps: it is looked what there is to do, a person agrees, and it is done."""

    @abstractmethod
    def observe(self) -> Plan:
        """Plan what is to be done. Changes nothing.

        Raises:
            Refused: The application runs, or the operation would lose something.
            StreamplanError: The brokers, or the checkpoints' file system, did not answer.
        """

    @abstractmethod
    def apply(self, approved: Mapping[str, Any]) -> Plan:
        """Do what was approved. An operation that died halfway is completed.

        Args:
            approved: What :meth:`Plan.written` returned for the plan that a person approved.

        Returns:
            What was done.

        Raises:
            Refused: There is more to do than was approved, or :meth:`observe` refuses. Nothing was changed.
            StreamplanError: The brokers, or the checkpoints' file system, did not answer.
        """
