"""What Kafka's own JVM client says of client properties: of their text, and of what it would connect with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.support.kafka_streams import java_with
from tests.support.property_table import class_path


class JvmClient:
    """The JVM client of one version."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def properties(self, content: bytes) -> dict[str, str] | None:
        """What `java.util.Properties` reads; None where it refuses the text."""
        loaded = self._jvm.java.util.Properties()
        try:
            loaded.load(self._jvm.java.io.ByteArrayInputStream(content))
        except Py4JJavaError:
            return None
        return {name: str(loaded.getProperty(name)) for name in loaded.stringPropertyNames()}

    def jaas(self, text: str) -> tuple[str | None, dict[str | None, str]] | None:
        """The login module of `sasl.jaas.config` and its options; None where Kafka refuses the text."""
        configs = self._jvm.java.util.HashMap()
        configs.put("sasl.jaas.config", self._jvm.org.apache.kafka.common.config.types.Password(text))
        try:
            context = self._jvm.org.apache.kafka.common.security.JaasContext.loadClientContext(configs)
        except Py4JJavaError:
            return None
        entry = context.configurationEntries().get(0)
        options = entry.getOptions()
        return entry.getLoginModuleName(), {name: str(options[name]) for name in options}

    def connects(self, properties: Mapping[str, str]) -> dict[str, str] | str:
        """The values that the client connects with, or why it would not open.

        The certificates and keys are loaded, and a user with a password is logged in to the client; no broker is asked.
        """
        given = self._jvm.java.util.Properties()
        for name, value in properties.items():
            given.setProperty(name, value)
        given.putIfAbsent("bootstrap.servers", "127.0.0.1:1")
        try:
            config = self._jvm.org.apache.kafka.clients.admin.AdminClientConfig(given)
            clients = self._jvm.org.apache.kafka.clients
            clients.ClientUtils.parseAndValidateAddresses(config)
            log = self._jvm.org.apache.kafka.common.utils.LogContext()
            time = self._jvm.org.apache.kafka.common.utils.Time.SYSTEM
            clients.ClientUtils.createChannelBuilder(config, time, log).close()
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            return str(cause.toString())
        read = config.values()
        return {str(name): str(read[name]) for name in read if read[name] is not None}


@contextmanager
def jvm_client(version: str) -> Iterator[JvmClient]:
    """The client of this version, on a JVM of its own."""
    with java_with(class_path(version)) as jvm:
        yield JvmClient(jvm)
