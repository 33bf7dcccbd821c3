"""How many replicas the topics of an application should have."""

from __future__ import annotations

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.cluster import Cluster
from streamplan.model.topics import TopicRole, resolve_replication_factor


def expected_replication(application: Application, cluster: Cluster) -> int | None:
    """Of a declared application what its topics are created with: a replica on each broker, up to 3.

    Of a discovered one the most that a topic has which it reads from outside: what is derived from it is worth as much.
    None where none of those is there. (Its config ``replication.factor``, by default the brokers' own default, cannot
    be seen.)
    """
    if application.declared:
        return resolve_replication_factor(len(cluster.broker_ids()))
    sources = cluster.topics([spec.name for spec in application.with_role(TopicRole.SOURCE)])
    return max((topic.replication_factor for topic in sources.values()), default=None)
