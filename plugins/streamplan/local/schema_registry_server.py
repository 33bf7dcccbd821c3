"""A small stand-in for a Schema Registry, for the stack of one machine and for tests.

It follows the published REST interface of Confluent's Schema Registry as far as Confluent's clients need it to read
and write values. It does not read schemas and knows no compatibility, so it is not for production. Source of paths,
bodies and error codes: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

from streamplan.files import write_atomically
from streamplan.local.ports import LOOPBACK

Answer = tuple[int, Any]
"""The status and the body. A text is sent as it is, everything else as JSON."""

_PATH = re.compile(r"/subjects/([^/]+)(/versions(?:/([^/]+))?)?")
_UNAUTHORIZED: Answer = 401, {"error_code": 401, "message": "Unauthorized"}
_NOT_FOUND: Answer = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class RegisteredSchemas:
    """Schemas with their ids and subjects, and the answers to questions about them.

    Attributes:
        schemas: Each as it was registered: ``schema``, and ``schemaType`` and ``references`` where they are given. Its
            id is its place, from 1.
        subjects: The ids of the versions of each subject.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Take what is registered from a file.

        Args:
            file: Keeps what is registered. Without one it is forgotten.
        """
        self._file = file
        self._lock = Lock()
        known = json.loads(file.read_text()) if file is not None and file.exists() else {}
        self.schemas: list[dict[str, Any]] = known.get("schemas", [])
        self.subjects: dict[str, list[int]] = known.get("subjects", {})

    def add(self, subject: str, schema: str, references: tuple[dict[str, Any], ...] = (), kind: str = "AVRO") -> int:
        """Register a schema, and return its id."""
        body: dict[str, Any] = {"schema": schema}
        if references:
            body["references"] = list(references)
        if kind != "AVRO":
            body["schemaType"] = kind
        with self._lock:
            if body not in self.schemas:
                self.schemas.append(body)
            schema_id = self.schemas.index(body) + 1
            versions = self.subjects.setdefault(subject, [])
            if schema_id in versions:
                return schema_id
            versions.append(schema_id)
            if self._file is not None:
                write_atomically(self._file, json.dumps({"schemas": self.schemas, "subjects": self.subjects}, indent=2))
        return schema_id

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Answer a question.

        Args:
            method: ``GET`` or ``POST``.
            path: The path without what follows ``?``.
            body: What was sent, read as JSON.
        """
        if method == "GET" and path == "/subjects":
            return 200, sorted(self.subjects)
        if method == "GET" and path.startswith("/schemas/ids/"):
            return self._schema(path.rpartition("/")[2])
        found = _PATH.fullmatch(path)
        if found is None:
            return _NOT_FOUND
        subject, versions, version = unquote(found[1]), found[2], found[3]
        if method == "POST" and versions and not version:
            references = tuple(body.get("references") or ())
            return 200, {"id": self.add(subject, body["schema"], references, body.get("schemaType") or "AVRO")}
        if method == "POST" and not versions:
            return self._look_up(subject, body)
        if method == "GET" and versions:
            return self._versions(subject, version)
        return _NOT_FOUND

    def _schema(self, text: str) -> Answer:
        if not text.isdecimal() or not 1 <= int(text) <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {text} not found"}
        return 200, self.schemas[int(text) - 1]

    def _versions(self, subject: str, version: str | None) -> Answer:
        ids = self.subjects.get(subject, [])
        if not ids:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if version is None:
            return 200, [*range(1, len(ids) + 1)]
        number = len(ids) if version == "latest" else int(version) if version.isdecimal() else 0
        if not 1 <= number <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema_id = ids[number - 1]
        return 200, {"subject": subject, "version": number, "id": schema_id, **self.schemas[schema_id - 1]}

    def _look_up(self, subject: str, body: Any) -> Answer:
        for version, schema_id in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[schema_id - 1]["schema"] == body["schema"]:
                return 200, {"subject": subject, "version": version, "id": schema_id, "schema": body["schema"]}
        return 404, {"error_code": 40403, "message": "Schema not found"}


def serve(registered: RegisteredSchemas, user_info: str, port: int = 0) -> ThreadingHTTPServer:
    """Return a server on the loopback address, which asks for a password. ``serve_forever`` makes it answer.

    Args:
        registered: Gives the answers.
        user_info: User and password with a colon between them.
        port: The port; 0 for a free one.
    """
    expected = "Basic " + base64.b64encode(user_info.encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = _UNAUTHORIZED
            if secrets.compare_digest(self.headers.get("Authorization") or "", expected):
                status, content = registered.answer(self.command, urlsplit(self.path).path, json.loads(body or b"null"))
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    return server


def main() -> None:
    """Serve until a signal ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True, help="keeps the schemas")
    parser.add_argument("--user-info", type=Path, required=True, help="a file with user and password")
    options = parser.parse_args()
    serve(RegisteredSchemas(options.file), options.user_info.read_text(), options.port).serve_forever()


if __name__ == "__main__":
    main()
