"""A TCP proxy on loopback between the brokers and their clients: the network that the suite can cut."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum

LOOPBACK = "127.0.0.1"
START_SECONDS = 10.0
_CHUNK = 256 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: closing sends a reset."""


class Cut(StrEnum):
    BLACK_HOLE = "black hole"
    """Nothing arrives any more, and nobody is told; what was sent arrives when the cut ends."""
    RESET = "reset"
    """Connections are reset, new ones too."""


class Proxy:
    """Forwards ``port`` to ``target`` on loopback, in a thread of its own."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self._loop = asyncio.new_event_loop()
        self._cut: Cut | None = None
        self._open = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{port}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._call(self._listen())

    def cut(self, how: Cut) -> None:
        self._call(self._set(how))

    def heal(self) -> None:
        if self._thread.is_alive():
            self._call(self._set(None))

    def stop(self) -> None:
        if self._thread.is_alive():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_SECONDS)

    def _call(self, work: object) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]
        future.result(START_SECONDS)

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)

    async def _set(self, how: Cut | None) -> None:
        self._cut = how
        if how is Cut.BLACK_HOLE:
            self._open.clear()
        else:
            self._open.set()
        if how is Cut.RESET:
            for writer in list(self._writers):
                _reset(writer)

    async def _end(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            _reset(writer)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut is Cut.RESET:
            _reset(writer)
            return
        try:
            await self._open.wait()
            there, back = await asyncio.open_connection(LOOPBACK, self.target)
        except OSError:  # the broker is down: its clients are to see what they would see without us
            _reset(writer)
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._writers -= {writer, back}
            writer.close()
            back.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # either end may go away at any time
            while data := await reader.read(_CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
