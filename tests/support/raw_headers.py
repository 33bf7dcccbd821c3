"""Records with header names that are not UTF-8, as other clients write them.

Neither confluent-kafka nor the JVM client can produce one: both take a name for text. librdkafka takes bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka

_PRODUCER, _CONF_OK, _FLUSH_MS = 0, 0, 60_000
_TOPIC, _PARTITION, _VALUE, _KEY, _MSGFLAGS, _TIMESTAMP, _HEADERS = 1, 3, 4, 5, 7, 8, 10
_COPY = 2


class _Memory(ctypes.Structure):
    _fields_ = (("ptr", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Any(ctypes.Union):
    _fields_ = (
        ("cstr", ctypes.c_char_p),
        ("i", ctypes.c_int),
        ("i32", ctypes.c_int32),
        ("i64", ctypes.c_int64),
        ("mem", _Memory),
        ("headers", ctypes.c_void_p),
        ("padding", ctypes.c_char * 64),
    )


class _Argument(ctypes.Structure):
    _fields_ = (("vtype", ctypes.c_int), ("u", _Any))


def _librdkafka() -> ctypes.CDLL:
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_headers_new.restype = ctypes.c_void_p
    library.rd_kafka_produceva.restype = ctypes.c_void_p
    return library


def produce_with_raw_headers(
    bootstrap_servers: str,
    topic: str,
    records: Sequence[tuple[bytes, bytes, Sequence[tuple[bytes, bytes | None]]]],
    *,
    partition: int = 0,
    timestamp: int,
) -> None:
    """Write records, each of key, value and headers with their names in bytes, to one partition."""
    library = _librdkafka()
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    fault = ctypes.create_string_buffer(512)
    for name, setting in ((b"bootstrap.servers", bootstrap_servers.encode()), (b"enable.idempotence", b"true")):
        assert library.rd_kafka_conf_set(conf, name, setting, fault, 512) == _CONF_OK, fault.value
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, fault, 512))
    assert producer.value, fault.value
    try:
        for key, value, headers in records:
            named = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
            for name, content in headers:
                size = ctypes.c_ssize_t(-1 if content is None else len(content))
                library.rd_kafka_header_add(named, name, ctypes.c_ssize_t(len(name)), content, size)
            arguments = (_Argument * 7)(
                _Argument(_TOPIC, _Any(cstr=topic.encode())),
                _Argument(_PARTITION, _Any(i32=partition)),
                _Argument(_KEY, _Any(mem=_Memory(key, len(key)))),
                _Argument(_VALUE, _Any(mem=_Memory(value, len(value)))),
                _Argument(_MSGFLAGS, _Any(i=_COPY)),
                _Argument(_TIMESTAMP, _Any(i64=timestamp)),
                _Argument(_HEADERS, _Any(headers=named)),
            )
            assert not library.rd_kafka_produceva(producer, arguments, ctypes.c_size_t(len(arguments)))
        assert library.rd_kafka_flush(producer, _FLUSH_MS) == 0
    finally:
        library.rd_kafka_destroy(producer)
