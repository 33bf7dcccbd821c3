"""The API server of a Kubernetes cluster, asked with the service account of the pod that this process runs in.

Spark's own client makes the driver's pod. What is left to ask fits the standard library.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from streamplan.errors import Refused, StreamplanError

SCHEME = "k8s://"
"""How Spark's master begins where it is an API server."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts ``token`` and ``ca.crt`` of a pod's service account. It renews the token, so it is read anew
with each request."""

ANSWER_SECONDS = 10.0
"""Deadline of one answer."""

_NOT_PERMITTED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class ApiServerUnavailable(StreamplanError):
    """The API server gave no usable answer. A later try may succeed."""


class NotFound(StreamplanError):
    """The API server has no such object."""


class AlreadyExists(StreamplanError):
    """The API server has an object of this name already."""


@dataclass(frozen=True)
class ApiServer:
    """The API server of a cluster.

    Attributes:
        url: Its address, such as ``https://kubernetes.default.svc``.
    """

    url: str

    @classmethod
    def of_master(cls, master: str) -> ApiServer:
        """Take the address from Spark's master: ``k8s://https://host:port``. Without a scheme it is HTTPS, as in Spark.

        Raises:
            Refused: The master is no API server.
        """
        address = master.removeprefix(SCHEME)
        if address == master or not address:
            raise Refused("Spark's master", expected=f"{SCHEME}https://host:port", observed=repr(master))
        return cls((address if "://" in address else f"https://{address}").rstrip("/"))

    def get(self, path: str, **query: str) -> Any:
        """Return an object or a list of objects.

        Raises:
            NotFound: There is none.
            Refused: The service account may not read it.
            ApiServerUnavailable: There was no usable answer.
        """
        return json.loads(self._send("GET", path, query=query))

    def text(self, path: str, **query: str) -> str:
        """Return a text, such as a log.

        Raises:
            NotFound: There is none.
            Refused: The service account may not read it.
            ApiServerUnavailable: There was no usable answer.
        """
        return self._send("GET", path, query=query).decode(errors="replace")

    def create(self, path: str, content: Mapping[str, Any]) -> None:
        """Create an object.

        Raises:
            AlreadyExists: There is an object of this name.
            Refused: The service account may not create it.
            ApiServerUnavailable: There was no usable answer.
        """
        self._send("POST", path, content)

    def delete(self, path: str) -> None:
        """Delete an object. No error where there is none.

        Raises:
            Refused: The service account may not delete it.
            ApiServerUnavailable: There was no usable answer.
        """
        try:
            self._send("DELETE", path)
        except NotFound:
            return

    def _send(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> bytes:
        subject = f"{method} {self.url}{path}"
        request = urllib.request.Request(
            f"{self.url}{path}{'?' + urlencode(query) if query else ''}",
            None if content is None else json.dumps(content).encode(),
            {"Content-Type": "application/json", **_authorization(self.url)},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=_trust(self.url)) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise _answered(subject, error) from None
        except (OSError, http.client.HTTPException) as error:
            raise ApiServerUnavailable(
                subject,
                expected=f"an answer within {ANSWER_SECONDS:g} s",
                observed=str(error) or type(error).__name__,
                remedy="Is this the address of the API server, and does a NetworkPolicy let this pod reach it?",
            ) from error


def _authorization(url: str) -> dict[str, str]:
    """Return the header with the token of the service account. It is sent over TLS alone."""
    token = SERVICE_ACCOUNT / "token"
    if not url.startswith("https://") or not token.exists():
        return {}
    return {"Authorization": f"Bearer {token.read_text().strip()}"}


def _trust(url: str) -> ssl.SSLContext | None:
    """Return what judges the API server's certificate: the cluster's own authority where this is a pod."""
    authority = SERVICE_ACCOUNT / "ca.crt"
    if not url.startswith("https://"):
        return None
    return ssl.create_default_context(cafile=str(authority) if authority.exists() else None)


def _answered(subject: str, error: urllib.error.HTTPError) -> StreamplanError:
    """Return the error of an answer. The API server says the reason in an object ``Status``."""
    body = error.read().decode(errors="replace")
    try:
        reason = str(json.loads(body)["message"])
    except (ValueError, TypeError, KeyError):
        reason = body[:200]
    observed = f"{error.code} {reason}".strip()
    if error.code == HTTPStatus.NOT_FOUND:
        return NotFound(subject, observed=observed)
    if error.code == HTTPStatus.CONFLICT:
        return AlreadyExists(subject, observed=observed)
    if error.code in _NOT_PERMITTED:
        return Refused(
            subject,
            expected="a service account that may do this",
            observed=observed,
            remedy="Bind the role `streamplan-driver` of deploy/kubernetes/roles.yaml to it.",
        )
    return ApiServerUnavailable(subject, expected="an answer", observed=observed)
