"""What `streamplan produce` says of values and keys that the serdes of a topic do not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka import given_records
from streamplan.kafka.given_records import KeyInText, write_given
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String
from streamplan.serdes.serde import Serde


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


def declared(key_serde: Any, value: Serde) -> Pipeline:
    topology = Topology("numbers")
    topology.stream("numbers", value=value, key_serde=key_serde).to("others")
    return Pipeline("numbers", topology, "", {"numbers": 1, "others": 1})


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(given_records, "observe_topics", lambda *_, **__: {"numbers": 1})
    monkeypatch.setattr(given_records.SchemaRegistry, "of", lambda brokers: None)
    monkeypatch.setattr(Pipeline, "with_schemas", lambda self, schemas: self)
    return declared(Long(), Long())


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


PAGES = Json("page string, site bigint")


@pytest.mark.parametrize(
    ("key_serde", "value", "key", "text", "written"),
    [
        (String(), PAGES, KeyInText(["page"]), '{"page": "/é", "site": 7}', "/é".encode()),
        (String(), PAGES, KeyInText(["site"]), '{"page": "/", "site": 7}', b"7"),
        (Long(), PAGES, KeyInText(["site"]), '{"page": "/", "site": 7}', (7).to_bytes(8, "big")),
        (PAGES, PAGES, KeyInText(["site", "page"]), '{"site": 7, "page": "/"}', b'{"page":"/","site":7}'),
        (String(), PAGES, KeyInText(separator=":"), 'ann:{"page": "/"}', b"ann"),
        (Long(), PAGES, KeyInText(separator="\t"), '7\t{"page": "/"}', (7).to_bytes(8, "big")),
        (PAGES, PAGES, KeyInText(separator="|"), '{"site": 7, "page": "/"}|{}', b'{"page":"/","site":7}'),
    ],
)
def test_each_record_has_a_key_of_its_own(
    pipeline: Pipeline, key_serde: Any, value: Serde, key: KeyInText, text: str, written: bytes
) -> None:
    producer = Producer()
    write_given(declared(key_serde, value), brokers(producer), [text], key=key)
    assert producer.written == [
        ("numbers", text.split(key.separator, 1)[-1].encode() if key.separator else text.encode(), written)
    ]


@pytest.mark.parametrize(
    ("key", "text", "observed"),
    [
        (KeyInText(["site"]), "no JSON", "Expecting value"),
        (KeyInText(["site"]), "[1]", "no JSON object"),
        (KeyInText(["sit"]), '{"site": 7, "page": null}', "no field sit. It has: site, page"),
        (KeyInText(["page"]), '{"site": 7, "page": null}', "no field page. It has: site, page"),
        (KeyInText(["site"]), '{"site": "many"}', "'many' is not a whole number"),
        (KeyInText(separator=":"), "7", "no ':'"),
        (KeyInText(separator=":"), "seven:{}", "'seven' is not a whole number"),
    ],
)
def test_a_text_without_a_key_says_why(pipeline: Pipeline, key: KeyInText, text: str, observed: str) -> None:
    with pytest.raises(Refused) as refused:
        write_given(declared(Long(), PAGES), brokers(Producer()), [text], key=key)
    said = str(refused.value)
    assert said.startswith(f"the value {text} for numbers: expected a key of Long in it, and a value of its serde, ")
    assert f"observed {observed}" in said
    assert said.endswith("Correct it. Values before it that are written: 0.")


def test_several_fields_make_a_key_of_json_alone(pipeline: Pipeline) -> None:
    with pytest.raises(
        Refused, match=r"--key-field page site: expected one field for a key of numbers: String, observed 2"
    ):
        write_given(declared(String(), PAGES), brokers(Producer()), [], key=KeyInText(["page", "site"]))
