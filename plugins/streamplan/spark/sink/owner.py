"""The driver writes for Python workers of its machine, because it keeps the producers of stream tasks and they do not.

Spark gives a stream task to another worker in each micro-batch, so that a worker opens a producer for each transaction.
In a small micro-batch that takes longer than all the rest. A worker hands its records to the driver over a Unix socket.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from streamplan.errors import StreamplanError
from streamplan.kafka_types import Header
from streamplan.spark.sink.spec import Output, RejectedRecord, TransactionSpec
from streamplan.spark.sink.transaction import KeptProducers, TaskOutput, TaskTransaction, require_complete

_Records: TypeAlias = tuple[Output, list[Any], list[Any], list[int], list[list[Header] | None], int]

_COMMIT = "commit"


@dataclass(frozen=True)
class OwnerAddress:
    """Where workers of this machine reach the owner. ``key`` lets nobody else in."""

    path: str
    key: bytes


class TaskOwner:
    """Writes for workers, each stream task in a transaction of its own; a context manager.

    ``spec``  of the micro-batch that may be written; None where none may
    ``kept``  the producers of this process
    """

    def __init__(self) -> None:
        self.spec: TransactionSpec | None = None
        self.kept = KeptProducers()
        self._stack = ExitStack()

    def __enter__(self) -> TaskOwner:
        self._stack.enter_context(self.kept)
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="streamplan-"))  # for this user alone
        self.address = OwnerAddress(str(Path(directory) / "owner"), secrets.token_bytes(16))
        self._listener = self._stack.enter_context(
            Listener(self.address.path, "AF_UNIX", backlog=64, authkey=self.address.key)
        )
        threading.Thread(target=self._accept, name="owner of stream tasks", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spec = None
        self._stack.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # it is closed
                return
            except (EOFError, Exception):  # noqa: BLE001 - whoever cannot say the key is no worker of ours
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(EOFError, ConnectionError):  # the worker was killed, and its transaction is aborted
            try:
                self._write(connection)
            except (EOFError, ConnectionError):
                raise
            except Exception as error:  # noqa: BLE001 - the worker raises it
                connection.send(error)

    def _write(self, connection: Connection) -> None:
        batch, partition = connection.recv()
        spec = self.spec
        if spec is None or spec.batch != batch:
            raise StreamplanError(f"micro-batch {batch} is over", remedy="The task was killed, and wrote nothing.")
        with TaskTransaction(spec, partition, self.kept) as transaction:
            connection.send(transaction.positions)
            while (request := connection.recv()) != _COMMIT:
                if isinstance(request, RejectedRecord):
                    transaction.dead_letter(request)
                else:
                    transaction.produce(*request)
            if not transaction.already_committed:
                transaction.commit()
        connection.send(None)


class OwnedTransaction(TaskOutput):
    """The transaction of a stream task that the driver holds, as its worker sees it; a context manager.

    Args:
        spec: Where the stream task reads and writes.
        partition: The ``p`` of the task.
        address: Of the driver.
    """

    def __init__(self, spec: TransactionSpec, partition: int, address: OwnerAddress) -> None:
        super().__init__(spec, partition)
        self._connection = Client(address.path, "AF_UNIX", authkey=address.key)
        self._connection.send((spec.batch, partition))
        self.positions = self._answer()

    @property
    def old(self) -> bool:
        """See :attr:`TaskOutput.old`. A small micro-batch is committed as a whole."""
        return False

    def produce(
        self,
        output: Output,
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        timestamps: Iterable[int],
        headers: Iterable[list[Header] | None],
        size: int,
    ) -> None:
        """See :meth:`TaskOutput.produce`."""
        together = [*zip(keys, values, timestamps, headers, strict=False)]
        self._connection.send((output, *map(list, zip(*together, strict=True)), size))

    def dead_letter(self, rejected: RejectedRecord) -> None:
        """See :meth:`TaskOutput.dead_letter`."""
        self._connection.send(rejected)

    def require_complete_input(self, topic: str, next_offset: int) -> None:
        """See :meth:`TaskOutput.require_complete_input`."""
        require_complete(self.spec, self.partition, topic, next_offset, self.ranges[topic][1])

    def commit_part(self, positions: Mapping[str, int]) -> None:
        """Not called: see :attr:`old`."""
        raise AssertionError("a small micro-batch is committed as a whole")

    def commit(self) -> None:
        """See :meth:`TaskOutput.commit`."""
        self._connection.send(_COMMIT)
        self._answer()

    def _answer(self) -> Any:
        answer = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
