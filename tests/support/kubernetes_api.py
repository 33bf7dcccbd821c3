"""An API server of Kubernetes that keeps what it is given and starts nothing, so that tests see what Spark sends.

It answers as the real one does to what Spark and this project ask: create, apply, read, list by label, delete, logs.
"""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """A request: its method, path, query, body and whether it named a token."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: Any
    authorization: str | None


@dataclass
class FakeApiServer:
    """What was asked, and the objects by their paths."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    forbidden: set[tuple[str, str]] = field(default_factory=set)

    @property
    def master(self) -> str:
        """Spark's master."""
        return f"k8s://{self.url}"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        return [each for each in self.objects.values() if each["kind"] == kind]

    def end(self, pod: str, exit_status: int, log: str = "") -> None:
        """Let the driver of a pod end."""
        [path] = [path for path in self.objects if path.endswith(f"/pods/{pod}")]
        ended = {"name": "spark-kubernetes-driver", "state": {"terminated": {"exitCode": exit_status}}}
        phase = "Failed" if exit_status else "Succeeded"
        self.objects[path]["status"] = {"phase": phase, "containerStatuses": [ended]}
        self.logs[pod] = log

    def answer(self, request: Request) -> tuple[int, Any]:
        """Do what a request asks, and return the status and the body of the answer."""
        self.requests.append(request)
        kind = request.path.removesuffix("/log").split("/")
        if any(request.method == verb and word in kind for verb, word in self.forbidden):
            return 403, _status(403, "Forbidden", f"{request.path} is forbidden")
        if request.method == "POST":
            path = f"{request.path}/{request.body['metadata']['name']}"
            if path in self.objects:
                return 409, _status(409, "AlreadyExists", f"{path} already exists")
            return 201, self._keep(path, request.body)
        if request.method in ("PATCH", "PUT"):
            return 200, self._keep(request.path, request.body)
        if request.path.endswith("/log") and request.path.removesuffix("/log") in self.objects:
            pod = request.path.split("/")[-2]
            if pod in self.logs or "nodeName" not in self.objects[request.path.removesuffix("/log")].get("spec", {}):
                return 200, self.logs.get(pod, "")
            return 400, _status(400, "BadRequest", "is waiting to start")
        if request.path in self.objects:
            found = self.objects[request.path]
            if request.method == "DELETE":
                del self.objects[request.path]
            return 200, found
        if request.method == "GET" and request.path.endswith("/pods"):
            [selector] = request.query.get("labelSelector", [""])
            wanted = dict(each.split("=") for each in selector.split(",") if each)
            items = [
                each
                for path, each in self.objects.items()
                if path.startswith(f"{request.path}/") and wanted.items() <= each["metadata"].get("labels", {}).items()
            ]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        return 404, _status(404, "NotFound", f"{request.path} not found")

    def _keep(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        namespace = path.split("/namespaces/")[1].split("/")[0]
        given = {"uid": str(uuid.uuid4()), "namespace": namespace}
        metadata = {**given, "creationTimestamp": f"2026-01-01T00:00:{len(self.objects):02d}Z", **content["metadata"]}
        self.objects[path] = {**content, "metadata": metadata}
        if content["kind"] == "Pod":
            self.objects[path].setdefault("status", {"phase": "Pending"})
        return self.objects[path]


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**answer, "code": code, "reason": reason, "message": message}


@contextmanager
def fake_api_server() -> Iterator[FakeApiServer]:
    """Serve on a free port of this machine."""
    server = FakeApiServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(text) if text else None
            authorization = self.headers.get("Authorization")
            code, content = server.answer(Request(self.command, parts.path, parse_qs(parts.query), body, authorization))
            answer = content if isinstance(content, str) else json.dumps(content)
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(answer.encode())))
            self.end_headers()
            self.wfile.write(answer.encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
