"""Which of two applications writes the outputs of a pipeline, while an upgrade is under way."""

from __future__ import annotations

from streamplan.kafka_port import Cluster
from streamplan.model.committed_positions import latest_generation
from streamplan.model.pipeline import Pipeline


def application_still_running(pipeline: Pipeline, cluster: Cluster) -> str | None:
    """Return the application that runs in place of the pipeline's own one, which does not start before it takes over.

    Args:
        cluster: Answers positions; their metadata says which application is the candidate.

    Returns:
        Its application id; None where the pipeline declares no upgrade, or where its own application has taken over.
    """
    old = pipeline.upgrade_from
    if old is None:
        return None
    own = latest_generation(cluster.committed_positions(pipeline.topology.application_id).values())
    if own is not None:
        return old if own.is_beside else None
    before = latest_generation(cluster.committed_positions(old).values())
    return None if before is not None and before.is_beside else old  # else it had taken over, and was reset since
