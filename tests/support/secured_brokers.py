"""Two real brokers with SASL_SSL, mutual TLS and an authorizer, and how a test makes users and permissions on them.

Users and ACLs are made by a plain admin client, and take effect on each broker a moment later.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from streamplan.kafka.brokers import Brokers
from streamplan.local.brokers import LocalKafka
from streamplan.local.security import LocalSecurity

from tests.support.brokers import await_topics
from tests.support.token_issuer import TokenIssuer
from tests.support.waiting import eventually

ITERATIONS = 4096


@dataclass(frozen=True)
class SecuredBrokers:
    """The session's secured brokers.

    Attributes:
        kafka: Their processes.
        issuer: Signs the tokens that they accept (OAUTHBEARER).
    """

    kafka: LocalKafka
    issuer: TokenIssuer

    @property
    def security(self) -> LocalSecurity:
        """Its files: ``authority_file``, ``certificate_file(user)`` and ``key_file(user)``."""
        assert self.kafka.security is not None
        return self.kafka.security

    @property
    def super_user(self) -> Brokers:
        """A super user, by SCRAM-SHA-512 over SASL_SSL."""
        return self.kafka.brokers

    @property
    def super_user_by_certificate(self) -> Brokers:
        """The same super user, by mutual TLS."""
        return self.kafka.brokers_by_certificate

    def admin(self) -> AdminClient:
        """A plain admin client of the super user."""
        return AdminClient({"bootstrap.servers": self.super_user.servers, "log_level": 2, **self.super_user.properties})

    def scram_user(self, name: str | None = None, password: str | None = None) -> Brokers:
        """Make a user who may do nothing yet, and wait until each broker knows the password.

        Returns:
            The brokers as this user connects to them; ``properties["sasl.username"]`` is its name.
        """
        name, password = name or f"user-{uuid.uuid4().hex[:8]}", password or secrets.token_urlsafe(12)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        upsertion = UserScramCredentialUpsertion(name, credential, password.encode())
        admin = self.admin()  # it must live until the answer has come
        admin.alter_user_scram_credentials([upsertion])[name].result(120)
        user = replace(self.super_user, properties=self.security.scram_properties(name, password))
        for address in user.addresses:
            own = AdminClient({"bootstrap.servers": address, "log_level": 0, **user.properties})
            eventually(lambda own=own: _answers(own), f"{address} knows {name}")  # type: ignore[misc]
        return user

    def certificate_user(self, name: str | None = None) -> Brokers:
        """Make a certificate for a user who may do nothing yet. The principal is ``User:<name>``."""
        name = name or f"user-{uuid.uuid4().hex[:8]}"
        return replace(self.super_user_by_certificate, properties=self.security.certificate_properties(name))

    def allow(
        self,
        user: str,
        kind: ResourceType,
        resource: str,
        operations: Iterable[AclOperation],
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> None:
        """Permit operations from any host. The cluster's resource is ``ResourceType.BROKER`` with ``kafka-cluster``."""
        bindings = [_binding(user, kind, resource, operation, pattern) for operation in operations]
        admin = self.admin()
        for future in admin.create_acls(bindings).values():
            future.result(120)

    def revoke(self, user: str) -> None:
        """Delete all ACLs of a user."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = self.admin()
        for future in admin.delete_acls([every]).values():
            future.result(120)

    def await_topics(self, *names: str) -> None:
        """Wait until each broker knows the topics."""
        await_topics(self.super_user.servers, *names, properties=self.super_user.properties)


def _binding(
    user: str, kind: ResourceType, resource: str, operation: AclOperation, pattern: ResourcePatternType
) -> AclBinding:
    return AclBinding(kind, resource, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _answers(admin: AdminClient) -> bool:
    try:
        admin.list_topics(timeout=10)
    except KafkaException:
        return False
    return True
