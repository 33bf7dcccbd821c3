"""What secures the brokers of one machine: certificates, users and passwords. They are made when first asked for.

Clients log in with SCRAM over TLS, or with a certificate of their own (mutual TLS). The brokers and the controller use
certificates among themselves. Nobody may do anything without an ACL but the brokers and :data:`SUPER_USER`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from streamplan.files import write_atomically
from streamplan.local.ports import LOOPBACK

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.x509 import Certificate, CertificateBuilder, Name

BROKER = "broker"
SUPER_USER = "streamplan"
MECHANISM = "SCRAM-SHA-512"
CLIENTS, CERTIFICATES = "SASL_SSL", "SSL"
"""The names of the two listeners: for clients with a password, and for those with a certificate."""

_YEARS = timedelta(days=3650)
_PRIVATE = 0o600


@dataclass(frozen=True)
class LocalSecurity:
    """The security of the brokers of one deployment.

    Attributes:
        directory: Where certificates, keys and passwords are. Files with secrets can be read by their owner alone.
        hosts: The names, besides ``localhost``, by which clients know the brokers. The certificates have them.
    """

    directory: Path
    hosts: Sequence[str] = ()

    @property
    def exists(self) -> bool:
        """Whether the deployment's brokers are secured."""
        return self._passwords_file.exists()

    @property
    def authority_file(self) -> Path:
        """The certificate of the authority that signed all others, in PEM."""
        return self.directory / "ca.pem"

    @property
    def passwords(self) -> Mapping[str, str]:
        """The users who log in with SCRAM, and their passwords."""
        self.make()
        return dict(json.loads(self._passwords_file.read_text()))

    def make(self) -> None:
        """Make the authority, the brokers' certificate and the super user's password, unless they are there."""
        if self.exists:
            return
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._make_authority()
        self._issue(BROKER)
        self._issue(SUPER_USER)
        passwords = {SUPER_USER: secrets.token_urlsafe(18)}
        write_atomically(self._passwords_file, json.dumps(passwords), mode=_PRIVATE)  # the last one, see `exists`

    def scram_properties(self, user: str = SUPER_USER, password: str | None = None) -> dict[str, str]:
        """Return the client properties to log in with SCRAM over TLS.

        Args:
            password: Its password; None for that of the super user.
        """
        return {
            "security.protocol": CLIENTS,
            "ssl.ca.location": str(self.authority_file),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user] if password is None else password,
        }

    def certificate_properties(self, user: str = SUPER_USER) -> dict[str, str]:
        """Return the client properties to log in with a certificate, which is made if there is none for the user."""
        self.make()
        if not self.key_file(user).exists():
            self._issue(user)
        return {
            "security.protocol": CERTIFICATES,
            "ssl.ca.location": str(self.authority_file),
            "ssl.certificate.location": str(self.certificate_file(user)),
            "ssl.key.location": str(self.key_file(user)),
        }

    def certificate_file(self, user: str) -> Path:
        """Return the file with the user's certificate, in PEM."""
        return self.directory / f"{user}.pem"

    def key_file(self, user: str) -> Path:
        """Return the file with the user's key: PKCS#8 in PEM, without a password."""
        return self.directory / f"{user}.key"

    def server_properties(self) -> dict[str, str]:
        """Return the server properties of every node."""
        self.make()
        both = self.directory / f"{BROKER}-both.pem"
        if not both.exists():  # the JVM takes key and certificate from one file
            text = self.key_file(BROKER).read_text() + self.certificate_file(BROKER).read_text()
            write_atomically(both, text, mode=_PRIVATE)
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            "inter.broker.listener.name": CERTIFICATES,
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.{CLIENTS.lower()}.{MECHANISM.lower()}.sasl.jaas.config": scram,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
            f"listener.name.{CERTIFICATES.lower()}.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            # The principal of CN=alice is User:alice, as with SCRAM.
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{BROKER};User:{SUPER_USER}",
        }

    def format_arguments(self) -> str:
        """Return what ``kafka-storage format`` takes from a file: the users, one word a line."""
        users = (f"{MECHANISM}=[name={user},password={password}]" for user, password in self.passwords.items())
        return "".join(f"--add-scram\n{user}\n" for user in users)

    @property
    def _passwords_file(self) -> Path:
        return self.directory / "passwords.json"

    @property
    def _authority_key_file(self) -> Path:
        return self.directory / "ca.key"

    def _make_authority(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            key_cert_sign=True,
            crl_sign=True,
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Streamplan local authority")])
        certificate = (
            _certificate(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        self._write(certificate, key, self.authority_file, self._authority_key_file)

    def _issue(self, user: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority = x509.load_pem_x509_certificate(self.authority_file.read_bytes())
        authority_key = serialization.load_pem_private_key(self._authority_key_file.read_bytes(), None)
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, user)])
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        places = [x509.IPAddress(ip_address(LOOPBACK)), *map(x509.DNSName, ("localhost", *self.hosts))]
        certificate = (
            _certificate(name, authority.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(places), critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        self._write(certificate, key, self.certificate_file(user), self.key_file(user))

    @staticmethod
    def _write(certificate: Certificate, key: EllipticCurvePrivateKey, certificate_file: Path, key_file: Path) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        write_atomically(certificate_file, certificate.public_bytes(Encoding.PEM))
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_atomically(key_file, text, mode=_PRIVATE)


def _certificate(subject: Name, issuer: Name, key: EllipticCurvePublicKey) -> CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + _YEARS)
    )
