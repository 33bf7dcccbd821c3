"""The driver writes for Python workers of its machine, because it keeps the producers of stream tasks and they do not.

Spark gives a stream task to another worker in each micro-batch, so that a worker opens a producer for each transaction.
In a small micro-batch that takes longer than all the rest. A worker hands its records to the driver over a Unix socket.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Any

from streamplan.errors import StreamplanError
from streamplan.kafka.transactions import DEADLINE_SECONDS
from streamplan.kafka_types import Header
from streamplan.spark.sink.spec import Output, RejectedRecord, TransactionSpec
from streamplan.spark.sink.transaction import KeptProducers, TaskOutput, TaskTransaction, require_complete

_COMMIT = "commit"

_END_SECONDS = 10.0

_LONGEST_DIRECTORY = 80
"""In bytes. The address of a socket has at most 107, with the name of a directory in it and of the socket."""


def _connect_once(path: str) -> None:
    with suppress(OSError):
        Client(path, "AF_UNIX").close()


class TaskOwner:
    """Writes for workers, each stream task in a transaction of its own; a context manager.

    ``specs``  by sub-topology the one of the micro-batch that may be written
    ``kept``   the producers of this process
    """

    def __init__(self) -> None:
        self.specs: dict[int, TransactionSpec] = {}
        self.kept = KeptProducers()
        self._stack = ExitStack()
        self._ended = False

    def __enter__(self) -> TaskOwner:
        self._stack.enter_context(self.kept)
        return self

    @cached_property
    def address(self) -> str:
        """Where workers of this machine reach the owner: a socket in a directory of this user alone."""
        # A longer path is no address of a socket (unix(7)).
        is_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_DIRECTORY
        where = "/tmp" if is_long else None
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="streamplan-", dir=where))
        path = str(Path(directory) / "owner")
        listener = self._stack.enter_context(Listener(path, "AF_UNIX", backlog=64))
        accepting = threading.Thread(target=self._accept, args=(listener,), name="owner of stream tasks", daemon=True)
        accepting.start()
        self._stack.callback(accepting.join, _END_SECONDS)
        self._stack.callback(_connect_once, path)  # the thread waits in accept(), which a close does not end
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self.specs.clear()
        self._stack.close()

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except (OSError, EOFError):  # the worker was killed meanwhile
                if self._ended:
                    return
                continue
            if self._ended:
                connection.close()
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(EOFError, ConnectionError):  # the worker was killed, and its transaction is aborted
            try:
                self._write(connection)
            except (EOFError, ConnectionError):
                raise
            except Exception as error:  # noqa: BLE001 - the worker raises it
                known = error if isinstance(error, StreamplanError) else StreamplanError(f"the driver: {error}")
                connection.send(known)  # an exception of librdkafka cannot be sent

    def _write(self, connection: Connection) -> None:
        subtopology, batch, partition = connection.recv()
        spec = self.specs.get(subtopology)
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

    def __init__(self, spec: TransactionSpec, partition: int, address: str) -> None:
        super().__init__(spec, partition)
        self._connection = Client(address, "AF_UNIX")
        self._send((spec.subtopology, spec.batch, partition))
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
        self._send((output, *map(list, zip(*together, strict=True)), size))

    def dead_letter(self, rejected: RejectedRecord) -> None:
        """See :meth:`TaskOutput.dead_letter`."""
        self._send(rejected)

    def require_complete_input(self, topic: str, next_offset: int) -> None:
        """See :meth:`TaskOutput.require_complete_input`."""
        require_complete(self.spec, self.partition, topic, next_offset, self.ranges[topic][1])

    def commit_part(self, positions: Mapping[str, int]) -> None:
        """Not called: see :attr:`old`."""
        raise AssertionError("a small micro-batch is committed as a whole")

    def commit(self) -> None:
        """See :meth:`TaskOutput.commit`."""
        self._send(_COMMIT)
        self._answer()

    def _send(self, request: object) -> None:
        try:
            self._connection.send(request)
        except ConnectionError:
            self._answer()  # it says why the driver has ended the transaction
            raise

    def _answer(self) -> Any:
        seconds = self.spec.transaction_timeout_ms / 1000 + DEADLINE_SECONDS
        if not self._connection.poll(seconds):
            raise StreamplanError(
                f"task {self.spec.task(self.partition)}: the driver, which writes for it",
                expected=f"an answer within {seconds:g} s",
                observed="none",
                remedy="Nothing of this try is committed, and the next one reads it again.",
            )
        answer = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
