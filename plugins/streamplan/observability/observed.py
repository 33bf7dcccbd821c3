"""The application that somebody looks at: a declared pipeline, or any application that left its topics in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from streamplan.checks.discovery.discover import discover
from streamplan.checks.discovery.running import running_application
from streamplan.checks.framework.application import Application
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.pipeline import Pipeline
from streamplan.observability.diagram import Diagram, diagram_of, diagram_of_application


@dataclass(frozen=True)
class Observed:
    """An application, and the brokers on which it is looked for.

    Attributes:
        name: The name of the pipeline, or the ``application.id`` where no pipeline is declared. Reports have this name.
        cluster: The brokers.
        pipeline: The declared pipeline; None where only the ``application.id`` is known.
    """

    name: str
    cluster: KafkaCluster
    pipeline: Pipeline | None = None

    def find(self) -> Application:
        """Return the application as the checks see it.

        Raises:
            BrokersUnavailable: Kafka does not answer.
            CouldNotLook: There is no such application.
        """
        self.cluster.names()  # where Kafka does not answer, it is waited for once
        if self.pipeline is None:
            return discover(self.cluster, self.name)
        return running_application(self.pipeline, self.cluster)

    def diagram(self) -> Diagram:
        """Return the drawn topology.

        Raises:
            BrokersUnavailable: Kafka does not answer. It is not asked for a declared pipeline.
            CouldNotLook: There is no such application.
        """
        return diagram_of_application(self.find()) if self.pipeline is None else diagram_of(self.pipeline)
