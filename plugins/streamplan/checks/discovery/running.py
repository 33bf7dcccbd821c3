"""The application of a pipeline that runs now. While an upgrade is under way, it is not the one that is declared."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.active_application import application_still_running
from streamplan.checks.framework.application import Application, application_in
from streamplan.errors import BrokersUnavailable
from streamplan.kafka_port import Cluster
from streamplan.model.pipeline import Pipeline


def running_application(pipeline: Pipeline, cluster: Cluster) -> Application:
    """Return what the checks of a pipeline look at: the application that writes its outputs.

    That is the declared one. While it is the candidate of an upgrade, it is the old one, as far as Kafka shows it.

    Args:
        cluster: The brokers. Where they do not answer, the declared application is returned, and each check finds that.

    Raises:
        CouldNotLook: The pipeline names an application in ``upgrade_from`` that does not exist.
    """
    old = None
    with suppress(BrokersUnavailable):
        old = application_still_running(pipeline, cluster)
    if old is None:
        return application_in(pipeline, cluster)
    new = pipeline.topology.application_id
    note = f"{new} has not taken over from {old} yet. So the checks look at {old}, as far as Kafka shows it"
    found = discover(cluster, old, limits=pipeline.limits, others=[new])
    return replace(found, name=pipeline.name, notes=(note, *found.notes), runs_until=new)
