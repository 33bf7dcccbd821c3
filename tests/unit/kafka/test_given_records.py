"""What `streamplan produce` says of values and keys that the serdes of a topic do not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka import given_records
from streamplan.kafka.given_records import write_given
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.primitive import Long


class Producer:
    """Keeps what it is given until it is flushed."""

    def __init__(self, left: int = 0) -> None:
        self.left, self.given, self.written = left, list[Any](), list[Any]()

    def produce(self, topic: str, value: bytes | None, key: bytes | None, **_: Any) -> None:
        self.given.append((topic, value, key))

    def poll(self, seconds: float) -> None: ...

    def flush(self, seconds: float) -> int:
        self.written += self.given
        return self.left


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    topology = Topology("numbers")
    topology.stream("numbers", value=Long(), key_serde=Long()).to("others")
    monkeypatch.setattr(given_records, "observe_topics", lambda *_, **__: {"numbers": 1})
    monkeypatch.setattr(given_records.SchemaRegistry, "of", lambda brokers: None)
    monkeypatch.setattr(Pipeline, "with_schemas", lambda self, schemas: self)
    return Pipeline("numbers", topology, "", {"numbers": 1, "others": 1})


def brokers(producer: Producer) -> Any:
    return SimpleNamespace(producer=lambda **_: producer)


def test_a_value_that_is_none_says_how_many_are_written_before_it(pipeline: Pipeline) -> None:
    producer = Producer()
    with pytest.raises(Refused) as refused:
        write_given(pipeline, brokers(producer), ["1", "2", "three", "4"], key="7")
    assert [value for _, value, _ in producer.written] == [n.to_bytes(8, "big") for n in (1, 2)]
    said = str(refused.value)
    assert said.startswith("the value three for numbers: expected a value of its serde, as JSON, observed ")
    assert said.endswith("Correct it. Values before it that are written: 2.")


def test_a_key_that_is_none_says_why(pipeline: Pipeline) -> None:
    with pytest.raises(Refused, match="--key x: expected a key of numbers: Long, observed 'x' is not a whole number"):
        write_given(pipeline, brokers(Producer()), ["1"], key="x")


def test_what_the_brokers_do_not_take_says_where_to_look(pipeline: Pipeline) -> None:
    with pytest.raises(StreamplanError, match=r"no answer for 1 of 1 records .* `topic` shows the newest records"):
        write_given(pipeline, brokers(Producer(left=1)), ["1"])
