"""Followers: the events of all nodes, read as they come, for the counters of queues.

Each node has a thread that waits for the next events of its log and counts them (transitions.py). Reading begins at the
moment when the node becomes known, because the program that ran before has counted earlier events. If a connection
breaks, a new one is opened, and reading goes on at the same place. If a log has dropped events, they are missing in the
counters, and the program logs their number. If a node begins a new log, it is read from its first event. A log that was
cut (docs/events.md) is read from the moment of the last counted event on, since a counter counts no event twice.

A reader outlives every answer. It skips a block that can't be read. If an answer does not say where its events end, the
reader skips all events that the log has. Skipped events are counted (transitions.py).

The reader has a name, so that INFO of each node, and `disque_event_reader_lag_events`, show how far behind it is. A
node without a log, or of an older version, is asked again after RETRY_S seconds. Its jobs are missing in the counters
of queues.
"""

from __future__ import annotations

import logging
import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from disque_py.client import (
    Address,
    ClientOptions,
    DisqueError,
    EventsTrimmedError,
    NoEventLogError,
    ReplyError,
    commands,
)
from disque_py.client.events import events_info, events_seek
from disque_py.client.one_node import OneNode
from disque_py.event_format import BLOCK_HEAD, PACKED_MARK
from disque_py.gateway.metrics.transitions import Tally
from disque_py.gateway.metrics.watching import Watch, connected

BLOCK_MS: Final = 1_000
RETRY_S: Final = 5.0
# A reader that waited longer than this for its node also counts the events since it began to wait.
LATE_MS: Final = 2_000
# Events of one EVENTS READ.
COUNT: Final = 10_000
# The most characters of a name for READER, and the permitted characters.
READER_MAX: Final = 64
NO_READER_CHARS: Final = re.compile(r"[^A-Za-z0-9.\-_/]")

_log = logging.getLogger(__name__)


def reader_name(port: int) -> str:
    """Return the name of this program's readers. It is unique in a network, and the same after a restart."""
    host = NO_READER_CHARS.sub("-", socket.gethostname())
    return f"metrics-{host[: READER_MAX - 16]}-{port}"


class UnreadableError(Exception):
    """A reply, or a block of it, has no events that can be read. Its cause is the context.

    following   number of the event behind them; 0: the reply does not say it
    """

    def __init__(self, text: str, following: int = 0) -> None:
        super().__init__(text)
        self.following = following


def blocks_of(reply: bytes, seq: int) -> Iterator[tuple[int, int, Sequence[Any]]]:
    """Yield number of the next event, Unix milliseconds and the events of each block of a packed reply.

    Events before the requested one, `seq`, are left out. Raises UnreadableError for a reply, or a block, of another
    form.
    """
    if not isinstance(reply, bytes) or (reply and reply[:1] != PACKED_MARK):
        raise UnreadableError("the node packs events in an unknown format")
    at = len(PACKED_MARK)
    while at < len(reply):
        try:
            size, count, first, wall_ms = BLOCK_HEAD.unpack_from(reply, at)
        except struct.error:
            raise UnreadableError("the reply ends in the head of a block") from None
        at += BLOCK_HEAD.size
        following = first + count
        if following <= seq:
            raise UnreadableError(f"a block ends with event {following - 1}, before event {seq}")
        try:
            found = msgpack.unpackb(reply[at : at + size], use_list=False)
        except Exception as error:  # msgpack has several kinds, and so does the content.
            raise UnreadableError(f"a block can't be unpacked: {error}", following) from error
        if not isinstance(found, tuple) or len(found) != count:
            raise UnreadableError(f"a block has not the {count} events of its head", following)
        at += size
        yield following, wall_ms, found[max(0, seq - first) :]
        seq = following


class Follower:
    """The reader of one node's events.

    address   the node
    options   login, TLS and time limits
    reader    its name
    tally     takes the events
    """

    def __init__(self, address: Address, options: ClientOptions, reader: str, tally: Tally) -> None:
        self._address = address
        self._options = options
        self._reader = reader
        self._tally = tally
        self._closed = threading.Event()
        self._log_id = ""
        self._next = 0
        # The moment of the last counted event, by the node's clock; 0: none was counted.
        self._counted_ms = 0
        self._is_first = True
        self._has_logged = False
        self._began_ms = round(1000 * time.time())
        threading.Thread(target=self._run, name=f"events {address}", daemon=True).start()

    def close(self) -> None:
        """Stop the reader, within the time of one read."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with connected(self._address, self._options) as node:
                    while not self._closed.is_set():
                        self._read(node)
            except (DisqueError, OSError) as error:
                _log.debug("events of %s: %s", self._address, error)
                self._closed.wait(RETRY_S)
            except Exception as error:  # Another server at this address may send anything.
                self._log_once("%s sent an unexpected answer", error)
                self._closed.wait(RETRY_S)

    def _log_once(self, text: str, error: Exception) -> None:
        """Log the first fault of this reader."""
        if not self._has_logged:
            self._has_logged = True
            _log.error(text, self._address, exc_info=error)

    def _read(self, node: OneNode) -> None:
        if not self._log_id:
            self._begin(node)
        words = ("EVENTS", "READ", self._log_id, self._next, "COUNT", COUNT, "BLOCK", BLOCK_MS)
        request = commands.execute(*words, "READER", self._reader, "FORMAT", "PACKED", wait_ms=BLOCK_MS)
        try:
            reply = node.run(request)
        except EventsTrimmedError as error:
            count = error.first - self._next
            _log.warning("%s: %d events were not counted in metrics", self._address, count)
            self._tally.miss("trimmed", count)
            self._next = error.first
            return
        except NoEventLogError:
            self._log_id = ""
            raise
        except ReplyError as error:
            if error.code == "ERR":
                self._pass_cut(node)
            raise
        now_s = time.monotonic()
        try:
            for following, wall_ms, found in blocks_of(reply or b"", self._next):
                if self._closed.is_set():
                    return
                self._tally.count(wall_ms, found, now_s)
                self._next, self._counted_ms = following, wall_ms
        except UnreadableError as error:
            self._skip(node, error)

    def _pass_cut(self, node: OneNode) -> None:
        """Go on in a log that ends before the next event: the node runs on an older copy of its directory."""
        info = node.run(events_info())
        if info.log != self._log_id or info.next >= self._next:
            return
        _log.warning(
            "%s: the log of events was cut; it ends before event %d, and event %d was next. Events may be missing in "
            "metrics", self._address, info.next, self._next
        )  # fmt: skip
        self._next = node.run(events_seek(self._counted_ms + 1)) if self._counted_ms else info.next

    def _skip(self, node: OneNode, error: UnreadableError) -> None:
        """Go on behind events that can't be read: at the next block, or else at the end of the log, after a pause."""
        self._log_once("%s sent events that can't be read", error)
        following = error.following
        if not following:
            self._closed.wait(RETRY_S)
            info = node.run(events_info())
            following = max(self._next, info.next) if info.log == self._log_id else self._next
        self._tally.miss("unreadable", following - self._next, error)
        self._next = following

    def _begin(self, node: OneNode) -> None:
        """Choose the first event: the next one, or the first since this reader was made.

        The second choice depends on the node's clock, so it is used only if the node could not be reached immediately.
        """
        info = node.run(events_info())
        start = info.first
        if self._is_first:
            is_late = 1000 * time.time() - self._began_ms > LATE_MS
            start = node.run(events_seek(self._began_ms)) if is_late else info.next
        self._log_id, self._next, self._is_first = info.log, start, False


class Followers:
    """The readers of all watched nodes.

    options   login, TLS and time limits of connections
    reader    the name of the readers
    tally     takes the events
    """

    def __init__(self, options: ClientOptions, reader: str, tally: Tally) -> None:
        self._options = options
        self._reader = reader
        self.tally = tally
        self._lock = threading.Lock()
        self._followers: dict[Watch, Follower] = {}

    def follow(self, watches: Iterable[Watch]) -> None:
        """Read the events of these nodes, and of no others, from now on."""
        wanted = list(watches)
        with self._lock:
            for watch in [watch for watch in self._followers if watch not in wanted]:
                self._followers.pop(watch).close()
            for watch in wanted:
                if watch not in self._followers:
                    self._followers[watch] = Follower(watch.address, self._options, self._reader, self.tally)

    def close(self) -> None:
        """End all readers."""
        self.follow(())
