"""The driver writes for its workers: whoever fails or dies, the others go on, and a worker learns why."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.model.generation import Generation
from streamplan.serdes.json import Json
from streamplan.spark.sink import owner as owners
from streamplan.spark.sink.handed_on import HandedOnCounts
from streamplan.spark.sink.owner import OwnedTransaction, TaskOwner
from streamplan.spark.sink.spec import Output, PartitionBy, TransactionSpec
from streamplan.spark.sink.writers import RekeyedRecords, TaskProgress

from tests.unit.spark.sink.test_handed_on import source

OUTPUT = Output("by-kind", PartitionBy.KEY, 1)


class FakeTaskTransaction:
    """What the brokers are told of each stream task."""

    written: ClassVar[dict[str, list[Any]]]
    error: ClassVar[Exception | None]

    def __init__(self, spec: TransactionSpec, partition: int, kept: object) -> None:
        self.positions = {"orders": 0}
        self.already_committed = False
        self.of_task = self.written.setdefault(str(spec.task(partition)), [])

    def produce(self, output: Output, keys: list[bytes], *more: Any) -> None:
        if self.error is not None:
            raise self.error
        self.of_task += keys

    def dead_letter(self, letter: Any) -> None:
        self.of_task.append(letter.reason)

    def commit(self) -> None:
        self.of_task.append("committed")

    def __enter__(self) -> FakeTaskTransaction:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskOwner]:
    monkeypatch.setattr(owners, "TaskTransaction", FakeTaskTransaction)
    FakeTaskTransaction.written, FakeTaskTransaction.error = {}, None
    with TaskOwner() as made:
        yield made


def spec(subtopology: int, batch: int) -> TransactionSpec:
    return TransactionSpec(
        brokers=Brokers("nowhere:1"),
        application_id="app",
        generation=Generation.of_this_process(None),
        transaction_timeout_ms=10_000,
        subtopology=subtopology,
        ranges={("orders", 0): (0, 10)},
        outputs=(OUTPUT,),
        dead_letter_topic="app-dead-letter",
        dead_letter_partitions=1,
        batch=batch,
    )


def write(owner: TaskOwner, wanted: TransactionSpec, keys: list[bytes]) -> None:
    with OwnedTransaction(wanted, 0, owner.address) as transaction:
        for key in keys:
            transaction.produce(OUTPUT, [key], [key], [1], [None], len(key))
        transaction.commit()


def test_a_part_of_which_nothing_is_passed_on_is_committed(owner: TaskOwner) -> None:
    owner.specs[0] = spec(0, 7)
    with OwnedTransaction(spec(0, 7), 0, owner.address) as transaction:
        task = TaskProgress(transaction, HandedOnCounts(1))
        RekeyedRecords("orders", Json("kind int"), "kind").write(source([b"no JSON"]), task)
        transaction.commit()
    assert FakeTaskTransaction.written["0_0"][1:] == ["committed"]
    assert "JSON" in FakeTaskTransaction.written["0_0"][0]


def test_each_sub_topology_has_a_micro_batch_of_its_own(owner: TaskOwner) -> None:
    owner.specs |= {0: spec(0, 7), 2: spec(2, 9)}
    write(owner, spec(0, 7), [b"a"])
    write(owner, spec(2, 9), [b"b"])
    assert FakeTaskTransaction.written == {"0_0": [b"a", "committed"], "2_0": [b"b", "committed"]}
    del owner.specs[2]
    for over in (spec(0, 6), spec(2, 9)):
        with pytest.raises(StreamplanError, match=f"micro-batch {over.batch} is over"):
            write(owner, over, [b"c"])


def test_a_worker_that_dies_at_once_keeps_nobody_else_away(owner: TaskOwner) -> None:
    owner.specs[0] = spec(0, 7)
    for _ in range(20):
        owners._connect_once(owner.address)
    write(owner, spec(0, 7), [b"a"])
    assert FakeTaskTransaction.written["0_0"] == [b"a", "committed"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused("a newer aggregator has taken over"), Refused),
        (KafkaException(KafkaError(KafkaError._FENCED, "a newer aggregator has taken over")), StreamplanError),
    ],
)
def test_a_worker_learns_why_the_driver_did_not_write(owner: TaskOwner, error: Exception, kind: type) -> None:
    owner.specs[0], FakeTaskTransaction.error = spec(0, 7), error
    with pytest.raises(kind, match="a newer aggregator has taken over"):
        write(owner, spec(0, 7), [b"a" * 1000] * 1000)


@pytest.mark.parametrize("length", [1, 20, 60, 110])
def test_a_long_directory_of_temporary_files_does_not_keep_it_from_its_socket(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a socket has at most 107 bytes, so no linked query started."""
    folder = tmp_path / ("x" * length)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with TaskOwner() as owner:
        address = owner.address
        assert Path(address).is_socket()
        assert Path(address).parent.stat().st_mode & 0o777 == 0o700
    assert not Path(address).parent.exists()


def test_it_ends_with_its_thread(owner: TaskOwner) -> None:
    assert owner.address
    owner.__exit__(None, None, None)
    assert not [each for each in threading.enumerate() if each.name == "owner of stream tasks"]
