"""The stand-in for a Schema Registry of the stack of one machine, with faults that a test switches on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from streamplan.local.schema_registry_server import Answer, RegisteredSchemas, serve

USER, PASSWORD = "streams", "r3gistry-s3cret"


class SchemaRegistryServer(RegisteredSchemas):
    """What the server holds, and how it behaves.

    ``answers_with``  a status that it answers every question with, such as 503; None for an answer
    ``away_from``  the first id of those schemas for which it answers 503
    ``takes_schemas``  whether a schema may be registered; else it is answered that it is incompatible
    ``asked``  the paths that were asked for
    """

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.answers_with: int | None = None
        self.away_from: int | None = None
        self.takes_schemas = True
        self.asked: list[str] = []

    @property
    def properties(self) -> Mapping[str, str]:
        """The client properties to connect with."""
        return {"schema.registry.url": self.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"}

    def client(self) -> SchemaRegistryClient:
        """Confluent's client of it, which asks once."""
        return SchemaRegistryClient({"url": self.url, "basic.auth.user.info": f"{USER}:{PASSWORD}", "max.retries": 0})

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Answer a question that is allowed to be asked, or fail as a test wants it."""
        self.asked.append(f"{method} {path}")
        if self.answers_with is not None:
            return self.answers_with, {"error_code": self.answers_with * 100 + 1, "message": "away"}
        schema_id = path.removeprefix("/schemas/ids/")
        if self.away_from is not None and schema_id != path and int(schema_id) >= self.away_from:
            return 503, {"error_code": 50301, "message": "away"}
        if method == "POST" and path.endswith("/versions") and not self.takes_schemas:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier one"}
        return super().answer(method, path, body)


@contextmanager
def schema_registry() -> Iterator[SchemaRegistryServer]:
    """Run the server on the loopback address."""
    state = SchemaRegistryServer()
    server = serve(state, f"{USER}:{PASSWORD}")
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
