"""Repartition topics: can a record be lost in one before it is consumed?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import (
    Check,
    NotApplicable,
    Observation,
    at_least,
    existing,
    expected_replication,
)
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.model.topics import TopicRole, resolve_min_insync_replicas, same_value

LOSSLESS: Mapping[str, tuple[str, str]] = {
    "cleanup.policy": ("delete", "compaction takes every record that another one of its key follows"),
    "retention.ms": ("-1", "records that are not consumed yet can be deleted; Kafka Streams purges consumed ones"),
    "retention.bytes": ("-1", "records that are not consumed yet can be deleted; Kafka Streams purges consumed ones"),
}
"""The configs that a repartition topic must have, each with its value and the consequence of another value.

The rule is ``validateCleanupPolicyForRepartitionTopic`` of Kafka Streams' ``InternalTopicManager``. The values are
those of ``RepartitionTopicConfig`` and, for ``retention.bytes``, the brokers' default. Kafka Streams lets users
override them. A finite retention is wrong all the same: an application that is down for longer loses records that it
has not counted.
"""

CONFIGS = frozenset({*LOSSLESS, "min.insync.replicas"})
"""The configs of repartition topics that belong to this check. The others belong to the check `topics`."""


class RepartitionCheck(Check):
    """Looks at the configs and the replicas of every repartition topic."""

    name = "repartition"
    title = "Repartition topics fit for use"
    healthy = (
        "Every repartition topic keeps each record until it is consumed: cleanup.policy=delete, no retention by time or"
        " size, and as many replicas as the topics that the application reads."
    )
    advice = Advice.REPARTITION

    def applies_to(self, application: Application) -> NotApplicable | None:
        """Require a repartition topic."""
        return None if application.with_role(TopicRole.REPARTITION) else NotApplicable("there is no repartition topic")

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe configs and replicas; see :class:`Check`."""
        topics = [spec.name for spec in application.with_role(TopicRole.REPARTITION)]
        if not topics:
            raise CouldNotLook(
                f"{application.application_id} has no repartition topic", expected="at least 1", observed="none"
            )
        topics_in_kafka = existing(cluster, topics)
        replicas = expected_replication(application, cluster)
        for name in topics:
            topic = topics_in_kafka[name]
            for config, (expected, consequence) in LOSSLESS.items():
                value = topic.configs.get(config, "not set")
                agrees = same_value(value, expected)
                observed, where = (expected, "") if agrees else (value, consequence)
                yield Observation(f"{name}: {config}", expected, observed, where)
            if replicas is None:
                continue
            yield at_least(f"{name}: replication factor", topic.replication_factor, replicas)
            if application.declared:
                config = "min.insync.replicas"
                value = topic.configs.get(config, "not set")
                yield Observation(f"{name}: {config}", str(resolve_min_insync_replicas(replicas)), value)


CHECK = RepartitionCheck()
