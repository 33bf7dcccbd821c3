"""Private keys in all forms that OpenSSL writes: Spark's JVM client loads each from our options."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamplan.errors import Refused
from streamplan.java import require_java
from streamplan.kafka.brokers import Brokers

from tests.support.jvm_client import JvmClient, jvm_client

PASSWORD = "s3cret pass"
KINDS = {
    "RSA": ["genrsa", "2048"],
    "EC": ["ecparam", "-name", "prime256v1", "-genkey", "-noout"],
    "Ed25519": ["genpkey", "-algorithm", "ed25519"],
}
FORMS = {
    "PKCS#8": ["pkcs8", "-topk8", "-nocrypt"],
    "PBES2": ["pkcs8", "-topk8", "-v2", "aes-256-cbc"],
    "PBES2 with SHA-512": ["pkcs8", "-topk8", "-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512"],
    "scrypt": ["pkcs8", "-topk8", "-scrypt"],
    "PBES1": ["pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES"],
    "traditional": [],
    "traditional with a password": ["-aes256"],
}


@pytest.fixture(scope="module")
def spark_client() -> Iterator[JvmClient]:
    with jvm_client("3.9.2") as client:
        yield client


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def openssl(*arguments: str) -> str:
    return run(["openssl", *arguments])


def written(kind: str, form: str, directory: Path) -> tuple[Path, Path]:
    """A certificate and its key in a form."""
    plain, key, certificate = (directory / name for name in ("plain.key", "client.key", "client.pem"))
    plain.write_text(openssl(*KINDS[kind]))
    openssl("req", "-new", "-x509", "-key", str(plain), "-subj", "/CN=me", "-days", "9", "-out", str(certificate))
    arguments = FORMS[form]
    if form.startswith("traditional"):
        arguments = ["rsa" if kind == "RSA" else "ec", *arguments, *(["-traditional"] if kind == "RSA" else [])]
    password = [] if form in ("PKCS#8", "traditional") else ["-passout", f"pass:{PASSWORD}"]
    openssl(*arguments, *password, "-in", str(plain), "-out", str(key))
    return certificate, key


CASES = [(kind, form) for kind in ("RSA", "EC") for form in FORMS]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_both_clients_load_a_key_of_every_form(spark_client: JvmClient, kind: str, form: str, tmp_path: Path) -> None:
    certificate, key = written(kind, form, tmp_path)
    extra = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": PASSWORD,
    }
    brokers = Brokers.from_connection(extra)
    brokers.producer()
    options = {name.removeprefix("kafka."): value for name, value in brokers.spark_options().items()}
    assert PASSWORD not in options.values()
    assert not isinstance(theirs := spark_client.connects(options), str), theirs
    if form not in ("PKCS#8", "traditional"):
        for wrong in ("wrong", None):
            with pytest.raises(Refused, match=r"ssl\.key\.password") as refused:
                Brokers.from_connection({**extra, "ssl.key.password": wrong}).spark_options()
            assert key.read_text().splitlines()[4] not in str(refused.value)
            assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("form", ["PKCS#8", "PBES2"])
def test_a_kind_of_key_that_the_jvm_client_does_not_read_is_refused(
    spark_client: JvmClient, form: str, tmp_path: Path
) -> None:
    certificate, key = written("Ed25519", form, tmp_path)
    extra = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": PASSWORD,
    }
    with pytest.raises(Refused, match=r"ssl\.key\.location: expected an RSA, EC or DSA key.*observed Ed25519.*openssl"):
        Brokers.from_connection(extra).spark_options()
    options = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": (tmp_path / "plain.key").read_text(),
    }
    assert isinstance(spark_client.connects(options), str)


def test_a_key_and_its_certificate_may_stand_in_one_file_in_any_order(spark_client: JvmClient, tmp_path: Path) -> None:
    certificate, key = written("RSA", "PBES2", tmp_path)
    both = tmp_path / "both.pem"
    for parts in ((certificate, key), (key, certificate)):
        both.write_text("".join(part.read_text() for part in parts))
        file = tmp_path / "client.properties"
        file.write_text(
            f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={both}\nssl.key.password={PASSWORD}\n"
        )
        brokers = Brokers.from_properties(file, servers="127.0.0.1:1")
        brokers.producer()
        options = {name.removeprefix("kafka."): value for name, value in brokers.spark_options().items()}
        assert not isinstance(theirs := spark_client.connects(options), str), theirs


def test_a_pkcs12_store_of_openssl_is_loaded_by_both_clients(spark_client: JvmClient, tmp_path: Path) -> None:
    certificate, key = written("RSA", "PKCS#8", tmp_path)
    store = tmp_path / "client.p12"
    openssl(
        "pkcs12", "-export", "-in", str(certificate), "-inkey", str(key), "-out", str(store), "-passout", "pass:x1y2z3"
    )
    extra = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "x1y2z3",
    }
    brokers = Brokers.from_connection(extra)
    brokers.producer()
    options = {name.removeprefix("kafka."): value for name, value in brokers.spark_options().items()}
    assert not isinstance(theirs := spark_client.connects(options), str), theirs
    with pytest.raises(Refused, match=r"ssl\.key\.password .*keytool"):
        Brokers.from_connection({**extra, "ssl.key.password": "another"})


def test_who_converts_a_store_of_java_as_the_error_says_is_let_through(spark_client: JvmClient, tmp_path: Path) -> None:
    keytool = str(require_java(os.environ) / "bin" / "keytool")
    store, authorities, pkcs12 = (tmp_path / name for name in ("store.jks", "ca.pem", "client.p12"))
    password = ["-storepass", "changeit"]
    named = ["-alias", "me", "-dname", "CN=me", "-keyalg", "RSA", "-keypass", "changeit"]
    run([keytool, "-genkeypair", "-keystore", str(store), "-storetype", "JKS", *named, *password])
    trusted = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": "changeit",
    }
    with pytest.raises(Refused, match=rf"keytool -list -rfc -keystore {store} > ca\.pem.*truststore\.password out"):
        Brokers.from_connection(trusted)
    authorities.write_text(run([keytool, "-list", "-rfc", "-keystore", str(store), *password]))
    kept = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
    }
    own = {"ssl.keystore.location": str(store), "ssl.keystore.password": "changeit"}
    with pytest.raises(Refused, match="keytool -importkeystore"):
        Brokers.from_connection({**kept, **own})
    into = ["-destkeystore", str(pkcs12), "-deststoretype", "PKCS12", "-deststorepass", "changeit"]
    run([keytool, "-importkeystore", "-srckeystore", str(store), *into, "-srcstorepass", "changeit"])
    own |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(pkcs12)}
    brokers = Brokers.from_connection({**kept, **own})
    brokers.producer()
    options = {name.removeprefix("kafka."): value for name, value in brokers.spark_options().items()}
    assert not isinstance(theirs := spark_client.connects(options), str), theirs
