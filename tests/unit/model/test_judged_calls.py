"""No call of the language ends in an error of Python: whatever is given, the answer has the caller's line."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import streamplan
from streamplan import (
    UUID,
    Avro,
    BranchedKStream,
    Bytes,
    CogroupedKStream,
    Double,
    Expression,
    F,
    Integer,
    JoinWindows,
    Json,
    JsonSchema,
    KeyValueStore,
    KGroupedStream,
    KStream,
    KTable,
    Limits,
    Long,
    OnWindowClose,
    Pipeline,
    Processor,
    Protobuf,
    SessionStore,
    SessionWindows,
    String,
    TestData,
    TimeWindowed,
    TimeWindows,
    Topology,
    WindowedCogroupedKStream,
    WindowedKStream,
    WindowStore,
    arrow_batch,
)
from streamplan.errors import Refused
from streamplan.judged import Diagnostic, mistakes_of
from streamplan.model.words import End, NoSuchOperation, operations_of
from streamplan.pipelines.orders import PIPELINE

ORDER = Json("id string, customer string, amount bigint")


class Counter(Processor):
    def process(self, record: Any, store: Any) -> None:
        """Nothing."""


def a_function(order: Any) -> Any:
    return order


JUNK: list[Any] = [
    None, True, -1, 1.5, "", "no such thing", b"x", [], ["x"], {}, {"x": 1}, {1: "x"}, {"x": "1"}, ("a", "b"), object(),
    a_function, len, Counter, timedelta(minutes=1), Json, ORDER, String(), TimeWindows("1 hour"), Topology("other"),
    F.id > 0, F.id.isNull(), {"x": F.no_such_field}, Json(Expression),
]  # fmt: skip


def declared() -> dict[type, Any]:
    """An object of each class of the language, of one topology."""
    topology = Topology("app")
    orders = topology.stream("orders", value=ORDER)
    grouped = orders.group_by("customer", name="by-customer")
    cogrouped = grouped.cogroup({"n": "count(*)"})
    customers = topology.table("customers", value=Json("name string"))
    windowed = grouped.windowed_by(TimeWindows("1 minute"))
    branched = orders.split(name="by-").branch("amount > 0", name="large")
    of_windows = cogrouped.windowed_by(TimeWindows("1 hour"))
    each = (topology, orders, branched, grouped, windowed, cogrouped, of_windows, customers)
    return {type(one): one for one in each}


CLASSES = (
    Topology, KStream, BranchedKStream, KGroupedStream, WindowedKStream, CogroupedKStream, WindowedCogroupedKStream,
    KTable,
)  # fmt: skip
DECLARING = [
    (cls, name) for cls in CLASSES for name in operations_of(cls) if cls is not Topology or name in ("stream", "table")
]
VALUES: list[Callable[..., Any]] = [
    Avro, Bytes, Double, Integer, Json, JsonSchema, Limits, Long, OnWindowClose, JoinWindows, Protobuf, Protobuf.of,
    SessionWindows, String, TestData, TimeWindows, UUID, arrow_batch, KeyValueStore, WindowStore,
]  # fmt: skip


def faults_of(objects: dict[type, Any]) -> tuple[Diagnostic, ...]:
    topology = objects[Topology]
    return topology.faults


def calls(function: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls with no argument, with each value at each place and under each name, and with too much."""
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    yield (), {}
    yield tuple(JUNK[:20]), {}
    yield (), {"no_such_argument": 1}
    for junk in JUNK:
        for number, parameter in enumerate(parameters):
            if parameter.kind is not parameter.KEYWORD_ONLY:
                yield ("id",) * number + (junk,), {}
            yield (), {parameter.name: junk}
            yield ("id", {"n": "count(*)"}), {parameter.name: junk}


@pytest.mark.parametrize(("cls", "name"), DECLARING, ids=lambda each: getattr(each, "__name__", each))
def test_an_operation_that_is_called_with_anything_answers_in_this_file(cls: type, name: str) -> None:
    for args, kwargs in calls(getattr(cls, name)):
        objects = declared()
        returned = getattr(objects[cls], name)(*args, **kwargs)
        for fault in faults_of(objects):
            assert Path(fault.location.file) == Path(__file__), fault
        assert isinstance(returned, End) == (name in ("foreach", "print", "to"))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "use",
    [
        lambda one: one["amount"], lambda one: [*one], lambda one: 1 in one, lambda one: one + one,
        lambda one: one | one, lambda one: one & one, lambda one: one < 5, lambda one: one >= 5,
        lambda one: one.__setitem__("x", 1),
        lambda one: one.to("topic").filter("x") if hasattr(one, "to") else one.no_such_word,
    ],
)  # fmt: skip
def test_an_operator_of_python_is_answered_with_what_to_write(cls: type, use: Callable[[Any], Any]) -> None:
    with pytest.raises(NoSuchOperation, match=r"\. [A-Z]"):
        use(declared()[cls])


@pytest.mark.parametrize("make", VALUES, ids=lambda make: make.__qualname__)
def test_a_value_that_is_made_of_anything_keeps_what_is_wrong_with_it(make: Callable[..., Any]) -> None:
    for args, kwargs in calls(make):
        made = make(*args, **kwargs)
        for mistake in mistakes_of(made):
            assert Path(mistake.location.file) == Path(__file__), mistake
        objects = declared()
        for cls, name, parameter in (
            (Topology, "stream", "value"), (KStream, "to", "value"), (KStream, "join", "within"),
            (KGroupedStream, "windowed_by", "windows"), (WindowedKStream, "emit_strategy", "strategy"),
            (KStream, "select_key", "key_serde"), (KStream, "filter", "condition"),
        ):  # fmt: skip
            first = {"stream": ["topic"], "to": ["topic"], "join": [objects[KStream]], "select_key": ["id"]}
            getattr(objects[cls], name)(*first.get(name, []), **{parameter: made})
        assert {*mistakes_of(made)} <= {*faults_of(objects)}


def test_a_pipeline_that_is_made_of_anything_is_refused_in_this_file() -> None:
    for args, kwargs in calls(Pipeline):
        topology = declared()[Topology]
        right = {
            "name": "p",
            "topology": topology,
            "description": "",
            "topic_partitions": {"orders": 1, "customers": 1},
        }
        given = {**dict(zip(list(right), args, strict=False)), **kwargs}
        more = args[len(right) :]
        told = ""
        try:
            Pipeline(*more, **{**right, **given})
        except Refused as refused:
            told = str(refused)
        for line in told.splitlines()[1:]:
            assert line.strip().startswith(f"{__file__}:"), line


def test_a_topology_that_is_made_of_anything_tells_it_with_its_other_faults() -> None:
    for args, kwargs in calls(Topology):
        topology = Topology(*args, **kwargs)
        topology.stream("orders", value=ORDER).filter("amont")
        assert topology.faults[-1].message == "filter: the value has no field 'amont'"
        assert {Path(fault.location.file) for fault in topology.faults} == {Path(__file__)}


@pytest.mark.parametrize("cls", CLASSES)
def test_what_python_asks_of_an_object_is_answered_as_ever(cls: type) -> None:
    one = declared()[cls]
    assert not hasattr(one, "no_such_operation")
    assert not hasattr(one, "__no_such_protocol__")
    assert getattr(one, "groupBy", None) is None
    assert copy.copy(one) is not one
    assert len(repr(one)) < 120
    assert repr(one).startswith(f"<{cls.__name__} ")
    with pytest.raises(NoSuchOperation, match=f"'{cls.__name__}' object has no attribute 'no_such_operation'"):
        one.no_such_operation  # noqa: B018


@pytest.mark.parametrize(
    "value",
    [ORDER, String(), Long(), TimeWindows("1 minute"), Limits(), SessionWindows("1 hour"), JoinWindows("1 day")],
)
def test_values_are_copied_and_pickled_as_ever(value: object) -> None:
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not Topology])
def test_the_words_of_the_language_alone_are_completed(cls: type) -> None:
    assert [name for name in dir(declared()[cls]) if not name.startswith("_")] == sorted(operations_of(cls))


def test_what_a_declaration_needs_alone_is_completed_for_a_topology() -> None:
    names = [name for name in dir(declared()[Topology]) if not name.startswith("_")]
    assert names == ["application_id", "describe", "faults", "global_table", "stream", "table"]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (ORDER, ["allowed", "decode", "encode", "fields", "max_bytes", "schema"]),
        (String(), ["decode", "encode", "fields", "max_bytes"]),
        (
            Avro('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'),
            ["decode", "encode", "fields", "max_bytes", "schema"],
        ),
        (PIPELINE, [each.name for each in fields(Pipeline) if each.name != "partitions_of_others"]),
        (PIPELINE.test_data, ["number", "record", "topics"]),
        (TimeWindowed(String()), ["key"]),
        (F, []),
        (F.amount, [name for name in vars(Expression) if not name.startswith("_")]),
        (
            SessionStore(String(), Long(), retention="1 hour"),
            [
                *("backward_fetch", "backward_fetch_range", "backward_find_sessions"),
                *("fetch", "fetch_range", "fetch_session", "find_sessions"),
                *("key_serde", "put", "remove", "retention", "value_serde"),
            ],
        ),
    ],
    ids=["Json", "String", "Avro", "Pipeline", "TestData", "TimeWindowed", "F", "Expression", "SessionStore"],
)
def test_what_is_declared_alone_is_completed_for_a_value_of_a_declaration(value: object, names: list[str]) -> None:
    assert [name for name in dir(value) if not name.startswith("_")] == sorted(names)


def test_a_store_of_a_processor_is_shown_as_it_is_declared() -> None:
    assert repr(KeyValueStore(String(), Long())) == "KeyValueStore(String(), Long())"
    seen = WindowStore(String(), Long(), retention="1 hour", size="1 minute", retain_duplicates=True)
    options = "retention='1 hour', size='1 minute', retain_duplicates=True"
    assert repr(seen) == f"WindowStore(String(), Long(), {options})"
    assert repr(SessionStore(String(), Long(), retention="1 hour")) == (
        "SessionStore(String(), Long(), retention='1 hour')"
    )


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not Topology])
def test_between_the_words_of_the_language_stands_no_part_of_an_object(cls: type) -> None:
    public = [name for name in vars(declared()[cls]) if not name.startswith("_")]
    assert public == []


def test_the_package_completes_its_public_names_alone() -> None:
    assert [name for name in dir(streamplan) if not name.startswith("_")] == sorted(streamplan.__all__)
    for name in streamplan.__all__:
        public = getattr(streamplan, name)
        assert name == repr(streamplan.F) or isinstance(public, str) or public.__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'StreamsBuilder'"):
        streamplan.StreamsBuilder  # type: ignore[attr-defined]  # noqa: B018
