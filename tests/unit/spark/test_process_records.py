"""Python classes without a store, on Arrow batches in memory: what they forward, and why a record is rejected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest
from streamplan.model.functions import STOP, PythonFunction
from streamplan.model.operations import ProcessToAct, ProcessWithoutStores
from streamplan.model.processor import Processor, ProcessorContext, Record
from streamplan.serdes.primitive import STRING, KeySerde, Long
from streamplan.spark.headers import headers_as_text, headers_from_text
from streamplan.spark.planning.process_records import processed_batches

BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORD = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.string()),
        ("reason", pa.string()),
    ]
)


class Given(NamedTuple):
    """A record. ``text`` is the value; None for a null value."""

    text: str | None
    key: bytes | None = b"k"
    headers: Sequence[tuple[str, bytes | None]] = ()
    reason: str | None = None
    partition: int = 0


class Made(NamedTuple):
    """A record that was forwarded."""

    text: str | None
    key: bytes | None
    at: int
    headers: list[Any]
    place: int
    offset: int
    child: str | None = None


class Copies(Processor):
    """Forwards what the text of a record says."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> Iterator[dict[str, Any] | None]:
        forward = self.context.forward
        if record.value is None:
            forward(None)
            return
        match record.value.text:
            case "all":
                later = record.timestamp + timedelta(seconds=1)
                forward({"text": "one"}, key="other", timestamp=later, headers=[("n", b"1"), ("none", None)])
                forward({"text": "two"}, key=None, headers=[])
                yield {"text": "three"}
                yield None
            case "wrong":
                forward({"text": 1})
            case "wrong key":
                forward({"text": ""}, key=5)
            case "before time":
                forward({"text": ""}, timestamp=datetime(1969, 1, 1, tzinfo=UTC))
            case "late failure":
                yield {"text": "gone"}
                raise ValueError("no good")
            case "task":
                yield {"text": self.context.task_id}
            case "stream time":
                self.context.current_stream_time()
            case "store":
                self.context.get_state_store("seen")
            case "child":
                forward({"text": "large"}, child="large")
                yield {"text": "all"}
            case "no child":
                forward({"text": ""}, child="lage")
            case "record":
                yield {"text": f"{record.topic} {record.partition} {record.offset} {record.key} {record.timestamp}"}


def run(
    *given: Given, processor: type[Processor] = Copies, key_serde: KeySerde = STRING, **options: Any
) -> tuple[list[Made], dict[int, str]]:
    """What is forwarded of one batch; and by the offset the reason of each record that is rejected."""
    of_class = {name: options.pop(name) for name in ("on_error",) if name in options}
    function = PythonFunction("app.Copies", processor, **of_class)
    kind = options.pop("kind", ProcessWithoutStores)
    fields = () if kind is ProcessToAct else (("text", "string"),)
    operation = kind(function, fields, key_serde, **options)
    records = [
        {
            "topic": "t",
            "partition": each.partition,
            "offset": offset,
            "timestamp": AT,
            "headers": headers_as_text(each.headers),
            "reason": each.reason,
        }
        for offset, each in enumerate(given)
    ]
    columns = {
        "text": pa.array([each.text for each in given], pa.string()),
        "record": pa.array(records, RECORD),
        "_key": pa.array([each.key for each in given], pa.binary()),
        "_has_value": pa.array([each.text is not None for each in given], pa.bool_()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    rows = [
        row
        for made in processed_batches(operation, STRING, 3, ("large", "out"))(iter([batch]))
        for row in made.to_pylist()
    ]
    reasons = {row["record"]["offset"]: row["record"]["reason"] for row in rows if row["record"]["reason"]}
    made = [
        Made(
            row["text"] if row["_has_value"] else None,
            row["_key"],
            row["_at"] - BEGIN,
            headers_from_text(row["_headers"]),
            row["_position"],
            row["record"]["offset"],
            row["_child"],
        )
        for row in rows
        if not row["record"]["reason"]
    ]
    return made, reasons


def test_a_class_forwards_records_with_any_key_time_and_headers() -> None:
    made, reasons = run(Given("none"), Given("all", headers=[("h", b"x")]))
    assert reasons == {}
    assert made == [
        Made("one", b"other", 1000, [("n", b"1"), ("none", None)], 0, 1),
        Made("two", None, 0, [], 1, 1),
        Made("three", b"k", 0, [("h", b"x")], 2, 1),
        Made(None, b"k", 0, [("h", b"x")], 3, 1),
    ]


class Opened(Copies):
    """Tells what ``init`` and ``close`` did."""

    open: ClassVar[list[str]] = []

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.open.append(context.task_id)

    def process(self, record: Record) -> Iterator[dict[str, Any] | None]:
        yield {"text": f"{record.partition} of {len(self.open)}"}
        if record.value is None:
            raise KeyboardInterrupt

    def close(self) -> None:
        self.open.remove(self.context.task_id)


def test_close_is_called_behind_the_last_record_and_after_a_failure() -> None:
    made, _ = run(Given("a"), Given("b", partition=1), processor=Opened)
    assert [each.text for each in made] == ["0 of 1", "1 of 2"]
    assert not Opened.open
    with pytest.raises(KeyboardInterrupt):
        run(Given("a", partition=1), Given(None), processor=Opened)
    assert not Opened.open


def test_a_record_without_a_key_or_a_value_reaches_the_class() -> None:
    assert run(Given(None), Given("record", key=None)) == (
        [
            Made(None, b"k", 0, [], 0, 0),
            Made("t 0 1 None 2026-01-01 12:00:00+00:00", None, 0, [], 0, 1),
        ],
        {},
    )


def test_a_failed_call_forwards_nothing_and_its_record_is_rejected() -> None:
    texts = ("late failure", "wrong", "wrong key", "before time", "stream time", "store")
    made, reasons = run(*map(Given, texts), Given("task"))
    assert [each.text for each in made] == ["3_0"]
    told = dict(zip(texts, (reasons[n] for n in range(len(texts))), strict=True))
    assert "app.Copies.process raised ValueError in line" in told["late failure"]
    assert "forward: a text of another type than its schema: 1" in told["wrong"]
    assert "5 is no text" in told["wrong key"]
    assert "forward: " in told["before time"]
    assert "does not know the stream time" in told["stream time"]
    assert "the processor has no store 'seen'; it has none" in told["store"]


def test_a_key_that_is_not_one_of_its_serde_rejects_the_record() -> None:
    made, reasons = run(Given("all", key=b"\xff"))
    assert made == []
    assert "cannot be called: the key is not UTF-8" in reasons[0]


def test_a_rejected_record_passes_and_is_not_given_to_the_class() -> None:
    assert run(Given("all", reason="read wrong"), Given("task")) == (
        [Made("3_0", b"k", 0, [], 0, 1)],
        {0: "read wrong"},
    )


def test_each_stream_task_has_an_object_of_its_own() -> None:
    class Remembering(Copies):
        """Against the rules, a class may remember what its object has seen."""

        def init(self, context: ProcessorContext) -> None:
            self.context, self.seen = context, 0

        def process(self, record: Record) -> Iterator[dict[str, Any] | None]:
            self.seen += 1
            yield {"text": f"{self.context.task_id} {self.seen}"}

    made, _ = run(*(Given("", partition=partition) for partition in (0, 1, 0)), processor=Remembering)
    assert [each.text for each in made] == ["3_0 1", "3_1 1", "3_0 2"]


def test_a_class_that_is_declared_so_stops_the_application() -> None:
    with pytest.raises(ValueError, match="no good"):
        run(Given("late failure"), on_error=STOP)


def test_a_class_of_process_values_forwards_no_other_key() -> None:
    _, reasons = run(Given("all"), keeps_key=True)
    assert "process_values keeps the key of the record" in reasons[0]


def test_keys_are_written_by_the_serde_of_the_declaration() -> None:
    class Numbered(Copies):
        def process(self, record: Record) -> Iterator[dict[str, Any] | None]:
            self.context.forward({"text": ""}, key=5)
            yield {"text": "the record has a key of text"}

    made, reasons = run(Given(""), processor=Numbered, key_serde=Long())
    assert made == []
    assert "'k' is no Long" in reasons[0]

    class Fives(Numbered):
        def process(self, record: Record) -> Iterator[dict[str, Any] | None]:
            self.context.forward({"text": ""}, key=5)
            yield from ()

    assert [each.key for each in run(Given(""), processor=Fives, key_serde=Long())[0]] == [(5).to_bytes(8, "big")]


def test_a_class_without_a_schema_forwards_not_even_a_null_value() -> None:
    _, reasons = run(Given(None), kind=ProcessToAct)
    assert "the declaration of the processor has no schema of what it forwards" in reasons[0]


def test_a_record_may_be_for_one_child_alone() -> None:
    made, reasons = run(Given("child"), Given("no child"))
    assert [(each.text, each.child) for each in made] == [("large", "large"), ("all", None)]
    expected = "the processor has no child 'lage'; its children are 'large', 'out'. Did you mean 'large'?"
    assert expected in reasons[1]
