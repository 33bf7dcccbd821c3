"""Private keys in the one form that every version of Kafka's JVM client reads: PKCS#8 in PEM, without a password.

The JVM client reads no other form than PKCS#8, and on Java 17 none that is encrypted by PBES2, which is what OpenSSL 3
writes. librdkafka reads them all. So an encrypted key is decrypted in memory when the JVM client is configured.
"""

from __future__ import annotations

import re

from streamplan.errors import Refused

_BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]*PRIVATE KEY)-----.*?-----END (?P=label)-----", re.DOTALL)


def pkcs8(pem: str, password: str | None, name: str) -> str:
    """Return the private key that is in a text.

    Args:
        pem: Text with a private key in PEM: PKCS#8, PKCS#1 or SEC1, with a password or without. Certificates may stand
            beside it.
        password: The value of ``ssl.key.password``.
        name: The property that gave the text, for the error.

    Returns:
        PKCS#8 in PEM (``BEGIN PRIVATE KEY``).

    Raises:
        Refused: There is no such key, the password does not open it, or it is of another kind than RSA, EC or DSA. The
            error shows no part of it.
    """
    block = _BLOCK.search(pem)
    if block is None:
        raise Refused(
            name,
            expected="a private key in PEM (-----BEGIN PRIVATE KEY-----)",
            observed="none",
            remedy=_CONVERT,
        )
    # authlib needs this package, and so every installation has it. Most connections do not.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    encrypted = "ENCRYPTED" in block[0]
    if encrypted and not password:
        raise Refused(
            "ssl.key.password",
            expected=f"the password of the encrypted key of {name}",
            observed="none",
            remedy=f"Add it where {name} stands.",
        )
    try:
        key = load_pem_private_key(block[0].encode(), password.encode() if encrypted and password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the cause may show a part of the key
        if block["label"] == "PRIVATE KEY":  # the JVM client may know it
            return f"{block[0]}\n"
        raise Refused(
            name,
            expected="a private key in PEM" + (" that ssl.key.password opens" if encrypted else ""),
            observed="another password, or another form" if encrypted else "another form",
            remedy=f"Correct {'ssl.key.password' if encrypted else 'the key'}. {_CONVERT}",
        ) from None
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey | DSAPrivateKey):
        raise Refused(
            name,
            expected="an RSA, EC or DSA key, the only ones that Kafka's JVM client, which Spark uses, reads",
            observed=type(key).__name__.removesuffix("PrivateKey").removeprefix("_"),
            remedy="Have a certificate issued for such a key: openssl ecparam -name prime256v1 -genkey -noout "
            "-out client.key",
        )
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


_CONVERT = "Convert another form: openssl pkcs8 -topk8 -v2 aes-256-cbc -in client.key -out client.pk8.key"
