"""The answers of the service: a path and its parameters become a query, and its entries JSON.

The operations and their parameters have the names of the methods of ``stores`` and of their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from streamplan.errors import Refused, StreamplanError, did_you_mean
from streamplan.observability.lookup import time_text
from streamplan.queries.queries import Queries
from streamplan.queries.selections import (
    Selection,
    in_range,
    one_session,
    one_window,
    raw_key,
    sessions_of,
    windows_between,
    windows_of,
    with_prefix,
)
from streamplan.queries.state_view import Entry, PartitionNotHeld, Place, StoreView
from streamplan.queries.store_form import StoreForm, StoreKind, UnknownStore
from streamplan.serdes.json_keys import KeyFields

LIMIT = 1_000
"""The greatest number of entries of an answer, where the question says no other one."""

MOST_ENTRIES = 100_000
"""The greatest limit that a question may say."""

_MOST_PARAMETERS = 20

Parameters: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        status: The HTTP status.
        body: What is written as JSON.
        headers: Further headers.
    """

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Operation:
    """An operation of a store.

    Attributes:
        needs: The parameters that it needs.
        select: Makes a selection, or the stored key of one entry, of the store and the parameters.
        takes: Parameters that it may have.
    """

    needs: tuple[str, ...]
    select: Callable[[StoreForm, Parameters], Selection | bytes]
    takes: tuple[str, ...] = ()


def _key(form: StoreForm, parameters: Parameters, name: str = "key") -> Any:
    text = parameters[name]
    try:
        return form.key_serde.key_of_text(text)
    except ValueError as error:
        raise Refused(
            f"{name}={text}", expected=f"a key of {form.key_serde.declaration}", observed=str(error)
        ) from error


def _bound(form: StoreForm, parameters: Parameters, name: str) -> Any:
    return _key(form, parameters, name) if name in parameters else None


def _time(parameters: Parameters, name: str) -> datetime | int:
    text = parameters[name]
    if re.fullmatch(r"-?\d{1,19}", text):
        return int(text)
    try:
        # A plus that is not written as %2B is a space.
        moment = datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Refused(
            f"{name}={text}", expected="ms since the epoch, or a time with a zone, such as 2026-01-31T12:00:00Z"
        )
    return moment


def _range(form: StoreForm, given: Parameters) -> Selection:
    return in_range(form, _bound(form, given, "first"), _bound(form, given, "last"))


def _reverse_range(form: StoreForm, given: Parameters) -> Selection:
    return in_range(form, _bound(form, given, "first"), _bound(form, given, "last"), reverse=True)


def _fetch_window(form: StoreForm, given: Parameters) -> Selection | bytes:
    key, first = _key(form, given), _time(given, "first")
    return windows_of(form, key, first, _time(given, "last")) if "last" in given else one_window(form, key, first)


_OF_ALL = {
    "all": _Operation((), lambda form, given: Selection()),
    "reverse_all": _Operation((), lambda form, given: Selection(reverse=True)),
}

OPERATIONS: Mapping[StoreKind, Mapping[str, _Operation]] = {
    StoreKind.KEY_VALUE: {
        "get": _Operation(("key",), lambda form, given: raw_key(form, _key(form, given))),
        "range": _Operation((), _range, ("first", "last")),
        "reverse_range": _Operation((), _reverse_range, ("first", "last")),
        "prefix_scan": _Operation(("prefix",), lambda form, given: with_prefix(given["prefix"])),
        **_OF_ALL,
    },
    StoreKind.WINDOW: {
        "fetch": _Operation(("key", "first"), _fetch_window, ("last",)),
        "backward_fetch": _Operation(
            ("key", "first", "last"),
            lambda form, given: windows_of(
                form, _key(form, given), _time(given, "first"), _time(given, "last"), reverse=True
            ),
        ),
        "fetch_all": _Operation(
            ("first", "last"), lambda form, given: windows_between(form, _time(given, "first"), _time(given, "last"))
        ),
        "backward_fetch_all": _Operation(
            ("first", "last"),
            lambda form, given: windows_between(form, _time(given, "first"), _time(given, "last"), reverse=True),
        ),
        **_OF_ALL,
    },
    StoreKind.SESSION: {
        "fetch": _Operation(("key",), lambda form, given: sessions_of(form, _key(form, given))),
        "backward_fetch": _Operation(("key",), lambda form, given: sessions_of(form, _key(form, given), reverse=True)),
        "fetch_session": _Operation(
            ("key", "start", "end"),
            lambda form, given: one_session(form, _key(form, given), _time(given, "start"), _time(given, "end")),
        ),
        "find_sessions": _Operation(
            ("key", "earliest_session_end", "latest_session_start"),
            lambda form, given: sessions_of(
                form, _key(form, given), _time(given, "earliest_session_end"), _time(given, "latest_session_start")
            ),
        ),
        **_OF_ALL,
    },
}
"""By the kind of a store its operations with entries. Each store also has ``approximate_num_entries`` and
``partition``."""

_COUNT, _PARTITION = "approximate_num_entries", "partition"


class Answers:
    """Answers questions about the stores of a pipeline.

    Args:
        queries: The stores.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def answer(self, target: str) -> Answer:
        """Answer a question.

        Args:
            target: The path, and behind ``?`` the parameters.
        """
        try:
            split = _split(target)
            steps = [unquote(step) for step in split.path.split("/") if step]
            parameters = _parameters(split.query)
            match steps:
                case ["health"]:
                    return self._health()
                case [] | ["stores"]:
                    self._queries.require_followed()
                    return Answer(200, self._stores())
                case ["stores", name]:
                    self._queries.require_followed()
                    return Answer(200, self._described(self._queries.view.store(name)))
                case ["stores", name, operation]:
                    self._queries.require_followed()
                    return self._asked(self._queries.view.store(name), operation, parameters)
            return told(404, Refused(f"path {split.path}", expected="/, /health, /metrics, or /stores/STORE/OPERATION"))
        except PartitionNotHeld as error:
            return told(421, error, partition=error.partition)
        except UnknownStore as error:
            return told(404, error)
        except Refused as error:
            return told(400, error)
        except StreamplanError as error:
            return told(503, error)

    def _health(self) -> Answer:
        self._queries.require_followed()
        lags = [state.lag for store in self._queries.view.stores.values() for state in store.states.values()]
        if self._queries.is_silent:
            raise StreamplanError(
                "Kafka",
                expected="an answer",
                observed=f"none for {self._queries.silent_seconds:.0f} s",
                remedy="Queries are answered still, with what was read before. Are the brokers up?",
            )
        return Answer(200, {"status": "ok", "lag": sum(lags)})

    def _stores(self) -> Mapping[str, Any]:
        view = self._queries.view
        return {"pipeline": view.name, "stores": [self._described(store) for store in view.stores.values()]}

    def _described(self, store: StoreView) -> Mapping[str, Any]:
        form = store.form
        return {
            "store": form.name,
            "kind": str(form.kind),
            "key": form.key_serde.declaration,
            "changelog": form.changelog,
            "partitions": form.partitions,
            "held": sorted(store.states),
            "entries": len(store),
            "operations": [*OPERATIONS[form.kind], _COUNT, _PARTITION],
            **self._moment(store),
        }

    def _moment(self, store: StoreView) -> Mapping[str, Any]:
        """Up to where the changelog was read, for an answer of now."""
        return {"position": self._queries.position(store.form.name), "lag": self._queries.lag(store.form.name)}

    def _asked(self, store: StoreView, name: str, given: Parameters) -> Answer:
        form, known = store.form, OPERATIONS[store.form.kind]
        # What was read up to there is in the answer. Reading may be further when the entries are looked up.
        common = {"store": form.name, **self._moment(store)}
        if name == _COUNT:
            _require(given, (), ())
            return Answer(200, {**common, "entries": len(store)})
        if name == _PARTITION:
            _require(given, ("key",), ())
            partition = form.partition_of(raw_key(form, _key(form, given)))
            return Answer(200, {**common, "partition": partition, "held": sorted(store.states)})
        if name not in known:
            raise UnknownStore(
                f"operation {name!r} of store {form.name}, a {form.kind} store",
                expected=", ".join([*known, _COUNT, _PARTITION]),
                remedy=did_you_mean(name, known),
            )
        operation = known[name]
        # A key alone may be an answer of one entry or of several: the parameters decide.
        _require(given, operation.needs, (*operation.takes, "limit", "after"))
        selected = operation.select(form, given)
        if isinstance(selected, bytes):
            entry = store.get(selected)
            if entry is None:
                return Answer(404, {**common, "key": _as_json(form.key(selected)), "value": None})
            return Answer(200, {**common, **self._entry(form, entry)})
        page = store.page(selected, after=_place(given), limit=_limit(given))
        return Answer(
            200,
            {
                **common,
                "entries": [self._entry(form, entry) for entry in page.entries],
                "after": None if page.after is None else f"{page.after[1]}.{page.after[0].hex()}",
            },
        )

    def _entry(self, form: StoreForm, entry: Entry) -> Mapping[str, Any]:
        bounds = form.bounds_ms(entry.key)
        start, end = bounds or (None, None)
        window = {"window": {"start": _text(start), "end": _text(end)}} if bounds is not None else {}
        return {
            "key": _as_json(form.key(entry.key)),
            **window,
            "value": self._queries.values.value(form, entry.value),
            "timestamp": time_text(entry.timestamp),
            "partition": entry.partition,
        }


def _split(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError as error:
        raise Refused(f"path {target}", expected="a path of a URL", observed=str(error)) from error


def _text(time_ms: int | None) -> str | None:
    return None if time_ms is None else time_text(time_ms)


def _as_json(key: Any) -> Any:
    """A key as JSON has it: bytes in hexadecimal digits."""
    if isinstance(key, KeyFields):
        return {name: _as_json(part) for name, part in key.items()}
    return key.hex() if isinstance(key, bytes) else key


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        parsed = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise Refused("the parameters", expected=f"at most {_MOST_PARAMETERS}", observed="more") from error
    for name, value in parsed:
        if name in found:
            raise Refused(f"parameter {name}", expected="one value", observed="two")
        found[name] = value
    return found


def _require(given: Parameters, needs: tuple[str, ...], takes: tuple[str, ...]) -> None:
    for name in needs:
        if name not in given:
            raise Refused(f"parameter {name}", expected="a value", observed="none")
    for name in given:
        if name not in (*needs, *takes):
            listed = ", ".join((*needs, *takes)) or "none"
            raise Refused(
                f"parameter {name}", expected=f"one of: {listed}", remedy=did_you_mean(name, (*needs, *takes))
            )


def _limit(given: Parameters) -> int:
    text = given.get("limit", str(LIMIT))
    if re.fullmatch(r"\d{1,9}", text, re.ASCII) is None or not 1 <= int(text) <= MOST_ENTRIES:
        raise Refused("limit", expected=f"a whole number, 1 to {MOST_ENTRIES}", observed=text)
    return int(text)


def _place(given: Parameters) -> Place | None:
    if "after" not in given:
        return None
    partition, _, key = given["after"].partition(".")
    try:
        return bytes.fromhex(key), int(partition)
    except ValueError as error:
        raise Refused("after", expected="the `after` of an answer, as it is", observed=given["after"]) from error


def told(
    status: int, error: StreamplanError, headers: Mapping[str, str] = MappingProxyType({}), **further: Any
) -> Answer:
    """Return an error as an answer.

    Args:
        status: The HTTP status.
        headers: Further headers.
        further: What stands beside the text of the error.
    """
    parts = {name: getattr(error, name) for name in ("subject", "expected", "observed", "remedy")}
    body = {"error": str(error), **{name: text for name, text in parts.items() if text}, **further}
    return Answer(status, body, headers)
