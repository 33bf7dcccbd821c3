"""The brokers as this client sees them: whether it reaches them, what it may do, and the topics of a pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streamplan.doctor.finding import Finding, not_looked, ok, problem, warning
from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import error_code, require_reachable
from streamplan.kafka.topics import resolve_pipeline
from streamplan.model.acls import AclEntry, ResourceType, Role, required_acls
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import explain_differences, plan_topics, resolve_replication_factor

_SLOW_SECONDS = 1.0


def look_at_brokers(brokers: Brokers) -> Iterable[Finding]:
    """Connect as the commands do: address, security, and the number of brokers."""
    subject = f"brokers {brokers}"
    try:
        require_reachable(brokers)
        begun = time.monotonic()
        found = KafkaCluster(brokers).broker_ids()
    except StreamplanError as error:
        yield problem(subject, error.observed or str(error), error.remedy)
        return
    seconds = time.monotonic() - begun
    protocol = brokers.properties.get("security.protocol", "PLAINTEXT").upper()
    yield ok(subject, f"{len(found)} brokers answer over {protocol} in {seconds:.1f} s")
    if seconds > _SLOW_SECONDS:
        yield warning(
            "way to the brokers",
            f"{seconds:.1f} s for one answer",
            "Let the driver run nearer to them: each micro-batch waits for several answers.",
        )
    if len(found) == 1:
        yield warning("replication", "one broker", "With one broker a failed disk loses records. Use three.")


def look_at_topics(pipeline: Pipeline, brokers: Brokers) -> Iterable[Finding]:
    """Compare the topics of a pipeline with its declaration."""
    cluster = KafkaCluster(brokers)
    specs = resolve_pipeline(pipeline, brokers).topics()
    plan = plan_topics(
        specs,
        cluster.topics([spec.name for spec in specs]),
        replication_factor=resolve_replication_factor(len(cluster.broker_ids())),
    )
    subject = f"topics of {pipeline.name}"
    if plan.differences:
        others = [spec for spec in specs if not spec.owned]
        listed = "; ".join(map(str, plan.differences))
        yield problem(subject, listed, explain_differences(pipeline.name, plan.differences, others))
    elif plan.create:
        names = ", ".join(spec.name for spec in plan.create)
        yield warning(subject, f"not there yet: {names}", f"{pipeline.name}_deploy creates them.")
    else:
        yield ok(subject, f"{len(plan.agree)} as declared")


def look_at_acls(pipeline: Pipeline, brokers: Brokers, roles: Sequence[Role]) -> Iterable[Finding]:
    """Ask the brokers what this client may do with the topics and the group of a pipeline.

    They tell it of resources that exist (KIP-430), without any right to see ACLs. Nobody tells it of transactional ids.
    """
    admin = brokers.admin()
    names, group = [spec.name for spec in pipeline.declared_topics()], pipeline.topology.application_id
    shown = {(ResourceType.GROUP, group), *((ResourceType.TOPIC, name) for name in names)}
    allowed = {**_of_topics(admin, names), **_of_group(admin, group)}
    for role in roles:
        subject = f"what {role} of {pipeline.name} may do"
        needed = [entry for entry in required_acls(pipeline, role) if _resource(entry) in shown]
        known = [entry for entry in needed if _resource(entry) in allowed]
        missing = [entry for entry in known if entry.operation not in allowed[_resource(entry)]]
        if missing:
            listed = ", ".join(f"{entry.operation} on {entry.resource_type} {entry.name}" for entry in missing)
            yield problem(
                subject,
                f"this client may not {listed}",
                f"Run this with the properties of the {role}. `python -m streamplan acls {pipeline.name} --role {role} "
                "--format commands` prints what to allow.",
            )
        elif len(known) < len(needed):
            yield not_looked(
                subject,
                f"{len(known)} of {len(needed)} entries are allowed. The resources of the others do not exist",
                f"Look again when {pipeline.name} is deployed.",
            )
        else:
            yield ok(subject, f"{len(known)} entries are allowed")


def _of_topics(admin: AdminClient, names: Sequence[str]) -> Mapping[tuple[str, str], frozenset[str]]:
    futures = admin.describe_topics(
        TopicCollection(list(names)), include_authorized_operations=True, request_timeout=ANSWER_SECONDS
    )
    found: dict[tuple[str, str], frozenset[str]] = {}
    for name, future in futures.items():
        try:
            found[ResourceType.TOPIC, name] = _words(future.result(ANSWER_SECONDS + 1.0).authorized_operations)
        except KafkaException as error:
            if error_code(error) == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[ResourceType.TOPIC, name] = frozenset()
    return found


def _of_group(admin: AdminClient, group: str) -> Mapping[tuple[str, str], frozenset[str]]:
    futures = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=ANSWER_SECONDS
    )
    try:
        description = futures[group].result(ANSWER_SECONDS + 1.0)
    except KafkaException as error:
        return (
            {(ResourceType.GROUP, group): frozenset()}
            if error_code(error) == KafkaError.GROUP_AUTHORIZATION_FAILED
            else {}
        )
    return {(ResourceType.GROUP, group): _words(description.authorized_operations)}


def _words(operations: Iterable[object] | None) -> frozenset[str]:
    """The operations by the names of Kafka's documentation: ``DESCRIBE_CONFIGS`` is ``DescribeConfigs``."""
    return frozenset(str(getattr(each, "name", each)).title().replace("_", "") for each in operations or ())


def _resource(entry: AclEntry) -> tuple[str, str]:
    return entry.resource_type, entry.name
