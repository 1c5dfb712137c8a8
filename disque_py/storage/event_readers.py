"""Event readers: give the events of a log to readers, as lines.

Readers ask for lines from an event's number on, and may wait for the next ones (EVENTS READ). They look for a moment
(SEEK), or have all new lines sent to them (TAIL). They get events that are durable, and no others
(persistence/event_log.py).

The unit is a *piece*: consecutive blocks that a thread reads. A piece is made into lines once, and its text is kept for
a while, so ten readers at the same place cost one. A reply ends where the next piece is not in memory. So it may be
shorter than the request, and the next request goes on from there. A small piece is made into lines here. A large one
goes to the LineMaker, if there is one, which works beside the loop.

A reader that gives a name is remembered with the event that it asked for last: INFO shows its lag. Spec E6.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from disque_py.core.broker import Broker
from disque_py.core.client import Blocked, Client
from disque_py.core.errors import CommandError
from disque_py.core.event_lines import Lines
from disque_py.core.users import name_filter
from disque_py.core.visible_events import visible
from disque_py.log_lines import line
from disque_py.ports import LineMaker
from disque_py.resp.replies import bulk
from disque_py.storage.packed_events import REPLY_BYTES_MAX, read_packed
from persistence.disk import READING, Disk, Folder
from persistence.event_log import EventLog
from persistence.event_reading import Piece, read_piece, seek, segment_of
from persistence.event_records import decode_events

# Bytes of text that are kept for further readers.
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
# Pieces of more events than this are made into lines beside the loop.
EVENTS_HERE_MAX: Final = 200
# Named readers that are remembered; the one that asked least recently is forgotten first.
READERS_MAX: Final = 100

# The error when there is no log, or no log any more.
NO_LOG: Final = "NOLOG none"

# Gets the reply to a request, or its refusal.
Outcome = Callable[[bytes | CommandError], None]


class Text(NamedTuple):
    """The lines of events `seq` up to, not including, `end_seq`; `ends` is where each line ends."""

    seq: int
    end_seq: int
    data: bytes
    ends: array[int]


class Request:
    """A request for lines from event `seq` on.

    deadline_ms   until when it waits for the event; 0: for ever, -1: not at all
    is_packed     it asks for blocks, not lines (storage/packed_events.py)
    """

    __slots__ = ("bytes_max", "count", "deadline_ms", "done", "is_packed", "seq")

    def __init__(
        self, seq: int, count: int, bytes_max: int, deadline_ms: int, done: Outcome, *, is_packed: bool = False
    ) -> None:
        self.seq = seq
        self.count = count
        self.bytes_max = bytes_max
        self.deadline_ms = deadline_ms
        self.done = done
        self.is_packed = is_packed


class Reader:
    """A reader with a name: the event it asked for last, and when."""

    __slots__ = ("asked_ms", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.asked_ms = 0


class EventReaders:
    """One log's readers.

    waiting      clients and their requests for events that are not durable yet
    readers      the named readers
    tails        clients of TAIL -> the event that each gets next
    lines_made   how many events were made into lines
    """

    def __init__(
        self,
        broker: Broker,
        log: EventLog,
        disk: Disk,
        begin: Callable[[], None],
        maker: LineMaker | None,
        notice: Callable[[str], None],
    ) -> None:
        self.log = log
        self.waiting: dict[Client, Request] = {}
        self.readers: dict[str, Reader] = {}
        self.tails: dict[Client, int] = {}
        self.lines_made = 0
        self.is_over = False
        self._broker = broker
        self._disk = disk
        self._begin = begin
        self._maker = maker
        self._notice = notice
        self._lines = Lines()
        # Kept texts by their first event; their first events sorted, and in the order in which the texts were made.
        self._texts: dict[int, Text] = {}
        self._starts: list[int] = []
        self._made: deque[int] = deque()
        self._kept_bytes = 0
        # First event wanted of a piece that is being read -> the requests that wait for it.
        self._fetching: dict[int, list[Request]] = {}

    # -- requests ----------------------------------------------------------------------------------

    def read(self, client: Client, argv: list[bytes], request: Request, name: str) -> None:
        """Run EVENTS READ. `request.done` gets the reply, perhaps before this returns."""
        if name:
            self._remember(name, request.seq)
        if request.deadline_ms >= 0 and request.seq >= self.log.durable_seq and not self.is_over:
            self.waiting[client] = request
            client.blocked = Blocked(argv, partial(self._refuse, client))
        else:
            self._serve(request)

    def _serve(self, request: Request) -> None:
        log = self.log
        if self.is_over:
            request.done(CommandError(NO_LOG))
        elif request.seq < log.first_seq:
            request.done(CommandError(f"TRIMMED {log.first_seq}"))
        elif request.seq >= log.durable_seq:
            request.done(bulk(b""))
        elif request.is_packed:
            self._send_packed(request)
        else:
            text = self._text_with(request.seq)
            if text is not None:
                request.done(bulk(self._lines_for(request, text)))
            else:
                self._fetch(request)

    @property
    def is_awaited(self) -> bool:
        """Return whether a request or a tail waits for events that have become readable."""
        if not (self.waiting or self.tails):
            return False
        durable_seq = self.log.durable_seq
        return any(each.seq < durable_seq for each in self.waiting.values()) or any(
            0 <= seq < durable_seq for seq in self.tails.values()
        )

    def advance(self) -> None:
        """Serve the requests and tails whose events have become readable."""
        if self.waiting:
            durable_seq = self.log.durable_seq
            self._end_waits([client for client, each in self.waiting.items() if each.seq < durable_seq])
        if self.tails:
            self._feed_tails()

    def tick(self) -> None:
        """Answer requests whose deadline has passed: the reply is empty."""
        now_ms = self._broker.now_ms
        self._end_waits([client for client, each in self.waiting.items() if 0 < each.deadline_ms <= now_ms])

    def next_ms(self) -> int | None:
        """Return the first deadline; None without one."""
        if not self.waiting:
            return None
        return min((each.deadline_ms for each in self.waiting.values() if each.deadline_ms), default=None)

    def end(self) -> None:
        """Refuse all waiting requests, because this log is closed."""
        self.is_over = True
        self._end_waits(list(self.waiting))

    def forget(self, client: Client) -> None:
        """Drop what a client waits for, because its connection is gone, or its stream has ended."""
        self.waiting.pop(client, None)
        self.tails.pop(client, None)

    def _end_waits(self, clients: list[Client]) -> None:
        """Serve these clients' requests as the log is now. Events may have to be read first, which ends soon."""
        for client in clients:
            request = self.waiting.pop(client)
            client.blocked = None
            self._serve(request)

    def _refuse(self, client: Client, text: str) -> None:
        """End the wait of a client with an error."""
        self.waiting.pop(client).done(CommandError(text))

    def _remember(self, name: str, seq: int) -> None:
        reader = self.readers.get(name)
        if reader is None:
            if len(self.readers) >= READERS_MAX:
                del self.readers[min(self.readers, key=lambda known: self.readers[known].asked_ms)]
            reader = self.readers[name] = Reader()
        reader.seq = seq
        reader.asked_ms = self._broker.now_ms

    # -- pieces ------------------------------------------------------------------------------------

    def _text_with(self, seq: int) -> Text | None:
        at = bisect_right(self._starts, seq) - 1
        if at < 0:
            return None
        text = self._texts[self._starts[at]]
        return text if seq < text.end_seq else None

    def _lines_for(self, request: Request, text: Text) -> bytes:
        """Return the request's lines out of this text and the kept texts that follow it."""
        seq, count, room = request.seq, request.count, request.bytes_max
        parts: list[bytes] = []
        following: Text | None = text
        while following is not None:
            part, taken = cut(following, seq, count, room, at_least=0 if parts else 1)
            parts.append(part)
            seq += taken
            count -= taken
            room -= len(part)
            following = self._text_with(seq) if seq == following.end_seq and count > 0 and room > 0 else None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fetch(self, request: Request) -> None:
        """Read the piece with this event."""
        seq = request.seq
        others = self._fetching.get(seq)
        if others is not None:
            others.append(request)
            return
        self._fetching[seq] = [request]
        segment = segment_of(self.log.segments, seq)
        end = segment.durable_end

        def done(outcome: Piece | OSError) -> None:
            self._begin()
            if isinstance(outcome, OSError):
                self._damaged(seq, outcome)
            else:
                self._make(seq, outcome)

        self._disk.start(READING, lambda folder: read_piece(folder, segment, seq, end), done)

    def _send_packed(self, request: Request) -> None:
        """Send blocks as they are on disk. They are read for this request alone, since that costs little."""
        log = self.log
        seq = request.seq
        segment = segment_of(log.segments, seq)
        end = segment.durable_end
        later = [each.first_seq for each in log.segments if each.first_seq > seq]
        end_seq = min(seq + request.count, log.durable_seq, *later)
        bytes_max = min(request.bytes_max, REPLY_BYTES_MAX)

        def done(outcome: bytes | OSError) -> None:
            self._begin()
            if isinstance(outcome, OSError):
                request.done(self._refusal(seq, outcome))
            else:
                request.done(bulk(outcome))

        self._disk.start(READING, lambda folder: read_packed(folder, segment, seq, end, end_seq, bytes_max), done)

    def _make(self, seq: int, piece: Piece) -> None:
        """Make lines of the piece, here or with the maker."""
        maker = self._maker
        if maker is not None and piece.end_seq - piece.seq > EVENTS_HERE_MAX:

            def made(result: tuple[bytes, bytes] | None) -> None:
                self._begin()
                if result is None:  # The maker has ended.
                    self._keep(seq, self._text_of(piece))
                else:
                    ends = array("I")
                    ends.frombytes(result[1])
                    self._keep(seq, Text(piece.seq, piece.end_seq, result[0], ends))

            maker.make([(block.seq, block.wall_ms, block.payload) for block in piece.blocks], made)
        else:
            self._keep(seq, self._text_of(piece))

    def _text_of(self, piece: Piece) -> Text:
        data, ends = text_of(self._lines, [(block.seq, block.wall_ms, block.payload) for block in piece.blocks])
        return Text(piece.seq, piece.end_seq, data, ends)

    def _keep(self, seq: int, text: Text) -> None:
        """Keep the text, and answer the requests that wait for it."""
        self.lines_made += text.end_seq - text.seq
        if text.seq not in self._texts:
            at = bisect_left(self._starts, text.seq)
            self._starts.insert(at, text.seq)
            self._texts[text.seq] = text
            self._made.append(text.seq)
            self._kept_bytes += len(text.data)
        elif text.end_seq > self._texts[text.seq].end_seq:
            self._kept_bytes += len(text.data) - len(self._texts[text.seq].data)
            self._texts[text.seq] = text
        for request in self._fetching.pop(seq, []):
            request.done(bulk(self._lines_for(request, text)))
        while self._kept_bytes > KEPT_BYTES_MAX and len(self._made) > 1:
            oldest = self._made.popleft()
            self._kept_bytes -= len(self._texts.pop(oldest).data)
            self._starts.remove(oldest)

    def _damaged(self, seq: int, error: OSError) -> None:
        """Refuse the requests for a piece that can't be read."""
        refusal = self._refusal(seq, error)
        for request in self._fetching.pop(seq, []):
            request.done(refusal)

    def _refusal(self, seq: int, error: OSError) -> CommandError:
        """Return the refusal for unreadable events. They count as trimmed, so it says where the reader can go on."""
        log = self.log
        later = [segment.first_seq for segment in log.segments if segment.first_seq > seq]
        if seq >= log.first_seq:
            self._notice(line("events-not-read", reason=error.strerror or str(error)))
        return CommandError(f"TRIMMED {later[0] if later else log.durable_seq}")

    # -- moments -----------------------------------------------------------------------------------

    def seek(self, wall_ms: int, done: Outcome) -> None:
        """Run EVENTS SEEK: find the first event that is not older than this, or the next number if all are older."""
        log = self.log
        segments = list(log.segments)
        ends = [segment.durable_end for segment in segments]
        durable_seq = log.durable_seq
        # Before the first segment that begins at or after the moment; clocks may be set back.
        first = next((at for at, segment in enumerate(segments) if segment.first_ms >= wall_ms), len(segments))

        def work(folder: Folder) -> int:
            for at in range(max(0, first - 1), len(segments)):
                found = seek(folder, segments[at], wall_ms, ends[at])
                if found is not None:
                    return found
            return durable_seq

        def answered(outcome: int | OSError) -> None:
            self._begin()
            if isinstance(outcome, OSError):
                done(CommandError(f"ERR the log of events can't be read: {outcome.strerror or outcome}"))
            else:
                done(b":%d\r\n" % min(outcome, durable_seq))

        self._disk.start(READING, work, answered)

    # -- tails -------------------------------------------------------------------------------------

    def tail(self, client: Client) -> None:
        """Run EVENTS TAIL: send all lines that become readable from now on."""
        self.tails[client] = self.log.durable_seq

    def _feed_tails(self) -> None:
        for client, seq in list(self.tails.items()):
            if self._broker.clients.get(client.id) is not client or not client.is_tail:
                del self.tails[client]
            elif 0 <= seq < self.log.durable_seq:
                self.tails[client] = -1  # Its lines are being made.
                self._serve(Request(seq, 1 << 30, 1 << 30, -1, partial(self._fed, client, seq)))

    def _fed(self, client: Client, seq: int, reply: bytes | CommandError) -> None:
        if client not in self.tails or self._broker.clients.get(client.id) is not client:
            self.tails.pop(client, None)
            return
        if isinstance(reply, CommandError):
            self.tails[client] = self.log.durable_seq
            return
        if self.is_over:
            return
        self.tails[client] = seq + reply.count(b"\n") - 2  # Two line ends belong to the protocol.
        self._send_lines(client, reply)
        if self.tails[client] < self.log.durable_seq:
            self._feed_tails()

    def _send_lines(self, client: Client, reply: bytes) -> None:
        """Send a tail the lines that its user may see (spec US6)."""
        may_name = name_filter(client)
        if may_name is not None:
            lines = visible(reply[reply.index(b"\n") + 1 : -2], may_name, says_end=False)
            if not lines:
                return
            reply = bulk(lines)
        client.reply(reply)
        self._broker.outbox.clients[client] = None


def text_of(lines: Lines, blocks: list[tuple[int, int, bytes]]) -> tuple[bytes, array[int]]:
    """Return the lines of blocks (first event, wall clock ms, packed events), and where each line ends."""
    made: list[str] = []
    for seq, wall_ms, payload in blocks:
        made += lines.of(seq, wall_ms, decode_events(payload))
    return "".join(made).encode("ascii"), array("I", accumulate(map(len, made)))


def cut(text: Text, seq: int, count: int, bytes_max: int, *, at_least: int = 1) -> tuple[bytes, int]:
    """Return lines from event `seq` on, and their number.

    They are at most `count` lines and `bytes_max` bytes, but at least `at_least` lines.
    """
    ends = text.ends
    first = seq - text.seq
    start = ends[first - 1] if first else 0
    last = min(len(ends), first + count, max(first + at_least, bisect_right(ends, start + bytes_max)))
    if not first and last == len(ends):
        return text.data, last
    return text.data[start : ends[last - 1] if last else 0], last - first
