"""What a Python class forwards: judged by the schema of its declaration, with key, time and headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from streamplan.kafka_types import Header
from streamplan.model.operations import ProcessToAct, ProcessWithoutStores, ProcessWithStores
from streamplan.model.processor import OF_RECORD, ProcessorContext, RecordMetadata
from streamplan.model.processor_stores import no_such
from streamplan.model.timestamps import timestamp_fault
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.moments import as_milliseconds
from streamplan.serdes.reason import representation_of
from streamplan.spark.headers import headers_as_text
from streamplan.spark.planning.function_results import Unfit, fields_of, parts_of

_HEADER_PARTS = 2


class Forwarded(NamedTuple):
    """A record that was forwarded.

    Attributes:
        key: In bytes.
        value: Its fields, in the form that the operator takes.
        at: Its timestamp in ms.
        headers: As text.
        child: The node that takes it; None for all.
    """

    key: bytes | None
    value: dict[str, Any] | None
    at: int
    headers: str | None
    child: str | None


class Current(NamedTuple):
    """The record that is processed: what is forwarded has its key, time and headers. ``key`` is as Python sees it."""

    key: Any
    at: int
    headers: str | None
    metadata: RecordMetadata | None = None


class ForwardingContext(ProcessorContext):
    """A context that notes what a class forwards.

    Args:
        operation: What the class is declared with.
        children: The names of the nodes behind it.
    """

    def __init__(self, operation: ProcessWithStores | ProcessWithoutStores, children: Sequence[str]) -> None:
        self._operation, self._children = operation, children
        self._made_type = struct_type(dict(operation.fields))
        self.current: Current | None = None
        self.forwarded: list[Forwarded] = []

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        missing, advice = no_such(ProcessorContext, name).args
        raise AttributeError(f"{missing}. {advice}")

    def forward(
        self,
        value: Any,
        *,
        key: Any = OF_RECORD,
        timestamp: datetime | None = None,
        headers: Iterable[tuple[str, str | bytes | None]] | None = None,
        child: str | None = None,
    ) -> None:
        """See :meth:`ProcessorContext.forward`."""
        if self.current is None:
            raise RuntimeError("there is no record to forward in init")
        if not self._operation.fields and (value is not None or isinstance(self._operation, ProcessToAct)):
            raise TypeError("forward: the declaration of the processor has no schema of what it forwards")
        if key is not OF_RECORD and self._operation.keeps_key:
            raise TypeError(
                "forward: process_values keeps the key of the record; with process(…) it can be another one"
            )
        if child is not None and child not in self._children:
            raise ValueError(f"forward: {no_child(child, self._children)}")
        to = self.current.key if key is OF_RECORD else key
        raw = None if to is None else self._operation.key_serde.write_key(to)
        at = self.current.at if timestamp is None else as_milliseconds(timestamp)
        if (fault := timestamp_fault(at)) is not None:
            raise ValueError(f"forward: {fault}")
        text = self.current.headers if headers is None else headers_as_text([*map(_header, headers)])
        self.forwarded.append(Forwarded(raw, self._judged(value), at, text, child))

    def record_metadata(self) -> RecordMetadata | None:
        """See :meth:`ProcessorContext.record_metadata`."""
        return None if self.current is None else self.current.metadata

    def forward_each(self, results: Any) -> None:
        """Forward the values that a method has returned.

        Raises:
            Unfit: It has returned something else.
        """
        if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable | None):
            raise Unfit(f"returned {type(results).__name__}, and not a list of values")
        for value in results or ():
            self.forward(value)

    def _judged(self, value: Any) -> dict[str, Any] | None:
        try:
            fields = fields_of(value, self._made_type.names)
            return None if fields is None else self._made(parts_of(fields, self._made_type, ""))
        except Unfit as error:
            raise TypeError(f"forward: {str(error).removeprefix('returned ')}") from error

    def _made(self, value: dict[str, Any]) -> dict[str, Any]:
        """The fields of a value, as Arrow takes them, in the form that the operator takes."""
        return value


def no_child(child: str, children: Sequence[str]) -> str:
    """Return that a processor has no such child, and which ones it has."""
    nearest = get_close_matches(child, children, 1)
    meant = f" Did you mean {nearest[0]!r}?" if nearest else ""
    known = f"its children are {', '.join(map(repr, sorted(children)))}" if children else "nothing follows it"
    return f"the processor has no child {child!r}; {known}.{meant} The name of a child is its name='…'"


def _header(header: tuple[str, str | bytes | None]) -> Header:
    """A header as it is written. librdkafka's client ends the process at a name that UTF-8 does not have."""
    if not isinstance(header, tuple | list) or len(header) != _HEADER_PARTS:
        raise TypeError(f"forward: a header is a name and a value, and not {representation_of(header)}")
    name, value = header
    if not isinstance(name, str) or "\0" in name:
        raise TypeError(f"forward: the name of a header is a text without NUL, and not {representation_of(name)}")
    name.encode()  # raises for half of a surrogate pair
    if not isinstance(value, str | bytes | bytearray | None):
        raise TypeError(f"forward: the header {name} is a text or bytes, and not {representation_of(value)}")
    return name, value.encode() if isinstance(value, str) else value
