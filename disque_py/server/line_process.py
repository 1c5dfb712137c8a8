"""Line process: a child process that makes lines of events.

Making lines costs more than all other steps of an event's way. A thread for it would hold the interpreter for
milliseconds at a time. So a child process does it, on another core. It is started when a reader first asks for many
events. It is ended after IDLE_SECONDS without such a request, or with the node: it stops at the end of its input.

Requests and answers are frames: four bytes of length, then msgpack, one at a time. A child that dies or sends malformed
answers is given up. The waiting callers then make the lines themselves, and a new child is started after a while.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from disque_py.core.event_lines import Lines
from disque_py.log_lines import line
from disque_py.storage.event_readers import text_of

Blocks = list[tuple[int, int, bytes]]
Done = Callable[[tuple[bytes, bytes] | None], None]

# The folder of the packages, if they are not installed.
ROOT: Final = Path(__file__).resolve().parents[2]
LENGTH: Final = struct.Struct("<I")
IDLE_SECONDS: Final = 60.0
# Seconds before a new child is started after one that died.
RETRY_SECONDS: Final = 30.0
PROGRAM: Final = "from disque_py.server.line_process import main; main()"


class LineProcess(asyncio.SubprocessProtocol):
    """A LineMaker (ports.py) on a child process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Callable[[str, str], None]) -> None:
        self._loop = loop
        self._log = log
        self._transport: asyncio.SubprocessTransport | None = None
        self._starting: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[Blocks, Done]] = deque()
        self._asked: deque[Done] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._not_before_s = 0.0
        self._used_s = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False

    # -- LineMaker ---------------------------------------------------------------------------------

    def make(self, blocks: Blocks, done: Done) -> None:
        """Make lines in the child (ports.LineMaker)."""
        now_s = self._loop.time()
        self._used_s = now_s
        if self._transport is not None:
            self._ask(blocks, done)
        elif self._is_closed or now_s < self._not_before_s:
            done(None)
        else:
            self._waiting.append((blocks, done))
            if self._starting is None:
                self._starting = self._loop.create_task(self._start())

    def close(self) -> None:
        """End the child, because the node ends."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
        self._end()

    # -- the child ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        try:
            # A new session, so that Ctrl-C reaches the node only. -P, so that Python imports no file from the node's
            # directory.
            await self._loop.subprocess_exec(
                lambda: self,
                sys.executable,
                "-P",
                "-c",
                PROGRAM,
                stdin=-1,
                stdout=-1,
                stderr=None,
                close_fds=True,
                start_new_session=True,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
            )
        except OSError as error:
            self._give_up(f"can't be started: {error.strerror or error}")
        finally:
            self._starting = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to use the child, which has started."""
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._parts, self._size = [], 0
        waiting, self._waiting = self._waiting, deque()
        for blocks, done in waiting:
            self._ask(blocks, done)
        self._watch()

    def _watch(self) -> None:
        idle_s = self._loop.time() - self._used_s
        if idle_s >= IDLE_SECONDS and not self._asked:
            self._end()
        else:
            self._idle = self._loop.call_later(max(1.0, IDLE_SECONDS - idle_s), self._watch)

    def _ask(self, blocks: Blocks, done: Done) -> None:
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        packed: bytes = msgpack.packb(blocks)
        self._asked.append(done)
        cast(asyncio.WriteTransport, pipe).write(LENGTH.pack(len(packed)) + packed)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take part of an answer, or the end of one and the beginning of the next."""
        self._parts.append(data)
        self._size += len(data)
        while self._size >= LENGTH.size:
            if len(self._parts[0]) < LENGTH.size:
                self._parts = [b"".join(self._parts)]
            needed = LENGTH.size + LENGTH.unpack_from(self._parts[0])[0]
            if self._size < needed:
                return
            whole = b"".join(self._parts)
            self._parts = [whole[needed:]] if len(whole) > needed else []
            self._size = len(whole) - needed
            text, ends = msgpack.unpackb(memoryview(whole)[LENGTH.size : needed])
            if self._asked:
                self._asked.popleft()((text, ends))

    def process_exited(self) -> None:
        """Note that the child was ended, or died."""
        if self._transport is not None:
            self._give_up(f"ended with status {self._transport.get_returncode()}")

    def _give_up(self, why: str) -> None:
        self._not_before_s = self._loop.time() + RETRY_SECONDS
        if not self._is_closed:
            self._log("warning", line("event-lines-process", reason=why))
        self._end()

    def _end(self) -> None:
        """Close the child's input, which ends it. The waiting callers make their lines themselves."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        asked, self._asked = self._asked, deque()
        waiting, self._waiting = self._waiting, deque()
        for done in asked:
            done(None)
        for _, done in waiting:
            done(None)


def main() -> None:
    """Run the child: read frames and write answers, until the input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    lines = Lines()
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        blocks: Blocks = [tuple(block) for block in msgpack.unpackb(source.read(LENGTH.unpack(head)[0]))]
        text, ends = text_of(lines, blocks)
        packed: bytes = msgpack.packb((text, ends.tobytes()))
        sink.write(LENGTH.pack(len(packed)))
        sink.write(packed)
        sink.flush()
