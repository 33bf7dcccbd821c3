"""What the stream tasks write in a test: records in memory, chosen and made as the ones that go to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from streamplan.errors import StreamplanError
from streamplan.kafka_types import Header, Headers
from streamplan.model.partitioner import partition_for_key
from streamplan.spark.sink.spec import DEAD_LETTER, Output, TransactionSpec
from streamplan.spark.sink.transaction import TaskOutput

if TYPE_CHECKING:
    from confluent_kafka import Producer


class WrittenRecord(NamedTuple):
    """A record that a stream task has written.

    ``output``     the number of the output among those of the sub-topology, or :data:`DEAD_LETTER`
    ``timestamp``  in ms; 0 stands for the time of writing
    """

    output: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class MemoryOutput(TaskOutput):
    """The output of one stream task, which keeps the records when it is committed.

    Args:
        spec: Where the stream task reads and writes.
        partition: The ``p`` of the task.
        written: Gets the records.
    """

    def __init__(self, spec: TransactionSpec, partition: int, written: list[WrittenRecord]) -> None:
        super().__init__(spec, partition)
        self.positions = {topic: first for topic, (first, _) in self.ranges.items()}
        self._written = written
        self._memory = _MemoryProducer(spec.outputs)
        self._write_to(cast("Producer", self._memory))

    def produce(
        self,
        output: Output,
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        timestamps: Iterable[int],
        headers: Iterable[list[Header] | None],
        size: int,
    ) -> None:
        """Keep records for an output, see :meth:`TaskOutput.produce`."""
        # Two outputs can be equal: two sinks of one topic.
        self._memory.output = next(number for number, one in enumerate(self.spec.outputs) if one is output)
        super().produce(output, keys, values, timestamps, headers, size)
        self._memory.output = DEAD_LETTER

    @property
    def old(self) -> bool:
        """Nothing is committed in parts."""
        return False

    def require_complete_input(self, topic: str, next_offset: int) -> None:
        """Each offset of a micro-batch in memory has a record, see :meth:`TaskOutput.require_complete_input`."""
        _, until = self.ranges[topic]
        if next_offset < until:
            raise StreamplanError(
                f"task {self.spec.task(self.partition)}: its input ended early",
                expected=f"all records of {topic}-{self.partition} below offset {until}",
                observed=f"those below {next_offset}",
            )

    def commit_part(self, positions: Mapping[str, int]) -> None:
        """Note how far it is; :attr:`old` asks for no parts."""
        self.positions |= positions

    def commit(self) -> None:
        """Hand the records over."""
        self._written += self._memory.records
        self._memory.records.clear()
        self.positions = {topic: until for topic, (_, until) in self.ranges.items()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.records.clear()


class _MemoryProducer:
    """Takes records as librdkafka's producer does, and chooses the same partitions.

    ``output``  the number of the output whose records come
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.output = DEAD_LETTER
        self.records: list[WrittenRecord] = []
        self._partitions = {output.topic: output.partitions for output in outputs}

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: list[Header] | None = None,
    ) -> None:
        if partition < 0:  # a record without a key goes to any partition
            partition = 0 if key is None else partition_for_key(key, self._partitions[topic])
        record = WrittenRecord(self.output, topic, partition, key, value, timestamp, tuple(headers or ()))
        self.records.append(record)

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return 0
