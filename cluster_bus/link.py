"""A link: one connection between two nodes, either end of it, as a protocol of asyncio.

A link begins with the handshake (handshake.py), under a time limit and a small size limit. Its owner, the Bus, gets
frames only after it. From then on the dialing end only writes frames, and the accepting end only reads them, because
a node sends all its messages on the link that it dialed.

Three things are bounded (spec Q34): a frame's declared length (codec.py), the bytes that one callback decodes before
other links get their turn, and the unsent bytes. Without the last bound, a stalled node would use up our memory. Any
fault closes the link, and the owner gets the reason. The owner decides which peer is welcome, and when to redial.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, Protocol, cast

from cluster_bus.codec import FRAME_BYTES_MAX, HANDSHAKE_VERSION, Decoder, FrameError, Run
from cluster_bus.handshake import DIALER, HANDSHAKE_BYTES_MAX, Handshake, Hello
from cluster_bus.messages import FIRST_JOB_KIND
from cluster_bus.node import FORGOTTEN, UNKNOWN, Node

HANDSHAKE_SECONDS: Final = 5.0
# One pass decodes this much before the loop turns to other links and clients: a few milliseconds.
PUMP_BYTES: Final = 128 << 10
# After a read this short the socket is empty, so no more bytes of this link come in the same pass.
SHORT_READ_BYTES: Final = 16 << 10
UNSENT_BYTES_MAX: Final = 64 << 20


class LinkOwner(Protocol):
    """The owner that is told about a link: the Bus."""

    def link_opened(self, link: Link) -> None:
        """Take note that the connection is there and the handshake begins. The owner may drop the link."""

    def link_ready(self, link: Link) -> None:
        """Take note that the handshake is over; `link.peer` is the other end's Hello."""

    def link_frame(self, link: Link, runs: list[Run]) -> None:
        """Handle a frame that came on an accepted link; FrameError closes it."""

    def link_jobs(self, sender: Node, runs: list[Run]) -> None:
        """Handle a frame that has only job messages, and came from a known node; FrameError closes the link."""

    def link_lost(self, link: Link, reason: str, detail: str) -> None:
        """Take note that the link is closed. Not called after `drop`. `reason` is "" if the other end closed it."""


class Link:
    """One link. It has no base class, because compiled classes can't derive from asyncio's (connection.py).

    node        the node that we dialed, or that dialed us (None: a stranger)
    role        DIALER or ACCEPTOR: which end we are
    token       identity of the dialing attempt, for the owner
    peer        the other end's Hello, once the handshake is over
    is_open     connected and not given up
    peer_host, local_host   numeric addresses of the connection's ends
    """

    __slots__ = (
        "_burst_bytes",
        "_decoder",
        "_handshake",
        "_is_paused",
        "_loop",
        "_owner",
        "_timer",
        "_transport",
        "_unsent_bytes_max",
        "_why",
        "frame_bytes_max",
        "is_open",
        "local_host",
        "node",
        "peer",
        "peer_host",
        "role",
        "token",
    )

    def __init__(
        self,
        owner: LinkOwner,
        handshake: Handshake,
        node: Node | None = None,
        token: object = None,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
    ) -> None:
        self.node = node
        self.token = token
        self.role = handshake.role
        self.peer: Hello | None = None
        self.peer_host = ""
        self.local_host = ""
        self.is_open = False
        self.frame_bytes_max = frame_bytes_max
        self._owner: LinkOwner | None = owner
        self._handshake = handshake
        self._decoder = Decoder(HANDSHAKE_BYTES_MAX, (HANDSHAKE_VERSION, HANDSHAKE_VERSION))
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._unsent_bytes_max = unsent_bytes_max
        self._why = ("", "")
        self._burst_bytes = 0

    # -- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say HELLO."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer_host = _host(transport.get_extra_info("peername"))
        self.local_host = _host(transport.get_extra_info("sockname"))
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, self.refuse, "handshake time-out", "no proof in time")
        assert self._owner is not None
        self._owner.link_opened(self)
        if self.is_open:
            self._transport.write(self._handshake.first_frame())

    def data_received(self, data: bytes) -> None:
        """Buffer bytes and decode them. During a pause only buffer: the end of the pause decodes."""
        self._decoder.write(data)
        if self._is_paused:
            return
        if not self._burst_bytes:
            if len(data) < SHORT_READ_BYTES:
                self._pump()
                return
            self._loop.call_soon(self._end_burst)
        self._burst_bytes += len(data)
        if self._burst_bytes > PUMP_BYTES:
            self._pause()  # The loop may call us many times in one pass, before all others.
        else:
            self._pump()

    def _end_burst(self) -> None:
        self._burst_bytes = 0

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end of the connection."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        owner, self._owner = self._owner, None
        if owner is not None:
            reason, detail = self._why
            owner.link_lost(self, reason, detail or str(error or ""))

    def eof_received(self) -> bool:
        """Close the connection: a node that sends no more is gone."""
        return False

    def pause_writing(self) -> None:
        """Do nothing: `write` checks the unsent bytes."""

    def resume_writing(self) -> None:
        """Do nothing."""

    # -- reading ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Decode the buffered frames, but at most PUMP_BYTES before others get their turn."""
        decoder = self._decoder
        stop_at = decoder.buffered_bytes - PUMP_BYTES
        try:
            while self.is_open and (runs := decoder.next_frame()) is not None:
                self._on_frame(runs)
                if self.is_open and 0 < decoder.buffered_bytes <= stop_at:
                    self._pause()
                    return
        except FrameError as error:
            self.refuse(error.reason, error.detail)
        self._resume()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._loop.call_soon(self._pump)

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if self.is_open:
                self._transport.resume_reading()

    def _on_frame(self, runs: list[Run]) -> None:
        assert self._owner is not None
        if self.peer is not None:
            if self.role is DIALER:
                raise FrameError("unexpected frame", "answers come on the node's own link")
            node = self.node
            if node is not None and not node.flags & (FORGOTTEN | UNKNOWN) and _has_only_jobs(runs):
                self._owner.link_jobs(node, runs)  # Nearly every frame.
            else:
                self._owner.link_frame(self, runs)
            return
        assert self._transport is not None
        self._transport.write(self._handshake.receive(runs))
        if self._handshake.is_done:
            assert self._timer is not None
            self._timer.cancel()
            self.peer = self._handshake.peer
            self._decoder.versions = (self._handshake.version, self._handshake.version)
            self._decoder.bytes_max = self.frame_bytes_max
            self._owner.link_ready(self)

    def expect_frames(self, bytes_max: int) -> None:
        """Accept no frames longer than this from now on. It bounds the memory that an unfinished frame takes."""
        self.frame_bytes_max = self._decoder.bytes_max = bytes_max

    # -- writing and closing -----------------------------------------------------------------------------

    def write(self, frame: bytes) -> None:
        """Queue a frame. If too many bytes are unsent already, close the link instead: the node is stalled."""
        if not self.is_open or self._transport is None:
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes > self._unsent_bytes_max:
            self.refuse("too much unsent", f"{unsent_bytes} bytes")
        else:
            self._transport.write(frame)

    def refuse(self, reason: str, detail: str = "") -> None:
        """Close the link and tell the owner why."""
        if not self.is_open:
            return
        self.is_open = False
        self._why = (reason, detail)
        if self._transport is not None:
            if self.peer is None:
                self._transport.close()  # It flushes our own frames, so that the other end finds out as well.
            else:
                self._transport.abort()

    def drop(self) -> None:
        """Close the link without a report: the owner knows."""
        self._owner = None
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()


def _has_only_jobs(runs: list[Run]) -> bool:
    return all(run[0] >= FIRST_JOB_KIND for run in runs)


def _host(address: Any) -> str:
    """Return the numeric host of a socket address, "" if it has none. A scope id (`%eth0`) means nothing elsewhere."""
    return str(address[0]).partition("%")[0] if isinstance(address, tuple) and address else ""
