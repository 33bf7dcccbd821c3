"""A name server for pods: the names of services, as the name server of a cluster answers them."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.kubernetes.control_plane import ControlPlane

DOMAIN = ("svc", "cluster", "local")
_NO_SUCH_NAME = 3
_ADDRESS_RECORD = 1


@contextmanager
def name_server(plane: ControlPlane, address: str) -> Iterator[None]:
    """Answer at port 53 of an address until the end.

    A service has the addresses of its pods, because nothing forwards what is sent to its own one. Only the API server,
    which has no pod, has the address of its service. Nothing else has a name.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((address, 53))
        listener.settimeout(0.5)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    question, client = listener.recvfrom(4096)
                    listener.sendto(_answer(plane, question), client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _answer(plane: ControlPlane, question: bytes) -> bytes:
    """Return the answer to a message with one question (RFC 1035)."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
        at += 1 + question[at]
    end = at + 5
    [kind] = struct.unpack("!H", question[at + 1 : at + 3])
    is_service = len(labels) == 2 + len(DOMAIN) and tuple(labels[2:]) == DOMAIN
    found = _addresses(plane, *labels[:2]) if is_service else []
    records = [
        b"\xc0\x0c" + struct.pack("!HHIH", _ADDRESS_RECORD, 1, 1, 4) + ipaddress.ip_address(each).packed
        for each in found
        if kind == _ADDRESS_RECORD
    ]
    flags = 0x8580 | (0 if found else _NO_SUCH_NAME)
    head = question[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return head + question[12:end] + b"".join(records)


def _addresses(plane: ControlPlane, service: str, namespace: str) -> list[str]:
    kinds = ("service,endpoints", service, "--namespace", namespace)
    found = json.loads(plane.kubectl("get", *kinds, "--ignore-not-found", "--output", "json") or '{"items": []}')
    sets = [part for each in found["items"] if each["kind"] == "Endpoints" for part in each.get("subsets", ())]
    pods = [each["ip"] for part in sets for each in part.get("addresses", ())]
    own = [each["spec"]["clusterIP"] for each in found["items"] if each["kind"] == "Service"]
    return pods or (own if service == "kubernetes" else [])
