"""The stores of a Python class that sees all keys of its stream task, and what the class schedules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, TypeAlias

from streamplan.judged_words import serde_meant, shown
from streamplan.model.diagnostics import legal_name, name_fault
from streamplan.model.functions import arguments_fault
from streamplan.model.operations import (
    Schedule,
    SessionStateStore,
    StateStore,
    TimestampedStateStore,
    VersionedStateStore,
)
from streamplan.model.processor import (
    OF_RECORD,
    STREAM_TIME,
    WALL_CLOCK_TIME,
    Cancellable,
    KeyValueStore,
    Processor,
    ProcessorContext,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)
from streamplan.model.windows import Duration, duration_ms, duration_text
from streamplan.model.words import NoSuchOperation
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import KEY_SERDES, Primitive
from streamplan.serdes.windowed import Windowed

AnyStore: TypeAlias = KeyValueStore | WindowStore | SessionStore | VersionedKeyValueStore
"""A store as a declaration has it."""

_EXAMPLE = 'For example stores={"seen": KeyValueStore(String(), Json("count bigint"))}'


class Refusal(NamedTuple):
    """What is wrong, and what to write."""

    message: str
    hint: str


def declared_store(name: str, store: object) -> StateStore | Refusal:
    """Return the operation that writes a store; or what is wrong with the declaration.

    Args:
        name: The name of the store.
        store: What the declaration has.
    """
    if not isinstance(store, AnyStore):
        return Refusal(f"process: the store {name!r} is {shown(store)}", _EXAMPLE)
    if (wrong := name_fault(name)) is not None:
        return Refusal(wrong, legal_name(name))
    if not isinstance(store.key_serde, Primitive | Json | Windowed):
        listed = ", ".join(each.declaration for each in KEY_SERDES.values())
        return Refusal(
            f"process: the keys of {name!r} are {shown(store.key_serde)}",
            serde_meant(store.key_serde)
            if isinstance(store.key_serde, type)
            else f"A serde of keys: {listed} or Json('…')",
        )
    if isinstance(store.key_serde, Json) and store.key_serde.key_fault is not None:
        return Refusal(f"process: the keys of {name!r}: {store.key_serde.key_fault}", _EXAMPLE)
    if not isinstance(store.value_serde, Primitive | Json):
        return Refusal(
            f"process: the values of {name!r} are {shown(store.value_serde)}",
            "Json('…'), String(), Long() or another primitive serde: a store names no schema of a registry",
        )
    operation = StateStore
    if isinstance(store, TimestampedKeyValueStore | TimestampedWindowStore):
        operation = TimestampedStateStore
    if isinstance(store, KeyValueStore):
        return operation(name, store.key_serde, store.value_serde)
    if isinstance(store, SessionStore):
        try:
            retention = duration_ms(duration_text(store.retention))
        except ValueError as error:
            return Refusal(f"process: {name!r}: {error}", "For example SessionStore(…, retention='10 minutes')")
        return SessionStateStore(name, store.key_serde, store.value_serde, retention)
    if isinstance(store, VersionedKeyValueStore):
        try:
            history = duration_ms(duration_text(store.history))
        except ValueError as error:
            return Refusal(f"process: {name!r}: {error}", "For example VersionedKeyValueStore(…, history='1 hour')")
        return VersionedStateStore(name, store.key_serde, store.value_serde, history_ms=history)
    try:
        retention, size = (duration_ms(duration_text(each)) for each in (store.retention, store.size))
    except ValueError as error:
        return Refusal(
            f"process: {name!r}: {error}", "For example WindowStore(…, retention='10 minutes', size='5 minutes')"
        )
    if size > retention:  # ``Stores.persistentWindowStore``
        return Refusal(
            f"process: the retention of {name!r}, {store.retention}, is shorter than its windows, {store.size}",
            "A retention of at least their size",
        )
    return operation(name, store.key_serde, store.value_serde, retention, size, store.retain_duplicates)


def schedules_of(processor: type[Processor], stores: Mapping[str, AnyStore]) -> tuple[Schedule, ...] | Refusal:
    """Return what a class schedules, by calling its ``init``; or what is wrong with that.

    Args:
        processor: The class.
        stores: The stores that it was declared with.
    """
    if arguments_fault(processor) is not None:  # which is a fault of its own
        return ()
    if (wrong := arguments_fault(processor.init, "self", "the context")) is not None:
        return Refusal(f"process: {processor.__name__}.init {wrong}", "Write def init(self, context)")
    context = _DeclaredContext(stores)
    try:
        processor().init(context)
    except Exception as error:  # noqa: BLE001  whatever a class of a declaration raises would stop each of its stream tasks
        said = error.args[0] if isinstance(error, KeyError | NoSuchOperation | _NotInInit) and error.args else error
        raised = "" if isinstance(error, NoSuchOperation | _NotInInit) else f" raised {type(error).__name__}"
        return Refusal(f"process: {processor.__name__}.init{raised}: {said}", _advice(error))
    if context.schedules and not stores:
        return Refusal(
            f"process: {processor.__name__}.init schedules a punctuator, and the processor has no store",
            "Give it the store that the punctuator reads: stores={'seen': KeyValueStore(…)}. What an object remembers"
            " is gone with the micro-batch",
        )
    return tuple(context.schedules)


def _advice(error: Exception) -> str:
    """What to write where ``init`` has raised an error."""
    if isinstance(error, NoSuchOperation | _NotInInit):
        return str(error.args[1])
    if isinstance(error, TypeError | ValueError) and ("schedul" in str(error) or "STREAM_TIME" in str(error)):
        return "For example context.schedule('1 minute', STREAM_TIME, self.punctuate)"
    return "It is called in each stream task, and takes the stores that the processor is declared with"


class _NotInInit(RuntimeError):
    """What can be done only while a record is processed. The second argument says what to write."""


class _DeclaredStore:
    """The store of a class that is declared: it has nothing, and takes nothing."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._store, name):
            raise no_such(type(self._store), name)

        def used(*args: Any, **kwargs: Any) -> NoReturn:
            raise _NotInInit(
                f"the store has no {name}() yet",
                "Keep the store in init, and use it in process or in a punctuator. What it is to have from the "
                "beginning is put by the first record that finds it empty",
            )

        return used


_CONFIG = "Read it from os.environ, or from a constant of the module: a declaration has no configuration of the client"
_OF_CONTEXT: Mapping[str, str] = {
    "application_id": "It is the text that Topology(…) is given: keep it in a constant of the module",
    "app_configs": _CONFIG,
    "app_configs_with_prefix": _CONFIG,
    "headers": "Write record.headers, and context.forward(value, headers=[…]) for others",
    "timestamp": "Write record.timestamp",
    "topic": "Write record.topic, or context.record_metadata()",
    "partition": "Write record.partition, or context.record_metadata()",
    "offset": "Write record.offset, or context.record_metadata()",
    "current_stream_time_ms": "Write current_stream_time(), which is a datetime",
    "current_system_time_ms": "Write current_system_time(), which is a datetime",
    "key_serde": "The serdes are those of the declaration",
    "value_serde": "The serdes are those of the declaration",
    "state_dir": "The stores are in Spark's checkpoint, and have no directory",
    "metrics": "A processor has no metrics of its own. Forward what it counts, or write it to the log",
}
"""What the library's contexts have, and what to write here."""


def no_such(cls: type, name: str) -> NoSuchOperation:
    """Return that a context or a store does not have what a class asks for. The second argument says what to write.

    Args:
        cls: The class of the context or the store.
        name: What is asked for, in the case of Python or of Java.
    """
    words = [each for each in dir(cls) if not each.startswith("_")]
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    close = get_close_matches(snake, words, 1)
    advice = f"Write {close[0]}(…)" if close else f"It has {', '.join(words)}"
    if cls is ProcessorContext:
        advice = _OF_CONTEXT.get(snake, advice)
    return NoSuchOperation(f"{cls.__name__!r} object has no attribute {name!r}", advice)


class _DeclaredPunctuator(Cancellable):
    """A punctuator of a class that is declared: nothing calls it."""

    def cancel(self) -> None: ...


class _DeclaredContext(ProcessorContext):
    """The context of a class that is declared: it notes what is scheduled."""

    def __init__(self, stores: Mapping[str, AnyStore]) -> None:
        self._stores = stores
        self.schedules: list[Schedule] = []

    @property
    def task_id(self) -> str:
        return "0_0"

    def get_state_store(self, name: str) -> Any:
        require_store(name, self._stores)
        return _DeclaredStore(self._stores[name])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else no_such(ProcessorContext, name)

    def current_stream_time(self) -> datetime | None:
        return None

    def current_system_time(self) -> datetime:
        raise _NotInInit("there is no time yet in init", "Ask for it in process, or in a punctuator")

    def record_metadata(self) -> None: ...

    def schedule(self, interval: Duration, punctuation: str, punctuator: Callable[[datetime], Any]) -> Cancellable:
        self.schedules.append(schedule_of(interval, punctuation))
        return _DeclaredPunctuator()

    def forward(
        self,
        value: Any,
        *,
        key: Any = OF_RECORD,
        timestamp: datetime | None = None,
        headers: Iterable[tuple[str, str | bytes | None]] | None = None,
        child: str | None = None,
    ) -> None:
        raise _NotInInit("there is no record to forward in init", "Forward in process, or in a punctuator")

    for _method in (get_state_store, current_stream_time, schedule, forward):  # the name that an error tells
        _method.__qualname__ = f"ProcessorContext.{_method.__name__}"


def require_store(name: str, stores: Iterable[str]) -> None:
    """Raise KeyError for a store that a processor was not declared with."""
    if name not in stores:
        raise KeyError(f"the processor has no store {name!r}; it has {', '.join(sorted(stores)) or 'none'}")


def schedule_of(interval: Duration, punctuation: str) -> Schedule:
    """Return what is scheduled.

    Args:
        interval: A duration.
        punctuation: ``STREAM_TIME`` or ``WALL_CLOCK_TIME``.

    Raises:
        ValueError: They are something else.
    """
    interval_ms = duration_ms(duration_text(interval))
    if interval_ms < 1:
        raise ValueError("the minimum supported scheduling interval is 1 millisecond")
    if punctuation not in (STREAM_TIME, WALL_CLOCK_TIME):
        raise ValueError(f"{punctuation!r} is neither {STREAM_TIME!r} nor {WALL_CLOCK_TIME!r}")
    return Schedule(interval_ms, punctuation == WALL_CLOCK_TIME)
